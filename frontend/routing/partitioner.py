"""Which partition of a queue takes a message, and where a receive looks first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_turn = itertools.count()


def choose_partition(partitions: Sequence[int]) -> int:
    """Standard queues promise no order, so sends go around: equal load, and no state to agree on."""
    if len(partitions) == 1:
        return partitions[0]
    return partitions[next(_turn) % len(partitions)]


def search_order(partitions: Sequence[int]) -> Sequence[int]:
    """All partitions, beginning with another one every time, so that none is starved."""
    if len(partitions) == 1:
        return partitions
    start = next(_turn) % len(partitions)
    return (*partitions[start:], *partitions[:start])
