"""The partitions of a queue: which it has, which it is to have, and the next step from the one to the other. Pure.

    standard   partitions are added, for a level or for one more lane of each level; never taken away
    FIFO       the set of open partitions never grows: a change makes a new set (a generation). The old one is closed in
               its logs, emptied by the receivers, asked for its deduplication ids while they count, and dropped

The rows say what exists; the desired state follows from the attributes. Every step may be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from api import limits
from frontend.metadata.records import PartitionRecord


class LayoutRow(NamedTuple):
    """A partition that a queue has. `number` stands in its tag; `closed_ms` 0 = open. The rest: PartitionRecord.

    `closing`: a worker may have closed it, for good; another set takes its place whatever is desired by then.
    """

    partition: int
    number: int
    level: int = 0
    generation: int = 0
    closed_ms: int = 0
    drained: bool = False
    per_group: bool = False
    closing: bool = False


class Wanted(NamedTuple):
    """What attributes ask for: so many open partitions in each of so many levels."""

    partitions: int
    levels: int
    per_group: bool


def wanted_of(attributes: Mapping[str, str], fifo: bool) -> Wanted:
    asked = attributes.get("Penstock.Partitions")
    if not fifo:
        return Wanted(int(asked or 1), int(attributes.get("Penstock.PriorityLevels", "1")), False)
    per_group = attributes["DeduplicationScope"] == "messageGroup"
    if attributes["FifoThroughputLimit"] != "perMessageGroupId":
        return Wanted(1, 1, per_group)
    return Wanted(int(asked or limits.FIFO_PARTITIONS_DEFAULT), 1, per_group)


def rows_of(layout: Sequence[Sequence[Any]], partitions: Sequence[int], per_group: bool = False) -> list[LayoutRow]:
    """The rows as they are stored. A queue of one partition has none: there `per_group` is what its attributes say."""
    if layout:
        return [LayoutRow(*fields) for fields in layout]
    return [LayoutRow(partition, number, per_group=per_group) for number, partition in enumerate(partitions)]


def stored(rows: Sequence[LayoutRow]) -> list[list[Any]]:
    """The rows as they are to be stored."""
    return [] if is_plain(rows) else [list(row) for row in rows]


def is_plain(rows: Sequence[LayoutRow]) -> bool:
    """One partition, and never another: nothing to be said beyond its number."""
    return not rows or (len(rows) == 1 and rows[0][1:5] == (0, 0, 0, 0) and not rows[0].closing)


def records_of(layout: Sequence[Sequence[Any]]) -> list[PartitionRecord]:
    """What front ends know of stored rows."""
    return [
        PartitionRecord(row.partition, row.level, row.generation, row.closed_ms > 0, row.drained, row.per_group)
        for row in rows_of(layout, ())
    ]


def opened(rows: Sequence[LayoutRow]) -> list[LayoutRow]:
    return [row for row in rows if not row.closed_ms]


def closed(rows: Sequence[LayoutRow]) -> list[LayoutRow]:
    return [row for row in rows if row.closed_ms]


def is_closing(rows: Sequence[LayoutRow]) -> bool:
    return any(row.closing for row in rows)


def open_by_level(rows: Sequence[LayoutRow]) -> list[list[int]]:
    """The partitions that take messages, by level."""
    found = opened(rows)
    levels = max((row.level for row in found), default=-1) + 1
    return [[row.partition for row in found if row.level == level] for level in range(levels)]


def missing(rows: Sequence[LayoutRow], wanted: Wanted, fifo: bool, next_number: int) -> list[LayoutRow]:
    """The partitions to be made now, in a fixed order. `next_number`: tags below it were given already."""
    have = opened(rows)
    if not fifo:
        lanes = open_by_level(rows)
        counts = [len(lanes[level]) if level < len(lanes) else 0 for level in range(wanted.levels)]
        places = [level for level, count in enumerate(counts) for _ in range(wanted.partitions - count)]
        return [LayoutRow(0, next_number + step, level) for step, level in enumerate(places)]
    if closed(rows) or (len(have) == wanted.partitions and not is_closing(rows)):
        return []  # one change after the other
    generation = have[0].generation + 1 if have else 0
    fresh = range(next_number, next_number + wanted.partitions)
    return [LayoutRow(0, number, 0, generation, 0, False, wanted.per_group) for number in fresh]


def next_number(rows: Sequence[LayoutRow], retired: Sequence[Mapping[str, Any]]) -> int:
    """Above every tag whose partition was noted."""
    return max((*(row.number for row in rows), *(one["number"] for one in retired)), default=-1) + 1


def after_change(rows: Sequence[LayoutRow], after: Mapping[str, str], fifo: bool) -> list[list[Any]]:
    """The rows to be stored with a change of attributes. A scope of deduplication that comes with other partitions
    waits for them: until then front ends go by the row and not by the attribute."""
    wanted = wanted_of(after, fifo)
    if fifo and rows and (closed(rows) or is_closing(rows) or len(rows) != wanted.partitions):
        return [list(row) for row in rows]
    return stored([row._replace(per_group=wanted.per_group) for row in rows])
