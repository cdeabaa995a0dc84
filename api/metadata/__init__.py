"""The metadata service: the data plane's only way to control-plane data. `python -m api.metadata`.

A cache in front of PostgreSQL, kept true by LISTEN; speaks the frames of the storage plane. Imports no Django: it must
stay small and start at once. Records, messages and the cache itself are `frontend/metadata`; design: docs/processes.md.
"""
