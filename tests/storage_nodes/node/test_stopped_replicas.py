"""What cannot go on is one replica: it is closed, told, and tried again, and its node and all others go on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import (
    STOPPED_RETRIES_AT_ONCE_MAX,
    STOPPED_RETRY_DOUBLINGS_MAX,
    STOPPED_RETRY_MS,
)
from storage_nodes.log.errors import CorruptionError
from storage_nodes.machines.raft.effects import SafetyViolation
from storage_nodes.machines.unknown_entries import UnknownEntryError
from storage_nodes.node.replicas.replica_steps import FoundState
from storage_nodes.node.replicas.stopped_replicas import ReplicaError, StopKind, StoppedReplicas
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import StoppedReplica

# --- what is stopped, and tried again -------------------------------------------------------------------------


class Replica:
    """Counts what is asked of it."""

    def __init__(self, log: Any) -> None:
        self.partition = log.partition
        self.log = log
        self.raft = SimpleNamespace(commit=9)
        self.applied = 6
        self.closed = False
        self.given_up = self.started = 0
        self.fails_to_close = False

    def give_up_leading(self) -> None:
        self.given_up += 1

    def close(self) -> None:
        if self.fails_to_close:
            self.fails_to_close = False
            raise AssertionError("half folded")
        self.closed = True

    def start(self, campaign: bool) -> None:
        assert not campaign
        self.started += 1


class Replicas(dict[int, Any]):
    closing = False

    def __init__(self) -> None:
        super().__init__()
        self.opening: list[Any] = []  # what the next ones come to, instead of a replica

    def discard(self, partition: int) -> None:
        self.pop(partition, None)

    def find_state(self, log: Any) -> FoundState:
        return FoundState(log.partition)

    def open(self, log: Any, *, found: FoundState) -> Any:
        assert found.state == log.partition
        if self.opening:
            raise self.opening.pop()
        self[log.partition] = Replica(log)
        return self[log.partition]


class Bench:
    def __init__(self, count: int = 1, first: int = 7) -> None:
        self.now_ms = 1_000
        self.suspects: list[int] = []
        self.woken = 0
        self.may_retry_damage = True
        tag = '{"tag":"queue:q:0","replicas":[1,2,3],"config":[345600000,120000,false,300000,0,0,false,0,0,0,0,false,'
        tag += 'false,[],"acme"]}'
        self.logs: dict[int, Any] = {
            number: SimpleNamespace(
                partition=number, tag=tag, suspect=False, dropped=False, checkpoint_offset=3, flushed_end=5
            )
            for number in range(first, first + count)
        }
        log: Any = SimpleNamespace(partitions=self.logs, set_suspect=self._set_suspect)
        clock: Any = SimpleNamespace(mono_ms=lambda: self.now_ms, wall_ms=lambda: 10_000 + self.now_ms)
        self.replicas = Replicas()
        for part in self.logs.values():
            self.replicas[part.partition] = Replica(part)
        self.holds_reads = False
        self.reads: list[Callable[[], None]] = []
        self.stopped = StoppedReplicas(
            log, self.replicas, clock, self._wake, lambda log: self.may_retry_damage, self._read
        )

    def _read(self, find: Callable[[], FoundState], found: Callable[[FoundState], None]) -> None:
        self.reads.append(lambda: found(find()))
        if not self.holds_reads:
            self.reads_end()

    def reads_end(self) -> None:
        reads, self.reads = self.reads, []
        for read in reads:
            read()

    def _set_suspect(self, partition: int, suspect: bool) -> None:
        assert suspect
        self.suspects.append(partition)

    def _wake(self) -> None:
        self.woken += 1

    def stop(self, partition: int = 7, kind: StopKind = StopKind.ENTRY, error: Exception | None = None) -> Any:
        replica = self.replicas[partition]
        self.stopped.stop(replica, kind, 6, error or ValueError("no such color"))
        return replica

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.stopped.look()


def test_replica_that_stops_gives_up_leading_is_closed_and_told() -> None:
    bench = Bench()
    replica = bench.stop()
    assert replica.closed and replica.given_up == 1 and not bench.replicas
    assert bench.stopped.told(10) == [
        StoppedReplica(7, "queue:q:0", "entry", 6, "ValueError: no such color", 11_000, "acme")
    ]
    refusal = bench.stopped.refusal(7)
    assert refusal is not None and refusal.code is ErrorCode.QUARANTINED
    assert refusal.traits.retriable and refusal.traits.refresh_metadata and not refusal.traits.outcome_unknown
    assert "offset 6" in refusal.message and "no such color" in refusal.message
    assert bench.stopped.refusal(8) is None and not bench.suspects


def test_replica_whose_machine_cannot_even_say_goodbye_is_closed_all_the_same() -> None:
    bench = Bench()
    bench.replicas[7].fails_to_close = True
    assert bench.stop().closed


def test_replica_that_is_closed_already_is_not_stopped_again() -> None:
    bench = Bench()
    replica = bench.stop()
    bench.stopped.stop(replica, StopKind.RAFT, 1, ValueError("late"))
    assert [told.kind for told in bench.stopped.told(10)] == ["entry"] and replica.given_up == 1


def test_stopped_replica_is_tried_again_after_a_pause_and_not_before() -> None:
    bench = Bench()
    bench.stop()
    bench.pass_ms(STOPPED_RETRY_MS - 1)
    assert not bench.replicas
    bench.pass_ms(1)
    assert bench.replicas[7].started == 1 and bench.stopped.refusal(7) is None
    assert list(bench.stopped) == [7], "it has not come past the entry"
    bench.replicas[7].applied = 7
    assert not list(bench.stopped) and not bench.stopped.told(10)


def test_replica_that_stops_again_soon_was_stopped_since_the_first_time() -> None:
    bench = Bench()
    bench.stop()
    bench.pass_ms(STOPPED_RETRY_MS)
    bench.stop(kind=StopKind.RAFT)
    assert bench.stopped.told(10)[0].since_ms == 11_000
    bench.pass_ms(STOPPED_RETRY_MS)
    bench.pass_ms(STOPPED_RETRY_MS)  # it ran for as long
    bench.stop()
    assert bench.stopped.told(10)[0].since_ms == 11_000 + 3 * STOPPED_RETRY_MS


@pytest.mark.parametrize("kind", list(StopKind))
def test_replica_that_stops_the_same_way_rests_longer_each_time_where_it_must_be_the_same(kind: StopKind) -> None:
    """A large state is loaded, and what follows folded, for nothing."""
    bench = Bench()
    pauses_ms = []
    for _ in range(STOPPED_RETRY_DOUBLINGS_MAX + 3):
        bench.stop(kind=kind)
        pauses_ms.append(0)
        while not bench.replicas:
            bench.pass_ms(STOPPED_RETRY_MS)
            pauses_ms[-1] += STOPPED_RETRY_MS
    is_alike = kind in (StopKind.ENTRY, StopKind.UNKNOWN_ENTRY, StopKind.CHECKPOINT)
    longest = STOPPED_RETRY_DOUBLINGS_MAX if is_alike else 0
    assert pauses_ms == [STOPPED_RETRY_MS << min(number, longest) for number in range(len(pauses_ms))]
    bench.pass_ms(2 * STOPPED_RETRY_MS)  # it holds
    bench.stop(kind=kind)
    bench.pass_ms(STOPPED_RETRY_MS)
    assert bench.replicas


def test_many_stopped_replicas_are_tried_a_few_at_a_time() -> None:
    bench = Bench(2 * STOPPED_RETRIES_AT_ONCE_MAX)
    for partition in bench.logs:
        bench.stop(partition)
    bench.pass_ms(STOPPED_RETRY_MS)
    assert len(bench.replicas) == STOPPED_RETRIES_AT_ONCE_MAX
    bench.pass_ms(1_000)
    assert len(bench.replicas) == 2 * STOPPED_RETRIES_AT_ONCE_MAX


def test_state_is_read_in_a_thread_and_the_replica_stays_stopped_meanwhile() -> None:
    bench = Bench()
    bench.stop()
    bench.holds_reads = True
    bench.pass_ms(STOPPED_RETRY_MS)
    bench.pass_ms(STOPPED_RETRY_MS)
    assert len(bench.reads) == 1, "once"
    assert 7 in bench.stopped and bench.stopped.refusal(7) is not None and bench.stopped.flush_facts(7) is not None
    bench.reads_end()
    assert 7 not in bench.stopped and bench.replicas[7].started == 1


@pytest.mark.parametrize("change", ["dropped", "replaced", "node stops"])
def test_state_that_was_read_is_of_no_use_where_its_log_is_gone_or_the_node_stops(change: str) -> None:
    bench = Bench()
    bench.stop()
    bench.holds_reads = True
    bench.pass_ms(STOPPED_RETRY_MS)
    if change == "dropped":
        del bench.logs[7]
    elif change == "replaced":
        bench.logs[7] = SimpleNamespace(**vars(bench.logs[7]))
    else:
        bench.replicas.closing = True
    bench.reads_end()
    assert 7 not in bench.replicas


def test_no_replica_is_tried_while_the_node_stops() -> None:
    bench = Bench()
    bench.stop()
    bench.replicas.closing = True
    bench.pass_ms(STOPPED_RETRY_MS)
    assert not bench.replicas


def test_stopped_replica_that_was_dropped_is_forgotten() -> None:
    bench = Bench()
    bench.stop()
    bench.logs[7] = SimpleNamespace(partition=7)  # it came back by a move, as another one
    bench.pass_ms(1)
    assert 7 not in bench.stopped


def test_replica_that_met_a_broken_promise_of_raft_is_suspect() -> None:
    """D15: it votes for nobody alone before all that is committed is here."""
    bench = Bench()
    bench.stop(kind=StopKind.RAFT, error=SafetyViolation("two leaders"))
    assert bench.suspects == [7] and bench.woken == 1
    assert bench.stopped.told(1)[0].reason == "SafetyViolation: two leaders"


def test_damaged_replica_is_tried_again_once_its_group_may_help() -> None:
    bench = Bench()
    bench.may_retry_damage = False
    bench.stop(kind=StopKind.DAMAGE, error=CorruptionError("/x.seg", 0, "rotten"))
    bench.pass_ms(STOPPED_RETRY_MS)
    assert not bench.replicas
    bench.may_retry_damage = True
    bench.pass_ms(1)
    assert bench.replicas


def test_replica_whose_checkpoint_turns_out_damaged_when_it_is_tried_stays_stopped() -> None:
    bench = Bench()
    bench.stop()
    bench.replicas.opening.append(CorruptionError("/7.ckp", 0, "rotten"))
    bench.pass_ms(STOPPED_RETRY_MS)
    assert [told.kind for told in bench.stopped.told(10)] == ["damage"] and not bench.replicas


def test_flush_keeps_all_that_a_stopped_replica_knows_to_be_committed() -> None:
    bench = Bench()
    assert bench.stopped.flush_facts(7) is None
    bench.stop()
    facts = bench.stopped.flush_facts(7)
    assert facts is not None and facts.commit == 9 and facts.applied < 0 and facts.live(0, 0)


def test_fold_that_raises_for_an_entry_of_a_later_version_says_so() -> None:
    assert ReplicaError.of_fold(UnknownEntryError("command kind 99"), 5).kind is StopKind.UNKNOWN_ENTRY
    assert ReplicaError.of_fold(ValueError(), 5).kind is StopKind.ENTRY
