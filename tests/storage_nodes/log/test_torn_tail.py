"""Torn tail or corruption (docs/storage/log.md, "Mark"; R20). Every byte of the log's end is cut and garbled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import NodeLog
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import SMALL, append, commit, fill_until_flush_due, read_all

BOUNDS = replace(SMALL, wal_file_bytes=20_000)
FIRST_WAL = "/node/wal/0000000000000001.wal"
MARK = "/node/synced"


class Written:
    """A store with four groups after its opening group, and where each of them begins."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(random.Random(7))
        log = NodeLog.open("/node", BOUNDS, self.disk)
        self.starts: list[int] = []
        self.batches: list[bytes] = []
        self.marks: list[bytes] = []  # as of the sync of each group
        log.create(1, 1, "orders")
        for records in range(1, 5):
            batch = append(log, 1, records=records)
            group = log.take_group()
            assert group is not None
            self.starts.append(group.position)
            log.write_group(group)
            log.group_written(group)
            self.batches.append(batch)
            self.marks.append(bytes(self.disk.data_of(MARK)))
            self.end = group.position + 40 + group.length_bytes
        self.bytes = bytes(self.disk.data_of(FIRST_WAL))

    def reopened_with(self, data: bytes, synced: int = 3, repair: bool = False) -> NodeLog:
        """With these bytes of log, the first `synced` groups of which were synced."""
        self.disk.data_of(FIRST_WAL)[:] = data
        self.disk.data_of(MARK)[:] = self.marks[synced - 1]
        return NodeLog.open("/node", BOUNDS, self.disk, repair=repair)


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    store = Written()
    # Reopening writes an opening group behind the tail; every case starts from the same bytes again.
    yield store


def test_wal_cut_at_every_byte_of_a_group_that_was_not_synced_keeps_the_whole_groups_before(written: Written) -> None:
    for cut in range(written.starts[3], written.end):
        log = written.reopened_with(written.bytes[:cut])
        assert read_all(log.partitions[1]) == written.batches[:3], cut
        assert not log.partitions[1].suspect


@pytest.mark.parametrize("filled", [b"", b"\0", b"\xff"])
def test_wal_cut_at_every_byte_of_a_synced_group_is_corruption(written: Written, filled: bytes) -> None:
    """Whether the rest of the file is missing, zeroed or garbled: a synced group that is gone is no torn tail."""
    for cut in range(written.starts[2], written.end):
        data = written.bytes[:cut] + filled * (len(written.bytes) - cut)
        if data == written.bytes or not any(written.bytes[cut : written.end]):
            continue  # a group that ends in zero bytes loses nothing by zeros
        with pytest.raises(CorruptionError, match="was synced"):
            written.reopened_with(data, synced=4)
        if cut < written.starts[3]:
            with pytest.raises(CorruptionError, match="was synced"):
                written.reopened_with(data, synced=3)


def test_wal_zeroed_from_every_byte_of_a_group_that_was_not_synced_keeps_the_whole_groups_before(
    written: Written,
) -> None:
    for cut in range(written.starts[3], written.end):
        zeros = bytes(len(written.bytes) - cut)
        if written.bytes[cut:] == zeros:
            continue  # the rest was zeros already: nothing was lost
        log = written.reopened_with(written.bytes[:cut] + zeros)
        assert read_all(log.partitions[1]) == written.batches[:3], cut


def test_wal_every_byte_of_the_last_group_garbled_is_a_torn_tail(written: Written) -> None:
    for at in range(written.starts[3], written.end):
        data = bytearray(written.bytes)
        data[at] ^= 0x10
        log = written.reopened_with(bytes(data))
        assert read_all(log.partitions[1]) == written.batches[:3], at
        assert log.partitions[1].durable_end == log.partitions[1].log_end


def test_wal_every_byte_of_an_earlier_group_garbled_is_corruption(written: Written) -> None:
    for at in range(written.starts[3]):
        data = bytearray(written.bytes)
        data[at] ^= 1 << (at % 8)
        with pytest.raises(CorruptionError) as caught:
            written.reopened_with(bytes(data))
        assert caught.value.path == FIRST_WAL
        assert "Keep a copy" in str(caught.value)


def test_log_after_a_cut_tail_goes_on_and_recovers_again(written: Written) -> None:
    data = bytearray(written.bytes)
    data[written.end - 1] ^= 1
    log = written.reopened_with(bytes(data))
    batch = append(log, 1, epoch=2)
    commit(log)
    again = NodeLog.open("/node", BOUNDS, written.disk)
    assert read_all(again.partitions[1]) == [*written.batches[:3], batch]
    assert again.incarnation == log.incarnation + 1


@pytest.mark.parametrize("bit", range(0, 2_000 * 8, 97))
def test_sealed_file_flipped_bit_is_corruption(bit: int) -> None:
    disk = FaultyDisk(random.Random(7))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "orders")
    fill_until_flush_due(log, 1)
    sealed = disk.data_of(FIRST_WAL)
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptionError):
        NodeLog.open("/node", SMALL, disk)


def test_sealed_file_missing_is_corruption() -> None:
    disk = FaultyDisk(random.Random(7))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "orders")
    fill_until_flush_due(log, 1)
    disk.remove(FIRST_WAL)
    with pytest.raises(CorruptionError, match="missing"):
        NodeLog.open("/node", SMALL, disk)


def test_block_wrapped_in_a_message_behind_a_torn_tail_is_not_taken_for_a_group(written: Written) -> None:
    """A client that sends the bytes of a group must not stop a node from starting."""
    other = FaultyDisk(random.Random(8))
    stranger = NodeLog.open("/node", BOUNDS, other)
    stranger.create(1, 1, "orders")
    for _ in range(9):
        append(stranger, 1)
        commit(stranger)
    foreign = bytes(other.data_of(FIRST_WAL))[:1_500]
    torn = written.bytes[: written.starts[3]] + b"\0" * 50 + foreign
    log = written.reopened_with(torn)
    assert read_all(log.partitions[1]) == written.batches[:3]


def test_group_found_in_the_page_cache_after_a_kill_is_synced_before_it_counts() -> None:
    """The killed process had written the last group of a file, not synced it; then, later, the power goes too."""
    disk = FaultyDisk(random.Random(3))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "orders")
    commit(log)
    batch = append(log, 1, body=b"x" * SMALL.wal_file_bytes)
    group = log.take_group()
    assert group is not None
    disk.crash_after = 2  # the write, then the zeros or the sync
    with pytest.raises(PowerLost):
        log.write_group(group)
    again = NodeLog.open("/node", SMALL, disk.as_killed())
    assert again.partitions[1].durable_end == 1
    for _ in range(20):
        survivor = NodeLog.open("/node", SMALL, again._disk.after_power_loss())  # type: ignore[attr-defined]
        assert read_all(survivor.partitions[1]) == [batch]
