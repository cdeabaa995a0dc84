"""REST: policies, groups, and what keys may do. One module a noun."""
