"""Sends of producers that a leader has under way: a repeat joins its first attempt instead of being appended again.

What is folded is in the partition's state (`machines/producers.py`); what is not yet is here, from the request until
its entry is folded. Together they tell for every number whether it is new, under way or in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from storage_nodes.limits import OVERLOADED_RETRY_MS, PRODUCER_WINDOW_RECORDS, PRODUCERS_PER_PARTITION_MAX
from storage_nodes.machines.producers import ProducerTable, Repeated, check_producer, overlapping
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply, SendRequest, encode_message

# What may share a batch: plain, acks, how large batches may be, producer id, producer epoch.
BatchKind = tuple[bool, int, int, int, int]

# No record has a producer yet.
_NOBODY = ProducerTable()


class ProducerLine:
    """What one producer has under way."""

    __slots__ = ("epoch", "high", "producer_id", "requests")

    def __init__(self, producer_id: int, epoch: int, high: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.high = high  # end of the highest number, folded ones included
        self.requests: dict[int, Waiting] = {}  # by first number


@final
class Waiting:
    """A request on its way, and all who wait for its answer."""

    __slots__ = ("bodies", "count", "earlier", "first_offset", "is_answered", "kind", "line", "more", "sequence",
                 "size_bytes", "timestamp_ms", "token")  # fmt: skip

    def __init__(self, token: Token, request: SendRequest, kind: BatchKind, line: ProducerLine | None) -> None:
        self.token = token
        # Of repeats.
        self.more: list[Token] | None = None
        self.bodies = request.bodies
        self.count = len(request.bodies)
        self.kind = kind
        self.sequence = request.sequence
        self.line = line
        # What an earlier leader appended of it; the rest begins at first_offset.
        self.earlier: Repeated | None = None
        self.first_offset = self.timestamp_ms = -1
        self.size_bytes = 0  # in the log, about, while it gathers
        self.is_answered = False

    def answer(self, duplicates: list[tuple[int, int]]) -> None:
        """Tell everybody; `duplicates` are those among what was appended here."""
        self.is_answered = True
        if self.earlier is None:
            payload = encode_message(SendReply(self.first_offset, self.timestamp_ms, duplicates))
        else:
            payload = encode_message(self._reply_to_the_whole(self.earlier, duplicates))
        self.token.connection.answer(self.token, payload)
        for token in self.more or ():
            token.connection.answer(token, payload)

    def refuse(self, error: StorageError) -> None:
        for token in (self.token, *(self.more or ())):
            token.connection.refuse(token, error)

    def _reply_to_the_whole(self, earlier: Repeated, duplicates: list[tuple[int, int]]) -> SendReply:
        known = earlier.known
        own = [(known + index, original) for index, original in duplicates]
        stretches = [*earlier.stretches, *([(known, self.first_offset)] if known < self.count else ())]
        return SendReply(stretches[0][1], self.timestamp_ms, [*earlier.duplicates, *own], stretches[1:])


def never() -> int:
    """Of a leader that does not know since when: everybody is in use."""
    return 0


class Repeats:
    """Of one partition, while it is led here. `used_since_ms`: a producer that was not heard of since then, by the
    stamps of the log, is not in use."""

    __slots__ = ("_last", "_lines", "_used_since_ms")

    def __init__(self, used_since_ms: Callable[[], int] = never) -> None:
        self._lines: dict[int, ProducerLine] = {}
        # The one that was folded to its end last: who sends one message at a time goes on with it.
        self._last: ProducerLine | None = None
        self._used_since_ms = used_since_ms

    def line(self, request: SendRequest, producers: ProducerTable | None) -> ProducerLine | None:
        """Where the request goes on, if it is certainly none of those that are known."""
        producer_id, sequence = request.producer_id, request.sequence
        line = self._lines.get(producer_id)
        is_last = line is None
        if is_last:
            line = self._last
        if (
            line is None
            or line.producer_id != producer_id
            or line.epoch != request.producer_epoch
            or not line.high <= sequence <= line.high + PRODUCER_WINDOW_RECORDS
        ):
            return None
        if is_last and (producers is None or not self._has_room(producers)):
            return None  # `find` looks whether it may send
        return line

    def _has_room(self, producers: ProducerTable) -> bool:
        """Is there room for one producer more, even if all known ones are in use?"""
        return len(producers) + len(self._lines) < PRODUCERS_PER_PARTITION_MAX

    def find(self, request: SendRequest, producers: ProducerTable | None) -> Waiting | Repeated | None:
        """An earlier attempt that is under way, or what stands of it in the log; None: it is new. Raises StorageError
        where it is neither."""
        if producers is None:
            producers = _NOBODY
        producer_id, epoch, first, count = (
            request.producer_id, request.producer_epoch, request.sequence, len(request.bodies)
        )  # fmt: skip
        check_producer(producer_id, epoch, first, count)
        line = self._lines.get(producer_id)
        if line is None:
            repeated = producers.look_up(producer_id, epoch, first, count)
            if repeated is None or repeated.known < count:
                self._require_room(producer_id, producers)
            return repeated
        if epoch < line.epoch:
            raise StorageError(ErrorCode.FENCED, f"the producer has a newer epoch, {line.epoch}")
        if epoch > line.epoch:
            raise overloaded("sends of the producer's former epoch are under way")
        known = line.requests.get(first)
        if known is not None and known.count == count:
            return known
        end = first + count
        if first < line.high and any(
            other.sequence < end and first < other.sequence + other.count for other in line.requests.values()
        ):
            raise overlapping(first, end)
        return producers.look_up(producer_id, epoch, first, count, line.high)

    def _require_room(self, producer_id: int, producers: ProducerTable) -> None:
        """May this one send, too? The fold keeps those who sent last, so many as there may be. With all who are in use,
        and all who are about to be because they have something under way, they must not be more: else one of them would
        be forgotten. Raises StorageError."""
        if self._has_room(producers):
            return
        lines = self._lines
        since_ms = self._used_since_ms()
        if producers.is_used(producer_id, since_ms):
            return
        coming = sum(not producers.is_used(other, since_ms) for other in lines)
        if producers.count_used(since_ms) + coming >= PRODUCERS_PER_PARTITION_MAX:
            raise overloaded("too many producers send to the partition")

    def go_on(self, line: ProducerLine) -> None:
        """Something of it is under way again, if nothing was."""
        if not line.requests:
            self._lines[line.producer_id] = line

    def begin(self, request: SendRequest, producers: ProducerTable | None) -> ProducerLine:
        """The line of a request that `find` found to be new, or new in part."""
        line = self._lines.get(request.producer_id)
        if line is None:
            producer_id, epoch = request.producer_id, request.producer_epoch
            high = 0 if producers is None else producers.high(producer_id, epoch)
            line = self._lines[producer_id] = ProducerLine(producer_id, epoch, high)
        return line

    def folded(self, requests: list[Waiting]) -> None:
        """From now on the partition's state knows them."""
        for one in requests:
            line = one.line
            if line is not None:
                del line.requests[one.sequence]
                if not line.requests:
                    del self._lines[line.producer_id]
                    self._last = line

    def clear(self) -> None:
        self._lines.clear()
        self._last = None


def overloaded(text: str) -> StorageError:
    return StorageError(ErrorCode.OVERLOADED, text, retry_after_ms=OVERLOADED_RETRY_MS)
