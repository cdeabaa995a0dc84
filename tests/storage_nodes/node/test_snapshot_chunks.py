"""Snapshots chunk by chunk: answers that come late or twice, slow reads, snapshots that are given up half way."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import SNAPSHOT_CHUNK_BYTES_MAX, SNAPSHOT_RESENDS_MAX
from storage_nodes.log.checkpoint import Blob
from storage_nodes.log.node_log import FlushFacts, NodeLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.machines.raft.effects import SendSnapshot, TakeSnapshot
from storage_nodes.model import PartitionKind
from storage_nodes.node.replicas import snapshots as snapshots_module
from storage_nodes.node.replicas.catch_up_reads import Done, Read
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.snapshots import Snapshots
from storage_nodes.node.replicas.stopped_replicas import StopKind
from storage_nodes.protocol.peer_messages import SnapshotChunk, SnapshotReply
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import SMALL, append, commit, facts_of, fill_until_flush_due, flush, read_all

STATE = b"state"

PARTITION, LEADER, FOLLOWER, EPOCH = 7, 1, 2, 1


def holds_something(base: int, last: int) -> bool:
    """Of two neighbours one is dead."""
    return base % 2 == 0 or base < last


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
    """A leader with a real log that sends one snapshot. Timers ring, and reads end, when the test says so."""

    def __init__(self) -> None:
        self.log = NodeLog.open("/node", SMALL, FaultyDisk(Random(1)))
        self.log.create(PARTITION, PartitionKind.QUEUE, "")
        fill_until_flush_due(self.log, PARTITION)
        self.sent: list[SnapshotChunk] = []
        self.sent_to: list[tuple[int, SnapshotChunk]] = []
        self.timers: list[Timer] = []
        self.reads: list[tuple[Read, Done]] = []
        self.ended: list[int] = []
        self.checkpoint: Blob = STATE
        self.packings: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.stopped: list[StopKind] = []
        self.snapshots = Snapshots()
        self._soon: list[Callable[[], None]] = []
        loop = SimpleNamespace(call_soon=self._soon.append, call_later=self._call_later)
        self._host = SimpleNamespace(
            node_id=LEADER,
            loop=loop,
            catch_up_reads=SimpleNamespace(submit=lambda read, done: self.reads.append((read, done))),
            send=self._send,
            run_maintenance=lambda work, done: self.packings.append((work, done)),
            stopped=SimpleNamespace(stop=lambda replica, kind, offset, error: self.stopped.append(kind)),
        )

    def flush(self) -> None:
        """What is dead goes, and what is not goes to segments: it is read back from the disk now."""
        flush(self.log, facts_of(self.log, holds_something))

    def begin(self) -> None:
        self.sent.clear()
        self.snapshots.send(self.replica(), SendSnapshot(FOLLOWER, EPOCH))
        self.turn()

    def turn(self) -> None:
        """Whatever waits for the next turn of the loop, and reads."""
        while self._soon or self.reads:
            soon, self._soon[:] = list(self._soon), []
            for call in soon:
                call()
            self.reads_end()

    def replica(self, partition: int = PARTITION) -> Any:
        log = self.log.partitions[PARTITION]
        return SimpleNamespace(
            partition=partition, host=self._host, log=log, closed=False, raft=SimpleNamespace(epoch=EPOCH),
            meta=PartitionMeta("t", (LEADER, FOLLOWER)), snapshot_ended=self.ended.append,
            applied=log.log_end,
            flush_facts=lambda: FlushFacts(log.log_end, self.checkpoint, log.log_end, log.log_end, holds_something),
        )  # fmt: skip

    def _send(self, peer: int, chunk: SnapshotChunk) -> None:
        self.sent.append(chunk)
        self.sent_to.append((peer, chunk))

    def _call_later(self, _delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(call))
        return self.timers[-1]

    def answered(self, number: int) -> None:
        chunk = self.sent[-1]
        self.snapshots.replied(FOLLOWER, SnapshotReply(PARTITION, EPOCH, chunk.end_offset, number, chunk.serial))

    def reads_end(self) -> None:
        reads, self.reads = self.reads, []
        for read, done in reads:
            done(read())

    def packings_end(self) -> None:
        packings, self.packings = self.packings, []
        for work, done in packings:
            done(work())

    def timers_ring(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.ring()


class Follower:
    """A follower with a real log, an empty one, that takes what it is given."""

    def __init__(self) -> None:
        self.log = NodeLog.open("/node", SMALL, FaultyDisk(Random(2)))
        self.log.create(PARTITION, PartitionKind.QUEUE, "")
        commit(self.log)
        self.replies: list[SnapshotReply] = []
        self.installed: list[int] = []
        self.snapshots = Snapshots()
        host = SimpleNamespace(
            log=self.log, run_maintenance=lambda work, done: done(work()),
            send=lambda peer, reply: self.replies.append(reply),
        )  # fmt: skip
        self._replica: Any = SimpleNamespace(
            partition=PARTITION, host=host, closed=False, installed=self._install,
            restoring=lambda state: lambda: state,
            raft=SimpleNamespace(may_install=lambda end: True, installing=lambda: None),
        )  # fmt: skip

    def _install(self, end: int, restore: Callable[[], bytes]) -> None:
        self.installed.append(end)
        assert restore() == STATE, "whole, in order"

    def take(self, chunk: SnapshotChunk) -> None:
        self.snapshots.take(self._replica, TakeSnapshot(LEADER, chunk))

    def bases(self) -> list[int]:
        return [read_header(batch).base_offset for batch in read_all(self.log.partitions[PARTITION])]


def exchange(leader: Leader, follower: Follower, chunks_max: int = 1_000) -> None:
    """Chunks and answers go back and forth; after so many chunks the link is cut."""
    for _ in range(chunks_max):
        follower.take(leader.sent[-1])
        leader.snapshots.replied(FOLLOWER, follower.replies[-1])
        leader.turn()
        if leader.ended:
            return


def test_answer_that_comes_twice_while_the_next_chunk_is_read_sends_that_one_once() -> None:
    """Else the same entries left twice, under two numbers, and ended the follower's node (seed 4000105)."""
    leader = Leader()
    leader.flush()
    leader.begin()
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


class LargePiece:
    """Of a state that is packed when it is asked for."""

    def __init__(self, data: bytes, failure: Exception | None = None) -> None:
        self._data, self._failure = data, failure
        self.packed = 0

    @property
    def nbytes(self) -> int:
        return len(bytes(self))

    def __bytes__(self) -> bytes:
        self.packed += 1
        if self._failure is not None:
            raise self._failure
        return self._data


def test_large_state_is_packed_by_a_thread_and_then_sent() -> None:
    leader, piece = Leader(), LargePiece(STATE[2:])
    leader.checkpoint = [STATE[:2], piece]
    leader.begin()
    assert not leader.sent and not piece.packed, "not on the event loop"
    leader.packings_end()
    assert leader.sent[0].number == 0 and leader.sent[0].checkpoint == STATE
    exchange(leader, follower := Follower())
    assert follower.installed == [leader.sent[-1].end_offset]


def test_snapshot_that_is_given_up_while_its_state_is_packed_is_not_sent() -> None:
    leader = Leader()
    leader.checkpoint = [LargePiece(STATE)]
    leader.begin()
    leader.snapshots.peer_down(FOLLOWER)
    leader.turn()
    leader.packings_end()
    assert not leader.sent and not leader.stopped


def test_state_that_cannot_be_packed_stops_its_replica_and_lets_others_be_sent() -> None:
    leader = Leader()
    leader.checkpoint = [LargePiece(STATE, ValueError("a bug"))]
    leader.begin()
    leader.checkpoint = STATE
    leader.packings_end()
    assert leader.stopped == [StopKind.CHECKPOINT] and not leader.sent
    leader.begin()
    assert [chunk.number for chunk in leader.sent] == [0]


def test_piece_that_cannot_be_made_stops_its_replica_whenever_it_is_sent() -> None:
    """Its size is known without it, so packing has not noticed."""
    leader = Leader()
    piece = LargePiece(b"", ValueError("a bug"))
    leader.checkpoint = [b"s" * SNAPSHOT_CHUNK_BYTES_MAX, SizedPiece(piece)]
    leader.begin()
    leader.packings_end()
    assert [chunk.number for chunk in leader.sent] == [0] and not leader.stopped
    leader.answered(0)
    assert leader.stopped == [StopKind.CHECKPOINT]
    leader.checkpoint = STATE
    leader.begin()
    assert [chunk.number for chunk in leader.sent] == [0], "it holds no place"


def test_state_of_a_snapshot_that_was_given_up_is_not_packed() -> None:
    leader, piece = Leader(), LargePiece(STATE)
    leader.checkpoint = [piece]
    leader.begin()
    leader.snapshots.peer_down(FOLLOWER)
    leader.packings_end()
    assert not piece.packed


class SizedPiece:
    def __init__(self, piece: LargePiece) -> None:
        self._piece = piece
        self.nbytes = 5

    def __bytes__(self) -> bytes:
        return bytes(self._piece)


def test_snapshot_whose_next_chunk_is_read_slowly_is_not_given_up() -> None:
    leader = Leader()
    leader.flush()
    leader.begin()
    leader.answered(0)
    for _ in range(SNAPSHOT_RESENDS_MAX + 2):
        leader.timers_ring()
    assert len(leader.sent) == 1, "what was answered is not sent again"
    assert leader.ended == []
    leader.reads_end()
    assert leader.sent[-1].number == 1


def test_snapshot_that_nobody_answers_is_given_up() -> None:
    leader = Leader()
    leader.begin()
    for _ in range(SNAPSHOT_RESENDS_MAX + 2):
        leader.timers_ring()
    assert [chunk.number for chunk in leader.sent] == [0] * (SNAPSHOT_RESENDS_MAX + 1)
    assert leader.ended == [FOLLOWER]


def test_snapshots_for_a_node_that_went_down_make_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be back without the replica, and answer none of them."""
    monkeypatch.setattr(snapshots_module, "SNAPSHOTS_SENDING_MAX", 1)
    leader = Leader()
    leader.begin()
    leader.snapshots.send(leader.replica(PARTITION + 1), SendSnapshot(FOLLOWER, EPOCH))
    leader.snapshots.send(leader.replica(PARTITION), SendSnapshot(FOLLOWER + 1, EPOCH))
    leader.turn()
    assert [to for to, _ in leader.sent_to] == [FOLLOWER]
    leader.snapshots.peer_down(FOLLOWER)
    leader.turn()
    assert [(to, chunk.partition) for to, chunk in leader.sent_to[1:]] == [(FOLLOWER + 1, PARTITION)]
    leader.snapshots.peer_down(FOLLOWER + 1)
    leader.turn()
    leader.timers_ring()
    assert len(leader.sent) == 2, "nothing is sent again, nor the one that waited"
    leader.begin()
    assert len(leader.sent_to) == 3, "asked for anew, it is sent anew"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_CHUNK_BYTES_MAX", 500)


def test_snapshot_begun_again_after_a_flush_leaves_nothing_out(small_chunks: None) -> None:
    """The second one, up to the same offset, is cut elsewhere: it must not go on where the first one ended."""
    leader, follower = Leader(), Follower()
    leader.begin()
    exchange(leader, follower, 3)
    leader.flush()
    leader.begin()
    exchange(leader, follower)
    end = leader.log.partitions[PARTITION].log_end
    assert follower.installed == [end]
    assert follower.bases() == [base for base in range(end) if holds_something(base, base)]


def test_late_chunk_of_a_snapshot_that_was_given_up_does_not_end_its_successor(small_chunks: None) -> None:
    leader, follower = Leader(), Follower()
    leader.begin()
    late = leader.sent[0]
    leader.begin()
    exchange(leader, follower, 2)
    follower.take(late)
    exchange(leader, follower)
    assert follower.installed == [leader.log.partitions[PARTITION].log_end]


def test_late_answer_to_a_snapshot_that_was_given_up_is_not_one_to_its_successor(small_chunks: None) -> None:
    leader = Leader()
    leader.begin()
    late = SnapshotReply(PARTITION, EPOCH, leader.sent[0].end_offset, 0, leader.sent[0].serial)
    leader.begin()
    leader.snapshots.replied(FOLLOWER, late)
    leader.turn()
    assert len(leader.sent) == 1


def test_snapshot_after_more_was_written_takes_the_place_of_the_one_before(small_chunks: None) -> None:
    leader, follower = Leader(), Follower()
    leader.begin()
    exchange(leader, follower, 2)
    append(leader.log, PARTITION)
    commit(leader.log)
    leader.begin()
    exchange(leader, follower)
    assert follower.installed == [leader.log.partitions[PARTITION].log_end]
