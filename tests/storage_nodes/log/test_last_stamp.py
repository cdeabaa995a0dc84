"""The latest stamp of a log outlives the write-ahead log: a leader that begins after a restart goes on from it."""

from __future__ import annotations

from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.record_batch import build_batch
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.test_install import install, opened
from tests.storage_nodes.log.writing import SMALL, commit, facts_of, fill_until_flush_due, flush, none_live

STAMP_MS = 70_000


def stamped(log: NodeLog) -> None:
    log.append(1, build_batch(log.partitions[1].log_end, 1, STAMP_MS, [b"late"]))
    commit(log)


def reopened(disk: FaultyDisk) -> int:
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    return again.partitions[1].last_stamp_ms


def test_stamp_of_an_entry_that_was_flushed_or_dropped_is_known_after_a_restart() -> None:
    log, disk = opened()
    stamped(log)
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, none_live))
    assert log.partitions[1].flushed_end > 1
    assert reopened(disk) == STAMP_MS


def test_stamp_stays_when_a_snapshot_replaces_the_log() -> None:
    log, disk = opened()
    stamped(log)
    install(log)
    assert reopened(disk) == log.partitions[1].last_stamp_ms == STAMP_MS


def test_stamp_stays_when_a_damaged_log_is_emptied() -> None:
    log, disk = opened()
    stamped(log)
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    plan = log.plan_reset(1)
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    assert (log.partitions[1].log_end, reopened(disk)) == (0, STAMP_MS)
