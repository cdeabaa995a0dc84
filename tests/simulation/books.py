"""What committed logs mean for queues and streams: models written apart from the product's folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from storage_nodes.log.record_batch import iterate_bodies, read_header
from storage_nodes.machines.queue.commands import (
    AcquiredCommand,
    Command,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    HandedOverCommand,
    LeasedCommand,
    LeveledCommand,
    PurgedCommand,
    RescheduledCommand,
    UnparkedCommand,
    VisibilityCommand,
    decode_command,
)
from storage_nodes.machines.queue.state.dedup import NOT_SEEN
from storage_nodes.machines.stream.machine import CONTROL_STREAM_KEY, LEVELED
from storage_nodes.protocol.levels import LEVEL_FIRST
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
from storage_nodes.protocol.usage import usage_of
from tests.simulation.group_book import GroupBook
from tests.simulation.true_times import StreamTimes, TrueTimes

_UNCOUNTED = 2**20 - 1  # to the number of a delivery that is given back without counting: one receive less, one release
_TRIMMED, _FIRST_OF_GROUPS = 1, 3  # commands of a stream's log


class LeaseChange(NamedTuple):
    """A change of visibility that took effect: 0 and more = visible then, -1 = a nack, less = given back uncounted."""

    offset: int
    delivery: int  # of the receipt
    visibility_ms: int
    last_delivery: int  # the lease that it changed
    deadline_ms: int  # of that lease


class Gone(NamedTuple):
    end: int  # of the entry that removed the message
    epoch: int  # of the leader that committed it


def dead_source(body: bytes) -> tuple[int, int] | None:
    """(partition, offset) of the message that this is a dead letter of."""
    told = _told(body)
    return None if told is None else (told.partition, told.offset)


def _told(body: bytes) -> DeadSource | None:
    source = dict(decode_body(body).headers).get(HEADER_DEAD_SOURCE)
    return None if source is None else msgspec.msgpack.decode(source, type=DeadSource)


class QueueBook:
    """A standard queue by its committed log."""

    def __init__(self) -> None:
        self.times = TrueTimes()
        self.copies: dict[tuple[int, int], int] = {}  # dead letters here: (partition, offset) -> offset of the first
        self._moves: dict[int, int] = {}  # the highest move of dead letters, by the partition that sent it
        self.duplicates: dict[int, int] = {}  # offset -> offset of the original
        self.dead: list[int] = []  # removed as dead letters, and not looked at yet
        self.bodies: dict[int, bytes] = {}
        self.delivery: dict[int, int] = {}
        self.gone: dict[int, Gone] = {}
        self.purged: set[int] = set()
        self.changes: list[LeaseChange] = []  # not looked at yet
        self.changed: set[tuple[int, int]] = set()  # (offset, delivery) of leases that were changed
        self.scheduled: dict[int, int] = {}  # offset -> due_ms
        self.delayed: dict[int, int] = {}  # the same of delayed messages, which wait in a schedule or by themselves
        self.origin: dict[int, int] = {}  # offset -> where the message was scheduled
        self.releases: set[bytes] = set()
        self.early: list[int] = []  # released before they were due, and not looked at yet
        self.level = LEVEL_FIRST  # of the partition
        self.kept_back = 0  # leases that were said to be no deliveries, less what was said of earlier ones
        self.wrong_sizes: list[int] = []  # deleted with a size that they do not have
        self.receives_max = 0  # so many make a dead letter
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
                self.times.sent(offset, int(headers.get(HEADER_DELAY_MS, 0)))
                if HEADER_DELAY_MS in headers:
                    self.delivery[offset] = 0
                self._note_schedule(offset, body, headers, header.timestamp_ms, Gone(header.end_offset, epoch))
            return
        for _, body in iterate_bodies(batch):
            command = decode_command(body)
            if command is not None:
                self._last_ms = max(self._last_ms, command.time_ms)
                self._fold(command, Gone(header.end_offset, epoch))  # one each: of two the first one removed it

    def _note_schedule(self, offset: int, body: bytes, headers: dict[bytes, bytes], time_ms: int, gone: Gone) -> None:
        """A release takes the place of what is scheduled, for that time, or is nothing."""
        if HEADER_DUE in headers:
            due = headers[HEADER_DUE]
            due_ms = int(due) + (time_ms if due.startswith(b"+") else 0)
            if due_ms > time_ms and offset not in self.gone and not self._is_repeated(headers):
                self.scheduled[offset] = due_ms
                self.times.scheduled(offset, int(due), not due.startswith(b"+"))
        elif HEADER_DELAY_MS in headers:
            self.delayed[offset] = time_ms + int(headers[HEADER_DELAY_MS])
        elif HEADER_RELEASED in headers:
            origin, due_ms, *_sent_ms = map(int, headers[HEADER_RELEASED].split(b"/"))
            if decode_body(self.bodies[origin])[:2] == decode_body(body)[:2]:
                self.releases.add(body)
            if origin in self.gone or due_ms not in (self.scheduled.get(origin), self.delayed.get(origin)):
                self.gone[offset] = gone
                return
            self.scheduled.pop(origin, None)
            self.gone[origin] = gone
            self.origin[offset] = origin
            self.times.released(origin, offset, is_delayed=origin in self.delayed)
            if self._last_ms < due_ms:
                self.early.append(offset)

    def _is_repeated(self, headers: dict[bytes, bytes]) -> bool:
        return False

    def _note_told(self, command: DeletedCommand) -> None:
        """What it says of leases: so many became no deliveries."""
        if command.told is not None:
            leases, messages, *_ = command.told
            self.kept_back += leases - messages

    def _check_sizes(self, offsets: list[int], sizes: bytes | Sequence[int | None] = ()) -> None:
        """METERING: a leader that says how large a message is that leaves says what was sent, and their sum."""
        if isinstance(sizes, bytes):
            fields = [int.from_bytes(sizes[at : at + 4], "big") for at in range(0, len(sizes), 4)]
            sizes = fields[2:]
            if (fields[0] << 32) + fields[1] != sum(fields[2:]) or len(sizes) != len(offsets):
                self.wrong_sizes.append(offsets[0])
        for offset, size in zip(offsets, sizes, strict=False):
            if size is not None and offset in self.bodies and usage_of(self.bodies[offset])[1] != size:
                self.wrong_sizes.append(offset)

    def _note_source(self, offset: int, body: bytes, gone: Gone) -> None:
        """A second copy of a dead letter is none, however it is named; nor is one of an earlier move, which is late."""
        told = _told(body)
        if told is None:
            return
        source = told.partition, told.offset
        if told.move < self._moves.get(told.partition, 0):
            self.gone[offset] = gone
            self.duplicates[offset] = self.copies.get(source, offset)
            return
        self._moves[told.partition] = told.move
        if self.copies.setdefault(source, offset) != offset:
            self.duplicates[offset] = self.copies[source]
            self.gone[offset] = gone

    def _fold(self, command: Command, gone: Gone) -> None:
        if isinstance(command, DeadLetteredCommand):
            for offset in command.offsets:
                if self.gone.setdefault(offset, gone) is gone:
                    self.dead.append(self.origin.get(offset, offset))
        elif isinstance(command, AcquiredCommand):
            for leased in command.acquisitions:
                deadline_ms, fresh = leased.deadline_ms, leased.fresh
                left_ms = deadline_ms - command.time_ms
                for at in range(0, len(fresh), 3):
                    for offset in range(fresh[at], fresh[at + 1] + 1):
                        self.delivery[offset], self._deadline_ms[offset] = 1, deadline_ms
                        self.times.leased(offset, left_ms)
                for offset in leased.again:
                    self.delivery[offset] = self.delivery.get(offset, 0) + 1
                    self._deadline_ms[offset] = deadline_ms
                    self.times.leased(offset, left_ms)
        elif isinstance(command, VisibilityCommand):
            flat = command.changes
            for at in range(0, len(flat), 3):
                self._change(flat[at], flat[at + 1], flat[at + 2], command.time_ms)
        elif isinstance(command, DeletedCommand):
            flat = command.receipts
            for at in range(0, len(flat), 2):
                offset, delivery = flat[at], flat[at + 1]
                if offset in self.bodies and delivery > 0:  # whichever delivery the receipt is of
                    self.gone.setdefault(offset, gone)
            self._check_sizes(flat[::2], command.sizes)
            self._note_told(command)
        elif isinstance(command, HandedOverCommand):
            self.kept_back += command.leases - command.messages
        elif isinstance(command, LeveledCommand):
            self.level = command.level
        elif isinstance(command, ExpiredCommand):
            flat = command.ranges
            ranges = (range(flat[at], flat[at + 1] + 1) for at in range(0, len(flat), 2))
            for offset in (*command.offsets, *(o for r in ranges for o in r)):
                if self.gone.setdefault(offset, gone) is gone:
                    self.times.expires(offset)
        elif isinstance(command, RescheduledCommand):
            flat = command.changes
            for at in range(0, len(flat), 2):
                offset, due_ms = flat[at], flat[at + 1]
                if offset in self.scheduled and due_ms:
                    self.scheduled[offset] = due_ms
                    self.times.scheduled(offset, due_ms, True)
                elif self.scheduled.pop(offset, None) is not None:
                    self.gone[offset] = gone
        elif isinstance(command, PurgedCommand) and command.time_ms - self._last_purge_ms >= 60_000:
            self._last_purge_ms = command.time_ms
            self.scheduled.clear()
            self._forget_ids()
            for offset in self.bodies:
                if offset not in self.gone:
                    self.gone[offset] = gone
                    self.purged.add(offset)

    def _forget_ids(self) -> None:
        """By a purge: of FIFO queues."""

    def _change(self, offset: int, delivery: int, visibility_ms: int, now_ms: int) -> None:
        """-1: given back, as if the lease had run out. Less: given back after -2 - visibility_ms, and not counted. From
        -2**30 on: as what is left of it, of a lease that holds. 1 - 2**30: at once, not counted, and not billed."""
        if is_unseen := visibility_ms == 1 - 2**30:
            visibility_ms = -2
        if not self._may_change(offset, delivery, visibility_ms, now_ms):
            return
        if visibility_ms <= -(2**30):
            visibility_ms = -(2**30) - visibility_ms
        self.kept_back += is_unseen
        lease = self.delivery[offset], self._deadline_ms.get(offset, 0)
        self.changes.append(LeaseChange(offset, delivery, visibility_ms, *lease))
        self.changed.add((offset, self.delivery[offset]))
        if visibility_ms < -1:
            self.delivery[offset] += _UNCOUNTED
            visibility_ms = -2 - visibility_ms
        self._deadline_ms[offset] = now_ms + max(visibility_ms, 0)
        self.times.freed_in(offset, max(visibility_ms, 0))

    def is_dead(self, offset: int) -> bool:
        """Was it received as often as the queue allows? Its last lease may still hold."""
        return 0 < self.receives_max <= self.delivery.get(offset, 0) % 2**20

    def _may_change(self, offset: int, delivery: int, visibility_ms: int, now_ms: int) -> bool:
        """To say until when a message waits, the receipt of any delivery will do, unless it died of the last one."""
        if visibility_ms < 0 or self._holds(offset, delivery, now_ms):
            return self._holds(offset, delivery, now_ms)
        receives = self.delivery.get(offset, 0)
        is_dead = 0 < self.receives_max <= receives % 2**20 and self._deadline_ms.get(offset, 0) <= now_ms
        return delivery > 0 and receives > 0 and not is_dead

    def _holds(self, offset: int, delivery: int, now_ms: int) -> bool:
        return self.delivery.get(offset) == delivery and self._deadline_ms.get(offset, 0) > now_ms


class FifoBook(QueueBook):
    """A FIFO queue by its committed log."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[bytes, list[int]] = {}  # its messages, in order, without the duplicates
        self.group_of: dict[int, bytes] = {}
        self._originals: dict[bytes, tuple[int, int]] = {}  # id -> (offset, time by the log) of its first message
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
            original = self._original(headers[HEADER_DEDUP]) if HEADER_DEDUP in headers else offset
            if original not in (NOT_SEEN, offset):
                self.duplicates[offset] = original
                self.gone[offset] = Gone(header.end_offset, epoch)
                self.times.repeats(original)
                continue
            if HEADER_DEDUP in headers:
                self._remember(headers[HEADER_DEDUP], offset)
            if offset not in self.scheduled and (HEADER_RELEASED not in headers or offset in self.origin):
                self.groups.setdefault(headers[HEADER_GROUP], []).append(offset)
                self.group_of[offset] = headers[HEADER_GROUP]

    def _forget_ids(self) -> None:
        self._originals.clear()  # within their window, and rightly: the true times have no say in it

    def _is_repeated(self, headers: dict[bytes, bytes]) -> bool:
        return self._original(headers[HEADER_DEDUP]) != NOT_SEEN

    def _original(self, dedup_id: bytes) -> int:
        offset, time_ms = self._originals.get(dedup_id, (NOT_SEEN, 0))
        return offset if time_ms > self._last_ms - self.times.window_ms else NOT_SEEN

    def _remember(self, dedup_id: bytes, offset: int) -> None:
        earlier = self._originals.get(dedup_id)
        if earlier is not None:
            self.times.forgets(earlier[0])
        self._originals[dedup_id] = offset, self._last_ms

    def _may_change(self, offset: int, delivery: int, visibility_ms: int, now_ms: int) -> bool:
        return self._holds(offset, delivery, now_ms)

    def waits_before(self, offset: int) -> list[int]:
        """Messages of the same group that must be gone before this one is handed out."""
        return [other for other in self.groups[self.group_of[offset]] if other < offset and other not in self.gone]

    def _fold(self, command: Command, gone: Gone) -> None:
        now_ms = command.time_ms
        if isinstance(command, LeasedCommand):
            for lease in command.leases:
                parts, deadline_ms, is_renewal = lease.parts, lease.deadline_ms, lease.is_renewal
                for at in range(0, len(parts), 3):
                    if parts[at] in self.parked and not is_renewal:
                        self.leased_though_parked.append((parts[at], gone.end))
                    self._lease(parts[at + 1], parts[at + 2][::2], deadline_ms, is_renewal, deadline_ms - now_ms)
        elif isinstance(command, DeletedCommand):
            flat = command.receipts
            for at in range(0, len(flat), 2):
                if self._holds(flat[at], flat[at + 1], now_ms):
                    self.gone.setdefault(flat[at], gone)
            self._check_sizes(flat[::2], command.sizes)
            self._note_told(command)
        elif isinstance(command, UnparkedCommand):
            self.parked = self.parked.difference(command.groups) if command.groups else set()
        else:
            purged_ms = self._last_purge_ms
            super()._fold(command, gone)
            if self.parks and isinstance(command, DeadLetteredCommand):
                self.parked.update(self.group_of[offset] for offset in command.offsets if self.gone[offset] is gone)
            if self._last_purge_ms != purged_ms:
                self.parked.clear()

    def _lease(self, again: list[int], fresh: list[int], deadline_ms: int, is_renewal: bool, left_ms: int) -> None:
        for offset in again:
            if offset not in self.gone:
                self.times.leased(offset, left_ms, is_renewal)
                self.delivery[offset] = self.delivery.get(offset, 0) + (not is_renewal)
                self._deadline_ms[offset] = deadline_ms
        for offset in fresh:
            if offset not in self.gone and offset not in self.delivery:
                self.times.leased(offset, left_ms)
                self.delivery[offset] = 1
                self._deadline_ms[offset] = deadline_ms


class StreamBook:
    """A stream by its committed log."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.data: list[bytes] = []  # its batches, without those of its own commands
        self.bases: list[int] = []  # their base offsets
        self.level = LEVEL_FIRST  # of the partition
        self.log_start = 0
        self.groups = GroupBook()
        self.times = StreamTimes()

    def fold(self, batch: bytes, _epoch: int) -> None:
        header = read_header(batch)
        if not header.is_control:
            self.data.append(batch)
            self.bases.append(header.base_offset)
            self.times.appended(header.end_offset)
            self.bodies.update(iterate_bodies(batch))
            return
        for _, body in iterate_bodies(batch):
            record = decode_body(body)
            if record.key == CONTROL_STREAM_KEY:
                kind, _time_ms, *fields = msgspec.msgpack.decode(record.value)
                if kind == _TRIMMED:
                    self.log_start = max(self.log_start, fields[0])
                    self.times.trimmed(self.log_start)
                elif kind == LEVELED:
                    self.level = fields[0]
                elif kind >= _FIRST_OF_GROUPS:
                    self.groups.fold(kind, fields[0], fields[1:], header.base_offset, header.end_offset)
