"""The replicated state of a FIFO queue: that of a standard queue, but messages leave it group by group.

Messages behind a locked group are handed out before those in front of it, so what was taken beyond the cursor is kept
as ranges: `removed_above_cursor` holds every offset at or beyond the cursor that does not wait any more, leased or
gone, and control records too, so that neighbours grow together and the cursor can pass. A range stands between two
waiting messages, so there are never more of them than messages wait.

    group_of   message group of every message in `live`. A message in flight holds back what follows it in its group
               (R26), so who leads next knows every lock by the fold alone.
    parked     groups that are held because a message of theirs became a dead letter (parking.py)
    attempts   receives that may be asked for again: attempt id -> (time_ms, deadline_ms, flat (offset, delivery)...).
               The fold bounds their number; how many messages they name is up to leaders (delivery/by_group.py).

Leases are folded before anything is delivered, so a receipt always names a message in `live`, or one that is gone.

In the checkpoint: [flat (group, offsets, each less the one before)...,
                    flat (attempt, time_ms, deadline_ms, receipts)...,
                    see parking.py]
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.queue.commands import (
    ConfiguredCommand,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    LeasedCommand,
    PurgedCommand,
    UnparkedCommand,
    VisibilityCommand,
)
from storage_nodes.machines.queue.effects import Pick
from storage_nodes.machines.queue.state.checkpoint import Entry
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.message_sizes import fold_meter_fields, take_out
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges
from storage_nodes.machines.queue.state.parking import ParkedGroups
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.machines.queue.state.shared_empty import EMPTY_OFFSETS
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import DeadSource, QueueConfig

ATTEMPT_MS_MAX = LEVEL_1.attempt_ms_max
ATTEMPTS_MAX = LEVEL_1.attempts_max


class Attempt(NamedTuple):
    time_ms: int
    deadline_ms: int
    receipts: array[int]  # flat (offset, delivery), 16 bytes a message; never changed


class FifoState(QueueState):
    __slots__ = ("_remembered_count", "attempts", "group_of", "parked")

    def __init__(self, config: QueueConfig) -> None:
        super().__init__(config)
        self.group_of: dict[int, bytes] = {}
        self.attempts: OrderedDict[bytes, Attempt] = OrderedDict()
        self._remembered_count = 0  # messages that `attempts` name
        self.parked = ParkedGroups()

    def check(self) -> None:
        super().check()
        known, held = len(self.group_of), len(self.live)
        assert known == held, f"the group of {known} messages is known, {held} are in flight or delayed"
        named = sum(len(attempt.receipts) for attempt in self.attempts.values()) // 2
        assert named == self._remembered_count, f"{named} messages are remembered, not {self._remembered_count}"

    # --- entries ----------------------------------------------------------------------------------------------

    def fold_control(self, base_offset: int, last_offset: int) -> None:
        """A control batch: no messages, so nothing that the cursor would have to wait for."""
        if self.fresh_count:
            self._mark_removed(base_offset, last_offset + 1)

    def end_entry(self, end_offset: int) -> None:
        super().end_entry(end_offset)
        self._move_cursor(self.removed_above_cursor.end_of_first(self.cursor))

    def _fold_delayed(self, offset: int, due_ms: int, sent_ms: int, group: bytes) -> None:
        super()._fold_delayed(offset, due_ms, sent_ms, group)
        self.group_of[offset] = group
        self._mark_removed(offset, offset + 1)

    def _fold_age(self, offset: int, arrived_ms: int, source: DeadSource, noted: FoldedHeaders) -> None:
        """In a FIFO queue its retention starts again."""

    # --- commands ---------------------------------------------------------------------------------------------

    def fold_leased(self, command: LeasedCommand) -> list[list[Pick]]:
        """Lease messages, group by group; what each lease got. What is gone by now stays gone."""
        now_ms = command.time_ms
        picked: list[list[Pick]] = []
        for lease in command.leases:
            time_ms, deadline_ms, is_renewal = lease.time_ms, lease.deadline_ms, lease.is_renewal
            picks: list[Pick] = []
            fields = iter(lease.parts)
            for group, again, fresh in zip(fields, fields, fields, strict=True):
                self._lease_again(again, time_ms, deadline_ms, is_renewal, picks)
                self._lease_fresh_of(group, fresh, time_ms, deadline_ms, picks)
            if not is_renewal:  # the same delivery, said again
                self.received += len(picks)
            if lease.attempt:
                self._remember(lease.attempt, now_ms, deadline_ms, picks)
            picked.append(picks)
        return picked

    def _lease_again(
        self, offsets: list[int], time_ms: int, deadline_ms: int, is_renewal: bool, picks: list[Pick]
    ) -> None:
        live = self.live
        for offset in offsets:
            entry = live.get(offset)
            if entry is not None:
                delivery = entry[1] if is_renewal else entry[1] + 1
                first_received_ms = entry[2] or time_ms
                live[offset] = (deadline_ms, delivery, first_received_ms, entry[3])
                picks.append(Pick(offset, delivery, first_received_ms, entry[3]))

    def _lease_fresh_of(
        self, group: bytes, fresh: list[int], time_ms: int, deadline_ms: int, picks: list[Pick]
    ) -> None:
        self.allocate()
        if self.removed_above_cursor is EMPTY_OFFSETS:
            self.removed_above_cursor = OffsetRanges()
        live, group_of, take, cursor = self.live, self.group_of, self.removed_above_cursor.take, self.cursor
        entry: Entry = (0, 0, 0, -1)
        fields = iter(fresh)
        for offset, sent_ms in zip(fields, fields, strict=True):
            if offset < cursor or not take(offset):
                continue
            if entry[3] != sent_ms:
                entry = (deadline_ms, 1, time_ms, sent_ms)
            live[offset] = entry
            group_of[offset] = group
            self.fresh_count -= 1
            picks.append(Pick(offset, 1, time_ms, sent_ms))

    def fold_deleted(self, command: DeletedCommand) -> list[int]:
        self.fold_receipts(command, [])
        return []

    def fold_receipts(self, command: DeletedCommand, gone: list[tuple[bytes, int]]) -> list[ErrorCode]:
        """Delete by receipt, one code each; `gone` gets (group, offset) of what left `live`. A lease that ran out gives
        no right to delete: others of the group may have been handed out since."""
        now_ms = command.time_ms
        live, group_of = self.live, self.group_of
        codes: list[ErrorCode] = []
        receipts = command.receipts
        before = len(gone)
        fields = iter(receipts)
        for offset, delivery in zip(fields, fields, strict=True):
            entry = live.get(offset)
            if entry is None:
                waits = self.cursor <= offset and offset not in self.removed_above_cursor
                codes.append(ErrorCode.UNKNOWN_RECORD if waits or delivery < 1 else ErrorCode.OK)
            elif entry[1] != delivery or delivery == 0 or entry[0] <= now_ms:
                codes.append(ErrorCode.RECEIPT_STALE)
            else:
                del live[offset]
                gone.append((group_of.pop(offset), offset))
                self.deleted += 1
                codes.append(ErrorCode.OK)
        if command.sizes or command.told:
            fold_meter_fields(self.metering, [offset for _, offset in gone[before:]], command)
        return codes

    def _may_change(self, entry: Entry, delivery: int, visibility_ms: int, now_ms: int) -> bool:
        """A lease that holds, by its own receipt: others of the group may have been handed out since it ran out."""
        return entry[1] == delivery and delivery > 0 and entry[0] > now_ms

    def fold_visibility(self, command: VisibilityCommand) -> list[ErrorCode]:
        codes = super().fold_visibility(command)
        offsets = command.changes[::3]
        return [
            ErrorCode.RECEIPT_STALE if code is ErrorCode.NOT_IN_FLIGHT and offset in self.live else code
            for code, offset in zip(codes, offsets, strict=True)
        ]

    def fold_expired(self, command: ExpiredCommand) -> None:
        offsets = command.offsets
        fields = iter(command.ranges)
        for first, last in zip(fields, fields, strict=True):
            count = len(self._still_fresh(first, last))
            if count:
                self.fresh_count -= count
                self.expired += count
                self._mark_removed(max(first, self.cursor), last + 1)
        left: list[int] = []
        for offset in offsets:
            if self.live.pop(offset, None) is not None:
                del self.group_of[offset]
                self.expired += 1
                left.append(offset)
        take_out(self.metering, left, offsets, command.sizes)

    def fold_dead_lettered(self, command: DeadLetteredCommand) -> list[int]:
        moved = super().fold_dead_lettered(command)
        for offset in moved:
            group = self.group_of.pop(offset)
            if self.config.park_groups:
                self.parked.park(group, command.time_ms, offset)
        return moved

    def fold_unparked(self, command: UnparkedCommand) -> list[ErrorCode]:
        return self.parked.unpark(command.groups)

    def fold_configured(self, command: ConfiguredCommand) -> None:
        super().fold_configured(command)
        if not self.config.park_groups:
            self.parked.clear()

    def remembered_count(self, time_ms: int, enough: int) -> int:
        """Messages that attempts name which may still be asked for again; not less than that below `enough`. The fold
        forgets the others only when it remembers one."""
        count = self._remembered_count
        if count < enough:
            return count
        for attempt in self.attempts.values():
            if attempt.time_ms > time_ms - ATTEMPT_MS_MAX:
                break
            count -= len(attempt.receipts) // 2
        return count

    @property
    def parked_count(self) -> int:
        return len(self.parked)

    def fold_purged(self, command: PurgedCommand, offset: int) -> tuple[ErrorCode, int]:
        is_repeat = self.is_last_purge(command)
        result = super().fold_purged(command, offset)
        if result[0] is ErrorCode.OK and not is_repeat:
            self.group_of.clear()
            self.attempts.clear()
            self._remembered_count = 0
            self.parked.clear()
        return result

    def _remove(self, offset: int) -> bool:
        self.group_of.pop(offset, None)
        return super()._remove(offset)

    # --- inside -----------------------------------------------------------------------------------------------

    def _remember(self, attempt: bytes, now_ms: int, deadline_ms: int, picks: list[Pick]) -> None:
        attempts = self.attempts
        earlier = attempts.pop(attempt, None)
        if earlier is not None:
            self._remembered_count -= len(earlier.receipts) // 2
        if picks:
            receipts = array("q", [number for pick in picks for number in pick[:2]])
            attempts[attempt] = Attempt(now_ms, deadline_ms, receipts)
            self._remembered_count += len(picks)
        while attempts:
            oldest = next(iter(attempts.values()))
            if len(attempts) <= ATTEMPTS_MAX and oldest.time_ms > now_ms - ATTEMPT_MS_MAX:
                break
            self._remembered_count -= len(oldest.receipts) // 2
            attempts.popitem(last=False)

    @property
    def _remembered_numbers(self) -> int:
        return len(self.attempts) + self._remembered_count

    def _groups_packer(self, copied: bool) -> Callable[[], list[Any]]:
        attempts = list(self.attempts.items())
        group_of, parked = self.group_of.copy() if copied else self.group_of, self.parked.pack()
        return lambda: [_pack_group_of(group_of), _pack_attempts(attempts), parked]

    def _unpack_groups(self, packed: list[Any]) -> None:
        groups, attempts, *later = packed  # a checkpoint of an earlier version has nothing parked
        self.parked = ParkedGroups.unpack(later[0]) if later else ParkedGroups()
        self.group_of = {}
        fields = iter(groups)
        for group, gaps in zip(fields, fields, strict=True):
            offset = 0
            for gap in gaps:
                offset += gap
                self.group_of[offset] = group
        fields = iter(attempts)
        self.attempts = OrderedDict(
            (attempt, Attempt(time_ms, deadline_ms, array("q", receipts)))
            for attempt, time_ms, deadline_ms, receipts in zip(fields, fields, fields, fields, strict=True)
        )
        self._remembered_count = sum(len(attempt.receipts) for attempt in self.attempts.values()) // 2


def _pack_group_of(group_of: dict[int, bytes]) -> list[Any]:
    """Flat (group, gaps between its offsets)..."""
    offsets_of: dict[bytes, list[int]] = {}
    last_of: dict[bytes, int] = {}
    for offset in sorted(group_of):
        group = group_of[offset]
        offsets_of.setdefault(group, []).append(offset - last_of.get(group, 0))
        last_of[group] = offset
    return [field for group in sorted(offsets_of) for field in (group, offsets_of[group])]


def _pack_attempts(attempts: list[tuple[bytes, Attempt]]) -> list[Any]:
    """Flat (attempt, time_ms, deadline_ms, receipts)..."""
    packed: list[Any] = []
    for attempt, (time_ms, deadline_ms, receipts) in attempts:
        packed += (attempt, time_ms, deadline_ms, receipts.tolist())
    return packed
