"""What the fold read in the headers of one data batch, for the leader who follows it."""

from __future__ import annotations

from storage_nodes.machines.queue.effects import Key


class FoldedHeaders:
    """By offset."""

    __slots__ = ("delayed", "duplicates", "excluded", "groups", "keys", "released", "scheduled")

    def __init__(self) -> None:
        self.delayed: list[int] = []
        self.duplicates: list[tuple[int, int]] = []  # (offset, offset of the original or NOT_TAKEN)
        self.excluded: list[int] = []  # scheduled messages, and releases of what is not scheduled
        self.scheduled: list[int] = []  # of these excluded ones, those that wait in the schedule now
        self.released: list[int] = []  # offsets of the scheduled messages that releases named, whatever became of them
        self.groups: dict[int, bytes] = {}  # of all but the duplicates and those set aside
        self.keys: dict[int, Key] = {}  # of those of them that have a group or a tag

    def unavailable_offsets(self) -> list[int]:
        return sorted([*self.delayed, *self.excluded, *(offset for offset, _ in self.duplicates)])
