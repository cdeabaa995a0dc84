"""Bodies read for delivery: how often the disk is asked, what is kept and for how long, and that bytes are right.

The log is a real one, nearly all of it in segments; reads from disk wait until the test lets them happen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.record_batch import build_batch, read_header
from storage_nodes.node.replicas.bodies import BodyCache, BodyReader, read_scattered
from storage_nodes.node.replicas.queue_replica import QueueReplica
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import SMALL, all_live, commit, facts_of, flush

RECORDS = 5
BATCHES = 60
MESSAGES = RECORDS * BATCHES
COLD = MESSAGES - 4 * RECORDS  # messages below this are on disk only


def body_of(offset: int) -> bytes:
    return b"body %05d" % offset


def batch_at(base: int) -> bytes:
    return build_batch(base, 1, 1_000, [body_of(base + at) for at in range(RECORDS)])


BATCH_BYTES = len(batch_at(0))


class Rig:
    """A partition with messages on disk, and readers whose reads wait in `reads`."""

    def __init__(self, cache_batches: int = 40, live: Callable[[int, int], bool] = all_live) -> None:
        self.log = NodeLog.open("/node", replace(SMALL, wal_file_bytes=1_000_000), FaultyDisk(random.Random(1)))
        self.log.create(1, 1, "queue")
        self.part = self.log.partitions[1]
        for base in range(0, MESSAGES, RECORDS):
            if base == COLD - RECORDS:
                self.log.roll()  # with this group
            self.append(base)
        flush(self.log, facts_of(self.log, live))
        assert self.part.read_hot(0, 1) is None and self.part.read_hot(COLD, 1) is not None
        self.cache = BodyCache(cache_batches * BATCH_BYTES)
        self.reads: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.reads_done = 0

    def append(self, base: int) -> None:
        self.log.append(1, batch_at(base))
        commit(self.log)

    def reader(self, parsed_bytes_max: int = 0) -> BodyReader:
        return BodyReader(self.part, self.cache, lambda work, done: self.reads.append((work, done)), parsed_bytes_max)

    def disk_turn(self) -> None:
        """The reads that wait now."""
        reads, self.reads = self.reads, []
        for work, done in reads:
            self.reads_done += 1
            done(work())

    def fetch(self, reader: BodyReader, from_offset: int, batches: int) -> int:
        """As the machine's window is read ahead; where that ended."""
        found = self.part.read_cold(from_offset, batches * BATCH_BYTES)
        reader.keep_ahead(from_offset, found)
        return read_header(found[-1]).end_offset

    def take(self, reader: BodyReader, offsets: list[int]) -> dict[int, bytes]:
        """As a delivery reads them."""
        bodies = reader.read(offsets)
        if bodies is not None:
            return bodies
        found = later(reader, offsets)
        while not found:
            self.disk_turn()
        return found[0]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.log.close()


def later(reader: BodyReader, *wanted: list[int]) -> list[dict[int, bytes]]:
    """The answers, in the order in which they come."""
    answers: list[dict[int, bytes]] = []
    for offsets in wanted:
        reader.read_later(offsets, answers.append)
    return answers


def right(offsets: list[int]) -> dict[int, bytes]:
    return {offset: body_of(offset) for offset in offsets}


def test_cold_queue_read_in_order_reads_stretches_and_not_every_batch_again(rig: Rig) -> None:
    reader = rig.reader()
    for offset in range(0, COLD, 2):
        pair = [offset, offset + 1]
        assert rig.take(reader, pair) == right(pair)
    stretch = rig.cache.stretch_bytes() // BATCH_BYTES
    assert stretch == 10
    assert rig.reads_done <= COLD // RECORDS // stretch + 2, "each stretch is read once"


def test_fetch_beyond_what_is_not_handed_out_yet_keeps_both(rig: Rig) -> None:
    reader = rig.reader()
    end = rig.fetch(reader, 0, 8)
    assert rig.take(reader, [0, 1]) == right([0, 1])
    while end < COLD:
        rest = list(range(end - 2 * RECORDS, end))  # the window is read on before it is empty
        before, end = end, rig.fetch(reader, end, 8)
        assert rig.take(reader, rest) == right(rest)
        first = list(range(before, end - 2 * RECORDS))
        assert rig.take(reader, first) == right(first)
    assert not rig.reads_done, "whatever was fetched was still there when it was handed out"


def test_fetches_far_ahead_keep_what_is_handed_out_next(rig: Rig) -> None:
    """Large messages: the window takes many fetches before anything of the first one is handed out."""
    reader = rig.reader()
    end = 0
    while end < COLD:
        end = rig.fetch(reader, end, 8)
    assert rig.cache.bytes_held <= 2 * rig.cache.stretch_bytes()
    first = list(range(2 * 8 * RECORDS))
    assert rig.take(reader, first) == right(first)
    assert not rig.reads_done


def test_fetch_that_does_not_follow_what_is_kept_is_not_kept(rig: Rig) -> None:
    reader = rig.reader()
    end = rig.fetch(reader, 0, 4)
    held = rig.cache.bytes_held
    rig.fetch(reader, end + RECORDS, 4)
    assert rig.cache.bytes_held == held
    assert rig.take(reader, [end + RECORDS]) == right([end + RECORDS])


def test_stretch_before_what_was_fetched_takes_its_place(rig: Rig) -> None:
    reader = rig.reader()
    rig.fetch(reader, 100, 8)
    for offset in range(20):
        assert rig.take(reader, [offset]) == right([offset])
    assert rig.reads_done == 1


def test_fetch_after_everything_kept_was_handed_out_is_kept(rig: Rig) -> None:
    reader = rig.reader()
    end = rig.fetch(reader, 0, 4)
    rig.take(reader, [end - 1])
    rig.fetch(reader, end + 50, 4)
    assert reader.read([end + 50]) == right([end + 50])


def test_bodies_asked_for_while_a_read_is_under_way_wait_for_it(rig: Rig) -> None:
    reader = rig.reader()
    wanted = [[at, at + 1] for at in range(0, 20, 2)]
    answers = later(reader, *wanted)
    assert len(rig.reads) == 1 and not answers
    rig.disk_turn()
    assert answers == [right(offsets) for offsets in wanted]
    assert not rig.reads, "one stretch served all"


def test_bodies_beyond_the_stretch_of_another_take_a_read_of_their_own(rig: Rig) -> None:
    reader = rig.reader()
    answers = later(reader, [0], [200])
    rig.disk_turn()
    assert answers == [right([0])] and len(rig.reads) == 1
    rig.disk_turn()
    assert answers == [right([0]), right([200])]


def test_message_given_again_is_read_without_what_follows_it(rig: Rig) -> None:
    reader = rig.reader()
    rig.take(reader, [200])
    reader.clear()
    assert rig.take(reader, [7]) == right([7])
    assert rig.cache.bytes_held == BATCH_BYTES
    assert rig.take(reader, [8, 9]) == right([8, 9])
    assert rig.reads_done == 2, "its neighbours, given again too, need no other read"


def test_request_over_several_stretches_gets_all_bodies(rig: Rig) -> None:
    reader = rig.reader()
    everything = list(range(MESSAGES))
    assert rig.take(reader, everything) == right(everything)
    assert rig.cache.bytes_held <= 2 * rig.cache.stretch_bytes() + BATCH_BYTES


def test_close_while_a_read_is_under_way_answers_all_with_nothing_and_keeps_nothing(rig: Rig) -> None:
    reader = rig.reader()
    answers = later(reader, [0], [50])
    reader.close()
    assert answers == [{}, {}]
    rig.disk_turn()
    assert answers == [{}, {}] and not rig.reads
    assert rig.cache.bytes_held == 0, "what came late is of a leadership that is over"


def test_message_gone_from_the_log_while_it_was_asked_for_is_left_out() -> None:
    """Neither from disk nor from memory may the bytes of the entry behind it stand for it."""
    rig = Rig(live=lambda first, last: any(at // RECORDS % 4 == 0 for at in range(first, last + 1)))
    reader = rig.reader()
    gone, there = RECORDS, 4 * RECORDS
    assert rig.take(reader, [gone, there]) == right([there])
    assert rig.take(reader, [gone, there]) == right([there])
    reader.keep_ahead(0, rig.part.read_cold(0, 1_000))
    assert reader.read([gone]) is None
    last_gone = COLD - 2 * RECORDS
    assert rig.part.read_hot(COLD, 1), "behind it stands one that is in memory"
    assert rig.take(reader, [last_gone]) == {}


def test_queues_that_read_at_once_read_shorter_stretches(rig: Rig) -> None:
    alone = rig.cache.stretch_bytes()
    readers = [rig.reader() for _ in range(4)]
    for reader in readers * 2:
        rig.take(reader, [0])
    assert 0 < rig.cache.stretch_bytes() < alone / 2
    assert rig.cache.bytes_held <= 40 * BATCH_BYTES
    rig.reads_done = 0
    for reader in readers:
        rig.take(reader, [1])
    assert not rig.reads_done, "they did not push each other out"


def test_cache_full_drops_what_was_used_longest_ago() -> None:
    rig = Rig(cache_batches=2)
    old, new = rig.reader(), rig.reader()
    rig.take(old, [0])
    rig.take(new, [100])
    assert rig.cache.bytes_held <= 2 * BATCH_BYTES
    assert old.read([1]) is None
    assert new.read([101]) == right([101])


def test_queue_that_nobody_receives_from_keeps_nothing(rig: Rig) -> None:
    idle, busy = rig.reader(), rig.reader()
    rig.take(idle, [0])
    rig.take(busy, [0])
    rig.cache.drop_idle()
    rig.take(busy, [1])
    rig.cache.drop_idle()
    assert idle.read([1]) is None
    assert busy.read([1]) == right([1])
    rig.cache.drop_idle()
    rig.cache.drop_idle()
    assert rig.cache.bytes_held == 0


def test_reader_is_idle_when_it_keeps_nothing_and_nobody_waits(rig: Rig) -> None:
    reader = rig.reader()
    assert reader.is_idle
    later(reader, [0])
    assert not reader.is_idle
    rig.disk_turn()
    assert not reader.is_idle
    reader.clear()
    assert reader.is_idle


@pytest.mark.parametrize("is_idle", [True, False])
def test_flush_lets_go_of_a_reader_that_is_idle(rig: Rig, is_idle: bool) -> None:
    reader = rig.reader()
    if not is_idle:
        rig.take(reader, [0])
    machine = SimpleNamespace(rest=lambda: None, checkpoint=lambda: b"", is_live=None)
    replica: Any = SimpleNamespace(
        _appends=None, _body_reader=reader, machine=machine, raft=SimpleNamespace(commit=0), applied=0, log=None,
        _disposable_end=lambda: 0, checkpoint_pieces=lambda: b"", rest=lambda: QueueReplica.rest(replica),
    )  # fmt: skip
    QueueReplica.flush_facts(replica)
    assert (replica._body_reader is None) is is_idle


def test_rewrite_of_segments_asks_for_no_checkpoint() -> None:
    """It has no use for one, and what is in flight takes long to pack."""
    replica: Any = SimpleNamespace(machine=SimpleNamespace(is_live=max), _disposable_end=lambda: 5)
    assert QueueReplica.rewrite_facts(replica) == (5, max)


def test_fifo_reader_keeps_several_batches_parsed(rig: Rig) -> None:
    reader = rig.reader(parsed_bytes_max=3 * BATCH_BYTES)
    for offset in (0, 100, 50, 1, 101, 51):
        assert rig.take(reader, [offset]) == right([offset])
    assert rig.reads_done == 3
    assert rig.cache.bytes_held == 3 * BATCH_BYTES


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_asked_in_whatever_order_the_bodies_are_right(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig(cache_batches=chance.choice((1, 3, 20)))
    readers = [rig.reader(chance.choice((0, 0, 3 * BATCH_BYTES))) for _ in range(2)]
    heads = [0, 0]
    expected = answered = 0

    def check(offsets: list[int], bodies: dict[int, bytes]) -> None:
        nonlocal answered
        answered += 1
        assert bodies == right(offsets)

    for _ in range(300):
        which = chance.randrange(2)
        reader, head = readers[which], heads[which]
        kind = chance.randrange(6)
        if kind == 0:
            rig.fetch(reader, min(head + chance.randrange(40), COLD - 1), chance.randrange(1, 12))
        elif kind == 1:
            rig.disk_turn()
        elif kind == 2:
            rig.cache.drop_idle()
        else:
            count = chance.randrange(1, 12)
            again = [chance.randrange(head)] if head and chance.random() < 0.2 else []
            offsets = again + list(range(head, min(head + count, MESSAGES)))
            heads[which] = head + count if head + count < MESSAGES else 0
            bodies = reader.read(offsets)
            expected += 1
            if bodies is not None:
                check(offsets, bodies)
            else:
                reader.read_later(offsets, lambda found, offsets=offsets: check(offsets, found))  # type: ignore[misc]
        assert rig.cache.bytes_held == sum(reader.bytes_held for reader in readers)
    while rig.reads:
        rig.disk_turn()
    assert answered == expected


def test_scattered_offsets_are_read_batch_by_batch_and_nothing_is_kept(rig: Rig) -> None:
    found: list[dict[int, bytes]] = []
    wanted = [3, 299, 4, 120]
    read_scattered(rig.part, lambda work, done: rig.reads.append((work, done)), wanted, found.append)
    rig.disk_turn()
    assert found == [right(wanted)]
    assert rig.cache.bytes_held == 0
