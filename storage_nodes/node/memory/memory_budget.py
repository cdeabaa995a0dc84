"""What a node holds in memory on behalf of others, in bytes: over all partitions and connections. Pure accounting.

Each kind has its share of the whole, and its own answer to a share that is used up (docs/backpressure.md):

    sends     gathered at leaders, not staged yet          more are refused, with a hint when to come again
    staged    in WAL groups that are not on the disk yet   appends of other leaders are dropped; Raft feeds again
    answers   waiting for clients that read slowly         their requests are not read; leases are given back
    links     waiting for peers that read slowly           leaders here do not feed those peers until it drains
    inbox     Raft messages that wait for their turn       as staged
    frames    begun by their senders, not whole yet        of such clients one is read at a time

The shares add up to the whole, so nothing here outgrows it by more than what one turn of the event loop brings.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from storage_nodes.limits import MEMORY_SHARES_PERCENT, NODE_MEMORY_BYTES_DEFAULT


class Kind(enum.IntEnum):
    SENDS = 0
    STAGED = 1
    ANSWERS = 2
    LINKS = 3
    INBOX = 4
    FRAMES = 5


class MemoryBudget:
    """One per node. Whoever holds bytes takes them here and gives them back; `watch` is for bytes counted elsewhere."""

    __slots__ = ("_counted", "_used", "bytes_max", "shares_bytes")

    def __init__(self, bytes_max: int = NODE_MEMORY_BYTES_DEFAULT) -> None:
        self.bytes_max = bytes_max
        self.shares_bytes = [bytes_max * MEMORY_SHARES_PERCENT[kind.name.lower()] // 100 for kind in Kind]
        self._used = [0] * len(Kind)
        self._counted: list[Callable[[], int] | None] = [None] * len(Kind)

    def watch(self, kind: Kind, count: Callable[[], int]) -> None:
        """Bytes of this kind are counted by somebody else, who is asked."""
        self._counted[kind] = count

    def take(self, kind: Kind, size_bytes: int) -> None:
        """Unconditional: who may be refused asks `free` first."""
        self._used[kind] += size_bytes

    def give(self, kind: Kind, size_bytes: int) -> None:
        self._used[kind] -= size_bytes
        assert self._used[kind] >= 0, "no more is given back than was taken"

    def used(self, kind: Kind) -> int:
        count = self._counted[kind]
        return self._used[kind] if count is None else count()

    def free(self, kind: Kind) -> int:
        return self.shares_bytes[kind] - self.used(kind)

    def may_hold(self, kind: Kind, held_bytes: int) -> bool:
        """May one who holds so much take more? Nobody may hold more than is still free for the others: so one alone
        gets half of the share, two a third each, and there is always room for whoever holds nothing."""
        # `free`, written out: it is asked for every send and every append.
        count = self._counted[kind]
        return held_bytes < self.shares_bytes[kind] - (self._used[kind] if count is None else count())

    def is_full(self, kind: Kind) -> bool:
        return self.used(kind) >= self.shares_bytes[kind]

    def percent_bytes(self, kind: Kind, percent: int) -> int:
        """The fewest bytes that fill so much of the share."""
        return -(-self.shares_bytes[kind] * percent // 100)

    @property
    def total(self) -> int:
        return sum(map(self.used, Kind))
