"""Who may connect to whom inside an installation, and what for (docs/inner_trust.md).

    names         what a certificate says: cluster, role, number
    credentials   the own certificate, its authority and its key, read from files and read again when they change
    connection    mutual TLS below the protocols of frames and of HTTP
    handshakes    those under way at one port
    port          that of a service which is no storage node
    permissions   which role may ask for what: one table
    refusals      what is logged and counted of those who are refused

Surface: other planes may import this package.
"""
