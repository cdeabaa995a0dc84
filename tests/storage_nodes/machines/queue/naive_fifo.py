"""A FIFO queue by its log, written apart from the product's fold: every message an object, every rule spelled out.

Fed with each entry that is committed, it checks what must hold of the entry (I8, I9, R26) and says what the product's
state has to be.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from storage_nodes.limits import PURGE_INTERVAL_MS
from storage_nodes.log.record_batch import BatchHeader, iterate_bodies
from storage_nodes.machines.queue import commands
from storage_nodes.machines.queue.state.retry import RetryPolicy
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DELAY_MS, HEADER_GROUP, decode_body


@dataclass
class Message:
    group: bytes
    sent_ms: int
    deadline_ms: int = 0  # while delivered or delayed
    delivery: int = 0
    first_received_ms: int = 0
    touched: bool = False  # delivered or delayed: no longer only in the log

    def is_in_flight(self, now_ms: int) -> bool:
        return self.delivery > 0 and self.deadline_ms > now_ms

    @property
    def receives(self) -> int:
        return self.delivery % 2**20


class NaiveFifo:
    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.messages: dict[int, Message] = {}
        self.ids: dict[bytes, tuple[int, int]] = {}  # id -> (offset, time_ms) of its last original
        self.duplicates: dict[int, int] = {}
        self.arrived: set[int] = set()
        self.delete_codes: list[ErrorCode | None] = []  # of the last command that deleted
        self.removed_codes: list[ErrorCode] = []  # of the last command that removed
        self.spared: set[int] = set()  # dead letters that could not be moved: may be received again
        self.parked: set[bytes] = set()
        self.last_ms = 0
        self.last_purge_ms = -PURGE_INTERVAL_MS

    def group_of(self, group: bytes) -> list[int]:
        return [offset for offset, message in sorted(self.messages.items()) if message.group == group]

    def fold(self, header: BatchHeader, batch: bytes) -> None:
        if not header.is_control:
            self.last_ms = max(self.last_ms, header.timestamp_ms)
            for offset, body in iterate_bodies(batch):
                self._arrive(offset, dict(decode_body(body).headers), header.timestamp_ms)
            return
        for offset, body in iterate_bodies(batch):
            command = commands.decode_command(body)
            if command is not None:
                self._command(command, offset)
                self.last_ms = max(self.last_ms, command.time_ms)

    def _arrive(self, offset: int, headers: dict[bytes, bytes], sent_ms: int) -> None:
        self.arrived.add(offset)
        dedup_id = headers.get(HEADER_DEDUP)
        if dedup_id:
            known = self.ids.get(dedup_id)
            if known is not None and self.last_ms - known[1] < self.config.dedup_window_ms:
                self.duplicates[offset] = known[0]
                return
            self.ids[dedup_id] = (offset, self.last_ms)
        message = self.messages[offset] = Message(headers.get(HEADER_GROUP, b""), sent_ms)
        if HEADER_DELAY_MS in headers:
            message.touched = True
            message.deadline_ms = sent_ms + int(headers[HEADER_DELAY_MS])

    def _command(self, command: commands.Command, offset: int) -> None:
        now_ms = command.time_ms
        if isinstance(command, commands.LeasedCommand):
            for lease in command.leases:
                self._lease(*msgspec.structs.astuple(lease))
        elif isinstance(command, commands.DeletedCommand):
            first = command.receipts
            self.delete_codes = [self._delete(*first[at : at + 2], now_ms) for at in range(0, len(first), 2)]
        elif isinstance(command, commands.VisibilityCommand):
            first = command.changes
            for at in range(0, len(first), 3):
                message = self.messages.get(first[at])
                if message and message.delivery == first[at + 1] and message.is_in_flight(now_ms):
                    self._change(first[at], message, now_ms, first[at + 2])
        elif isinstance(command, commands.ExpiredCommand):
            ranges = command.ranges
            for at in range(0, len(ranges), 2):
                for expired in range(ranges[at], ranges[at + 1] + 1):
                    if expired in self.messages and not self.messages[expired].touched:
                        self._expire(expired, now_ms)
            for expired in command.offsets:
                self._expire(expired, now_ms)
        elif isinstance(command, commands.DeadLetteredCommand):
            for moved in command.offsets:
                message = self.messages.pop(moved, None)
                assert message is None or message.receives >= self.config.max_receives > 0
                if message is not None and self.config.park_groups:
                    self.parked.add(message.group)
        elif isinstance(command, commands.UnparkedCommand):
            self.parked -= set(command.groups or self.parked)
        elif isinstance(command, commands.RemovedCommand):
            self.removed_codes = [
                ErrorCode.UNKNOWN_RECORD if self.messages.pop(one, None) is None else ErrorCode.OK
                for one in command.offsets
            ]
        else:
            assert isinstance(command, commands.PurgedCommand), f"{command}"
            if now_ms - self.last_purge_ms >= PURGE_INTERVAL_MS:
                self.last_purge_ms = now_ms
                self.parked.clear()
                self.ids.clear()
                self.messages = {o: message for o, message in self.messages.items() if o > offset}

    def _change(self, offset: int, message: Message, now_ms: int, visibility_ms: int) -> None:
        if visibility_ms == commands.NACKED:
            message.deadline_ms = now_ms
            return
        if visibility_ms == commands.UNSEEN:
            visibility_ms = commands.NACKED - 1  # at once, and not counted
        if visibility_ms < commands.NACKED:
            message.delivery += 2**20 - 1
            visibility_ms = commands.NACKED - 1 - visibility_ms
            message.deadline_ms = now_ms + visibility_ms - self.pause_ms(offset, message)
        else:
            pause_ms = 0 if visibility_ms else self.pause_ms(offset, message)
            message.deadline_ms = now_ms + visibility_ms - pause_ms

    def pause_ms(self, offset: int, message: Message) -> int:
        policy = RetryPolicy.of(self.config)
        is_dead = 0 < self.config.max_receives <= message.receives
        return 0 if policy is None or is_dead else policy.pause_ms(offset, message.delivery)

    def _delete(self, offset: int, delivery: int, now_ms: int) -> ErrorCode | None:
        message = self.messages.get(offset)
        if message is None:
            return ErrorCode.OK if offset in self.arrived else None  # never was one: both answers will do
        if not message.touched:
            return ErrorCode.UNKNOWN_RECORD
        if message.delivery != delivery or not message.is_in_flight(now_ms):
            return ErrorCode.RECEIPT_STALE
        del self.messages[offset]
        return ErrorCode.OK

    def _expire(self, offset: int, now_ms: int) -> None:
        message = self.messages.pop(offset, None)
        assert message is None or message.sent_ms <= now_ms - self.config.retention_ms, "expired too early"

    def _lease(self, time_ms: int, deadline_ms: int, attempt: bytes, is_renewal: bool, parts: list[object]) -> None:
        for at in range(0, len(parts), 3):
            group, again, fresh = parts[at : at + 3]
            offsets = [o for o in (*again, *fresh[::2]) if o in self.messages]  # type: ignore[misc, index]
            assert offsets == sorted(offsets), "delivered out of order"
            assert all(self.messages[o].group == group for o in offsets)
            if not is_renewal:
                self._check_lock_and_order(group, offsets, time_ms)  # type: ignore[arg-type]
            for offset in offsets:
                message = self.messages[offset]
                message.delivery += not is_renewal
                message.deadline_ms = deadline_ms
                message.first_received_ms = message.first_received_ms or time_ms
                message.touched = True

    def _check_lock_and_order(self, group: bytes, offsets: list[int], time_ms: int) -> None:
        """I9: the lease takes what stands first in the group, and nothing of that is in flight."""
        assert group not in self.parked, f"group {group!r} is parked"
        standing = self.group_of(group)
        assert not any(self.messages[offset].is_in_flight(time_ms) for offset in offsets), f"group {group!r}: leased"
        assert standing[: len(offsets)] == offsets, f"group {group!r}: {offsets} leased, {standing} stand"
        for offset in offsets:
            message = self.messages[offset]
            is_dead = 0 < self.config.max_receives <= message.receives
            assert not is_dead or offset in self.spared
            assert message.deadline_ms + self.pause_ms(offset, message) <= time_ms, "delayed, and handed out too early"
