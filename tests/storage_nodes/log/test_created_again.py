"""A partition that is dropped and later created again under its id: no restart takes the one log for the other."""

from __future__ import annotations

import pytest

from storage_nodes.log.node_log import ImportedLog, NodeLog
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.test_install import END, assert_installed, image_of, opened
from tests.storage_nodes.log.writing import (
    SMALL,
    append,
    carry_out,
    commit,
    facts_of,
    fill_until_flush_due,
    flush,
    planned_flush,
    read_all,
)

AGAIN = "queue-1, again"


def dropped() -> tuple[NodeLog, FaultyDisk]:
    """Partition 1 had entries in segments and in the WAL, and was dropped; the tombstone is durable."""
    log, disk = opened()
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    append(log, 1)
    commit(log)
    log.drop(1)
    commit(log)
    return log, disk


def forget(log: NodeLog) -> None:
    plan = log.plan_forget(1)
    assert plan is not None
    log.run_forget(plan)
    log.forget_done()


def install(log: NodeLog, image: ImportedLog) -> None:
    plan = log.plan_install(1, image)
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)


def test_name_is_free_only_when_the_manifest_has_forgotten_the_dropped_log() -> None:
    log, _disk = dropped()
    assert log.is_dropping(1) and not log.is_dropping(2)
    with pytest.raises(AssertionError, match="one log of a name"):
        log.create(1, 1, AGAIN)
    forget(log)
    assert not log.is_dropping(1)
    assert log.create(1, 1, AGAIN).log_end == 0


def test_forgetting_waits_for_the_tombstone_and_for_a_flush() -> None:
    log, _disk = opened()
    append(log, 1)
    commit(log)
    log.drop(1)
    assert log.plan_forget(1) is None, "the tombstone is not durable"
    commit(log)
    fill_until_flush_due(log, 2)
    plan = planned_flush(log, facts_of(log))
    assert not log.is_dropping(1), "the flush under way forgets it"
    carry_out(log, plan)
    log.create(1, 1, AGAIN)


def test_log_created_again_survives_restarts_and_flushes_with_its_own_entries() -> None:
    log, disk = dropped()
    forget(log)
    log.create(1, 1, AGAIN)
    new = [append(log, 1, epoch=3, body=b"new") for _ in range(3)]
    commit(log)
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert again.partitions[1].tag == AGAIN and read_all(again.partitions[1]) == new
    new += fill_until_flush_due(log, 1, epoch=3)
    flush(log, facts_of(log))
    assert read_all(NodeLog.open("/node", SMALL, disk.after_power_loss()).partitions[1]) == new


def test_snapshot_installed_in_a_log_created_again_survives_flush_and_restart() -> None:
    log, disk = dropped()
    forget(log)
    log.create(1, 1, AGAIN)
    commit(log)
    install(log, image_of(log))
    assert_installed(NodeLog.open("/node", SMALL, disk.after_power_loss()))
    fill_until_flush_due(log, 2)
    flush(log, facts_of(log, checkpoint=b"leader's state, too long for the manifest"))
    assert_installed(NodeLog.open("/node", SMALL, disk.after_power_loss()))


@pytest.mark.parametrize("survival", range(3))
def test_power_loss_anywhere_from_drop_to_snapshot_leaves_one_log_or_none(survival: int) -> None:
    outcomes = set()
    for crash_after in range(1, 100):
        log, disk = opened(survival * 1_000 + crash_after)
        old = fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
        disk.crash_after = crash_after
        try:
            log.drop(1)
            commit(log)
            forget(log)
            log.create(1, 1, AGAIN)
            commit(log)
            install(log, image_of(log))
        except PowerLost:
            done = False
        else:
            done = True
        found = NodeLog.open("/node", SMALL, disk.after_power_loss()).partitions.get(1)
        if found is None:
            outcomes.add("none")
        elif found.tag != AGAIN:
            assert read_all(found) == old
            outcomes.add("old")
        elif found.log_end == END:
            assert (found.log_start, found.log_end) == (10, END)
            outcomes.add("new")
        else:
            assert found.log_end == 0
            outcomes.add("empty")
        if done:
            break
    assert done and outcomes == {"none", "old", "new", "empty"}


def test_forgotten_log_goes_to_the_trash_with_a_later_manifest() -> None:
    log, disk = dropped()
    forget(log)
    log.create(1, 1, AGAIN)
    append(log, 1)
    commit(log)
    for _ in range(2):
        fill_until_flush_due(log, 2)
        flush(log, facts_of(log))
    assert [name for name in disk.list_directory("/node/trash") if name.endswith(".seg")]
    assert len(read_all(log.partitions[1])) == 1


@pytest.mark.parametrize("entries", [0, 1])
def test_log_created_again_while_a_flush_forgets_the_first_one_outlives_a_kill_before_its_manifest(
    entries: int,
) -> None:
    log, disk = dropped()
    fill_until_flush_due(log, 2)
    log.begin_flush()
    log.create(1, 1, AGAIN)
    commit(log)
    log = NodeLog.open("/node", SMALL, disk.as_killed())
    assert log.partitions[1].tag == AGAIN and not log.is_dropping(1)
    install(log, ImportedLog(100, [3], [0], b"state", []))
    for _ in range(entries):
        append(log, 1, epoch=3)
        commit(log)
    fill_until_flush_due(log, 2)
    flush(log, facts_of(log))
    found = NodeLog.open("/node", SMALL, disk.as_killed()).partitions[1]
    assert (found.log_end, found.checkpoint, found.tag) == (100 + entries, b"state", AGAIN)
