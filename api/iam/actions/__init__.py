"""Every write to policies, and to who has them: one module a noun."""
