"""Idempotency keys of the management interface: docs/rest_management.md, docs/decisions/0038."""
