"""Definitions of an account as one JSON document: exported, compared, imported (docs/definitions.md)."""
