"""A stopped replica holds entries beyond the commit that it knows: they keep no old files of the write-ahead log."""

from __future__ import annotations

import random

import pytest

from storage_nodes.limits import STOPPED_WAL_FILES_MAX
from storage_nodes.log.node_log import FlushFacts, NodeLog, PartitionLog
from storage_nodes.node.disk import tails
from storage_nodes.node.disk.tails import LogTail, carry, old_tails, read_tail
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import SMALL, all_live, append, commit, flush, read_all

STOPPED, OTHER = 1, 2
COMMITTED = 3


class Node:
    """A log with one partition that is stopped, known to be committed up to COMMITTED, and one that goes on."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = FaultyDisk(random.Random(seed))
        self.log = NodeLog.open("/node", SMALL, self.disk)
        self.log.create(STOPPED, 1, "queue")
        self.log.create(OTHER, 1, "queue")
        self.batches = [append(self.log, STOPPED, epoch=1 + at // 4, records=1 + at % 2) for at in range(8)]
        commit(self.log)

    @property
    def part(self) -> PartitionLog:
        return self.log.partitions[STOPPED]

    def facts(self, partition: int) -> FlushFacts:
        if partition == STOPPED:
            return FlushFacts(COMMITTED, b"", -1, 0, all_live)
        end = self.log.partitions[partition].durable_end
        return FlushFacts(end, b"state", end, end, all_live)

    def goes_on(self, files: int) -> None:
        """The other partition fills so many files, each flushed."""
        for _ in range(files):
            while not self.log.flush_due():
                append(self.log, OTHER, body=b"x" * 100)
                commit(self.log)
            append(self.log, OTHER)
            commit(self.log)
            flush(self.log, self.facts)

    def old(self) -> list[LogTail]:
        return old_tails(self.log, [(self.part, COMMITTED)])

    def carried(self) -> bool:
        (tail,) = self.old()
        done = carry(self.log, tail, read_tail(tail))
        if done:
            commit(self.log)
        return done

    def files(self) -> list[int]:
        return sorted(self.log._wal.files)


def test_tail_of_a_stopped_replica_keeps_a_bounded_number_of_files() -> None:
    node = Node()
    for _ in range(5 * STOPPED_WAL_FILES_MAX):
        node.goes_on(1)
        if node.old():
            assert node.carried() and not node.old()
        assert len(node.files()) <= STOPPED_WAL_FILES_MAX + 2
    assert read_all(node.part) == node.batches
    found = NodeLog.open("/node", SMALL, node.disk.after_power_loss())
    assert read_all(found.partitions[STOPPED]) == node.batches
    assert (found.partitions[STOPPED].log_end, found.partitions[STOPPED].last_epoch) == (node.part.log_end, 2)


def test_tail_that_lies_near_or_was_flushed_or_is_too_long_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    node.goes_on(1)
    assert not node.old()
    node.goes_on(STOPPED_WAL_FILES_MAX)
    (tail,) = node.old()
    assert (tail.first, tail.end) == (COMMITTED, node.part.log_end)
    assert not old_tails(node.log, [(node.part, node.part.log_end)]), "all of it is committed"
    monkeypatch.setattr(tails, "STOPPED_TAIL_BYTES_MAX", 1)
    assert not node.old()


def test_nothing_is_staged_where_the_log_changed_while_it_was_read() -> None:
    node = Node()
    node.goes_on(STOPPED_WAL_FILES_MAX + 1)
    (tail,) = node.old()
    batches = read_tail(tail)
    assert not carry(node.log, tail, batches[1:]) and not carry(node.log, tail, [])
    append(node.log, STOPPED, epoch=2)
    assert not carry(node.log, tail, batches)
    node.log.drop(STOPPED)
    assert not carry(node.log, tail, batches)


@pytest.mark.parametrize("survival", range(3))
def test_power_loss_anywhere_leaves_every_entry_where_it_was(survival: int) -> None:
    losses = 0
    for crash_after in range(1, 200):
        node = Node(seed=survival)
        node.goes_on(STOPPED_WAL_FILES_MAX + 1)
        node.disk.crash_after = crash_after
        try:
            assert node.carried()
            node.goes_on(1)
        except PowerLost:
            losses += 1
        else:
            break
        found = NodeLog.open("/node", SMALL, node.disk.after_power_loss())
        assert read_all(found.partitions[STOPPED]) == node.batches
    assert losses > 10
