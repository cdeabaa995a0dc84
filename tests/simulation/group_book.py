"""Consumer groups by the committed logs of their stream.

What a partition knows (who may commit, what is committed) is written apart from the product's fold. Who is to own what,
at the coordinator, is what the product's own fold makes of the log; the steps from one owner to the next are judged
here, whoever they lead to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from storage_nodes.machines.stream.consumers import COMMITTED, DELETED, FENCED, GRANTED, REVOKED, Consumers
from storage_nodes.protocol.errors import ErrorCode

NOBODY = (0, 0)


class Given(NamedTuple):
    """A partition that passed to a new owner."""

    group: bytes
    partition: int
    generation: int
    epoch: int


class GroupBook:
    """Of one partition."""

    def __init__(self) -> None:
        self.holder: dict[bytes, tuple[int, int]] = {}  # group -> (generation, epoch) that may commit here
        self.offset: dict[bytes, int] = {}  # group -> what is committed, -1 = nothing
        self.began_at: dict[tuple[bytes, int, int], int] = {}  # grant -> what was committed when it began
        self.reached: dict[tuple[bytes, int, int], int] = {}  # grant -> what was committed when it ended, or is now
        self.ended: dict[tuple[bytes, int, int], int] = {}  # grant -> end of the entry that ended it here
        self.advanced: list[tuple[bytes, int, int]] = []  # (group, from, to), and not looked at yet
        self.deleted = 0
        self.let_go: dict[bytes, tuple[int, int]] = {}  # group -> who held until it was deleted, and not looked at yet
        self._last_deleted = 0  # generation
        self.coordinator = Consumers()
        self.given: dict[tuple[bytes, int, int], int] = {}  # (group, partition, generation) -> epoch
        self.news: list[Given] = []  # and not looked at yet
        self.problems: list[str] = []

    def fold(self, kind: int, group: bytes, fields: list[Any], base_offset: int, end_offset: int) -> None:
        if kind == FENCED:
            self._fence(group, (fields[0], fields[1]), end_offset)
        elif kind == COMMITTED:
            self._commit(group, (fields[0], fields[1]), fields[2], base_offset)
        elif kind == DELETED and fields[0]:
            self._delete(group, fields[0], end_offset)
        else:
            before = self._owners(group)
            folded = self.coordinator.fold(kind, group, fields, base_offset)
            if kind == DELETED and folded.code is ErrorCode.OK:
                self._delete(group, folded.number, end_offset)
            for partition, (generation, epoch) in self._owners(group).items():
                self._passed(kind, Given(group, partition, generation, epoch), before.get(partition, NOBODY), fields)

    def holds(self, group: bytes, generation: int, epoch: int, applied: int) -> bool:
        """Was this the grant that held for whoever has folded so much of the log?"""
        grant = (group, generation, epoch)
        return grant in self.began_at and self.ended.get(grant, applied + 1) > applied

    def _fence(self, group: bytes, grant: tuple[int, int], end_offset: int) -> None:
        held = self.holder.get(group, (self._last_deleted, 0))
        if grant[0] <= held[0]:
            return
        self.holder[group] = grant
        self.began_at[group, *grant] = self.reached[group, *grant] = self.offset.setdefault(group, -1)
        self.ended[group, *held] = end_offset

    def _commit(self, group: bytes, grant: tuple[int, int], offset: int, base_offset: int) -> None:
        if self.holder.get(group) == grant and self.offset[group] < offset <= base_offset:
            self.advanced.append((group, self.offset[group], offset))
            self.offset[group] = self.reached[group, *grant] = offset

    def _delete(self, group: bytes, generation: int, end_offset: int) -> None:
        held = self.holder.get(group)
        if held is not None and held[0] <= generation:
            self.ended[group, *held] = end_offset
            self._last_deleted = max(self._last_deleted, held[0])
            self.let_go[group] = held
            del self.holder[group], self.offset[group]
            self.deleted += 1

    def _owners(self, group: bytes) -> dict[int, tuple[int, int]]:
        known = self.coordinator.groups.get(group)
        shares = known.shares.items() if known is not None else ()
        return {p: (share.generation, share.owner) if share.owner else NOBODY for p, share in shares}

    def _passed(self, kind: int, given: Given, before: tuple[int, int], fields: list[Any]) -> None:
        now = (given.generation, given.epoch)
        if now == before:
            return
        group = self.coordinator.groups[given.group]
        if now == NOBODY:
            let_go = kind == REVOKED and fields[0] == before[1]
            if not let_go and before[1] in group.members:
                self.problems.append(f"partition {given.partition} is taken from a member: {before}")
        elif before != NOBODY or kind != GRANTED or given.epoch not in group.members:
            self.problems.append(f"partition {given.partition} passes from {before} to {now} at once")
        else:
            earlier = [g for name, p, g in self.given if (name, p) == (given.group, given.partition)]
            if earlier and max(earlier) >= given.generation:
                self.problems.append(f"{given} follows {max(earlier)}")
            self.given[given.group, given.partition, given.generation] = given.epoch
            self.news.append(given)
