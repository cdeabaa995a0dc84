"""Which partition of a queue takes a message, and where a receive looks, for queues of more than one.

    level     the partitions of one priority; an ordinary queue has one level
    send      standard: the partitions of a level in turn; FIFO: the group says where
    receive   the highest level that has something; within a level another partition first every time

A queue of one partition has no routes: what it needs is its partition, and nothing is decided.

FIFO: the open partitions of a queue are one set, which never grows; a change makes another set, and the old one is
closed in its logs (docs/decisions/0008). As long as a closed set holds messages only it is received from, so no group
overtakes itself. As long as its deduplication ids count it is asked for them before the open set takes a message.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from frontend.limits import EMPTY_PARTITION_BACKOFF_POLLS, FIFO_GENERATION_STEP
from frontend.metadata.records import PartitionRecord
from storage_nodes.protocol.spreading import partition_of_group


class PriorityLevel:
    """The partitions of one level, and which of them to ask first. Of this front end alone: nothing to agree on."""

    __slots__ = ("_backoff_until", "_sends", "_turn", "partitions")

    def __init__(self, partitions: Sequence[int]) -> None:
        assert partitions
        self.partitions = tuple(partitions)
        self._sends = itertools.count()
        self._turn = 0
        self._backoff_until = [0] * len(self.partitions)

    def next_for_send(self) -> int:
        """Standard queues promise no order, so sends go around: equal load, and no state to agree on."""
        return self.partitions[next(self._sends) % len(self.partitions)]

    def next_to_poll(self) -> int:
        """Another one every time, so that none is starved; but one that was found empty is left out for some turns."""
        self._turn += 1
        count = len(self.partitions)
        for step in range(count):
            index = (self._turn + step) % count
            if self._backoff_until[index] <= self._turn:
                return self.partitions[index]
        return self.partitions[self._turn % count]

    def record_poll(self, partition: int, *, empty: bool) -> None:
        index = self.partitions.index(partition)
        self._backoff_until[index] = self._turn + EMPTY_PARTITION_BACKOFF_POLLS if empty else 0


class FormerSet(NamedTuple):
    """Partitions of a FIFO queue that take nothing any more, but know what they took."""

    partitions: tuple[int, ...]
    per_group: bool


class Routes:
    """The partitions of one queue, as its record lists them."""

    __slots__ = ("_generations", "former", "open", "per_group", "receivable")

    def __init__(self, layout: Sequence[PartitionRecord]) -> None:
        opened = [one for one in layout if not one.closed]
        assert opened, "a queue always has partitions that take messages"
        # By level, the lowest first.
        by_level = [tuple(one.partition for one in opened if one.level == level) for level in _levels(opened)]
        self.open = tuple(PriorityLevel(partitions) for partitions in by_level)
        draining = [one for one in layout if one.closed and not one.drained]
        if draining:
            oldest = min(one.generation for one in draining)
            rest = [one.partition for one in draining if one.generation == oldest]
            self.receivable: tuple[PriorityLevel, ...] = (PriorityLevel(rest),)
        else:
            self.receivable = self.open[::-1]
        self._generations = {one.partition: one.generation for one in layout if one.generation}
        # FIFO: does a deduplication id count within its group in the open set?
        self.per_group = opened[0].per_group
        closed = [one for one in layout if one.closed]
        self.former = tuple(
            FormerSet(
                tuple(one.partition for one in closed if one.generation == generation),
                next(one.per_group for one in closed if one.generation == generation),
            )
            for generation in sorted({one.generation for one in closed}, reverse=True)
        )

    def for_group(self, group: bytes) -> int:
        """The partition that takes the next message of the group."""
        return partition_of_group(group, self.open[0].partitions)

    def for_level(self, level: int) -> int:
        """A level that was asked for, and is not there yet, is the highest there is."""
        return self.open[min(level, len(self.open) - 1)].next_for_send()

    def for_turn(self, level: int, turn: int) -> int:
        partitions = self.open[min(level, len(self.open) - 1)].partitions
        return partitions[turn % len(partitions)]

    def for_id(self, level: int, dedup_id: bytes) -> int:
        """Standard: the partition that knows whether this message was sent before."""
        return partition_of_group(dedup_id, self.open[min(level, len(self.open) - 1)].partitions)

    def sequence_base(self, partition: int) -> int:
        """Sequence numbers of a later set begin above all of the earlier ones."""
        return self._generations.get(partition, 0) * FIFO_GENERATION_STEP

    def receivable_partitions(self) -> list[int]:
        """Where a parked receive waits, the highest level first."""
        return [partition for level in self.receivable for partition in level.partitions]


def routes_of(partitions: Sequence[int], layout: Sequence[PartitionRecord]) -> Routes | None:
    """None: there is one partition, and there never was another."""
    if layout:
        return Routes(layout)
    if len(partitions) == 1:
        return None
    return Routes([PartitionRecord(partition) for partition in partitions])


def _levels(opened: Sequence[PartitionRecord]) -> range:
    return range(max(one.level for one in opened) + 1)
