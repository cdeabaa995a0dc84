"""What the oracle writes down: what every node has staged and synced, what is committed, and what it means for a queue.

`Mirror` is a partition log as a list; `NodeLedger` keeps one for what a node has staged and one for what its disk must
still have after a power loss; `CommittedLog` is the truth that no node may contradict; `QueueBook` is a model of a
standard queue, written apart from the product's fold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from storage_nodes.log.record_batch import (
    ATTRIBUTE_CONFIGURATION,
    CONTROL_CLUSTER,
    control_kind,
    iterate_bodies,
    read_configuration,
    read_header,
)
from storage_nodes.machines.cluster.commands import MoveEnded, PartitionCreated
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.queue.commands import (
    ACQUIRED,
    DEAD_LETTERED,
    DELETED,
    EXPIRED,
    FIRST_FIELD,
    KIND,
    LEASED,
    PURGED,
    RESCHEDULED,
    TIME_MS,
    UNPARKED,
    VISIBILITY_CHANGED,
    Command,
    decode_command,
)
from storage_nodes.machines.stream.machine import CONTROL_STREAM_KEY
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.messages import DeadSource
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_RELEASED,
    decode_body,
)
from tests.simulation.group_book import GroupBook

_CREATE, _DELETE = 2, 3  # commands of the cluster's log
_UNCOUNTED = 2**20 - 1  # to the number of a delivery that is given back without counting: one receive less, one release
_TRIMMED, _FIRST_OF_GROUPS = 1, 3  # commands of a stream's log


def is_configuration(batch: bytes) -> bool:
    return bool(read_header(batch).attributes & ATTRIBUTE_CONFIGURATION)


class Mirror:
    """The entries of one partition on one node."""

    __slots__ = ("batches", "configurations", "ends", "epoch", "suspect", "voted_for")

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.batches: list[bytes] = []
        self.configurations: list[tuple[int, Configuration]] = []  # (end of its entry, what it says)
        self.epoch = 0
        self.voted_for = 0
        self.suspect = False

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def configured_at(self) -> int:
        """Where the entry of the configuration in force ends."""
        return self.configurations[-1][0] if self.configurations else 0

    def append(self, batch: bytes) -> None:
        header = read_header(batch)
        self.ends.append(header.end_offset)
        self.batches.append(batch)
        if header.attributes & ATTRIBUTE_CONFIGURATION:
            self.configurations.append((header.end_offset, read_configuration(batch)))

    def truncate(self, offset: int) -> None:
        while self.configured_at > offset:
            self.configurations.pop()
        keep = bisect_right(self.ends, offset)
        del self.ends[keep:]
        del self.batches[keep:]

    def copy(self) -> Mirror:
        other = Mirror()
        other.ends, other.batches, other.configurations = self.ends[:], self.batches[:], self.configurations[:]
        other.epoch, other.voted_for, other.suspect = self.epoch, self.voted_for, self.suspect
        return other


class Change(NamedTuple):
    """One staged change. `batch` of an append; (a, b) of a truncation (offset, 0), a vote (epoch, voted for), or a
    mark (suspect, 0)."""

    kind: str
    partition: int
    batch: bytes = b""
    a: int = 0
    b: int = 0


def play(mirrors: dict[int, Mirror], change: Change) -> None:
    if change.kind == "drop":
        mirrors.pop(change.partition, None)
        return
    mirror = mirrors.setdefault(change.partition, Mirror())
    if change.kind == "append":
        mirror.append(change.batch)
    elif change.kind == "truncate":
        mirror.truncate(change.a)
    elif change.kind == "vote":
        mirror.epoch, mirror.voted_for = change.a, change.b
    elif change.kind == "suspect":
        mirror.suspect = bool(change.a)


# More are forgotten: by then a flush has let go of what they were cut from.
CUTS_REMEMBERED = 16


class NodeLedger:
    def __init__(self) -> None:
        self.staged: dict[int, Mirror] = {}
        self.synced: dict[int, Mirror] = {}
        self.gathering: list[Change] = []
        self.groups: dict[int, list[Change]] = {}  # taken, not confirmed
        self.incarnation = 0
        self.lost: dict[int, Mirror] = {}  # what was synced when the disk was lost, or a log found damaged
        # What logs held before something was cut from them: damage may take the truncation, and leave what it cut.
        self.cut: dict[int, list[Mirror]] = {}
        # In this turn: (partition, move it came by) of replicas that were dropped, and (partition, end of the
        # configuration before, epoch) of configurations that were appended.
        self.dropped: list[tuple[int, int]] = []
        self.configured: list[tuple[int, int, int]] = []
        # Partitions whose log is being replaced by a snapshot, and by what.
        self.installing: dict[int, Mirror] = {}

    def installed(self, partition: int) -> None:
        new = self.installing.pop(partition)
        if new.suspect and not new.ends and partition in self.synced:
            self.lost[partition] = self.synced[partition]
        for mirrors in (self.staged, self.synced):
            if partition in mirrors:  # not dropped meanwhile
                _replace(mirrors, partition, new)
        # Entries of the old log that are on their way to the disk are void: recovery passes over them.
        for changes in (self.gathering, *self.groups.values()):
            changes[:] = [
                change
                for change in changes
                if change.partition != partition or change.kind not in ("append", "truncate", "suspect")
            ]

    def remember_cut(self, partition: int) -> None:
        earlier = self.cut.setdefault(partition, [])
        earlier.append(self.staged[partition].copy())
        del earlier[:-CUTS_REMEMBERED]

    def change(self, change: Change) -> None:
        play(self.staged, change)
        self.gathering.append(change)

    def taken(self, sequence: int) -> None:
        self.groups[sequence] = self.gathering
        self.gathering = []

    def confirmed(self, sequence: int) -> None:
        for change in self.groups.pop(sequence):
            play(self.synced, change)

    def possible(self) -> Iterator[dict[int, Mirror]]:
        """What a restart may find: all that was synced, with or without the group and the snapshot under way."""
        yield from self._with_groups()
        for partition, new in self.installing.items():
            for mirrors in self._with_groups():
                if partition in mirrors:
                    _replace(mirrors, partition, new)
                    yield mirrors

    def _with_groups(self) -> Iterator[dict[int, Mirror]]:
        mirrors = {partition: mirror.copy() for partition, mirror in self.synced.items()}
        yield mirrors
        for sequence in sorted(self.groups):
            mirrors = {partition: mirror.copy() for partition, mirror in mirrors.items()}
            for change in self.groups[sequence]:
                play(mirrors, change)
            yield mirrors


def _replace(mirrors: dict[int, Mirror], partition: int, new: Mirror) -> None:
    """The log becomes the snapshot's; the hard state stays."""
    mirror = new.copy()
    old = mirrors[partition]
    mirror.epoch, mirror.voted_for = old.epoch, old.voted_for
    mirrors[partition] = mirror


class CommittedLog:
    """The true log of a partition: grows, never changes."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.batches: list[bytes] = []
        # (epoch of the leader that committed, entries, end, time): how it grew
        self.growth: list[tuple[int, int, int, int]] = []

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def before_epoch(self, epoch: int) -> tuple[int, int]:
        """(entries, end) committed by leaders of lower epochs."""
        return next(((count, end) for by, count, end, _ in reversed(self.growth) if by < epoch), (0, 0))

    def configuration(self, boot: Sequence[int]) -> Configuration:
        """The last one that is committed; `boot`: who votes before there is one."""
        last = next((batch for batch in reversed(self.batches) if is_configuration(batch)), None)
        return Configuration(tuple(boot)) if last is None else read_configuration(last)

    def covering(self, offset: int) -> bytes:
        return self.batches[bisect_right(self.ends, offset)]


class ClusterBook:
    """Which partitions exist, by the committed log of the cluster; written apart from the product's fold.

    Where they are, and what becomes of moves, is what the product's own machine makes of the same log.
    """

    def __init__(self) -> None:
        self.live: dict[int, tuple[int, str]] = {}  # partition -> (kind, tag)
        self.deleted: set[int] = set()
        self.machine = ClusterMachine()
        self.boots: dict[int, tuple[int, ...]] = {}  # partition -> its first replicas
        self.ended: list[MoveEnded] = []  # and not looked at yet
        self.released: dict[tuple[int, int], int] = {}  # (partition, node) -> move by whose end the replica may go
        self.moves_done = 0
        self._next = CLUSTER_PARTITION + 1

    def fold(self, batch: bytes, _epoch: int) -> None:
        for _, body in iterate_bodies(batch):
            record = decode_body(body)
            if control_kind(record.key) == CONTROL_CLUSTER:
                self._fold(msgspec.msgpack.decode(record.value))
                for effect in self.machine.apply(record.value)[1]:
                    self._changed(effect)

    def _changed(self, effect: object) -> None:
        if isinstance(effect, PartitionCreated):
            self.boots[effect.plan.partition] = effect.plan.replicas
        elif isinstance(effect, MoveEnded):
            self.ended.append(effect)
            self.released[effect.plan.partition, effect.dropped] = effect.number
            self.moves_done += effect.dropped not in effect.plan.replicas

    def _fold(self, command: list[Any]) -> None:
        kind, *fields = command
        if kind == _CREATE:
            name = (fields[0], fields[1])
            if name not in self.live.values() and len(self.machine.active()) >= fields[4]:
                self.live[self._next] = name
                self._next += 1
        elif kind == _DELETE and self.live.get(fields[0], (0, ""))[1] == fields[1]:
            del self.live[fields[0]]
            self.deleted.add(fields[0])


class Gone(NamedTuple):
    end: int  # of the entry that removed the message
    epoch: int  # of the leader that committed it


def dead_source(body: bytes) -> tuple[int, int] | None:
    """(partition, offset) of the message that this is a dead letter of."""
    source = dict(decode_body(body).headers).get(HEADER_DEAD_SOURCE)
    if source is None:
        return None
    told = msgspec.msgpack.decode(source, type=DeadSource)
    return told.partition, told.offset


class QueueBook:
    """A standard queue by its committed log."""

    def __init__(self) -> None:
        self.copies: dict[tuple[int, int], int] = {}  # dead letters here: (partition, offset) -> offset of the first
        self.duplicates: dict[int, int] = {}  # offset -> offset of the original
        self.dead: list[int] = []  # removed as dead letters, and not looked at yet
        self.bodies: dict[int, bytes] = {}
        self.delivery: dict[int, int] = {}
        self.gone: dict[int, Gone] = {}
        self.purged: set[int] = set()
        self.scheduled: dict[int, int] = {}  # offset -> due_ms
        self.origin: dict[int, int] = {}  # offset -> where the message was scheduled
        self.releases: set[bytes] = set()
        self.early: list[int] = []  # released before they were due, and not looked at yet
        self._deadline_ms: dict[int, int] = {}  # when the last lease ends
        self._last_purge_ms = -60_000
        self._last_ms = 0  # by the log

    def fold(self, batch: bytes, epoch: int) -> None:
        header = read_header(batch)
        if not header.is_control:
            self._last_ms = max(self._last_ms, header.timestamp_ms)
            for offset, body in iterate_bodies(batch):
                self.bodies[offset] = body
                self._note_source(offset, body, Gone(header.end_offset, epoch))
                headers = dict(decode_body(body).headers)
                if HEADER_DELAY_MS in headers:
                    self.delivery[offset] = 0
                self._note_schedule(offset, body, headers, header.timestamp_ms, Gone(header.end_offset, epoch))
            return
        gone = Gone(header.end_offset, epoch)
        for _, body in iterate_bodies(batch):
            command = decode_command(body)
            if command is not None:
                self._last_ms = max(self._last_ms, command[TIME_MS])
                self._fold(command, gone)

    def _note_schedule(
        self, offset: int, body: bytes, headers: dict[bytes, bytes], time_ms: int, gone: Gone
    ) -> None:
        """A release takes the place of what is scheduled, for that time, or is nothing."""
        if HEADER_DUE in headers:
            due = headers[HEADER_DUE]
            due_ms = int(due) + (time_ms if due.startswith(b"+") else 0)
            if due_ms > time_ms and offset not in self.gone and not self._is_repeated(headers):
                self.scheduled[offset] = due_ms
        elif HEADER_RELEASED in headers:
            origin, due_ms = map(int, headers[HEADER_RELEASED].split(b"/"))
            if decode_body(self.bodies[origin])[:2] == decode_body(body)[:2]:
                self.releases.add(body)
            if self.scheduled.get(origin) != due_ms:
                self.gone[offset] = gone
                return
            del self.scheduled[origin]
            self.gone[origin] = gone
            self.origin[offset] = origin
            if self._last_ms < due_ms:
                self.early.append(offset)

    def _is_repeated(self, headers: dict[bytes, bytes]) -> bool:
        return False

    def _note_source(self, offset: int, body: bytes, gone: Gone) -> None:
        """A second copy of a dead letter is none, however it is named."""
        source = dead_source(body)
        if source is not None and self.copies.setdefault(source, offset) != offset:
            self.duplicates[offset] = self.copies[source]
            self.gone[offset] = gone

    def _fold(self, command: Command, gone: Gone) -> None:
        kind = command[KIND]
        if kind == DEAD_LETTERED:
            for offset in command[FIRST_FIELD]:
                if self.gone.setdefault(offset, gone) is gone:
                    self.dead.append(self.origin.get(offset, offset))
        elif kind == ACQUIRED:
            for _time_ms, deadline_ms, fresh, again in command[FIRST_FIELD + 1]:
                for at in range(0, len(fresh), 3):
                    for offset in range(fresh[at], fresh[at + 1] + 1):
                        self.delivery[offset], self._deadline_ms[offset] = 1, deadline_ms
                for offset in again:
                    self.delivery[offset] = self.delivery.get(offset, 0) + 1
                    self._deadline_ms[offset] = deadline_ms
        elif kind == VISIBILITY_CHANGED:
            flat = command[FIRST_FIELD]
            for at in range(0, len(flat), 3):
                self._change(flat[at], flat[at + 1], flat[at + 2], command[TIME_MS])
        elif kind == DELETED:
            flat = command[FIRST_FIELD]
            for at in range(0, len(flat), 2):
                offset, delivery = flat[at], flat[at + 1]
                # A receipt is old only if the log knows a later delivery; a newer one outlived its lease's leader.
                if offset in self.bodies and delivery >= max(self.delivery.get(offset, 0), 1):
                    self.gone.setdefault(offset, gone)
        elif kind == EXPIRED:
            flat = command[FIRST_FIELD + 1]
            ranges = (range(flat[at], flat[at + 1] + 1) for at in range(0, len(flat), 2))
            for offset in (*command[FIRST_FIELD + 2], *(o for r in ranges for o in r)):
                self.gone.setdefault(offset, gone)
        elif kind == RESCHEDULED:
            flat = command[FIRST_FIELD]
            for at in range(0, len(flat), 2):
                offset, due_ms = flat[at], flat[at + 1]
                if offset in self.scheduled and due_ms:
                    self.scheduled[offset] = due_ms
                elif self.scheduled.pop(offset, None) is not None:
                    self.gone[offset] = gone
        elif kind == PURGED and command[3] - self._last_purge_ms >= 60_000:
            self._last_purge_ms = command[3]
            self.scheduled.clear()
            for offset in self.bodies:
                if offset not in self.gone:
                    self.gone[offset] = gone
                    self.purged.add(offset)

    def _change(self, offset: int, delivery: int, visibility_ms: int, now_ms: int) -> None:
        """-1: given back, as if the lease had run out. Less: given back after -2 - visibility_ms, and not counted."""
        if not self._holds(offset, delivery, now_ms):
            return
        if visibility_ms < -1:
            self.delivery[offset] += _UNCOUNTED
            visibility_ms = -2 - visibility_ms
        self._deadline_ms[offset] = now_ms + max(visibility_ms, 0)

    def _holds(self, offset: int, delivery: int, now_ms: int) -> bool:
        return self.delivery.get(offset) == delivery and self._deadline_ms.get(offset, 0) > now_ms


class FifoBook(QueueBook):
    """A FIFO queue by its committed log. Runs are shorter than the window in which ids are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[bytes, list[int]] = {}  # its messages, in order, without the duplicates
        self.group_of: dict[int, bytes] = {}
        self._originals: dict[bytes, int] = {}
        self.parks = False  # a group is held once a message of it became a dead letter
        self.parked: set[bytes] = set()
        self.leased_though_parked: list[tuple[bytes, int]] = []

    def fold(self, batch: bytes, epoch: int) -> None:
        super().fold(batch, epoch)
        header = read_header(batch)
        for offset, body in () if header.is_control else iterate_bodies(batch):
            if offset in self.duplicates:
                continue
            headers = dict(decode_body(body).headers)
            original = self._originals.setdefault(headers.get(HEADER_DEDUP, b"release %d" % offset), offset)
            if original != offset:
                self.duplicates[offset] = original
                self.gone[offset] = Gone(header.end_offset, epoch)
            elif offset not in self.scheduled and (HEADER_RELEASED not in headers or offset in self.origin):
                self.groups.setdefault(headers[HEADER_GROUP], []).append(offset)
                self.group_of[offset] = headers[HEADER_GROUP]

    def _is_repeated(self, headers: dict[bytes, bytes]) -> bool:
        return headers[HEADER_DEDUP] in self._originals

    def waits_before(self, offset: int) -> list[int]:
        """Messages of the same group that must be gone before this one is handed out."""
        return [other for other in self.groups[self.group_of[offset]] if other < offset and other not in self.gone]

    def _fold(self, command: Command, gone: Gone) -> None:
        kind, now_ms, flat = command[KIND], command[TIME_MS], command[FIRST_FIELD] if len(command) > FIRST_FIELD else []
        if kind == LEASED:
            for _time_ms, deadline_ms, _attempt, is_renewal, parts in flat:
                for at in range(0, len(parts), 3):
                    if parts[at] in self.parked and not is_renewal:
                        self.leased_though_parked.append((parts[at], gone.end))
                    self._lease(parts[at + 1], parts[at + 2][::2], deadline_ms, is_renewal)
        elif kind == DELETED:
            for at in range(0, len(flat), 2):
                if self._holds(flat[at], flat[at + 1], now_ms):
                    self.gone.setdefault(flat[at], gone)
        elif kind == UNPARKED:
            self.parked = self.parked.difference(flat) if flat else set()
        else:
            dead, purged_ms = len(self.dead), self._last_purge_ms
            super()._fold(command, gone)
            if self.parks:
                self.parked.update(self.group_of[offset] for offset in self.dead[dead:])
            if self._last_purge_ms != purged_ms:
                self.parked.clear()

    def _lease(self, again: list[int], fresh: list[int], deadline_ms: int, is_renewal: bool) -> None:
        for offset in again:
            if offset not in self.gone:
                self.delivery[offset] = self.delivery.get(offset, 0) + (not is_renewal)
                self._deadline_ms[offset] = deadline_ms
        for offset in fresh:
            if offset not in self.gone and offset not in self.delivery:
                self.delivery[offset] = 1
                self._deadline_ms[offset] = deadline_ms


class StreamBook:
    """A stream by its committed log."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.data: list[bytes] = []  # its batches, without those of its own commands
        self.log_start = 0
        self.groups = GroupBook()

    def fold(self, batch: bytes, _epoch: int) -> None:
        header = read_header(batch)
        if not header.is_control:
            self.data.append(batch)
            self.bodies.update(iterate_bodies(batch))
            return
        for _, body in iterate_bodies(batch):
            record = decode_body(body)
            if record.key == CONTROL_STREAM_KEY:
                kind, _time_ms, *fields = msgspec.msgpack.decode(record.value)
                if kind == _TRIMMED:
                    self.log_start = max(self.log_start, fields[0])
                elif kind >= _FIRST_OF_GROUPS:
                    self.groups.fold(kind, fields[0], fields[1:], header.base_offset, header.end_offset)
