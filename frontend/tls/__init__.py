"""TLS of the public port: the certificate and its reload, the connection, what is counted of it."""

from __future__ import annotations
