"""One snapshot on its way out: what is sent when answers come twice, or while the next chunk is being read."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from storage_nodes.limits import SNAPSHOT_RESENDS_MAX
from storage_nodes.log.node_log import FlushFacts, NodeLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.machines.raft.effects import SendSnapshot
from storage_nodes.model import PartitionKind
from storage_nodes.node.feeding import Done, Read
from storage_nodes.node.replica import PartitionMeta
from storage_nodes.node.snapshots import Snapshots
from storage_nodes.protocol.messages import SnapshotChunk, SnapshotReply
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import SMALL, all_live, facts_of, fill_until_flush_due, flush

PARTITION, LEADER, FOLLOWER, EPOCH = 7, 1, 2, 1


class Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def ring(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._call()


class Leader:
    """A leader with a real, flushed log, that sends one snapshot. Timers ring, and reads end, when the test says so."""

    def __init__(self) -> None:
        self.log = NodeLog.open("/node", SMALL, FaultyDisk(Random(1)))
        self.log.create(PARTITION, PartitionKind.QUEUE, "")
        fill_until_flush_due(self.log, PARTITION)
        flush(self.log, facts_of(self.log))
        self.sent: list[SnapshotChunk] = []
        self.timers: list[Timer] = []
        self.reads: list[tuple[Read, Done]] = []
        self.ended: list[int] = []
        self._soon: list[Callable[[], None]] = []
        loop = SimpleNamespace(call_soon=self._soon.append, call_later=self._call_later)
        host: Any = SimpleNamespace(
            node_id=LEADER,
            loop=loop,
            feed=SimpleNamespace(submit=lambda read, done: self.reads.append((read, done))),
            send=lambda peer, chunk: self.sent.append(chunk),
        )
        self.snapshots = Snapshots()
        self.snapshots.send(self._replica(host), SendSnapshot(FOLLOWER, EPOCH))
        self._soon.pop()()

    def _replica(self, host: Any) -> Any:
        log = self.log.partitions[PARTITION]
        return SimpleNamespace(
            partition=PARTITION, host=host, log=log, closed=False, raft=SimpleNamespace(epoch=EPOCH),
            meta=PartitionMeta("t", (LEADER, FOLLOWER)), snapshot_ended=self.ended.append,
            flush_facts=lambda: FlushFacts(log.log_end, b"state", log.log_end, log.log_end, all_live),
        )  # fmt: skip

    def _call_later(self, _delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(call))
        return self.timers[-1]

    def answered(self, number: int) -> None:
        self.snapshots.replied(FOLLOWER, SnapshotReply(PARTITION, EPOCH, self.sent[-1].end_offset, number))

    def reads_end(self) -> None:
        reads, self.reads = self.reads, []
        for read, done in reads:
            done(read())

    def timers_ring(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.ring()


def test_answer_that_comes_twice_while_the_next_chunk_is_read_sends_that_one_once() -> None:
    """Else the same entries left twice, under two numbers, and ended the follower's node (seed 4000105)."""
    leader = Leader()
    assert [chunk.number for chunk in leader.sent] == [0]
    leader.answered(0)
    leader.answered(0)
    while not leader.sent[-1].done:
        leader.reads_end()
        leader.answered(leader.sent[-1].number)
        leader.answered(leader.sent[-1].number)
    assert [chunk.number for chunk in leader.sent] == list(range(len(leader.sent)))
    bases = [read_header(entry).base_offset for chunk in leader.sent for entry in chunk.entries]
    assert bases and bases == sorted(set(bases))
    assert leader.ended == [FOLLOWER]


def test_snapshot_whose_next_chunk_is_read_slowly_is_not_given_up() -> None:
    leader = Leader()
    leader.answered(0)
    for _ in range(SNAPSHOT_RESENDS_MAX + 2):
        leader.timers_ring()
    assert len(leader.sent) == 1, "what was answered is not sent again"
    assert leader.ended == []
    leader.reads_end()
    assert leader.sent[-1].number == 1


def test_snapshot_that_nobody_answers_is_given_up() -> None:
    leader = Leader()
    for _ in range(SNAPSHOT_RESENDS_MAX + 2):
        leader.timers_ring()
    assert [chunk.number for chunk in leader.sent] == [0] * (SNAPSHOT_RESENDS_MAX + 1)
    assert leader.ended == [FOLLOWER]
