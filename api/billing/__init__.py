"""Usage that is settled, price plans, invoices, budgets. Design: docs/billing.md.

`pricing/` is pure: quantities and terms in, lines out, integers only. `settling.py` takes the rollups in; `actions/`
are the only other writers; `selectors.py` reads, always as one account; `documents/` writes what customers get.
"""
