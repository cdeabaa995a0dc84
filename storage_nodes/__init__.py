"""The storage plane: replicated, fsynced partition logs and the machines that run on them.

No Django, no HTTP, no database. Other planes may import `storage_nodes.protocol` and
`storage_nodes.client` only. Design page: docs/storage.md.
"""
