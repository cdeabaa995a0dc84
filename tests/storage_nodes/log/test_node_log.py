"""The log's contract (docs/storage/log.md), on a real disk."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from storage_nodes.log.errors import CorruptionError, DirectoryInUseError, DiskFailedError
from storage_nodes.log.node_log import FlushFacts, NodeLog
from storage_nodes.log.record_batch import build_batch, read_header
from tests.storage_nodes.log.writing import (
    SMALL,
    all_live,
    append,
    commit,
    facts_of,
    fill_until_flush_due,
    flush,
    none_live,
    read_all,
)


@pytest.fixture
def log(tmp_path: Path) -> NodeLog:
    opened = NodeLog.open(str(tmp_path / "node"), SMALL)
    opened.create(1, 1, "orders")
    commit(opened)
    return opened


def reopened(log: NodeLog) -> NodeLog:
    log.close()
    return NodeLog.open(log.directory, log.bounds)


def test_group_written_moves_durable_ends_and_nothing_before_does(log: NodeLog) -> None:
    log.create(2, 2, "clicks")
    append(log, 1, records=3)
    append(log, 2, records=2)
    assert log.staged_bytes > 0
    group = log.take_group()
    assert group is not None and log.take_group() is None
    assert (log.partitions[1].log_end, log.partitions[1].durable_end) == (3, 0)
    log.write_group(group)
    assert log.partitions[1].durable_end == 0
    assert sorted(log.group_written(group)) == [(1, 3), (2, 2)]
    assert log.partitions[2].durable_end == 2


def test_latest_stamp_of_a_log_is_known_at_once_and_after_a_restart(log: NodeLog) -> None:
    for stamp_ms in (5_000, 7_000, 6_000):
        log.append(1, build_batch(log.partitions[1].log_end, 1, stamp_ms, [b"body"]))
        assert log.partitions[1].last_stamp_ms >= stamp_ms
    commit(log)
    assert log.partitions[1].last_stamp_ms == 7_000
    again = reopened(log)
    assert again.partitions[1].last_stamp_ms == 7_000
    again.close()


def test_truncate_while_a_group_is_written_keeps_its_entries_from_counting(log: NodeLog) -> None:
    """The group's old entries reach the disk, but the log holds others there now (R5)."""
    append(log, 1, records=2)
    append(log, 1, records=2)
    group = log.take_group()
    assert group is not None
    log.truncate(1, 2)
    append(log, 1, epoch=2, records=5)
    log.write_group(group)
    assert log.group_written(group) == [(1, 2)]
    assert log.partitions[1].durable_end == 2
    assert commit(log) == [(1, 7)]
    assert log.partitions[1].epoch_at(2) == 1 and log.partitions[1].epoch_at(3) == 2


def test_epochs_follow_appends_and_truncations(log: NodeLog) -> None:
    for epoch in (1, 3, 3, 7):
        append(log, 1, epoch=epoch, records=10)
    part = log.partitions[1]
    assert [part.epoch_at(o) for o in (0, 1, 10, 11, 30, 31, 40)] == [0, 1, 1, 3, 3, 7, 7]
    assert [part.end_of_epoch(e) for e in (0, 1, 2, 3, 6, 7, 99)] == [
        (0, 0), (1, 10), (1, 10), (3, 30), (3, 30), (7, 40), (7, 40),
    ]  # fmt: skip
    log.truncate(1, 20)
    assert (part.last_epoch, part.log_end, part.end_of_epoch(99)) == (3, 20, (3, 20))
    log.truncate(1, 0)
    assert (part.last_epoch, part.log_end, part.epoch_at(0)) == (0, 0, 0)


def test_reads_return_up_to_the_bound_but_at_least_one_batch(log: NodeLog) -> None:
    batches = [append(log, 1, records=2) for _ in range(6)]
    commit(log)
    part = log.partitions[1]
    two = len(batches[0]) * 2
    for read in (part.read_hot, part.read_cold):
        assert read(0, two) == batches[:2]
        assert read(3, two + 1) == batches[1:3]  # the first one covers the offset
        assert read(0, 1) == batches[:1]
        assert read(12, 100) == []


def test_read_hot_evicted_payload_says_none_and_read_cold_has_it(log: NodeLog) -> None:
    batches = [append(log, 1, body=b"x" * 300) for _ in range(2)]
    commit(log)
    batches += [append(log, 1, body=b"x" * 300) for _ in range(3)]
    commit(log)
    append(log, 1)
    part = log.partitions[1]
    assert part.read_hot(0, 10_000) is None
    assert part.read_hot(4, 100) == batches[4:5]
    assert part.read_cold(0, 10_000)[:5] == batches


def test_payload_that_is_not_written_yet_is_never_evicted(log: NodeLog) -> None:
    batches = [append(log, 1, body=b"x" * 300) for _ in range(20)]
    assert log.partitions[1].read_hot(0, 100_000) == batches
    assert log.partitions[1].read_cold(0, 100_000) == batches


def test_flush_keeps_live_entries_in_segments_and_reads_cross_into_the_wal(log: NodeLog) -> None:
    batches = fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    part = log.partitions[1]
    assert 0 < part.flushed_end < part.log_end and part.log_start == 0
    assert len(part.segments) > 1, "cut at the segment bound"
    assert read_all(part) == batches
    assert part.read_hot(0, 100) is None
    assert read_all(reopened(log).partitions[1]) == batches


def test_flush_dead_entries_are_skipped_and_log_start_moves(log: NodeLog) -> None:
    batches = fill_until_flush_due(log, 1)
    end = log.partitions[1].durable_end
    dead_below = 4
    flush(log, lambda _p: FlushFacts(end, b"", end, end, lambda _base, last: last >= dead_below))
    part = log.partitions[1]
    assert part.log_start == dead_below
    assert read_all(part) == batches[dead_below:]
    assert part.epoch_at(dead_below) == 1


@pytest.mark.parametrize(("applied", "replicated"), [(3, 99), (99, 3), (3, 3)])
def test_flush_entries_not_applied_or_not_replicated_stay_although_dead(
    log: NodeLog, applied: int, replicated: int
) -> None:
    batches = fill_until_flush_due(log, 1)
    end = log.partitions[1].durable_end
    flush(log, lambda _p: FlushFacts(end, b"s", min(applied, end), min(replicated, end), none_live))
    assert read_all(log.partitions[1]) == batches[3:]
    assert log.partitions[1].checkpoint_offset == min(applied, end)


def test_flush_checkpoint_ahead_of_the_own_disk_is_not_kept(log: NodeLog) -> None:
    fill_until_flush_due(log, 1)
    end = log.partitions[1].durable_end
    flush(log, lambda _p: FlushFacts(end, b"ahead", end + 1, end, none_live))
    assert (log.partitions[1].checkpoint, log.partitions[1].checkpoint_offset) == (None, 0)
    assert len(read_all(log.partitions[1])) > 0 and log.partitions[1].log_start == 0


@pytest.mark.parametrize("blob", [b"small", b"large" * 50])
def test_checkpoint_survives_reopening(log: NodeLog, blob: bytes) -> None:
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, checkpoint=blob))
    offset = log.partitions[1].checkpoint_offset
    assert log.partitions[1].checkpoint == blob
    part = reopened(log).partitions[1]
    assert (part.checkpoint, part.checkpoint_offset, part.tag, part.kind) == (blob, offset, "orders", 1)


def test_segments_wholly_dead_are_removed_one_flush_later(log: NodeLog) -> None:
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    segments = os.path.join(log.directory, "segments")
    first = set(os.listdir(segments))
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, none_live))
    assert log.partitions[1].segments == ()
    assert first <= set(os.listdir(segments)), "the manifest before still names them"
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, none_live))
    assert not first & set(os.listdir(segments))


def test_wal_files_are_recycled_and_their_number_stays_bounded(log: NodeLog) -> None:
    for _ in range(12):
        fill_until_flush_due(log, 1)
        flush(log, facts_of(log, none_live))
    assert len(os.listdir(os.path.join(log.directory, "wal"))) <= 6
    assert len([name for name in os.listdir(log.directory) if name.startswith("manifest")]) == 2


def test_uncommitted_entries_keep_their_wal_file(log: NodeLog) -> None:
    log.create(2, 1, "stuck")
    stuck = append(log, 2)
    commit(log)
    for _ in range(5):
        fill_until_flush_due(log, 1)
        ready = facts_of(log, none_live)
        flush(log, lambda p, ready=ready: FlushFacts(0, b"", 0, 0, all_live) if p == 2 else ready(p))
    assert read_all(reopened(log).partitions[2]) == [stuck]


def test_votes_outlive_recycled_wal_files(log: NodeLog) -> None:
    log.save_vote(1, 9, 3)
    commit(log)
    for _ in range(4):
        fill_until_flush_due(log, 1, epoch=9)
        flush(log, facts_of(log, none_live))
    part = reopened(log).partitions[1]
    assert (part.epoch, part.voted_for, part.last_epoch) == (9, 3, 9)


def test_manifest_unreadable_falls_back_to_the_one_before_and_loses_nothing(log: NodeLog) -> None:
    batches: list[bytes] = []
    log.create(2, 1, "voter")
    commit(log)
    for epoch in (1, 2, 3):
        log.save_vote(2, epoch, 1)
        batches += fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
    log.close()
    newest = max(name for name in os.listdir(log.directory) if name.startswith("manifest-"))
    path = Path(log.directory, newest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    again = NodeLog.open(log.directory, SMALL)
    assert read_all(again.partitions[1]) == batches
    assert again.partitions[2].epoch == 3
    batches += fill_until_flush_due(again, 1) if not again.flush_due() else []
    flush(again, facts_of(again))
    assert read_all(reopened(again).partitions[1]) == batches


def test_no_readable_manifest_is_corruption_never_an_empty_log(log: NodeLog) -> None:
    log.close()
    for path in Path(log.directory).glob("manifest-*"):
        path.write_bytes(b"")
    with pytest.raises(CorruptionError):
        NodeLog.open(log.directory, SMALL)
    for path in Path(log.directory).glob("manifest-*"):
        path.unlink()
    with pytest.raises(CorruptionError, match="no manifest"):
        NodeLog.open(log.directory, SMALL)


def test_segment_every_flipped_byte_is_found_by_a_read(log: NodeLog) -> None:
    batches = fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    log.close()
    path = min(Path(log.directory, "segments").iterdir())
    original = path.read_bytes()
    for at in range(0, len(original), 7):
        data = bytearray(original)
        data[at] ^= 0x80
        path.write_bytes(data)
        again = NodeLog.open(log.directory, SMALL)
        with pytest.raises(CorruptionError, match=path.name):
            read_all(again.partitions[1])
        with pytest.raises(CorruptionError):
            again.partitions[1].verify_segments()
        again.close()
    path.write_bytes(original)
    again = NodeLog.open(log.directory, SMALL)
    again.partitions[1].verify_segments()
    assert read_all(again.partitions[1]) == batches


def test_segment_missing_is_corruption(log: NodeLog) -> None:
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    log.close()
    min(Path(log.directory, "segments").iterdir()).unlink()
    with pytest.raises(CorruptionError, match="missing"):
        NodeLog.open(log.directory, SMALL)


def test_segments_of_two_partitions_swapped_are_corruption(log: NodeLog) -> None:
    log.create(2, 1, "other")
    for _ in range(8):
        append(log, 1, body=b"x" * 150)
        append(log, 2, body=b"x" * 150)
        commit(log)
    flush(log, facts_of(log))
    log.close()
    first, second = (
        min(p for p in Path(log.directory, "segments").iterdir() if p.name.startswith(f"{n:016x}")) for n in (1, 2)
    )
    one, two = first.read_bytes(), second.read_bytes()
    assert len(one) == len(two)
    first.write_bytes(two)
    with pytest.raises(CorruptionError):
        read_all(NodeLog.open(log.directory, SMALL).partitions[1])


def test_dropped_partition_goes_to_trash_and_stays_gone(log: NodeLog) -> None:
    log.create(2, 1, "kept")
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    log.drop(1)
    assert 1 not in log.partitions
    for _ in range(3):
        fill_until_flush_due(log, 2)
        flush(log, facts_of(log, none_live))
    trash = os.listdir(os.path.join(log.directory, "trash"))
    assert trash and not [n for n in os.listdir(os.path.join(log.directory, "segments")) if n.startswith(f"{1:016x}")]
    again = reopened(log)
    assert set(again.partitions) == {2}
    assert again.purge_trash(older_than_ms=0) == 0
    assert again.purge_trash(older_than_ms=2**60) == len(trash)


def test_directory_in_trash_is_left_alone(log: NodeLog) -> None:
    os.mkdir(os.path.join(log.directory, "trash", "kept by hand"))
    assert log.purge_trash(older_than_ms=2**60) == 0


def test_late_read_of_a_dropped_partition_finds_nothing_and_takes_nothing_for_damaged(log: NodeLog) -> None:
    """It may have been asked for before the drop, and its files are gone when its turn comes."""
    log.create(2, 1, "kept")
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    gone = log.partitions[1]
    log.drop(1)
    for _ in range(3):
        fill_until_flush_due(log, 2)
        flush(log, facts_of(log, none_live))
    assert gone.read_cold(0, 1_000) == []


def test_partition_created_again_after_a_drop_starts_empty(log: NodeLog) -> None:
    append(log, 1, records=5)
    commit(log)
    log.drop(1)
    commit(log)
    plan = log.plan_forget(1)
    assert plan is not None
    log.run_forget(plan)
    log.forget_done()
    log.create(1, 2, "second")
    batch = append(log, 1, epoch=4)
    commit(log)
    part = reopened(log).partitions[1]
    assert (part.tag, part.kind, part.log_end, read_all(part)) == ("second", 2, 1, [batch])


def test_write_failure_is_final(log: NodeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """R21: no retry, since a second fsync may claim what the first one lost."""
    append(log, 1)
    group = log.take_group()
    assert group is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda _fd: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            log.write_group(group)
    with pytest.raises(DiskFailedError):
        log.write_group(group)


def test_directory_open_in_another_process_is_refused(log: NodeLog) -> None:
    program = (
        "import sys\nfrom storage_nodes.log.errors import DirectoryInUseError\n"
        "from storage_nodes.log.node_log import NodeLog\n"
        "try:\n    NodeLog.open(sys.argv[1])\nexcept DirectoryInUseError:\n    sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", program, log.directory], check=False).returncode == 7
    with pytest.raises(DirectoryInUseError):
        NodeLog.open(log.directory)


def test_open_segment_files_stay_within_their_bound(log: NodeLog) -> None:
    for _ in range(3):
        fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
    part = log.partitions[1]
    assert len(part.segments) > SMALL.open_segment_files_max
    before = len(os.listdir("/proc/self/fd"))
    read_all(part)
    assert len(os.listdir("/proc/self/fd")) <= before + SMALL.open_segment_files_max


def test_reader_that_looked_up_before_a_flush_reads_the_right_bytes_after_it(log: NodeLog) -> None:
    """The index swaps and the WAL file is used again between a reader's lookup and its read."""
    batches = fill_until_flush_due(log, 1)
    part = log.partitions[1]
    real = log._store.wal.files[1].file
    assert real is not None
    read = real.read
    done: list[int] = []

    class Slow:
        path = "slow"

        def read(self, position: int, length: int) -> bytes:
            if not done:
                done.append(1)
                for _ in range(4):
                    flush(log, facts_of(log))
                    fill_until_flush_due(log, 1)
            return read(position, length)

    log._store.wal.files[1].file = Slow()  # type: ignore[assignment]
    assert part.read_cold(0, 200) == batches[:1]
    assert done


def test_idle_partition_holds_no_file_and_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    log = NodeLog.open(str(tmp_path / "idle"), replace(SMALL, wal_file_bytes=1_000_000))
    files = len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    for partition in range(1, 2_001):
        log.create(partition, 1, f"queue-{partition:027d}")
        append(log, partition)
    commit(log)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown / 2_000 < 800
    assert len(os.listdir("/proc/self/fd")) <= files


def test_log_of_old_bounds_opens_with_new_ones(log: NodeLog) -> None:
    batches = fill_until_flush_due(log, 1)
    log.close()
    again = NodeLog.open(log.directory, replace(SMALL, wal_file_bytes=50_000, segment_index_interval_bytes=50))
    assert read_all(again.partitions[1]) == batches
    assert read_header(append(again, 1)).base_offset == len(batches)


def test_replay_of_truncated_entries_before_flushed_ones_passes_them_over(log: NodeLog) -> None:
    """An old WAL file that another partition keeps is replayed: it holds what was truncated before the flush."""
    log.create(2, 1, "stuck")
    append(log, 2)
    for records in (3, 5, 2, 2):
        append(log, 1, epoch=1, records=records)
    commit(log)
    log.truncate(1, 0)
    batches = [append(log, 1, epoch=2, records=5)]
    commit(log)
    batches += fill_until_flush_due(log, 1, epoch=2)
    ready = facts_of(log)
    flush(log, lambda p: FlushFacts(0, b"", 0, 0, all_live) if p == 2 else ready(p))  # type: ignore[operator]
    again = reopened(log)
    assert again.partitions[1].flushed_end > 5
    assert read_all(again.partitions[1]) == batches
    assert again.partitions[1].epoch_at(1) == 2


def test_partition_whose_facts_are_unknown_is_left_in_the_wal(log: NodeLog) -> None:
    batches = fill_until_flush_due(log, 1)
    flush(log, lambda _p: None)
    assert log.partitions[1].flushed_end == 0
    assert read_all(reopened(log).partitions[1]) == batches


def test_clean_close_writes_what_is_staged(log: NodeLog) -> None:
    batch = append(log, 1)
    log.save_vote(1, 4, 2)
    part = reopened(log).partitions[1]
    assert (read_all(part), part.epoch, part.voted_for) == ([batch], 4, 2)
