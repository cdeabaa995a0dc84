"""The pages, one module a noun."""
