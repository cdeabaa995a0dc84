"""Encryption keys of customers: named keys of an account, their versions, who used them how often."""
