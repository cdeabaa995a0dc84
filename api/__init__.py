"""The control plane: accounts, keys and queues in PostgreSQL, the REST interface over them, and the metadata service.

Design: docs/processes.md. In each app: models, `actions.py` (the only writer), `selectors.py` (reads, always with the
account), serializers, views. `changes.py` is how the data plane hears of a change.
"""
