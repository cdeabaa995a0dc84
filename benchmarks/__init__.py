"""Repeatable measurements: `./penstock bench [NAME]`. Each prints a table and JSON; none is a timed test."""
