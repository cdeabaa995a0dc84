"""Every write of billing but for usage itself. Lock order: account, its invoices, its budgets and stop."""
