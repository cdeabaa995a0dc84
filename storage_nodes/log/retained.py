"""Which entries of a log a flush or a rewrite must keep: a question to the owner of the partition, asked in ranges."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable


def kept_ranges(
    bases: array[int],
    lengths: array[int],
    entries: int,
    disposable_end: int,
    live: Callable[[int, int], bool],
    run_bytes: int,
) -> list[tuple[int, int]]:
    """[first, last) of the first `entries` entries that must be kept: all beyond `disposable_end`, and those with live
    messages, asked for in ranges that are halved until they hold about `run_bytes`."""
    disposable = min(max(bisect_right(bases, disposable_end) - 1, 0), entries)
    run_entries = max(run_bytes * disposable // max(sum(lengths[:disposable]), 1), 1)
    kept: list[tuple[int, int]] = []
    ranges = [(0, disposable)] if disposable else []
    while ranges:
        first, last = ranges.pop()
        if not live(bases[first], bases[last] - 1):
            continue
        if last - first > run_entries:
            middle = (first + last) // 2
            ranges += ((middle, last), (first, middle))
        else:
            _extend(kept, first, last)
    if disposable < entries:
        _extend(kept, disposable, entries)
    return kept


def _extend(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Add a range behind the others, joined to the last one where they touch."""
    if ranges and ranges[-1][1] == first:
        first = ranges.pop()[0]
    ranges.append((first, last))
