"""What the fold read in the headers of one data batch, for the leader who follows it."""

from __future__ import annotations

from storage_nodes.machines.queue.effects import Key


class Noted:
    """By offset."""

    __slots__ = ("delayed", "duplicates", "groups", "keys", "released", "set_aside")

    def __init__(self) -> None:
        self.delayed: list[int] = []
        self.duplicates: list[tuple[int, int]] = []  # (offset, offset of the original or NOT_TAKEN)
        self.set_aside: list[int] = []  # scheduled messages, and releases of what is not scheduled
        self.released: list[int] = []  # offsets of the scheduled messages that releases named, whatever became of them
        self.groups: dict[int, bytes] = {}  # of all but the duplicates and those set aside
        self.keys: dict[int, Key] = {}  # of those of them that have a group or a tag

    def not_fresh(self) -> list[int]:
        return sorted([*self.delayed, *self.set_aside, *(offset for offset, _ in self.duplicates)])
