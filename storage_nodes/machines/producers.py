"""Who sent what: sequence numbers of producers in one partition, so that a send that is tried again is appended once.

A producer (a storage client) numbers the records it sends to a partition. The number stays with the record through all
attempts; the batch header has it (`log/record_batch.py`). Every replica folds here where which numbers stand:

    producer id -> epoch, high (end of its highest number), floor, and rows (first, end, base offset, time), by number

The leader looks a send up before it appends it, in this table and in what it appended itself and has not folded yet
(`node/replicas/repeats.py`). It serves only after everything before its epoch is folded, and appends everything after
that itself, so the log never holds a number twice.

What is remembered is bounded: the last PRODUCER_WINDOW_RECORDS numbers, for PRODUCER_MEMORY_MS; below `floor` nothing
is known, and a send from there is refused, for it may be a repeat. Numbers may come out of order and leave gaps (sends
that were given up), but not leap further than the window: a number far off is a fault of its sender, and would make
the table forget what is in use. An unknown producer may begin with any. Time is that of the log, less its jumps: a
leader whose clock is ahead must not make its replicas forget. A part of the rows is dropped at a time, so a batch costs
O(1), however much is remembered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

from storage_nodes.limits import PRODUCER_SEQUENCE_MAX
from storage_nodes.machines.fold_constants import LEVEL_1
from storage_nodes.machines.packed_later import PackedLater, PackedPieces, raw_array
from storage_nodes.protocol.errors import ErrorCode, StorageError

PRODUCER_FORGET_MS = LEVEL_1.producer_forget_ms
PRODUCER_JUMP_MS_MAX = LEVEL_1.producer_jump_ms_max
PRODUCER_MEMORY_MS = LEVEL_1.producer_memory_ms
PRODUCER_WINDOW_RECORDS = LEVEL_1.producer_window_records
PRODUCERS_PER_PARTITION_MAX = LEVEL_1.producers_per_partition_max
PRODUCER_ID_MAX = 2**63 - 1
PRODUCER_EPOCH_MAX = 2**15 - 1
# Rows are dropped a quarter at a time; each is four numbers: first, end, base offset, time.
_DROPPED_PART = 4
# Twice what is remembered: leaders whose time jumps move the table's clock by a little each.
_SILENT_MS = 2 * PRODUCER_MEMORY_MS
_FIRST, _END, _BASE, _MS, _ROW = 0, 1, 2, 3, 4
# Of so many rows on they are packed by who writes the checkpoint; fewer take the event loop 0.3 ms.
LAZY_ROWS_MIN = 2_000
# So many numbers of a producer are packed in one step, half a millisecond: rows, and duplicates of two numbers each.
_STEP_NUMBERS = 2_048 * _ROW


class SentBatch(Protocol):
    """What the fold reads of a batch header; `BatchHeader` of the log has it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class Repeated(NamedTuple):
    """The first `known` records of a send stand in the log: (index, offset) of each stretch; those that repeat a
    deduplication id by (index, offset of the original)."""

    known: int
    stretches: list[tuple[int, int]]
    timestamp_ms: int
    duplicates: list[tuple[int, int]]


class _Producer:
    __slots__ = ("duplicates", "epoch", "floor", "high", "last_ms", "rows", "stamp_ms")

    def __init__(self, epoch: int, first: int) -> None:
        self.epoch = epoch
        self.high = first
        self.floor = max(first - PRODUCER_WINDOW_RECORDS, 0)
        # When it was heard of last: by the table's clock, and by the stamps of the log.
        self.last_ms = self.stamp_ms = 0
        self.rows = array("q")
        # Flat (sequence, offset of the original)... of those that repeat a deduplication id; made with the first.
        self.duplicates: array[int] | None = None

    def copied(self) -> _Producer:
        """32 bytes a row, and no step for each."""
        other = _Producer(self.epoch, self.high)
        other.floor, other.last_ms, other.stamp_ms = self.floor, self.last_ms, self.stamp_ms
        other.rows = self.rows[:]
        other.duplicates = None if self.duplicates is None else self.duplicates[:]
        return other

    def row_before(self, sequence: int) -> int:
        """Index of the last row that begins at or below it; -1 = none."""
        rows = self.rows
        return bisect_right(range(0, len(rows), _ROW), sequence, key=rows.__getitem__) - 1

    def add(self, first: int, end: int, base_offset: int, time_ms: int) -> None:
        rows = self.rows
        if first >= self.high:
            if rows and rows[-3] == first and rows[-2] + first - rows[-4] == base_offset:
                rows[-3], rows[-1] = end, time_ms
            else:
                rows.extend((first, end, base_offset, time_ms))
            self.high = end
        else:
            at = _ROW * (self.row_before(first) + 1)
            rows[at:at] = array("q", (first, end, base_offset, time_ms))

    def drop_old(self, oldest_ms: int) -> None:
        """Forget the lowest quarter of the rows, once all of it is out of the window or old. A row that was filled in
        behind its neighbours goes with them: its first attempt was about as early as theirs."""
        rows = self.rows
        at = len(rows) // _ROW // _DROPPED_PART * _ROW
        if rows[at + _MS] >= oldest_ms and rows[at + _END] > self.high - PRODUCER_WINDOW_RECORDS:
            return
        self.floor = max(self.floor, rows[at + _END])
        del rows[: at + _ROW]
        if self.duplicates is not None:
            known = self.duplicates
            del known[: 2 * bisect_left(range(0, len(known), 2), self.floor, key=known.__getitem__)]
            if not known:
                self.duplicates = None

    def note_duplicate(self, sequence: int, original: int) -> None:
        if self.duplicates is None:
            self.duplicates = array("q")
        known = self.duplicates
        at = 2 * bisect_left(range(0, len(known), 2), sequence, key=known.__getitem__)
        known[at:at] = array("q", (sequence, original))

    def duplicates_between(self, first: int, end: int) -> list[tuple[int, int]]:
        known = self.duplicates
        if known is None:
            return []
        places = range(0, len(known), 2)
        low, high = (bisect_left(places, sequence, key=known.__getitem__) for sequence in (first, end))
        return [(known[2 * at] - first, known[2 * at + 1]) for at in range(low, high)]


class ProducerTable:
    """Of one partition; changed by `fold` and `note_duplicates` only, in log order. The least recently used producer
    comes first."""

    __slots__ = ("_producers", "_stamp_ms", "_time_ms")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        # The clock of this memory, and the stamp in the log at which it was read.
        self._time_ms = self._stamp_ms = 0

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def fold(self, batch: SentBatch) -> None:
        """A data batch with a producer."""
        stamp_ms = batch.timestamp_ms
        if stamp_ms > self._stamp_ms:
            elapsed_ms = stamp_ms - self._stamp_ms
            self._time_ms += min(elapsed_ms, PRODUCER_JUMP_MS_MAX) if self._stamp_ms else elapsed_ms
            self._stamp_ms = stamp_ms
        time_ms = self._time_ms
        producers = self._producers
        first, producer_id = batch.base_sequence, batch.producer_id
        producer = producers.get(producer_id) if len(producers) == 1 else producers.pop(producer_id, None)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = _Producer(batch.producer_epoch, first)
        producers[producer_id] = producer
        producer.add(first, first + batch.record_count, batch.base_offset, time_ms)
        producer.last_ms, producer.stamp_ms = time_ms, self._stamp_ms
        producer.drop_old(time_ms - PRODUCER_MEMORY_MS)
        while len(producers) > 1:
            oldest, its = next(iter(producers.items()))
            if len(producers) <= PRODUCERS_PER_PARTITION_MAX and its.last_ms >= time_ms - PRODUCER_FORGET_MS:
                break
            del producers[oldest]

    def note_duplicates(self, batch: SentBatch, pairs: Sequence[tuple[int, int]]) -> None:
        """The batch just folded has messages that repeat a deduplication id: (offset, offset of the original)."""
        producer = self._producers[batch.producer_id]
        for offset, original in pairs:
            producer.note_duplicate(batch.base_sequence + offset - batch.base_offset, original)

    # --- the leader's questions -------------------------------------------------------------------------------

    def look_up(self, producer_id: int, epoch: int, first: int, count: int, high: int = 0) -> Repeated | None:
        """What stands in the log of `count` records from number `first` on; None: nothing, they may be appended.

        `high`: the end of the highest number of this producer that is on its way. Raises StorageError.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise StorageError(ErrorCode.FENCED, f"producer {producer_id} has a newer epoch, {producer.epoch}")
        if producer is None or epoch > producer.epoch:
            if high:
                check_window(first, high)
            return None
        end = first + count
        if first < producer.high:
            repeated = self._find(producer, first, end)
            if repeated is not None:
                return repeated
            if first < producer.floor:
                raise too_old(first)
        check_window(first, max(high, producer.high))
        return None

    def high(self, producer_id: int, epoch: int) -> int:
        """The end of its highest number; 0 = nothing is known."""
        producer = self._producers.get(producer_id)
        return producer.high if producer is not None and producer.epoch == epoch else 0

    def is_used(self, producer_id: int, since_ms: int) -> bool:
        """Was it heard of since then, by the stamps of the log? The table's clock stands still while nobody sends, the
        leader knows what time it is. But that clock does not jump: who was silent for _SILENT_MS by it is not in use,
        whatever the leader knows."""
        producer = self._producers.get(producer_id)
        return producer is not None and self._is_heard(producer, since_ms)

    def _is_heard(self, producer: _Producer, since_ms: int) -> bool:
        return producer.stamp_ms >= since_ms and producer.last_ms >= self._time_ms - _SILENT_MS

    def count_used(self, since_ms: int) -> int:
        """How many were heard of since then. The fold forgets the others first."""
        unused = 0
        for producer in self._producers.values():
            if self._is_heard(producer, since_ms):
                break
            unused += 1
        return len(self._producers) - unused

    def _find(self, producer: _Producer, first: int, end: int) -> Repeated | None:
        rows = producer.rows
        at = _ROW * producer.row_before(first)
        position = first
        stretches: list[tuple[int, int]] = []
        time_ms = 0
        if at < 0 or rows[at + _END] <= first:
            at += _ROW  # the next one is too high, unless it begins within
        else:
            while at < len(rows) and position < end and rows[at + _FIRST] <= position:
                stretches.append((position - first, rows[at + _BASE] + position - rows[at + _FIRST]))
                position, time_ms = min(rows[at + _END], end), rows[at + _MS]
                at += _ROW
        if position < end and at < len(rows) and rows[at + _FIRST] < end:
            raise overlapping(first, end)
        if not stretches:
            return None
        duplicates = producer.duplicates_between(first, position)
        return Repeated(position - first, stretches, self._stamp_ms - self._time_ms + time_ms, duplicates)

    # --- checkpoints ------------------------------------------------------------------------------------------

    @property
    def is_large(self) -> bool:
        """Would packing it at once stall the event loop?"""
        numbers = 0
        for producer in self._producers.values():
            numbers += len(producer.rows) + len(producer.duplicates or ())
        return numbers >= LAZY_ROWS_MIN * _ROW

    def pack(self) -> list[Any]:
        """[time_ms, stamp_ms, flat (id, epoch, floor, last_ms, last_stamp_ms, rows, duplicates)...], the producers in
        their order.

        Rows are flat (first less the end before, count, base offset less the end before, time less the one before),
        duplicates flat (sequence, original). Empty where there is no producer.
        """
        return self._pack(lambda _length, steps: list(chain.from_iterable(steps)))

    def pack_later(self) -> PackedPieces:
        """The same as it is now, by who writes: here the rows are copied, and no fold changes the copies."""
        frozen = ProducerTable()
        frozen._time_ms, frozen._stamp_ms = self._time_ms, self._stamp_ms
        frozen._producers = {number: producer.copied() for number, producer in self._producers.items()}
        return (PackedLater(partial(frozen._pack, raw_array)),)

    def _pack(self, numbers: Callable[[int, Iterator[list[int]]], Any]) -> list[Any]:
        """`numbers` makes an array of so many numbers, which come in steps."""
        if not self._producers:
            return []
        flat: list[Any] = []
        for producer_id, producer in self._producers.items():
            last_ms = self._time_ms - producer.last_ms
            last_stamp_ms = self._stamp_ms - producer.stamp_ms
            rows = numbers(len(producer.rows), self._rows_in_steps(producer.rows))
            known = producer.duplicates
            duplicates = [] if known is None else numbers(len(known), _in_steps(known))
            flat += (producer_id, producer.epoch, producer.floor, last_ms, last_stamp_ms, rows, duplicates)
        return [self._time_ms, self._stamp_ms, flat]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> ProducerTable:
        """Raises ValueError or TypeError."""
        table = cls()
        if not packed:
            return table
        table._time_ms, table._stamp_ms, flat = packed
        fields = iter(flat)
        for producer_id, epoch, floor, last_ms, last_stamp_ms, rows, duplicates in zip(*[fields] * 7, strict=True):
            producer = _Producer(epoch, 0)
            producer.floor, producer.last_ms = floor, table._time_ms - last_ms
            producer.stamp_ms = table._stamp_ms - last_stamp_ms
            producer.rows = table._unpack_rows(rows)
            producer.high = producer.rows[-3] if producer.rows else floor
            producer.duplicates = array("q", duplicates) if duplicates else None
            table._producers[producer_id] = producer
        return table

    def _rows_in_steps(self, rows: array[int]) -> Iterator[list[int]]:
        end, end_offset, ms = 0, 0, self._time_ms
        for at in range(0, len(rows), _STEP_NUMBERS):
            flat: list[int] = []
            fields = iter(rows[at : at + _STEP_NUMBERS])
            for first, row_end, base_offset, row_ms in zip(*[fields] * _ROW, strict=True):
                flat += (first - end, row_end - first, base_offset - end_offset, row_ms - ms)
                end, end_offset, ms = row_end, base_offset + row_end - first, row_ms
            yield flat

    def _unpack_rows(self, flat: Sequence[int]) -> array[int]:
        rows = array("q")
        end, end_offset, ms = 0, 0, self._time_ms
        fields = iter(flat)
        for gap, count, offset_gap, ms_gap in zip(*[fields] * _ROW, strict=True):
            first, base_offset, ms = end + gap, end_offset + offset_gap, ms + ms_gap
            end, end_offset = first + count, base_offset + count
            rows.extend((first, end, base_offset, ms))
        return rows


def _in_steps(numbers: array[int]) -> Iterator[list[int]]:
    return (numbers[at : at + _STEP_NUMBERS].tolist() for at in range(0, len(numbers), _STEP_NUMBERS))


def check_producer(producer_id: int, epoch: int, sequence: int, count: int) -> None:
    """Raises StorageError for numbers that no producer has."""
    if not 0 <= producer_id <= PRODUCER_ID_MAX or not 0 <= epoch <= PRODUCER_EPOCH_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, "producer id or producer epoch is out of range")
    if not 0 <= sequence <= PRODUCER_SEQUENCE_MAX + 1 - count:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"sequence {sequence} of {count} records is out of range")


def overlapping(first: int, end: int) -> StorageError:
    text = f"sequences {first} to {end - 1} were used in part: an attempt repeats a send whole, or it is another send"
    return StorageError(ErrorCode.INVALID_REQUEST, text)


def too_old(sequence: int) -> StorageError:
    return StorageError(ErrorCode.SEQUENCE_TOO_OLD, f"sequence {sequence} is older than what is remembered")


def check_window(first: int, high: int) -> None:
    """Raises StorageError for a number further from the highest than the window reaches, on either side."""
    if first < high - PRODUCER_WINDOW_RECORDS:
        raise too_old(first)
    if first > high + PRODUCER_WINDOW_RECORDS:
        text = f"sequence {first} leaps: {high} is the next, no more than {PRODUCER_WINDOW_RECORDS} may be left out"
        raise StorageError(ErrorCode.INVALID_REQUEST, text)
