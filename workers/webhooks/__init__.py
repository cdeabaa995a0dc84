"""Calls of customers' webhooks, on the schedule. Rules: api/webhooks."""
