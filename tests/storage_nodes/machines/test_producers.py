"""The memory of producers by itself: what is found again, what is forgotten when, and that replicas agree on it."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
import pytest

from storage_nodes.limits import (
    PRODUCER_FORGET_MS,
    PRODUCER_JUMP_MS_MAX,
    PRODUCER_MEMORY_MS,
    PRODUCER_SEQUENCE_MAX,
    PRODUCER_WINDOW_RECORDS,
    PRODUCERS_PER_PARTITION_MAX,
)
from storage_nodes.machines.producers import ProducerTable, check_producer
from storage_nodes.protocol.errors import ErrorCode, StorageError

NOW_MS = 1_700_000_000_000


class Batch(NamedTuple):
    base_offset: int
    record_count: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class Log:
    """A table, and the log it is folded from."""

    def __init__(self) -> None:
        self.table = ProducerTable()
        self.end = 0
        self.now_ms = NOW_MS

    def append(self, sequence: int, count: int = 1, producer: int = 1, epoch: int = 0) -> Batch:
        batch = Batch(self.end, count, self.now_ms, producer, epoch, sequence)
        self.table.fold(batch)
        self.end += count
        return batch

    def find(self, sequence: int, count: int = 1, producer: int = 1, epoch: int = 0) -> list[tuple[int, int]] | None:
        found = self.table.look_up(producer, epoch, sequence, count)
        return None if found is None else found.stretches

    def code(self, sequence: int, count: int = 1, producer: int = 1, epoch: int = 0) -> ErrorCode:
        with pytest.raises(StorageError) as refused:
            self.table.look_up(producer, epoch, sequence, count)
        return refused.value.code

    def wait(self, ms: int) -> None:
        """Somebody else is at work meanwhile."""
        for _ in range(0, ms, PRODUCER_JUMP_MS_MAX):
            self.now_ms += PRODUCER_JUMP_MS_MAX
            self.append(self.end, producer=99)


def test_what_stands_in_the_log_is_found_where_it_stands() -> None:
    log = Log()
    log.end = 100
    log.append(5, 3)
    log.append(0, 1, producer=2)
    log.append(8, 2)
    assert log.find(5, 3) == [(0, 100)] and log.find(6, 1) == [(0, 101)]
    assert log.find(5, 5) == [(0, 100), (3, 104)]
    assert log.find(10) is None and log.find(4) is None and log.find(5, producer=3) is None


def test_order_does_not_matter_and_gaps_stay_open() -> None:
    log = Log()
    for sequence in (10, 4, 7, 0):
        log.append(sequence, 2)
    assert [log.find(sequence, 2) for sequence in (10, 4, 7, 0)] == [[(0, 0)], [(0, 2)], [(0, 4)], [(0, 6)]]
    assert log.find(2, 2) is None and log.find(9) is None
    assert log.code(6, 2) is log.code(3, 2) is log.code(9, 3) is ErrorCode.INVALID_REQUEST


def test_part_that_an_earlier_leader_appended_is_found_and_the_rest_is_not() -> None:
    log = Log()
    log.append(0, 3)
    found = log.table.look_up(1, 0, 0, 10)
    assert found is not None and found.known == 3 and found.stretches == [(0, 0)]


def test_duplicates_are_answered_as_they_were() -> None:
    log = Log()
    for sequence in (4, 0):
        batch = log.append(sequence, 4)
        log.table.note_duplicates(batch, [(batch.base_offset + 1, 70 + sequence), (batch.base_offset + 3, -1)])
    found = log.table.look_up(1, 0, 2, 6)
    assert found is not None and found.duplicates == [(1, -1), (3, 74), (5, -1)]


def test_numbers_below_what_is_remembered_are_refused() -> None:
    log = Log()
    log.append(10)
    log.append(10 + PRODUCER_WINDOW_RECORDS)
    log.append(12 + PRODUCER_WINDOW_RECORDS)
    assert log.code(10) is ErrorCode.SEQUENCE_TOO_OLD
    assert log.code(11) is ErrorCode.SEQUENCE_TOO_OLD, "never seen, but who knows"
    assert log.find(13) is None


def test_leaps_beyond_the_window_are_refused_and_a_newcomer_begins_anywhere() -> None:
    log = Log()
    log.append(10**9)
    assert log.find(10**9 + 1 + PRODUCER_WINDOW_RECORDS) is None
    assert log.code(10**9 + 2 + PRODUCER_WINDOW_RECORDS) is ErrorCode.INVALID_REQUEST
    assert log.find(10**9 + 1) is None, "what was refused changed nothing"


def test_rows_are_forgotten_by_time_and_what_they_were_is_refused() -> None:
    log = Log()
    for sequence in range(0, 100, 2):
        log.append(sequence)
    log.wait(PRODUCER_MEMORY_MS - PRODUCER_JUMP_MS_MAX)
    log.append(200)
    assert log.find(0) == [(0, 0)]
    log.wait(2 * PRODUCER_MEMORY_MS)
    for sequence in range(300, 320):
        log.append(sequence)
    assert log.code(0) is ErrorCode.SEQUENCE_TOO_OLD
    assert log.find(319) is not None


def test_clock_that_jumps_makes_nobody_forget() -> None:
    log = Log()
    log.append(0)
    log.append(5)
    log.now_ms += 30 * PRODUCER_FORGET_MS
    log.append(7, producer=2)
    log.append(9)
    assert log.find(0) == [(0, 0)] and log.find(5) == [(0, 1)]


def test_producer_that_was_silent_for_long_is_forgotten_and_so_is_one_too_many() -> None:
    log = Log()
    log.append(0)
    log.wait(PRODUCER_FORGET_MS + PRODUCER_JUMP_MS_MAX)
    assert 1 not in log.table
    for producer in range(200, 200 + PRODUCERS_PER_PARTITION_MAX + 1):
        log.append(0, producer=producer)
    assert len(log.table) == PRODUCERS_PER_PARTITION_MAX and 200 not in log.table and 201 in log.table


def test_who_was_heard_of_since_when_is_told_by_the_stamps_of_the_log_also_from_a_checkpoint() -> None:
    log = Log()
    for producer in range(4):
        log.now_ms += 20 * PRODUCER_JUMP_MS_MAX
        log.append(0, producer=producer)
    log.now_ms += 1
    log.append(1, producer=0)
    since_ms = log.now_ms - 20 * PRODUCER_JUMP_MS_MAX - 1
    for table in (log.table, ProducerTable.unpack(log.table.pack())):
        assert table.count_used(since_ms) == 3 and table.count_used(0) == 4 and table.count_used(log.now_ms + 1) == 0
        assert [table.is_used(producer, since_ms) for producer in range(5)] == [True, False, True, True, False]


def test_newer_epoch_begins_anew_and_fences_the_older() -> None:
    log = Log()
    log.append(50, epoch=3)
    assert log.find(0, epoch=4) is None
    log.append(0, epoch=4)
    assert log.code(50, epoch=3) is ErrorCode.FENCED
    assert log.find(50, epoch=4) is None


@pytest.mark.parametrize(
    ("producer", "epoch", "sequence", "is_fine"),
    [
        (0, 0, 0, True),
        (2**63 - 1, 2**15 - 1, PRODUCER_SEQUENCE_MAX - 9, True),
        (2**63, 0, 0, False),
        (-2, 0, 0, False),
        (1, -1, 0, False),
        (1, 2**15, 0, False),
        (1, 0, -1, False),
        (1, 0, PRODUCER_SEQUENCE_MAX - 8, False),
    ],
)
def test_numbers_that_nobody_has_are_refused(producer: int, epoch: int, sequence: int, is_fine: bool) -> None:
    if is_fine:
        check_producer(producer, epoch, sequence, 10)
        return
    with pytest.raises(StorageError) as refused:
        check_producer(producer, epoch, sequence, 10)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_side_by_side_is_one_row_and_memory_is_bounded_by_the_window() -> None:
    log = Log()
    for sequence in range(0, 1_000, 10):
        log.append(sequence, 10)
    assert len(msgspec.msgpack.encode(log.table.pack())) < 60
    for sequence in range(1_000, 1_000 + 4 * PRODUCER_WINDOW_RECORDS, 8):
        log.append(sequence, 4)
    rows = len(log.table._producers[1].rows) // 4
    assert rows <= PRODUCER_WINDOW_RECORDS // 8 * 4 // 3 + 1


@pytest.mark.parametrize("seed", range(20))
def test_table_goes_on_from_its_checkpoint_as_it_would_have(seed: int) -> None:
    chance = random.Random(seed)
    log = Log()
    other: ProducerTable | None = None
    next_of = dict.fromkeys(range(5), 0)
    for step in range(400):
        producer = chance.randrange(5)
        gap = chance.choice([0, 0, 0, 3, PRODUCER_WINDOW_RECORDS // 50])
        count = chance.randrange(1, 9)
        first = next_of[producer] + gap
        next_of[producer] = first + count
        log.now_ms += chance.choice([0, 1, 500, 20_000])
        batch = log.append(first, count, producer=producer)
        pairs = [(batch.base_offset, 3)] if chance.random() < 0.2 else []
        log.table.note_duplicates(batch, pairs)
        if other is not None:
            other.fold(batch)
            other.note_duplicates(batch, pairs)
        if step == 200:
            blob = msgspec.msgpack.encode(log.table.pack())
            other = ProducerTable.unpack(msgspec.msgpack.decode(blob))
    assert other is not None and other.pack() == log.table.pack()
    assert ProducerTable.unpack([]).pack() == []
