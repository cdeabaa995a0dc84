"""A sector that the device cannot read any more is damage like a changed byte, and ends no process (F15; EIO)."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
from pathlib import Path

import pytest

from storage_nodes.log import recovery
from storage_nodes.log.disk import OsDisk
from storage_nodes.log.errors import CorruptionError, UnreadableError
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.wal import GROUP_HEADER, GROUP_HEADER_BYTES, MAGIC, RECORD_BYTES, wal_name
from tests.storage_nodes.log.faulty_disk import SECTOR_BYTES, FaultyDisk
from tests.storage_nodes.log.test_salvage import FIRST_WAL, MARK, Store, kept_by_repair
from tests.storage_nodes.log.writing import SMALL, append, commit, facts_of, fill_until_flush_due, flush, read_all


@pytest.fixture(autouse=True)
def small_sectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "UNREADABLE_STEP_BYTES", SECTOR_BYTES)


@pytest.mark.parametrize("number", [errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA])
def test_read_that_the_medium_fails_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    file.write(0, [b"12345"])

    def pread(*_: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(UnreadableError, match=os.strerror(number)) as damage:
        file.read(3, 2)
    assert isinstance(damage.value, CorruptionError)
    assert (damage.value.path, damage.value.position) == (str(tmp_path / "file"), 3)


def test_read_that_fails_for_another_reason_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(str(tmp_path / "file"), create=True)

    def pread(*_: int) -> bytes:
        raise OSError(errno.EBADF, "bad descriptor")

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(OSError, match="bad descriptor"):
        file.read(0, 1)


def test_file_that_cannot_be_opened_for_its_medium_is_damaged_and_one_to_be_made_is_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UnreadableError, match="give the node an empty directory"):
        OsDisk().open(str(tmp_path / "file"))
    with pytest.raises(OSError, match="Input/output error"):
        OsDisk().open(str(tmp_path / "file"), create=True)


def test_every_sector_of_the_log_unreadable_leaves_a_prefix_suspect_and_goes_on() -> None:
    places = [(path, at) for path in Store().needed() for at in range(0, 2_000, SECTOR_BYTES)]
    kept = set()
    for path, at in places:
        store = Store()
        data = store.disk.data_of(path)
        if at >= len(data) or not any(data[at : at + 40]):
            continue
        store.disk.make_unreadable(path, at)
        with pytest.raises(CorruptionError):
            NodeLog.open("/node", SMALL, store.disk.as_killed())
        kept.add(kept_by_repair(store, (path, at)))
    assert len(kept) > 5


def test_last_group_unreadable_is_damage_even_where_no_mark_tells_of_it() -> None:
    """After a power loss the mark may be older. A torn write can be read; this one cannot, and may be acknowledged."""
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    append(log, 1)
    commit(log)
    mark = bytes(disk.data_of(MARK))
    last_at = log._wal.gathering.position
    append(log, 1, body=b"acknowledged" * 10)
    commit(log)
    disk.data_of(MARK)[:] = mark
    disk.make_unreadable(FIRST_WAL, last_at + 2 * SECTOR_BYTES)
    found = NodeLog.open("/node", SMALL, disk, repair=True)
    assert "cannot be read" in found.damage[0].problem
    assert found.partitions[1].suspect and found.partitions[1].log_end == 1


@pytest.mark.parametrize("followed", [False, True])
def test_entry_with_zeros_where_it_cannot_be_read_is_damage_though_its_checksum_is_right(followed: bool) -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    append(log, 1)
    commit(log)
    zeros_at = log._wal.gathering.position + 4 * SECTOR_BYTES
    append(log, 1, body=bytes(8 * SECTOR_BYTES))
    commit(log)
    if followed:
        append(log, 1)
        commit(log)
    disk.make_unreadable(FIRST_WAL, zeros_at)
    with pytest.raises(CorruptionError):
        NodeLog.open("/node", SMALL, disk.as_killed())
    found = NodeLog.open("/node", SMALL, disk, repair=True)
    assert found.damage
    assert found.partitions[1].suspect and found.partitions[1].log_end == 1


def test_sector_behind_the_end_of_the_log_costs_nothing() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    append(log, 1)
    commit(log)
    disk.make_unreadable(FIRST_WAL, log._wal.gathering.position + 3 * SECTOR_BYTES)
    found = NodeLog.open("/node", SMALL, disk)
    assert not found.partitions[1].suspect and found.partitions[1].log_end == 1


@pytest.mark.parametrize("slots", [(0,), (512,), (0, 512)])
def test_slots_of_the_mark_unreadable_are_slots_that_are_not_valid(slots: tuple[int, ...]) -> None:
    store = Store()
    for slot in slots:
        store.disk.make_unreadable(MARK, slot)
    found = store.repaired()
    assert {partition: read_all(log) for partition, log in found.partitions.items()} == store.batches
    assert all(log.suspect for log in found.partitions.values()) is (len(slots) == 2)
    again = NodeLog.open("/node", SMALL, store.disk, repair=True)
    assert not again.damage


@pytest.mark.parametrize("newest", [True, False])
def test_manifest_unreadable_is_replaced_by_the_other_one(newest: bool) -> None:
    store = Store()
    names = sorted(name for name in store.disk.list_directory("/node") if name.startswith("manifest-"))
    store.disk.make_unreadable(f"/node/{names[-1 if newest else 0]}", 10)
    found = store.repaired()
    assert {partition: read_all(log) for partition, log in found.partitions.items()} == store.batches
    assert not any(log.suspect for log in found.partitions.values()) and len(found.damage) == 1
    assert not NodeLog.open("/node", SMALL, store.disk, repair=True).damage


def test_segment_and_checkpoint_unreadable_are_damage_of_their_partition() -> None:
    store = Store()
    log = store.log.partitions[1]
    offset, blob, number = log.checkpoint_source
    paths = [store.log._store.segments.path(1, ref.number) for ref in log.segments]
    if number:
        paths.append(store.log._store.checkpoints.path(1, number))
    for path in paths:
        store.disk.make_unreadable(path, 40)
    again = NodeLog.open("/node", SMALL, store.disk)
    with pytest.raises(UnreadableError, match=os.path.basename(paths[0])):
        again.partitions[1].read_cold(0, 1 << 20)
    for file in again.stored_files():
        if file.partition == 1:
            with pytest.raises(CorruptionError):
                list(again.verify(file, 300))
    assert read_all(again.partitions[2]) == store.batches[2]
    assert offset and (blob is not None or number)


def test_entry_beside_an_unreadable_one_of_another_partition_is_read() -> None:
    disk = FaultyDisk(random.Random(1))
    bounds = dataclasses.replace(SMALL, memtable_bytes_max=1)
    log = NodeLog.open("/node", bounds, disk)
    for partition in (1, 2):
        log.create(partition, 1, "queue")
    first = append(log, 1)
    commit(log)
    lost_at = log._wal.gathering.position
    append(log, 2, body=b"x" * 200)
    commit(log)
    second = append(log, 1)
    commit(log)
    for partition in (2, 1):  # out of the cache
        append(log, partition)
        commit(log)
    disk.make_unreadable(FIRST_WAL, lost_at + 2 * SECTOR_BYTES)
    assert log.partitions[1].read_cold(0, 1 << 20)[:2] == [first, second]
    with pytest.raises(UnreadableError):
        log.partitions[2].read_cold(0, 1 << 20)


def test_note_that_cannot_be_read_is_none() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.write_note("scrub.json", b"{}")
    assert log.read_note("scrub.json") == b"{}"
    disk.make_unreadable("/node/scrub.json", 0)
    assert log.read_note("scrub.json") == b""


def test_entry_whose_epoch_changed_in_the_log_is_neither_read_nor_flushed() -> None:
    """The checksum of a batch leaves its epoch out, and a segment would put its own checksum over what it is given."""
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", dataclasses.replace(SMALL, memtable_bytes_max=1), disk)
    for partition in (1, 2):
        log.create(partition, 1, "queue")
    commit(log)
    epoch_at = log._wal.gathering.position + GROUP_HEADER_BYTES + log.staged_bytes + RECORD_BYTES + 12
    append(log, 1, epoch=5)
    commit(log)
    fill_until_flush_due(log, 2)
    disk.data_of(FIRST_WAL)[epoch_at] ^= 4
    with pytest.raises(CorruptionError, match="in epoch"):
        log.partitions[1].read_cold(0, 1 << 20)
    with pytest.raises(CorruptionError, match="in epoch"):
        flush(log, facts_of(log))
    found = NodeLog.open("/node", SMALL, disk, repair=True)
    assert found.damage and found.partitions[1].suspect


def test_sector_of_a_block_from_an_earlier_life_of_the_file_behind_the_end_of_the_log_costs_nothing() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    commit(log)
    for _ in range(4):
        fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
    number, end = log.wal_file_number, log._wal.gathering.position
    path = f"/node/wal/{wal_name(number)}"
    stale = GROUP_HEADER.pack(MAGIC, number - 3, 1, 1, 0, 10 * SECTOR_BYTES, 0)
    disk.data_of(path)[end : end + len(stale)] = stale
    disk.make_unreadable(path, end + 5 * SECTOR_BYTES)
    found = NodeLog.open("/node", SMALL, disk)
    assert not found.partitions[1].suspect and found.partitions[1].log_end == log.partitions[1].log_end
