"""Producers that a leader remembers: as many as fit, and those that are dead give way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import PRODUCER_CALL_MS_MAX, PRODUCER_MEMORY_MS, PRODUCERS_PER_PARTITION_MAX
from storage_nodes.log.record_batch import BatchHeader
from storage_nodes.machines.producers import ProducerTable
from storage_nodes.node.replicas.repeats import Repeats
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.storage_nodes.node.repeating_group import NOW_MS, Group, request


def test_newcomer_is_refused_while_as_many_producers_as_are_remembered_are_at_work() -> None:
    group = Group("plain")
    for producer in range(PRODUCERS_PER_PARTITION_MAX):
        group.send(producer, request(0, producer=producer))
    assert not group.answers
    group.send(1_000, request(0, producer=1_000))
    group.propose()
    group.commit(len(group.log))
    group.send(1_001, request(0, producer=1_000))
    for number in (1_000, 1_001):
        refused = group.answers[number]
        assert isinstance(refused, StorageError) and refused.code is ErrorCode.OVERLOADED
    group.send(1_002, request(1, producer=5))
    assert 1_002 not in group.answers, "one that is known goes on"


class Full:
    """A leader's table with as many producers as are remembered, by their ids, heard of one a second."""

    def __init__(self) -> None:
        self.table = ProducerTable()
        self.end = 0
        self.now_ms = NOW_MS
        self.repeats = Repeats(lambda: self.now_ms - PRODUCER_MEMORY_MS)
        for producer in range(PRODUCERS_PER_PARTITION_MAX):
            self.fold(producer)

    def fold(self, producer: int, sequence: int = 0) -> None:
        self.table.fold(BatchHeader(self.end, 100, 1, 0, self.end, self.now_ms, 1, producer, 0, sequence))
        self.end += 1

    def begin(self, producer: int, sequence: int = 0) -> bool:
        """Is its send taken?"""
        asked = request(sequence, producer=producer)
        try:
            assert self.repeats.find(asked, self.table) is None
        except StorageError as error:
            assert error.code is ErrorCode.OVERLOADED
            return False
        waiting: Any = SimpleNamespace(sequence=sequence, count=1)
        self.repeats.begin(asked, self.table).requests[sequence] = waiting
        return True


def test_dead_producers_give_way_though_nothing_more_is_folded() -> None:
    full = Full()
    assert not full.begin(1_000)
    full.now_ms += PRODUCER_MEMORY_MS
    assert not full.begin(1_000)
    full.now_ms += 1
    assert full.begin(1_000)


@pytest.mark.parametrize("step_ms", [10_000, 86_400_000])
def test_producers_that_were_silent_while_others_sent_give_way_to_a_leader_that_has_just_begun(step_ms: int) -> None:
    full = Full()
    full.repeats = Repeats(lambda: 0)
    for sequence in range(1, 13):
        full.now_ms += step_ms
        full.fold(5, sequence)
        assert not full.begin(1_000), "a few leaders whose time jumped make nobody silent"
    full.now_ms += step_ms
    full.fold(5, 13)
    assert full.begin(1_000)


def test_dead_producers_give_way_where_one_lives_and_sends_rarely() -> None:
    full = Full()
    for sequence in range(1, 3):
        full.now_ms += 2 * PRODUCER_MEMORY_MS
        full.fold(5, sequence)
    for newcomer in range(1_000, 1_000 + PRODUCERS_PER_PARTITION_MAX - 1):
        assert full.begin(newcomer)
    assert not full.begin(2_000), "the one that lives keeps its place"


@pytest.mark.parametrize("newcomer_first", [True, False])
def test_producer_that_comes_back_counts_as_in_use_from_its_request_on(newcomer_first: bool) -> None:
    full = Full()
    full.now_ms += PRODUCER_MEMORY_MS + 1
    for producer in range(1, PRODUCERS_PER_PARTITION_MAX):
        full.fold(producer, 1)
    first, second = (1_000, 0) if newcomer_first else (0, 1_000)
    assert full.begin(first, 7) and not full.begin(second, 7) and full.begin(1, 7), "there is one place for two"
    full.fold(first, 7)
    assert all(producer in full.table for producer in range(1, PRODUCERS_PER_PARTITION_MAX))


def test_time_before_a_leadership_makes_no_producer_dead() -> None:
    replica: Any = StreamReplica.__new__(StreamReplica)
    replica.machine = SimpleNamespace(ahead_ms=0)
    mono_ms = 5_000 + PRODUCER_CALL_MS_MAX
    replica.host = SimpleNamespace(clock=SimpleNamespace(mono_ms=lambda: mono_ms))
    replica.raft = SimpleNamespace(leader_since_ms=5_000)
    replica.time = SimpleNamespace(now_ms=lambda: NOW_MS, ahead_ms=0)
    assert replica.used_since_ms() == 0
    mono_ms += 1
    assert replica.used_since_ms() == NOW_MS - PRODUCER_CALL_MS_MAX - 1, "since it began nobody else was heard of"
    mono_ms += PRODUCER_MEMORY_MS
    assert replica.used_since_ms() == NOW_MS - PRODUCER_MEMORY_MS
    replica.time = None
    assert replica.used_since_ms() == 0
