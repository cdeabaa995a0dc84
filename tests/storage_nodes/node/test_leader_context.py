"""What is begun in one leadership of a replica and ends after it changes nothing; the caller is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.errors import ErrorCode, StorageError

EPOCH = 4


class Bench:
    """A replica that leads, and a request that it was asked."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], None]] = []
        self.refused: list[StorageError] = []
        self.cached: list[bytes] | None = None
        replica = Replica.__new__(Replica)
        raft: Any = SimpleNamespace(epoch=EPOCH, leader=1)
        host: Any = SimpleNamespace(run_cold=lambda work, done: self.ends.append(lambda: done(work())))
        log: Any = SimpleNamespace(read_hot=lambda *_: self.cached, read_cold=lambda *_: [b"from disk"])
        replica.raft, replica.host, replica.log, replica.serving = raft, host, log, True
        self.replica = replica
        connection = SimpleNamespace(refuse=lambda token, error: self.refused.append(error))
        self.token: Any = SimpleNamespace(connection=connection)
        self.context = LeaderContext(replica)

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


@pytest.mark.parametrize(("cached", "reads"), [([b"in memory"], 0), (None, 1)])
def test_batches_are_read_from_disk_only_if_they_are_not_in_memory(cached: list[bytes] | None, reads: int) -> None:
    bench, found = Bench(), list[object]()
    bench.cached = cached
    bench.context.read_then(bench.token, 0, 100, found.append)
    assert len(bench.ends) == reads
    for end in bench.ends:
        end()
    assert found == [cached or [b"from disk"]] and not bench.refused
