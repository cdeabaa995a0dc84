"""The data plane's view of the control plane: records, the service interface, a versioned cache, the client.

Design: docs/processes.md, "Metadata". The database side of the service is `api/metadata`; the front end never
opens the database. Read `cache.py` for the rule that makes a cached answer safe, `client.py` for the connection.
"""
