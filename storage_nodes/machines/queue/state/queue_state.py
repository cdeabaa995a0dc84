"""The replicated state of a queue partition: a fold over its log, the same on every replica.

    cursor          every message below it was handed out, dropped, or stands in `live`
    live            messages that were handed out and not deleted, and delayed messages (which may stand beyond the
                    cursor)
    removed_above_cursor
                    messages at or beyond the cursor that are gone already: their lease was lost in a failover, or
                    they were delayed and overtook the cursor; and scheduled ones
    fresh_count     messages at or beyond the cursor in neither of the two: they wait, and only the log knows them
    scheduled       messages that are due at a time of their own, by offset and by time (schedule.py)
    delayed         delayed messages of a standard queue for which `live` had no room, in the same way
    dedup           deduplication ids within their window; a message that repeats one is dropped as it arrives
    keys            message group and tag of the messages in `live` that have any: who leads next hands out fairly, and
                    by tag, from the first moment
    keyed_end       no message at or beyond it has a group or a tag
    letters_taken   dead letters that came here, until their source is done with them; a second copy is dropped
    producers       where what senders numbered stands, so that a repeat is recognised (machines/producers.py)

A message of either schedule that becomes due is appended once more, by the leader (HEADER_RELEASED): that record is the
message from then on, fresh like any other, and the fold takes the first one out as it folds the second. One
whose message is not scheduled, or not for that time (it was cancelled or rescheduled before in the log, or released
already), is nothing. So a release happens once, whatever leaders did.

So memory is O(in flight), whatever waits, plus what is remembered of ids and of the schedules, and a range in
`removed_above_cursor` for each stretch that was taken out from among waiting messages (delivery/backlog.py). Two rules
keep the fold exact:
  - nothing but log entries changes it, and time is only what stands in them (`last_ms` never falls);
  - when nothing is fresh at the end of an entry the cursor jumps to the log end, so a drained queue remembers nothing.

Conservation, at the end of every entry:
    sent = fresh_count + len(live) + len(scheduled) + len(delayed) + deleted + expired + purged + dead_lettered
                                                       (duplicates are not sent, nor are releases)

`fifo_state.py` is the same for FIFO queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.queue.commands import (
    IF_HELD_MAX,
    NACKED,
    UNSEEN,
    AcquiredCommand,
    ConfiguredCommand,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    PurgedCommand,
    RemovedCommand,
    RescheduledCommand,
    VisibilityCommand,
    if_held,
    uncounted,
)
from storage_nodes.machines.queue.state.checkpoint import Entry
from storage_nodes.machines.queue.state.configs import shared_config
from storage_nodes.machines.queue.state.dedup import NOT_SEEN, DedupWindow
from storage_nodes.machines.queue.state.headers import (
    FoldedHeaders,
    due_time_ms,
    is_named_time,
    machine_headers,
    source_of_release,
)
from storage_nodes.machines.queue.state.held_messages import HeldMessages
from storage_nodes.machines.queue.state.message_keys import drop_keys, take_keys
from storage_nodes.machines.queue.state.message_sizes import bill_lost_leases, fold_meter_fields, take_back, take_out
from storage_nodes.machines.queue.state.schedule import Schedule
from storage_nodes.machines.queue.state.shared_empty import EMPTY_IDS
from storage_nodes.machines.queue.state.taken_letters import TakenLetters
from storage_nodes.protocol.deliveries import receives_of, released
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.levels import DELETES_OF_LOST_LEASES_BILLED
from storage_nodes.protocol.messages import NOT_TAKEN, DeadSource

DEAD_LETTERS_BY_AGE_MAX, DELAYED_LIVE_MAX = LEVEL_1.dead_letters_by_age_max, LEVEL_1.delayed_live_max
PURGE_INTERVAL_MS, SCHEDULE_MS_MAX = LEVEL_1.purge_interval_ms, LEVEL_1.schedule_ms_max

_decode_dead_source = msgspec.msgpack.Decoder(DeadSource).decode


class QueueState(HeldMessages):
    """Changed by the `fold_*` methods only, in log order."""

    __slots__ = ()

    # --- entries ----------------------------------------------------------------------------------------------

    def fold_messages(self, last_offset: int, timestamp_ms: int, count: int) -> None:
        """A data batch without delayed messages."""
        self.log_end = last_offset + 1
        self.fresh_count += count
        self.sent += count
        if timestamp_ms > self.last_ms:
            self.last_ms = timestamp_ms

    def fold_records(self, records: Iterable[tuple[int, bytes]], sent_ms: int) -> FoldedHeaders:
        """What the header sections of the batch just folded say: duplicates go, delayed messages wait in `live`."""
        noted = FoldedHeaders()
        time_ms = self.last_ms
        dedup = None
        keeps_keys = not self.config.fifo  # its groups are in `group_of`
        for offset, section in records:
            delay_ms, group, dedup_id, dead_source, tag, due, release = machine_headers(section)
            if release:  # no new message: it passes where the partition was closed since it was sent
                if not self._fold_release(offset, release, sent_ms, noted):
                    continue
            elif self.config.closed:
                original = self._fold_refused(dedup_id, dead_source, offset, time_ms)
                noted.duplicates.append((offset, original))
                continue
            if dedup_id:
                if dedup is None:
                    if self.dedup is EMPTY_IDS:
                        self.dedup = DedupWindow(self.config.dedup_window_ms)
                    dedup = self.dedup
                    dedup.begin(offset, time_ms)
                original = dedup.original(dedup_id, offset, time_ms)
                if original != NOT_SEEN:
                    self._fold_duplicate(offset)
                    noted.duplicates.append((offset, original))
                    continue
            if due and self._fold_scheduled(offset, due, sent_ms):
                noted.excluded.append(offset)
                noted.scheduled.append(offset)
                continue
            if delay_ms:
                if not keeps_keys or len(self.live) < DELAYED_LIVE_MAX:
                    self._fold_delayed(offset, sent_ms + delay_ms, sent_ms, group)
                    noted.delayed.append(offset)
                else:
                    self.allocate()
                    self._fold_waiting(self.delayed, offset, sent_ms + delay_ms)
                    noted.excluded.append(offset)
                    continue
            elif dead_source and not self._fold_dead_letter(offset, sent_ms, dead_source, noted):
                continue
            noted.groups[offset] = group
            if keeps_keys and (group or tag):
                noted.keys[offset] = (group, tag)
        if noted.keys:
            self._fold_keys(noted)
        return noted

    def _fold_keys(self, noted: FoldedHeaders) -> None:
        self.keyed_end = self.log_end
        delayed = {offset: noted.keys[offset] for offset in noted.delayed if offset in noted.keys}
        if delayed:
            self._own_keys().update(delayed)

    def _fold_dead_letter(self, offset: int, arrived_ms: int, dead_source: bytes, noted: FoldedHeaders) -> bool:
        """Whether the record at `offset` is a message now, and no second copy of one that came before."""
        source, original = self._take_letter(offset, dead_source)
        if original != NOT_SEEN:
            self._fold_duplicate(offset)
            noted.duplicates.append((offset, original))
            return False
        if source is not None:
            self._fold_age(offset, arrived_ms, source, noted)
        return True

    def _take_letter(self, offset: int, dead_source: bytes) -> tuple[DeadSource | None, int]:
        """Where it comes from, as far as that makes sense, and the copy of it that came before."""
        try:
            source = _decode_dead_source(dead_source)
        except msgspec.DecodeError:
            return None, NOT_SEEN
        if self.letters_taken is None:
            self.letters_taken = TakenLetters()
        return source, self.letters_taken.take(source, offset)

    def _fold_age(self, offset: int, arrived_ms: int, source: DeadSource, noted: FoldedHeaders) -> None:
        """A message that came from another queue is as old as it was there, which only `live` can say: it is due at
        once. Beyond a bound its age counts from its arrival."""
        if len(self.live) < DEAD_LETTERS_BY_AGE_MAX:
            self._fold_delayed(offset, arrived_ms, min(source.sent_ms, arrived_ms), b"")
            noted.delayed.append(offset)

    def _fold_scheduled(self, offset: int, due: bytes, sent_ms: int) -> bool:
        """Whether it waits in the schedule. A time that is named waits even if it is past by the stamp, which may be
        ahead of most clocks: the leader, who knows them, releases it."""
        due_ms = due_time_ms(due, sent_ms)
        if due_ms <= sent_ms and (due_ms <= 0 or not is_named_time(due)):
            return False
        self.allocate()
        self._fold_waiting(self.scheduled, offset, due_ms)
        return True

    def _fold_waiting(self, waiting: Schedule, offset: int, due_ms: int) -> None:
        waiting.add(offset, due_ms)
        self.fresh_count -= 1
        self._mark_removed(offset, offset + 1)

    def _fold_release(self, offset: int, release: bytes, arrived_ms: int, noted: FoldedHeaders) -> bool:
        """Whether the record at `offset` is a message now, that which was scheduled or delayed. A delayed one is as old
        as it was there, as long as there is room to remember it."""
        source, due_ms, sent_ms = source_of_release(release)
        noted.released.append(source)
        self.sent -= 1
        if self.scheduled.due_ms(source) == due_ms:
            self.scheduled.remove(source)
            return True
        if self.delayed.due_ms(source) == due_ms:
            self.delayed.remove(source)
            if sent_ms and len(self.live) < DELAYED_LIVE_MAX:
                self._fold_delayed(offset, arrived_ms, min(sent_ms, arrived_ms), b"")
                noted.delayed.append(offset)
            return True
        self.fresh_count -= 1
        self._mark_removed(offset, offset + 1)
        noted.excluded.append(offset)
        return False

    def _fold_duplicate(self, offset: int) -> None:
        self.sent -= 1
        self.duplicates += 1
        self.fresh_count -= 1
        self._mark_removed(offset, offset + 1)

    def _fold_refused(self, dedup_id: bytes, dead_source: bytes, offset: int, time_ms: int) -> int:
        """The partition is closed: it says what it took before (R28, R30), and takes nothing."""
        original = self.dedup.find(dedup_id, time_ms) if dedup_id else NOT_SEEN
        if original == NOT_SEEN and dead_source and self.letters_taken is not None:
            with suppress(msgspec.DecodeError):
                original = self.letters_taken.find(_decode_dead_source(dead_source))
        self._fold_duplicate(offset)
        if original != NOT_SEEN:
            return original
        self.duplicates -= 1
        return NOT_TAKEN

    def _fold_delayed(self, offset: int, due_ms: int, sent_ms: int, group: bytes) -> None:
        self.allocate()
        entry, neighbour = (due_ms, 0, 0, sent_ms), self.live.get(offset - 1)
        # Messages that were sent together share one, as those do that are leased together.
        self.live[offset] = neighbour if neighbour == entry else entry
        self.fresh_count -= 1

    def fold_control(self, base_offset: int, last_offset: int) -> None:
        """A control batch: no messages. Behind one that was taken out ahead of waiting ones it would stand between two
        ranges of `removed_above_cursor` that can be one."""
        if self.removed_above_cursor and (base_offset - 1 in self.removed_above_cursor or base_offset - 1 in self.live):
            self._mark_removed(base_offset, last_offset + 1)

    def end_entry(self, end_offset: int) -> None:
        """Every entry ends here (a data batch without delayed messages need not: something is fresh)."""
        self.log_end = end_offset
        assert self.fresh_count >= 0, "more messages left the queue than were fresh in it"
        if self.fresh_count == 0:
            self._move_cursor(end_offset)

    # --- commands ---------------------------------------------------------------------------------------------

    def fold_acquired(self, command: AcquiredCommand) -> None:
        """Lease messages. What is gone by now (deleted, purged, expired before this in the log) stays gone."""
        self.allocate()
        live = self.live
        for leased in command.acquisitions:
            time_ms, deadline_ms = leased.time_ms, leased.deadline_ms
            fields = iter(leased.fresh)
            for first, last, sent_ms in zip(fields, fields, fields, strict=True):
                self._lease_fresh(first, last, (deadline_ms, 1, time_ms, sent_ms))
            for offset in leased.again:
                entry = live.get(offset)
                if entry is not None:
                    live[offset] = (deadline_ms, entry[1] + 1, entry[2] or time_ms, entry[3])
                    self.received += 1
        if command.keys:
            take_keys(self._own_keys(), live, command.keys)
        self._move_cursor(command.cursor)

    def fold_deleted(self, command: DeletedCommand) -> list[int]:
        """Delete by receipt; returns the offsets that were deleted ahead of the cursor.

        All receipts succeed, as on any standard queue, those of older deliveries too, and a message that is gone is
        gone. The leader let receipts at or beyond its cursor through only where the log holds a message.
        """
        live = self.live
        ahead: list[int] = []
        left: list[int] = []
        fields = iter(command.receipts)
        for offset, delivery in zip(fields, fields, strict=True):
            entry = live.get(offset)
            if entry is not None:
                if delivery > 0:
                    del live[offset]
                    left.append(offset)
                    if offset >= self.cursor:
                        self._mark_removed(offset, offset + 1)
            elif self.cursor <= offset < self.log_end and offset not in self.removed_above_cursor:
                self._mark_removed(offset, offset + 1)
                self.fresh_count -= 1
                ahead.append(offset)
        if ahead and self.level >= DELETES_OF_LOST_LEASES_BILLED:
            self.received += len(ahead)
            bill_lost_leases(self.metering, ahead, command, self.held_count + len(ahead))
        self.deleted += len(left) + len(ahead)
        if command.sizes or command.told:
            fold_meter_fields(self.metering, left, command)
        if self.keys:
            drop_keys(self.keys, self.live, command.receipts[::2])
        return ahead

    def fold_visibility(self, command: VisibilityCommand) -> list[ErrorCode]:
        """Move deadlines; one code a change (UNKNOWN_RECORD: the message is gone)."""
        now_ms, live = command.time_ms, self.live
        codes: list[ErrorCode] = []
        unseen: list[int] = []
        fields = iter(command.changes)
        for offset, delivery, visibility_ms in zip(fields, fields, fields, strict=True):
            entry = live.get(offset)
            if entry is None:
                is_gone = offset < self.cursor or offset in self.removed_above_cursor
                codes.append(ErrorCode.UNKNOWN_RECORD if is_gone else ErrorCode.NOT_IN_FLIGHT)
            elif not self._may_change(entry, delivery, visibility_ms, now_ms):
                codes.append(ErrorCode.NOT_IN_FLIGHT)
            else:
                if visibility_ms > 0:
                    live[offset] = (now_ms + visibility_ms, *entry[1:])
                else:
                    if visibility_ms == UNSEEN:
                        unseen.append(offset)
                        visibility_ms = uncounted(0)
                    live[offset] = self._given_back(offset, entry, now_ms, visibility_ms)
                codes.append(ErrorCode.OK)
        if unseen and self.metering is not None:
            take_back(self.metering, unseen, command, self.held_count)
        return codes

    def _may_change(self, entry: Entry, delivery: int, visibility_ms: int, now_ms: int) -> bool:
        """A lease that holds may be changed. So may a message by the receipt of any delivery of it, whether another
        lease holds or none does, unless it died, or the receive is to count as failed or not at all, or the change is
        for the case that the lease holds."""
        if delivery == 0 or entry[1] == 0:
            return False
        if entry[0] > now_ms and entry[1] == delivery:
            return True
        is_dead = 0 < self.receives_max <= receives_of(entry[1]) and entry[0] <= now_ms
        return visibility_ms >= 0 and not is_dead

    def _given_back(self, offset: int, entry: Entry, now_ms: int, visibility_ms: int) -> Entry:
        if visibility_ms <= IF_HELD_MAX:
            visibility_ms = if_held(visibility_ms)
            if visibility_ms > 0:
                return (now_ms + visibility_ms, *entry[1:])
        if visibility_ms == NACKED:
            return (now_ms, *entry[1:])
        delivery = entry[1]
        if visibility_ms < NACKED:
            delivery, visibility_ms = released(delivery), uncounted(visibility_ms)
        end_ms = now_ms + visibility_ms
        # Due when the caller said: the pause that follows a lease is set back.
        pause_ms = self.due_ms(offset, (end_ms, delivery, 0, 0)) - end_ms
        return (end_ms - pause_ms, delivery, entry[2], entry[3])

    def fold_expired(self, command: ExpiredCommand) -> None:
        offsets = command.offsets
        expired = 0
        left: list[int] = []
        fields = iter(command.ranges)
        for first, last in zip(fields, fields, strict=True):
            count = len(self._still_fresh(first, last))
            self.fresh_count -= count
            expired += count
            # What is before the command's cursor, that passes: it moves over all messages before it or none.
            if count and first >= command.cursor:
                self._mark_removed(max(first, self.cursor), last + 1)
        for offset in offsets:
            if self.live.pop(offset, None) is not None:
                expired += 1
                left.append(offset)
                if offset >= self.cursor:
                    self._mark_removed(offset, offset + 1)
        self.expired += expired
        take_out(self.metering, left, offsets, command.sizes)
        if self.keys:
            drop_keys(self.keys, self.live, offsets)
        self._move_cursor(command.cursor)

    def fold_purged(self, command: PurgedCommand, offset: int) -> tuple[ErrorCode, int]:
        """Everything below the command's own offset goes, in flight and delayed too, and the deduplication ids with it;
        at most once an interval. A repeat of the last one hears what that did."""
        if self.is_last_purge(command):
            assert self.last_purge is not None
            return ErrorCode.OK, self.last_purge[1]
        if command.time_ms - self.last_purge_ms < PURGE_INTERVAL_MS:
            return ErrorCode.PURGE_IN_PROGRESS, 0
        count = self.held_count
        self.purged += count
        self.fresh_count = 0
        self.live.clear()
        self.scheduled.clear()
        self.delayed.clear()
        self.keys.clear()
        self.dedup = EMPTY_IDS
        self.purge = command.time_ms, (command.attempt, count) if command.attempt else None
        self._move_cursor(offset)
        return ErrorCode.OK, count

    @property
    def is_retired(self) -> bool:
        """Does the partition take no requests any more? It is to be deleted."""
        return self.metering is not None and self.metering.is_final

    def is_last_purge(self, command: PurgedCommand) -> bool:
        """Does this one repeat the last one?"""
        return bool(command.attempt) and self.last_purge is not None and self.last_purge[0] == command.attempt

    def fold_configured(self, command: ConfiguredCommand) -> None:
        # Commands of earlier versions hold fewer fields; whether a queue is FIFO never changes.
        config = msgspec.structs.replace(self.config, **command.known)
        # Others take the messages of a closed one by then: a configuration that comes late must not open it again.
        closed = self.config.closed or config.closed
        self.config = shared_config(msgspec.structs.replace(config, fifo=self.config.fifo, closed=closed))
        if self.dedup is not EMPTY_IDS:
            self.dedup.window_ms = config.dedup_window_ms

    def fold_dead_lettered(self, command: DeadLetteredCommand) -> list[int]:
        """These stand in the dead-letter queue now; returns those that were still here."""
        moved = [offset for offset in command.offsets if self.live.pop(offset, None) is not None]
        take_out(self.metering, moved, command.offsets, command.sizes)
        for offset in moved:
            if offset >= self.cursor:
                self._mark_removed(offset, offset + 1)
        self.dead_lettered += len(moved)
        if self.keys:
            drop_keys(self.keys, self.live, moved)
        return moved

    def fold_rescheduled(self, command: RescheduledCommand) -> list[ErrorCode]:
        """One code a change. What is not scheduled any more is due, or gone: nothing happens to it."""
        codes: list[ErrorCode] = []
        cancelled: list[int] = []
        fields = iter(command.changes)
        for offset, due_ms in zip(fields, fields, strict=True):
            if not self.scheduled.remove(offset):
                codes.append(ErrorCode.NOT_SCHEDULED)
                continue
            codes.append(ErrorCode.OK)
            if due_ms:
                self.scheduled.add(offset, min(due_ms, command.time_ms + SCHEDULE_MS_MAX))
            else:
                self.deleted += 1
                cancelled.append(offset)
        take_out(self.metering, cancelled, command.changes[::2], command.sizes)
        return codes

    def fold_removed(self, command: RemovedCommand) -> list[ErrorCode]:
        """Messages go by their offsets, leased or not; one code each. The leader names offsets of messages only."""
        offsets = command.offsets
        codes = [ErrorCode.OK if self._remove(offset) else ErrorCode.UNKNOWN_RECORD for offset in offsets]
        if self.keys:
            drop_keys(self.keys, self.live, offsets)
        left = [offset for offset, code in zip(offsets, codes, strict=True) if code is ErrorCode.OK]
        take_out(self.metering, left, offsets, command.sizes)
        if command.is_moved:
            self.dead_lettered += len(left)
        else:
            self.deleted += len(left)
        return codes

    # --- inside -----------------------------------------------------------------------------------------------

    def _remove(self, offset: int) -> bool:
        if self.scheduled.remove(offset) or self.delayed.remove(offset):
            return True
        if self.live.pop(offset, None) is not None:
            if offset >= self.cursor:
                self._mark_removed(offset, offset + 1)
            return True
        if not self.cursor <= offset < self.log_end or offset in self.removed_above_cursor:
            return False
        self._mark_removed(offset, offset + 1)
        self.fresh_count -= 1
        return True

    def _lease_fresh(self, first: int, last: int, entry: Entry) -> None:
        offsets = self._still_fresh(first, last)
        self.live.update(dict.fromkeys(offsets, entry))
        self.fresh_count -= len(offsets)
        self.received += len(offsets)

    def _still_fresh(self, first: int, last: int) -> Sequence[int]:
        """Offsets of a range of fresh messages that did not go since the leader named it.

        The leader never names delayed messages or control records, so only the cursor (moved by a purge) and
        `removed_above_cursor` are asked.
        """
        offsets = range(max(first, self.cursor), last + 1)
        if not self.removed_above_cursor:
            return offsets
        gaps = self.removed_above_cursor.gaps(offsets.start, offsets.stop)
        return [offset for first, end in gaps for offset in range(first, end)]
