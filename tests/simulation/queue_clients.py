"""Clients of queues: senders that retry, receivers that delete, are slow, or forget.

Every attempt of a send has bodies of its own, so that each ends as exactly one of ok, fail, unknown, and a failed one
must never have had an effect.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from storage_nodes.model import Acks
from storage_nodes.protocol.messages import (
    AcquireRequest,
    ChangeVisibilityRequest,
    DeleteRequest,
    Opcode,
    PurgeRequest,
    RescheduleRequest,
    SendRequest,
    VisibilityMode,
)
from storage_nodes.protocol.records import (
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_TAG,
    encode_body,
)
from tests.simulation.clients import RETRY_US, Client, Operation
from tests.simulation.clocks import true_ms

if TYPE_CHECKING:
    from tests.simulation.world import World


TAGS = (b"red", b"blue")


class Sender(Client):
    """Sends its messages one batch after the other, each until it is acknowledged."""

    opcode = Opcode.SEND
    may_delay = True
    is_plain = True
    has_keys = True

    def __init__(self, world: World, number: int, partition: int) -> None:
        super().__init__(world, number)
        self._partition = partition
        self._message = 0
        self._attempt = 0
        self.is_idle = False
        self.acked = 0
        self._pause_us = self.random.choice([1_000, 20_000, 200_000])
        self._weak = self.random.random() < 0.15
        self._size = self.random.choice([10, 60, 300])
        self._delayed = self.may_delay and self.random.random() < 0.3
        # Decisions about the schedule come from a source of their own: runs without one stay as they were.
        self._scheduling = random.Random(f"{world.seed}-schedule-{number}")
        self._schedules = self._scheduling.random() < 0.25
        self._largeness = random.Random(f"{world.seed}-large-{number}")
        self._large_bytes = world.faults.large_bytes
        self._keyed = self.has_keys and world.faults.keyed

    def next_message(self) -> None:
        if self.world.draining or self.world.is_dropped(self._partition):
            self.is_idle = True
            return
        self._message += 1
        self._attempt = 0
        self._count = self.random.choice([1, 1, 2, 7])
        self.send()

    def send(self) -> None:
        if self.world.is_dropped(self._partition):
            self.is_idle = True
            return
        self._attempt += 1
        acks = self.random.choice([Acks.LEADER, Acks.NONE]) if self._weak else Acks.QUORUM
        if not self._weak and self.random.random() < 0.05 and not self.world.draining:
            acks = Acks.ALL
        delayed = self._delayed and self.random.random() < 0.3
        due = [(HEADER_DELAY_MS, b"%d" % self.random.choice([1, 200, 1_500]))] if delayed else []
        if self._schedules and self._scheduling.random() < 0.4:
            delayed, due = True, [(HEADER_DUE, b"+%d" % self._scheduling.choice([1, 300, 2_500]))]
        filler = b"x" * self.random.randrange(self._size)
        if self._large_bytes and self._count == 1 and self._largeness.random() < 0.4:
            filler = b"x" * self._largeness.randrange(self._large_bytes)
        bodies = [
            encode_body(
                b"%d/%d/%d/%d|%b" % (self.process_id, self._message, index, self._attempt, filler),
                None,
                due + self.headers_of(index),
            )
            for index in range(self._count)
        ]
        request = SendRequest(self._partition, bodies, self.is_plain and not (delayed or self._keyed), acks)
        self.world.referee.sends(request)
        self.ask(self.opcode, request, self.random.choice([1_000_000, 3_000_000]), self._sent)

    def headers_of(self, index: int) -> list[tuple[bytes, bytes]]:
        """Of one message of the batch. Most have the group of a flood, the others one of few; a third has no tag."""
        if not self._keyed:
            return []
        number = self._message + index
        group = b"flood" if number % 4 else b"quiet%d" % (number // 4 % 5)
        return [(HEADER_GROUP, group), *([(HEADER_TAG, TAGS[number % 3])] if number % 3 < len(TAGS) else [])]

    def _sent(self, operation: Operation) -> None:
        self.world.referee.send_ended(operation)
        if operation.outcome == "ok":
            self.acked += self._count
            if self._schedules and self._scheduling.random() < 0.5:
                self._reschedule(operation.reply.first_offset)
            self.at_leisure(self.random.randrange(self._pause_us), self.next_message)
        else:
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self.send)

    def _reschedule(self, offset: int) -> None:
        """Cancel, or give another time, what may be scheduled there, may be due, and may never have been."""
        now_ms = true_ms(self.world.scheduler)
        due_ms = self._scheduling.choice([0, 0, 1, now_ms + 1_000])
        request = RescheduleRequest(self._partition, [(offset + index, due_ms) for index in range(self._count)])
        self.ask(Opcode.RESCHEDULE, request, 2_000_000, lambda _: None)


class FifoSender(Sender):
    """Each message has one deduplication id, however often it is sent, and a group of few."""

    may_delay = False
    is_plain = False
    has_keys = False

    def headers_of(self, index: int) -> list[tuple[bytes, bytes]]:
        group = b"g%d" % ((self._message + index) % 3)
        return [(HEADER_GROUP, group), (HEADER_DEDUP, b"%d/%d/%d" % (self.process_id, self._message, index))]


class Receiver(Client):
    """Leases messages and mostly deletes them."""

    def __init__(self, world: World, number: int, partition: int) -> None:
        super().__init__(world, number)
        self._partition = partition
        self._visibility_ms = self.random.choice([100, 500, 1_500, 5_000])
        self._slow_ms = self.random.choice([1, 50, 2_000])
        self._forgets = self.random.choice([0.0, 0.1, 0.5])
        self._changes = self.random.choice([0.0, 0.2])
        self._purges = self.random.random() < 0.1
        self._polls = number
        self._filters = world.faults.keyed and ":fifo:" not in world.partitions[partition].tag

    def receive(self) -> None:
        if self.world.is_dropped(self._partition):
            return
        if self._purges and not self.world.draining and self.random.random() < 0.02:
            self.ask(Opcode.PURGE, PurgeRequest(self._partition), 2_000_000, lambda _: None)
        wait_ms = self.random.choice([0, 0, 300, 3_000])
        count = self.random.choice([1, 3, 10, 40])
        request = AcquireRequest(self._partition, count, self._visibility_ms, wait_ms, b"", self._tags())
        self.ask(Opcode.ACQUIRE, request, (wait_ms + 1_500) * 1_000, self._received)

    def _tags(self) -> list[bytes]:
        """What to ask for, half of the time; while the queue is to be drained everything."""
        self._polls += 1
        if not self._filters or self.world.draining or self._polls % 2:
            return []
        return [TAGS[self._polls // 2 % 2]] if self._polls % 3 else list(TAGS)

    def _received(self, operation: Operation) -> None:
        if operation.outcome != "ok":
            self.elsewhere(operation.reply)
            self.later(RETRY_US, self.receive)
            return
        receipts = [(message.offset, message.delivery) for message in operation.reply.messages]
        draining = self.world.draining
        if receipts and (draining or self.random.random() >= self._forgets):
            if not draining and self.random.random() < self._changes:
                self._change(receipts)
            delay_us = 1_000 if draining else self.random.randrange(self._slow_ms * 1_000)
            self.later(delay_us, lambda: self._delete(receipts))
        self.at_leisure(self.random.randrange(1_000, 60_000), self.receive)

    def _change(self, receipts: list[tuple[int, int]]) -> None:
        mode = self.random.choice([VisibilityMode.SET, *VisibilityMode])
        visibility_ms = self.random.choice([0, 300, 3_000]) if mode != VisibilityMode.NACK else 0
        changes = [(offset, delivery, visibility_ms) for offset, delivery in receipts]
        request = ChangeVisibilityRequest(self._partition, changes, mode)
        self.world.referee.changes(self._partition, changes, mode)
        self.ask(Opcode.CHANGE_VISIBILITY, request, 2_000_000, lambda _: None)

    def _delete(self, receipts: list[tuple[int, int]]) -> None:
        def deleted(operation: Operation) -> None:
            if operation.outcome != "ok":
                self.elsewhere(operation.reply)
                if self.random.random() < 0.7 and not self.world.is_dropped(self._partition):
                    self.later(RETRY_US, lambda: self._delete(receipts))

        self.ask(Opcode.DELETE, DeleteRequest(self._partition, receipts), 2_000_000, deleted)
