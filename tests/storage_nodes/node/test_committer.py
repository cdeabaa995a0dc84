"""What waits for an fsync, and what becomes of it when its replica is closed first."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from storage_nodes.limits import MIB, WAL_GROUP_BYTES_MAX
from storage_nodes.log.node_log import NodeLog
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.model import PartitionKind
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.peer_messages import AppendReply
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import SMALL


class Log:
    """Takes one group at a time."""

    def __init__(self) -> None:
        self.staged_bytes = 1

    def take_group(self) -> Any:
        self.staged_bytes = 0
        return SimpleNamespace(length_bytes=1)

    def group_written(self, _group: Any) -> list[tuple[int, int]]:
        return []


def idle_committer(log: Any, sent: list[tuple[int, int]], soon: list[Callable[[], None]]) -> Committer:
    """Never started: the test says when a group is written."""
    loop: Any = SimpleNamespace(call_soon=soon.append, time=lambda: 0.0)
    return Committer(loop, log, lambda _: None, lambda peer, m: sent.append((peer, m.partition)), lambda: None)


def test_answer_of_a_replica_that_was_closed_meanwhile_is_not_sent() -> None:
    """Its log may be empty by then (damage), and the leader would count what is not there any more (R5)."""
    soon: list[Callable[[], None]] = []
    sent: list[tuple[int, int]] = []
    log: Any = Log()
    committer = idle_committer(log, sent, soon)
    for partition in (1, 2):  # of the group that is being written from here on
        committer.send_after_sync(9, AppendReply(partition, 1, True, 5))
    soon.pop()()
    log.staged_bytes = 1
    for partition in (1, 2):  # of the one that gathers behind it
        committer.send_after_sync(8, AppendReply(partition, 1, True, 6))
    committer.forget(1, None)
    committer._written(SimpleNamespace(length_bytes=1), 0.0)  # type: ignore[arg-type]
    committer._written(SimpleNamespace(length_bytes=1), 0.0)  # type: ignore[arg-type]
    assert sent == [(9, 2), (8, 2)]


def test_replica_that_tries_to_hand_over_during_a_group_waits_for_the_next_one_once() -> None:
    """Its place in the committer's list is not taken once more by each attempt (I14, seed 6200095)."""
    soon: list[Callable[[], None]] = []
    log: Any = Log()
    committer = idle_committer(log, [], soon)
    committer.wake()
    soon.pop()()  # a group is on its way to the disk from here on
    stored = NodeLog.open("/node", SMALL, FaultyDisk(Random(1)))
    host: Any = SimpleNamespace(
        node_id=1, committer=committer, clock=SimpleNamespace(mono_ms=lambda: 1_000),
        timers=SimpleNamespace(wake=lambda partition, due_ms: None),
    )  # fmt: skip
    replica = Replica(host, stored.create(7, PartitionKind.QUEUE, ""), PartitionMeta("t", (1, 2, 3)), QueueMachine())
    replica.serving = True
    replica.raft = _NobodyTakesOver()  # type: ignore[assignment]
    for _ in range(3):
        replica.propose_soon()
        replica.hand_over(2)
    assert committer._proposers == [replica]


class _NobodyTakesOver:
    transferee = leader = timer_ms = 0

    def transfer(self, _target: int, _now_ms: int) -> list[Any]:
        return []

    def next_tick_ms(self) -> int:
        return 0


def test_replica_that_was_closed_keeps_no_place_in_the_next_group() -> None:
    """Seed 60003695 (I14): it would be asked for what it proposes, and counts against the bound until then."""
    soon: list[Callable[[], None]] = []
    log: Any = Log()
    committer = idle_committer(log, [], soon)
    closed, other = (SimpleNamespace(stage=lambda: None, durable=lambda end: None) for _ in range(2))
    for proposer in (closed, other):
        committer.propose_soon(proposer)
    committer.forget(1, closed)
    assert committer._proposers == [other]


class Partition:
    """Adds its share of each group until it has nothing more."""

    def __init__(self, committer: Committer, log: Any, name: int, waiting_bytes: int, order: list[int]) -> None:
        self.committer, self.log, self.name, self.order = committer, log, name, order
        self.waiting_bytes = waiting_bytes
        committer.propose_soon(self)

    def stage(self) -> None:
        self.order.append(self.name)
        added = min(self.waiting_bytes, self.committer.share_bytes)
        self.waiting_bytes -= added
        self.log.staged_bytes += added
        if self.waiting_bytes:
            self.committer.propose_soon(self)

    def durable(self, end_offset: int) -> None:
        pass


def groups_of(partitions: int, waiting_bytes: int, peers_bytes: int = 0) -> tuple[list[int], list[list[int]]]:
    """Lengths of the groups, and who added to each, until nothing is left."""
    log: Any = Log()
    log.staged_bytes = 0
    lengths: list[int] = []

    def take_group() -> Any:
        lengths.append(log.staged_bytes)
        log.staged_bytes = peers_bytes
        return SimpleNamespace(length_bytes=lengths[-1]) if lengths[-1] > peers_bytes else None

    log.take_group = take_group
    soon: list[Callable[[], None]] = []
    committer = idle_committer(log, [], soon)
    order: list[int] = []
    for name in range(partitions):
        Partition(committer, log, name, waiting_bytes, order)
    orders: list[list[int]] = []
    soon.pop()()
    while order:
        orders.append(order.copy())
        order.clear()
        committer._written(SimpleNamespace(length_bytes=1), 0.0)  # type: ignore[arg-type]
    return lengths, orders


def test_group_ends_where_it_is_full_however_many_partitions_wait() -> None:
    lengths, orders = groups_of(100, 3 * MIB)
    assert max(lengths) <= WAL_GROUP_BYTES_MAX
    assert sum(lengths) == 100 * 3 * MIB
    first_turns = [name for order in orders for name in order][:100]
    assert first_turns == list(range(100)), "nobody has a second turn before everybody had one"


def test_few_partitions_share_a_group() -> None:
    lengths, orders = groups_of(2, WAL_GROUP_BYTES_MAX)
    assert lengths[:2] == [WAL_GROUP_BYTES_MAX] * 2 and orders[:2] == [[0, 1], [0, 1]]


def test_what_other_leaders_append_does_not_keep_own_partitions_out() -> None:
    lengths, orders = groups_of(10, MIB, peers_bytes=3 * WAL_GROUP_BYTES_MAX)
    assert [name for order in orders for name in order] == list(range(10))
    assert len(orders) <= 3 and max(lengths) <= 4 * WAL_GROUP_BYTES_MAX
