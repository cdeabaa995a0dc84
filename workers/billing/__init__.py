"""Billing on the schedule: drafts, closes, budgets. What is done with money is in `api/billing`."""
