"""The scrub reads each stored file of a running node, and takes only what the medium fails for damaged
(`storage_nodes/log/verify.py`; F15)."""

from __future__ import annotations

import errno

import pytest

from storage_nodes.log.errors import CorruptionError, NotVerifiedError
from storage_nodes.log.segment import SegmentRef
from storage_nodes.log.verify import stored_files
from tests.storage_nodes.log.faulty_disk import FaultyFile
from tests.storage_nodes.log.test_salvage import Store
from tests.storage_nodes.log.writing import facts_of, fill_until_flush_due, flush, none_live


def test_scrub_reads_every_stored_file_and_finds_every_flipped_byte() -> None:
    store = Store()
    log = store.log
    assert {file.partition for file in log.stored_files()} == {-1, 1}
    for file in log.stored_files():
        assert all(size <= 1_000 for size in log.verify(file, 300))
        if file.segment is not None:
            path = log._store.segments.path(1, file.number)
        elif file.partition == 1:
            path = log._store.checkpoints.path(1, file.number)
        else:
            path = f"/node/manifest-{file.number:016x}"
        data = store.disk.data_of(path)
        for at in range(len(data)):
            data[at] ^= 1
            with pytest.raises(CorruptionError):
                list(log.verify(file, 300))
            data[at] ^= 1
        list(log.verify(file, 300))


def test_scrub_sector_that_cannot_be_read_is_damage() -> None:
    store = Store()
    (file, *_) = [file for file in store.log.stored_files() if file.segment is not None]
    store.disk.make_unreadable(store.log._store.segments.path(file.partition, file.number), 0)
    with pytest.raises(CorruptionError, match="cannot be read") as caught:
        list(store.log.verify(file, 300))
    assert caught.value.path.endswith(".seg")


def test_scrub_file_that_a_flush_let_go_of_is_no_damage_and_one_that_vanished_is() -> None:
    store = Store()
    log = store.log
    (file, *_) = [file for file in log.stored_files() if file.segment is not None]
    store.disk.remove(log._store.segments.path(1, file.number))
    with pytest.raises(CorruptionError, match="missing"):
        list(log.verify(file, 300))
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, none_live))
    assert list(log.verify(file, 300)) == []


def test_file_that_cannot_be_opened_for_want_of_descriptors_is_not_taken_for_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> FaultyFile:
        raise OSError(errno.EMFILE, "Too many open files")

    store = Store()
    files = store.log.stored_files()
    monkeypatch.setattr(store.disk, "open", fail)
    for file in files:
        with pytest.raises(NotVerifiedError, match="Too many open files"):
            list(store.log.verify(file, 300))


def test_partition_made_while_a_scrub_lists_the_files_does_not_end_the_listing() -> None:
    store = Store()
    partitions = dict(store.log.partitions)

    class Made:
        """As the first of them: another one is made while its files are named."""

        partition = 1

        @property
        def segments(self) -> tuple[SegmentRef, ...]:
            partitions[3] = store.log.partitions[2]
            return store.log.partitions[1].segments

        checkpoint_source = (0, None, 0)

    partitions[1] = Made()  # type: ignore[assignment]
    assert {file.partition for file in stored_files(store.disk, "/node", partitions)} == {-1, 1}
