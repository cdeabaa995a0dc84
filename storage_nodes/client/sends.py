"""Sends: those to one partition that are made within one turn of the event loop share one frame.

    callers -> gathered -> Frame: numbered, encoded once -> asked, again and again -> each caller gets its own offsets

The frame stays what it is through all attempts, so the node recognises it (storage_nodes/machines/producers.py): it is
appended once, however many attempts there are. A frame without acknowledgement (acks NONE) has no numbers, and is not
tried again once it may have arrived.
"""

from __future__ import annotations

import asyncio
from itertools import chain

import msgspec

from storage_nodes.client.deadlines import Deadlines
from storage_nodes.client.leaders import Call, NodeLinks
from storage_nodes.client.pauses import Chance, Pauses
from storage_nodes.client.send_window import SendWindow
from storage_nodes.client.sequences import Line, Sequences
from storage_nodes.client.suspensions import Suspensions
from storage_nodes.limits import APPEND_BYTES_MAX, PRODUCER_WINDOW_RECORDS, RECORDS_PER_SEND_MAX
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import NOBODY_ASKED, ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, SendRequest, encode_message

assert RECORDS_PER_SEND_MAX < PRODUCER_WINDOW_RECORDS

# Partitions whose windows are kept; one that is idle costs nothing to make anew.
WINDOWS_KEPT_MAX = 10_000
# Opcode, partition, plain, acks.
Key = tuple[int, int, bool, int]

_send_reply = msgspec.msgpack.Decoder(SendReply)


class Sends:
    """The sends of one client."""

    def __init__(self, links: NodeLinks, chance: Chance, timeout_s: float, attempts_max: int) -> None:
        self._links = links
        self._chance = chance
        self._timeout_s = timeout_s
        self._attempts_max = attempts_max
        self._sequences = Sequences(chance)
        self._suspensions = Suspensions()
        self._deadlines = Deadlines(self._suspensions)
        # Bodies of each caller, and who waits for them.
        self._gathering: dict[Key, tuple[list[list[bytes]], list[asyncio.Future[SendReply]]]] = {}
        # By partition, sends for all voters apart: they wait for as long as one is away. When there are many, those
        # through which nothing goes are dropped.
        self._windows: dict[tuple[int, bool], SendWindow] = {}

    def send(
        self, opcode: int, partition: int, bodies: list[bytes], plain: bool, acks: int
    ) -> asyncio.Future[SendReply]:
        """To be called on the event loop."""
        loop = self._links.loop or asyncio.get_running_loop()
        reply: asyncio.Future[SendReply] = loop.create_future()
        key = (opcode, partition, plain, acks)
        gathering = self._gathering.get(key)
        if gathering is None:
            self._gathering[key] = [bodies], [reply]
            loop.call_soon(self._dispatch, loop, key)
        else:
            gathering[0].append(bodies)
            gathering[1].append(reply)
        return reply

    def _dispatch(self, loop: asyncio.AbstractEventLoop, key: Key) -> None:
        sends, replies = self._gathering.pop(key)
        while replies:
            count = _fitting(sends) if len(sends) > 1 else 1
            frame = _Frame(loop, self._links, self._window(key), key, sends[:count], replies[:count], self)
            sends, replies = sends[count:], replies[count:]
            frame.begin(self._sequences, self._deadlines, self._timeout_s)

    def pauses(self) -> Pauses:
        return Pauses(self._chance, self._attempts_max)

    def was_suspended(self, deadline_s: float, now_s: float) -> bool:
        """Since the call with this deadline began, long enough for nodes to forget it?"""
        return self._suspensions.any_since(deadline_s - self._timeout_s, now_s)

    def _window(self, key: Key) -> SendWindow:
        name = (key[1], key[3] == Acks.ALL)
        window = self._windows.get(name)
        if window is None:
            if len(self._windows) >= WINDOWS_KEPT_MAX:
                self._windows = {other: kept for other, kept in self._windows.items() if not kept.is_idle}
            window = self._windows[name] = SendWindow()
        return window


class _Frame:
    """One frame, from its first attempt to its outcome."""

    __slots__ = (
        "_admitted_bytes",
        "_asked",
        "_bodies",
        "_call",
        "_count",
        "_counts",
        "_is_stored",
        "_key",
        "_line",
        "_links",
        "_loop",
        "_owner",
        "_pauses",
        "_payload",
        "_replies",
        "_retry",
        "_sequence",
        "_turn",
        "_unsure",
        "_window",
        "deadline_s",
        "is_over",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        links: NodeLinks,
        window: SendWindow,
        key: Key,
        sends: list[list[bytes]],
        replies: list[asyncio.Future[SendReply]],
        owner: Sends,
    ) -> None:
        self._loop = loop
        self._links = links
        self._owner = owner
        # From the first attempt on that failed.
        self._pauses: Pauses | None = None
        self._window = window
        # Bytes of the frame that the window holds for it.
        self._admitted_bytes = 0
        self._key = key
        # By caller: how many records are its own, and where it waits for its answer.
        self._counts = list(map(len, sends))
        self._replies = replies
        # Of all callers, until they are encoded.
        self._bodies = sends[0] if len(sends) == 1 else list(chain.from_iterable(sends))
        self._count = len(self._bodies)
        self._line: Line | None = None
        self._sequence = -1
        # Its place among those that wait for a number.
        self._turn = 0
        self._payload = b""
        self._asked = 0
        self._call: Call | None = None
        self._retry: asyncio.TimerHandle | None = None
        self.deadline_s = 0.0
        # Did an attempt end of which nobody knows whether it took effect?
        self._unsure = False
        self._is_stored = False
        self.is_over = False

    def begin(self, sequences: Sequences, deadlines: Deadlines, timeout_s: float) -> None:
        self.deadline_s = self._loop.time() + timeout_s
        deadlines.add(self._loop, self)
        _, partition, _, acks = self._key
        if acks == Acks.NONE:
            self._numbered(-1)
        else:
            self._line = sequences.line(partition, acks == Acks.ALL)
            self._turn = self._line.number(self._count, self._numbered)
            if self._sequence < 0:
                for reply in self._replies:
                    reply.add_done_callback(self._leave)

    def _leave(self, _: asyncio.Future[SendReply]) -> None:
        """A caller has gone away: nobody may be left who waits for a number."""
        if self._sequence < 0 and not self.is_over and self._is_unwanted():
            self._end()

    def _is_unwanted(self) -> bool:
        # Nearly always the first one says it.
        return self._replies[0].done() and all(reply.done() for reply in self._replies)

    def _numbered(self, first: int) -> None:
        self._sequence = first
        bodies, self._bodies = self._bodies, []
        _, partition, plain, acks = self._key
        if self._line is None:
            request = SendRequest(partition, bodies, plain, acks)
        else:
            request = SendRequest(partition, bodies, plain, acks, self._line.producer_id, 0, first)
        self._payload = encode_message(request)
        self._window.enter(len(self._payload), self._admitted)

    def _admitted(self) -> bool:
        """There is room for it now. False: nobody wants to know any more."""
        if self.is_over:
            return False
        self._admitted_bytes = len(self._payload)
        self._ask()
        return True

    def _ask(self) -> None:
        self._retry = None
        if self._is_unwanted():
            self._end()  # nobody is left who wants to know
            return
        self._asked = self._links.guess(self._key[1])
        self._call = None
        call = self._links.ask_node(self._asked, self._key[0], self._payload, self, at_once=True)
        if not self.is_over and self._retry is None:
            self._call = call

    def __call__(self, result: bytes | StorageError) -> None:
        """The outcome of an attempt."""
        self._call = None
        if self.is_over:
            return
        if not isinstance(result, StorageError):
            self._answered(_send_reply.decode(result))
            return
        result.asked = self._asked
        traits = result.traits
        self._unsure |= traits.outcome_unknown
        if traits.retriable:
            self._links.forget_leader(self._key[1], result)
        if self._pauses is None:
            self._pauses = self._owner.pauses()
        pause_s = self._pauses.after(result)
        is_last = not traits.retriable or (self._key[3] == Acks.NONE and traits.outcome_unknown)
        if is_last or self._loop.time() + pause_s > self.deadline_s:
            self._fail(result)
            return
        self._retry = self._loop.call_later(pause_s, self._ask_again, result)

    def _ask_again(self, error: StorageError) -> None:
        """Another attempt, unless the machine was suspended and one before may stand where nobody knows it any more."""
        if self._unsure and self._owner.was_suspended(self.deadline_s, self._loop.time()):
            self._retry = None
            self._fail(error)
        else:
            self._ask()

    def give_up(self) -> None:
        """Its time is over."""
        error = StorageError(ErrorCode.UNREACHABLE, "no answer in time")
        error.asked = self._asked or NOBODY_ASKED
        if self._call is not None:
            error.node_is_there = self._call.node_is_there
            self._unsure |= self._call.cancel()
        self._fail(error)

    def _answered(self, reply: SendReply) -> None:
        self._is_stored = True
        if len(self._replies) == 1:
            if not self._replies[0].done():
                self._replies[0].set_result(reply)
        else:
            self._share(reply)
        self._end()

    def _share(self, reply: SendReply) -> None:
        if reply.duplicates or reply.stretches:  # rarely
            first = 0
            for caller, count in zip(self._replies, self._counts, strict=True):
                if not caller.done():
                    caller.set_result(_share_of(reply, first, first + count))
                first += count
            return
        offset, timestamp_ms = reply.first_offset, reply.timestamp_ms
        for caller, count in zip(self._replies, self._counts, strict=True):
            if not caller.done():
                caller.set_result(SendReply(offset, timestamp_ms))
            offset += count

    def _fail(self, error: StorageError) -> None:
        error = outcome_of(error, self._unsure)
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(error)
        self._end()

    def _end(self) -> None:
        """Callers are answered before: here the frames behind get their turn."""
        self.is_over = True
        if self._retry is not None:
            self._retry.cancel()
        self._payload = b""
        self._bodies = []
        admitted_bytes, self._admitted_bytes = self._admitted_bytes, 0
        if admitted_bytes:
            self._window.leave(admitted_bytes)
        if self._line is not None:
            if self._sequence >= 0:
                self._line.done(self._sequence, self._count if self._is_stored else 0)
            else:
                self._line.leave(self._turn)


def outcome_of(error: StorageError, unsure: bool) -> StorageError:
    """What the caller hears: a refusal says nothing of an earlier attempt, which may have taken effect."""
    if not unsure or error.traits.outcome_unknown:
        return error
    unknown = StorageError(ErrorCode.OUTCOME_UNKNOWN, f"an earlier attempt may have arrived; the last: {error}")
    unknown.asked, unknown.node_is_there = error.asked, error.node_is_there
    return unknown


def _fitting(sends: list[list[bytes]]) -> int:
    """How many callers' records fit one frame, those of the first one at least."""
    sizes = list(map(len, chain.from_iterable(sends)))
    if len(sizes) <= RECORDS_PER_SEND_MAX and sum(sizes) <= APPEND_BYTES_MAX:
        return len(sends)
    records = size = 0
    for index, bodies in enumerate(sends):
        records += len(bodies)
        size += sum(map(len, bodies))
        if index and (records > RECORDS_PER_SEND_MAX or size > APPEND_BYTES_MAX):
            return index
    return len(sends)


def _share_of(reply: SendReply, first: int, end: int) -> SendReply:
    duplicates = [(at - first, original) for at, original in reply.duplicates if first <= at < end]
    stretches = [(at - first, offset) for at, offset in reply.stretches if first < at < end]
    return SendReply(reply.offset_of(first), reply.timestamp_ms, duplicates, stretches)
