"""Quotas: what accounts and the installation were given, requests for more, and why an account may not send.

Which quotas there are, their defaults and bounds: `frontend/limits/quotas.py`. The data plane enforces them; it hears
of them in the account's record (`api/metadata/store.py`). How to use them: docs/quotas.md.
"""
