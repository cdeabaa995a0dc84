"""What is begun in one leadership of a replica and ends after it changes nothing; the caller is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.machines.stream.effects import ReadNow
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.replicas.stopped_replicas import StopKind
from storage_nodes.node.replicas.stream_replica import StreamReplica
from storage_nodes.node.transport.connections import Token
from storage_nodes.node.transport.leases import LeaderLeases
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import Opcode

EPOCH = 4
NOW_MS = 10_000


class Bench:
    """A replica that leads, and a request that it was asked."""

    def __init__(self, kind: type[Replica] = Replica) -> None:
        self.ends: list[Callable[[], None]] = []
        self.refused: list[StorageError] = []
        self.cached: list[bytes] | None = None
        self.leased_until_ms = NOW_MS + 1
        self.is_damaged = False
        replica = kind.__new__(kind)
        raft: Any = SimpleNamespace(epoch=EPOCH, leader=1, lease_until_ms=lambda _: self.leased_until_ms)
        host: Any = SimpleNamespace(
            run_cold=self.run_cold,
            clock=SimpleNamespace(mono_ms=lambda: NOW_MS),
            leases=LeaderLeases(),
            loop=SimpleNamespace(call_soon=lambda call: None),
        )
        log: Any = SimpleNamespace(read_hot=lambda *_: self.cached, read_cold=lambda *_: [b"from disk"])
        replica.raft, replica.host, replica.log, replica.serving = raft, host, log, True
        replica.drop_lease()
        self.replica = replica
        connection: Any = self
        self.token = Token(connection, 1, Opcode.STREAM_READ)
        self.context = LeaderContext(replica)

    def run_cold(self, work: Callable[[], Any], done: Callable[[Any], None], damaged: Callable[[], None]) -> None:
        self.ends.append(damaged if self.is_damaged else lambda: done(work()))

    def refuse(self, token: Token, error: StorageError) -> None:
        assert token is self.token
        self.refused.append(error)

    def lose(self) -> None:
        self.replica.serving = False
        self.replica.raft.leader = 2

    def lose_and_lead_again(self) -> None:
        self.replica.raft.epoch = EPOCH + 2


LOSSES = [Bench.lose, Bench.lose_and_lead_again]


def test_what_ends_within_the_leadership_counts() -> None:
    bench, found = Bench(), list[object]()
    ended = bench.context.then(found.append, lambda: found.append("lost"))
    ended("outcome")
    assert found == ["outcome"]


def test_what_raises_when_it_goes_on_stops_its_replica_and_not_the_node() -> None:
    bench, stops = Bench(), list[tuple[object, ...]]()
    bench.replica.applied = 7
    bench.replica.host.stopped = SimpleNamespace(stop=lambda *said: stops.append(said))  # type: ignore[assignment]

    def fail(outcome: str) -> None:
        raise ValueError(outcome)

    bench.context.then(fail)("no such color")
    ((replica, kind, offset, error),) = stops
    assert (replica, kind, offset) == (bench.replica, StopKind.LEADING, 7) and str(error) == "no such color"


@pytest.mark.parametrize("lose", LOSSES)
def test_what_ends_after_the_leadership_does_not_count(lose: Callable[[Bench], None]) -> None:
    bench, found = Bench(), list[object]()
    ended = bench.context.then(found.append, lambda: found.append("lost"))
    unheard = bench.context.then(found.append)
    lose(bench)
    ended("outcome")
    unheard("outcome")
    assert found == ["lost"]


@pytest.mark.parametrize("lose", LOSSES)
def test_request_whose_read_ends_after_the_leadership_is_refused_with_the_leader(lose: Callable[[Bench], None]) -> None:
    bench, found = Bench(), list[object]()
    bench.context.read_then(bench.token, 0, 100, found.append)
    lose(bench)
    (end,) = bench.ends
    end()
    (error,) = bench.refused
    assert not found and error.code is ErrorCode.NOT_LEADER and error.leader == bench.replica.raft.leader


def test_request_whose_read_meets_damage_is_refused_at_once() -> None:
    bench, found = Bench(), list[object]()
    bench.is_damaged = True
    bench.context.read_then(bench.token, 0, 100, found.append)
    (end,) = bench.ends
    end()
    (error,) = bench.refused
    assert not found and error.code is ErrorCode.NOT_LEADER and error.traits.retriable


@pytest.mark.parametrize(("cached", "reads"), [([b"in memory"], 0), (None, 1)])
def test_batches_are_read_from_disk_only_if_they_are_not_in_memory(cached: list[bytes] | None, reads: int) -> None:
    bench, found = Bench(), list[object]()
    bench.cached = cached
    bench.context.read_then(bench.token, 0, 100, found.append)
    assert len(bench.ends) == reads
    for end in bench.ends:
        end()
    assert found == [cached or [b"from disk"]] and not bench.refused


def test_request_whose_read_ends_after_the_lease_is_refused() -> None:
    bench, found = Bench(), list[object]()
    bench.context.read_then(bench.token, 0, 100, found.append)
    bench.leased_until_ms = NOW_MS
    (end,) = bench.ends
    end()
    (error,) = bench.refused
    assert not found and error.code is ErrorCode.NO_QUORUM and error.traits.retriable


@pytest.mark.parametrize("lose", LOSSES)
def test_stream_read_that_ends_after_the_leadership_is_refused(lose: Callable[[Bench], None]) -> None:
    """What was not committed as it was read may have given its place to other records, which are committed now."""
    bench = Bench(StreamReplica)
    stream: Any = bench.replica
    stream._wanted_bytes, stream._grants = {bench.token: 100}, {bench.token: (b"group", 1, 1)}
    StreamReplica._read_now(stream, ReadNow(bench.token, 0))
    lose(bench)
    (end,) = bench.ends
    end()
    (error,) = bench.refused
    assert error.code is ErrorCode.NOT_LEADER and not stream._grants
