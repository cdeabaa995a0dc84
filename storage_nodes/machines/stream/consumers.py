"""Consumer groups, as every replica folds them: who is a member, who reads what, and what is committed (R31).

Two states that may meet in one partition, since the coordinator of a group is the first partition of its stream:

    groups      at the coordinator: members, generations, and for each partition of the stream its *share*
    positions   at every partition: per group the grant that may commit here, and the committed offset

A share passes from one member to another in steps, each an entry of a log:

    owner A, target A      A reads
    owner A, target B      a rebalance: A is asked to let go     (coordinator: JOINED, LEFT, EXPIRED)
    owner -, target B      A let go, or its session ended        (coordinator: REVOKED, LEFT, EXPIRED, JOINED again)
    fence (generation, B)  A's grant is void at the partition    (partition: FENCED)
    owner B, target B      B reads                               (coordinator: GRANTED)

So whoever is told that it owns a partition owns it alone: the partition's own log has refused everybody else since
before the grant, whatever clocks, leaders and stalled members do. The coordinator needs no clock for safety either:
that a session ended is an entry like any other.

A *grant* is (generation, epoch). The epoch names one session of one member. Both are drawn from one counter of the
coordinator's partition, which never goes back, not even when a group is deleted and made again.

Commands are msgpack arrays as those of `machine.py`, kind and time first:

    3 JOINED     group, name, session_ms, version, partitions    a member of that name that was there before is gone
    4 LEFT       group, epoch
    5 EXPIRED    group, epoch
    6 REVOKED    group, epoch, [partition, generation, ...]
    7 GRANTED    group, partition, generation, epoch
    8 FENCED     group, generation, epoch
    9 COMMITTED  group, generation, epoch, offset
   10 DELETED    group, generation    0 at the coordinator; elsewhere only what is not of a later life of the group
   11 RENEWED    group          a generation more, since a partition knows of a later one than the coordinator asked for
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.stream.assignment import assign
from storage_nodes.machines.unknown_entries import UnknownEntryError
from storage_nodes.protocol.errors import ErrorCode

JOINED, LEFT, EXPIRED, REVOKED, GRANTED, FENCED, COMMITTED, DELETED, RENEWED = range(3, 12)
NOTHING_COMMITTED = -1
CONSUMER_GROUPS_MAX = LEVEL_1.consumer_groups_max
CONSUMER_MEMBERS_MAX = LEVEL_1.consumer_members_max


class Member(NamedTuple):
    name: bytes
    session_ms: int


class Share:
    """One partition of the group's stream. Members by epoch, 0 = nobody."""

    __slots__ = ("generation", "owner", "target")

    def __init__(self, owner: int = 0, generation: int = 0, target: int = 0) -> None:
        self.owner = owner
        self.generation = generation  # in which the owner got it
        self.target = target


class ConsumerGroup:
    __slots__ = ("generation", "members", "partitions", "shares", "version")

    def __init__(self) -> None:
        self.generation = 0
        self.version = -1  # of the list of partitions
        self.partitions: list[int] = []
        self.members: dict[int, Member] = {}  # by epoch, in the order in which they came
        self.shares: dict[int, Share] = {}  # of its partitions, and of former ones until their owners let go

    def rebalance(self, generation: int) -> None:
        self.generation = generation
        for share in self.shares.values():
            if share.owner not in self.members:
                share.owner = 0
        self.shares = {p: share for p, share in self.shares.items() if share.owner or p in self.partitions}
        now = {p: share.target if share.target in self.members else share.owner for p, share in self.shares.items()}
        found = assign(self.partitions, list(self.members), now)
        for partition in self.partitions:
            self.shares.setdefault(partition, Share())
        for partition, share in self.shares.items():
            share.target = found.get(partition, 0)

    def release(self, epoch: int, partition: int, generation: int) -> None:
        share = self.shares.get(partition)
        if share is None or (share.owner, share.generation) != (epoch, generation) or share.target == epoch:
            return
        share.owner = 0
        if partition not in self.partitions:
            del self.shares[partition]


class GroupPosition(NamedTuple):
    generation: int
    epoch: int
    offset: int


class Folded(NamedTuple):
    """What became of a command. `number`: the epoch of who joined, the offset that stands after a commit, the last
    generation that a deleted group may have had."""

    code: ErrorCode
    number: int = 0
    text: str = ""


_OK = Folded(ErrorCode.OK)


class Consumers:
    """Of one partition; made with the first command of a group."""

    __slots__ = ("_last_deleted", "groups", "last_number", "positions")

    def __init__(self) -> None:
        self.last_number = 0
        # The highest generation of a group that was deleted here: a late fence of its former life must not count.
        self._last_deleted = 0
        self.groups: dict[bytes, ConsumerGroup] = {}
        self.positions: dict[bytes, GroupPosition] = {}

    def fold(self, kind: int, group: bytes, fields: list[Any], end_offset: int) -> Folded:
        """`end_offset`: where the log ended before the command. Raises UnknownEntryError."""
        if kind not in _FOLDS:
            raise UnknownEntryError(f"command kind {kind} of a stream")
        return _FOLDS[kind](self, group, *fields, *((end_offset,) if kind == COMMITTED else ()))

    def right(self, group: bytes, generation: int, epoch: int) -> ErrorCode:
        """May this grant read and commit here?"""
        position = self.positions.get(group)
        if generation > (position.generation if position is not None else self._last_deleted):
            # A grant is fenced here before it is given: whoever does not know it leads no more, or the group is gone.
            return ErrorCode.GRANT_UNKNOWN
        holds = position is not None and (generation, epoch) == position[:2]
        return ErrorCode.OK if holds else ErrorCode.FENCED

    @property
    def is_blank(self) -> bool:
        """As if there had never been a group here."""
        return not (self.last_number or self._last_deleted or self.positions or self.groups)

    def pack(self) -> list[Any]:
        groups = [
            [
                name, group.generation, group.version, group.partitions,
                [[epoch, *member] for epoch, member in group.members.items()],
                [[p, share.owner, share.generation, share.target] for p, share in group.shares.items()],
            ]
            for name, group in self.groups.items()
        ]  # fmt: skip
        return [
            self.last_number,
            self._last_deleted,
            groups,
            [[name, *position] for name, position in self.positions.items()],
        ]

    @classmethod
    def unpack(cls, packed: list[Any]) -> Consumers:
        consumers = cls()
        consumers.last_number, consumers._last_deleted, groups, positions = packed
        for name, generation, version, partitions, members, shares in groups:
            group = consumers.groups[name] = ConsumerGroup()
            group.generation, group.version, group.partitions = generation, version, partitions
            group.members = {epoch: Member(*member) for epoch, *member in members}
            group.shares = {partition: Share(*share) for partition, *share in shares}
        consumers.positions = {name: GroupPosition(*position) for name, *position in positions}
        return consumers

    # --- at the coordinator -----------------------------------------------------------------------------------

    def _join(self, name: bytes, member: bytes, session_ms: int, version: int, partitions: list[int]) -> Folded:
        group = self.groups.get(name)
        if group is None:
            if len(self.groups) >= CONSUMER_GROUPS_MAX:
                return Folded(ErrorCode.OVER_LIMIT, 0, f"a stream has at most {CONSUMER_GROUPS_MAX} groups")
            group = ConsumerGroup()
        if version == group.version and partitions != group.partitions:
            return Folded(ErrorCode.INVALID_REQUEST, 0, f"version {version} of the partitions was another list")
        others = {epoch: known for epoch, known in group.members.items() if known.name != member}
        if len(others) >= CONSUMER_MEMBERS_MAX:
            return Folded(ErrorCode.OVER_LIMIT, 0, f"a group has at most {CONSUMER_MEMBERS_MAX} members")
        if version > group.version:
            group.version, group.partitions = version, partitions
        epoch = self._next_number()
        for share in group.shares.values():
            if share.target in group.members and share.target not in others:
                share.target = epoch  # who comes back gets what it had
        group.members = {**others, epoch: Member(member, session_ms)}
        group.rebalance(self._next_number())
        self.groups[name] = group
        return Folded(ErrorCode.OK, epoch)

    def _leave(self, name: bytes, epoch: int) -> Folded:
        group = self.groups.get(name)
        if group is not None and group.members.pop(epoch, None) is not None:
            group.rebalance(self._next_number())
        return _OK

    def _revoke(self, name: bytes, epoch: int, flat: list[int]) -> Folded:
        group = self.groups.get(name)
        if group is not None:
            for at in range(0, len(flat), 2):
                group.release(epoch, flat[at], flat[at + 1])
        return _OK

    def _grant(self, name: bytes, partition: int, generation: int, epoch: int) -> Folded:
        group = self.groups.get(name)
        share = group.shares.get(partition) if group is not None else None
        if share is not None and not share.owner and share.target == epoch:
            share.owner, share.generation = epoch, generation
        return _OK

    def _delete(self, name: bytes, generation: int) -> Folded:
        if not generation:
            group = self.groups.get(name)
            if group is not None and group.members:
                return Folded(ErrorCode.GROUP_NOT_EMPTY, 0, f"the group has {len(group.members)} members")
            self.groups.pop(name, None)
            generation = self.last_number
        position = self.positions.get(name)
        if position is not None and position.generation <= generation:
            del self.positions[name]
            self._last_deleted = max(self._last_deleted, position.generation)
        return Folded(ErrorCode.OK, generation)

    def _renew(self, name: bytes) -> Folded:
        group = self.groups.get(name)
        if group is not None:
            group.rebalance(self._next_number())
        return _OK

    def _next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    # --- at every partition -----------------------------------------------------------------------------------

    def _fence(self, name: bytes, generation: int, epoch: int) -> Folded:
        position = self.positions.get(name)
        if position is None:
            if len(self.positions) >= CONSUMER_GROUPS_MAX:
                return Folded(ErrorCode.OVER_LIMIT, 0, f"a stream has at most {CONSUMER_GROUPS_MAX} groups")
            position = GroupPosition(self._last_deleted, 0, NOTHING_COMMITTED)
        if generation < position.generation or (generation == position.generation and epoch != position.epoch):
            return Folded(ErrorCode.FENCED, 0, f"the partition was given out in generation {position.generation}")
        self.positions[name] = GroupPosition(generation, epoch, position.offset)
        return _OK

    def _commit(self, name: bytes, generation: int, epoch: int, offset: int, end_offset: int) -> Folded:
        code = self.right(name, generation, epoch)
        if code is not ErrorCode.OK:
            return Folded(code, 0, "the grant is not the one that holds")
        if offset > end_offset:
            return Folded(ErrorCode.OFFSET_OUT_OF_RANGE, 0, f"the log ends at {end_offset}")
        # One that comes late, or again: what stands is at or beyond it.
        standing = max(offset, self.positions[name].offset)
        self.positions[name] = GroupPosition(generation, epoch, standing)
        return Folded(ErrorCode.OK, standing)


_FOLDS: dict[int, Callable[..., Folded]] = {
    JOINED: Consumers._join,
    LEFT: Consumers._leave,
    EXPIRED: Consumers._leave,
    REVOKED: Consumers._revoke,
    GRANTED: Consumers._grant,
    FENCED: Consumers._fence,
    COMMITTED: Consumers._commit,
    DELETED: Consumers._delete,
    RENEWED: Consumers._renew,
}
