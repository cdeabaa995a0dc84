"""Text in CSV files: what callers chose is never computed by a spreadsheet."""

from __future__ import annotations

# Some spreadsheets compute what begins with the wide forms, too.
_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def plain(text: str) -> str:
    """Names are customers' own: none of them is a formula."""
    return f"'{text}" if text.startswith(_FORMULA_BEGINNINGS) else text
