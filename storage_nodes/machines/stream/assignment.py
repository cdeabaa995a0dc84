"""Who of a consumer group reads which partition: as even as can be, and with as few changes as that allows.

A pure function of the group, so every replica finds the same. With n partitions and m members everybody gets n // m or
one more. Each partition stays where it is unless its reader would have too many; the rest goes to whoever has least,
first come first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence


def assign(partitions: Iterable[int], members: Sequence[int], now: Mapping[int, int]) -> dict[int, int]:
    """partition -> member. `now` says who reads it, or is about to; members that are not named are gone."""
    wanted = list(partitions)
    if not members:
        return {}
    fair, spare = divmod(len(wanted), len(members))
    counts = dict.fromkeys(members, 0)
    found: dict[int, int] = {}
    for partition in wanted:
        member = now.get(partition, 0)
        count = counts.get(member)
        if count is None or count > fair or (count == fair and spare == 0):
            continue
        spare -= count == fair
        counts[member] = count + 1
        found[partition] = member
    least = [(count, place, member) for place, (member, count) in enumerate(counts.items())]
    heapq.heapify(least)
    for partition in wanted:
        if partition not in found:
            count, place, member = least[0]
            found[partition] = member
            heapq.heapreplace(least, (count + 1, place, member))
    return found
