"""Accounts and their access keys."""
