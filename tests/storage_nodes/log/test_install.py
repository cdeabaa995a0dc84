"""A log installed from a snapshot (docs/storage/raft_groups.md): the old log or the new one, wherever power fails."""

from __future__ import annotations

import random

import pytest

from storage_nodes.log.node_log import FlushFacts, ImportedLog, NodeLog
from storage_nodes.log.record_batch import build_batch, read_header
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import (
    SMALL,
    all_live,
    append,
    carry_out,
    commit,
    facts_of,
    fill_until_flush_due,
    flush,
    none_live,
    planned_flush,
    read_all,
)

# Entries of the leader's log that matter below offset 100, with gaps.
LIVE = [build_batch(base, epoch, 5, [b"live-%d" % base] * 2) for base, epoch in ((10, 1), (12, 1), (40, 2), (90, 4))]
END = 100


def image_of(log: NodeLog, checkpoint: bytes = b"leader's state, too long for the manifest") -> ImportedLog:
    incoming = log.begin_import(1)
    incoming.add(LIVE[:2])
    incoming.add(LIVE[2:])
    return ImportedLog(END, [1, 2, 4], [0, 30, 80], checkpoint, incoming.finish())


def install(log: NodeLog) -> None:
    plan = log.plan_install(1, image_of(log))
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)


def opened(seed: int = 1) -> tuple[NodeLog, FaultyDisk]:
    disk = FaultyDisk(random.Random(seed))
    log = NodeLog.open("/node", SMALL, disk)
    for partition in (1, 2):
        log.create(partition, 1, f"queue-{partition}")
    commit(log)
    return log, disk


def assert_installed(log: NodeLog) -> None:
    part = log.partitions[1]
    assert (part.log_start, part.log_end, part.durable_end, part.whole_from) == (10, END, END, END)
    assert (part.last_epoch, part.epoch_at(30), part.epoch_at(31), part.epoch_at(81)) == (4, 1, 2, 4)
    assert part.end_of_epoch(3) == (2, 80)
    assert read_all(part) == LIVE
    assert (part.checkpoint, part.checkpoint_offset) == (b"leader's state, too long for the manifest", END)


def test_install_over_entries_in_segments_and_wal_replaces_them_and_survives_a_restart() -> None:
    log, disk = opened()
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log))
    append(log, 1)
    append(log, 2, body=b"another partition")
    log.save_vote(1, 9, 2)
    commit(log)
    install(log)
    assert_installed(log)
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert_installed(again)
    assert (again.partitions[1].epoch, again.partitions[1].voted_for) == (9, 2), "the hard state is kept"
    assert len(read_all(again.partitions[2])) == 1


def test_entries_appended_after_an_install_follow_it_after_a_restart() -> None:
    """Also those that share their WAL group with nothing: the void groups end before the gathering one."""
    log, disk = opened()
    append(log, 1)
    commit(log)
    install(log)
    more = [append(log, 1, epoch=5) for _ in range(3)]
    commit(log)
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert again.partitions[1].log_end == END + 3
    assert read_all(again.partitions[1]) == LIVE + more


def test_install_waits_for_staged_entries_and_for_a_flush() -> None:
    log, _disk = opened()
    append(log, 1)
    assert log.plan_install(1, image_of(log)) is None
    commit(log)
    fill_until_flush_due(log, 2)
    plan = planned_flush(log, facts_of(log))
    assert log.plan_install(1, image_of(log)) is None
    carry_out(log, plan)
    install(log)


def test_mark_that_is_cleared_while_a_snapshot_is_installed_stays_cleared() -> None:
    log, disk = opened()
    log.set_suspect(1, True)
    commit(log)
    plan = log.plan_install(1, image_of(log))
    assert plan is not None
    log.set_suspect(1, False)
    log.run_install(plan)
    log.install_done(plan)
    assert not log.partitions[1].suspect
    commit(log)
    log.close()
    assert not NodeLog.open("/node", SMALL, disk).partitions[1].suspect


def test_mark_that_is_set_while_a_snapshot_is_installed_stays_set() -> None:
    log, disk = opened()
    plan = log.plan_install(1, image_of(log))
    assert plan is not None
    log.set_suspect(1, True)
    log.run_install(plan)
    log.install_done(plan)
    assert log.partitions[1].suspect
    commit(log)
    log.close()
    assert NodeLog.open("/node", SMALL, disk).partitions[1].suspect


def test_log_that_is_reset_is_suspect() -> None:
    log, _disk = opened()
    plan = log.plan_reset(1)
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    assert log.partitions[1].suspect


def test_group_that_was_being_written_does_not_move_the_end_of_the_installed_log() -> None:
    log, _disk = opened()
    append(log, 1)
    group = log.take_group()
    assert group is not None
    install(log)
    log.write_group(group)
    assert log.group_written(group) == []
    assert_installed(log)


def test_installed_log_is_flushed_and_trimmed_like_any_other() -> None:
    log, disk = opened()
    install(log)
    fill_until_flush_due(log, 1, epoch=5)
    flush(log, facts_of(log, none_live))
    part = log.partitions[1]
    assert part.log_start == part.whole_from == part.flushed_end
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert again.partitions[1].whole_from == part.flushed_end


@pytest.mark.parametrize("survival", range(4))
def test_power_loss_anywhere_in_an_install_leaves_the_old_log_or_the_new_one(survival: int) -> None:
    outcomes = set()
    for crash_after in range(1, 60):
        log, disk = opened(survival * 1_000 + crash_after)
        old = fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
        old.append(append(log, 1))
        commit(log)
        disk.crash_after = crash_after
        try:
            install(log)
        except PowerLost:
            disk = disk.after_power_loss()
            found = NodeLog.open("/node", SMALL, disk).partitions[1]
            outcome = "old" if found.log_end < END else "new"
        else:
            outcome = "done"
        again = NodeLog.open("/node", SMALL, disk.after_power_loss())
        if again.partitions[1].log_end == END:
            assert_installed(again)
        else:
            assert outcome == "old" and read_all(again.partitions[1]) == old
        assert not [name for name in disk.after_power_loss().list_directory("/node/trash") if "incoming" in name]
        outcomes.add(outcome)
        if outcome == "done":
            break
    assert outcomes == {"old", "new", "done"}


def test_install_with_the_newest_manifest_unreadable_is_still_there() -> None:
    log, disk = opened()
    append(log, 1)
    commit(log)
    install(log)
    appended = append(log, 1, epoch=5)
    commit(log)
    survivor = disk.after_power_loss()
    newest = sorted(name for name in survivor.list_directory("/node") if name.startswith("manifest-"))[-1]
    survivor.open(f"/node/{newest}").write(30, [b"\xff\xff\xff"])
    survivor.open(f"/node/{newest}").sync()
    again = NodeLog.open("/node", SMALL, survivor)
    assert read_all(again.partitions[1]) == [*LIVE, appended]


def test_whole_from_rises_past_every_dropped_entry_and_no_further() -> None:
    log, disk = opened()
    fill_until_flush_due(log, 1)
    part = log.partitions[1]
    bases = [read_header(batch).base_offset for batch in read_all(part)]
    dead = bases[len(bases) // 2]

    def facts(partition: int) -> FlushFacts:
        end = log.partitions[partition].durable_end
        return FlushFacts(end, b"state", end, end, lambda base, last: not base == last == dead)

    assert part.whole_from == 0
    flush(log, facts)
    assert part.whole_from == bases[bases.index(dead) + 1]
    assert NodeLog.open("/node", SMALL, disk.after_power_loss()).partitions[1].whole_from == part.whole_from
    fill_until_flush_due(log, 1)
    flush(log, facts_of(log, all_live))
    assert part.whole_from == bases[bases.index(dead) + 1]


def test_incarnation_is_at_least_what_was_asked_for_and_rises_at_every_open() -> None:
    disk = FaultyDisk(random.Random(1))
    first = NodeLog.open("/node", SMALL, disk, incarnation_min=1_000)
    again = NodeLog.open("/node", SMALL, disk.as_killed(), incarnation_min=900)
    assert (first.incarnation, again.incarnation) == (1_000, 1_000 + 1 + 900)


def test_incarnation_of_an_older_directory_is_no_second_one_of_an_equal_number() -> None:
    """Its clock was far ahead once: what follows goes by the last incarnation, which the copy has, too."""
    disk = FaultyDisk(random.Random(1))
    NodeLog.open("/node", SMALL, disk, incarnation_min=9_000)
    copy = disk.as_killed()
    later = NodeLog.open("/node", SMALL, disk.as_killed(), incarnation_min=5_000)
    from_copy = NodeLog.open("/node", SMALL, copy, incarnation_min=5_100)
    assert 9_000 < later.incarnation != from_copy.incarnation > 9_000


def test_install_cut_short_between_its_two_manifests_is_not_undone_by_the_loss_of_the_later_one() -> None:
    """The manifest before would bring back the log that was replaced, and what follows does not fit it."""
    for crash_after in range(1, 60):
        log, disk = opened()
        fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
        plan = log.plan_install(1, image_of(log))
        assert plan is not None
        disk.crash_after = crash_after
        try:
            log.run_install(plan)
        except PowerLost:
            disk = disk.as_killed()
        disk.crash_after = None
        log = NodeLog.open("/node", SMALL, disk.as_killed())
        expected = [*read_all(log.partitions[1]), append(log, 1, epoch=4)]
        commit(log)
        newest = max(name for name in disk.list_directory("/node") if name.startswith("manifest-"))
        disk.data_of(f"/node/{newest}")[30] ^= 1
        found = NodeLog.open("/node", SMALL, disk.as_killed(), repair=True).partitions[1]
        assert (read_all(found), found.suspect) == (expected, False), crash_after


def test_second_install_before_any_group_cut_short_between_its_manifests_is_not_undone_either() -> None:
    """Both make the same groups void."""
    for crash_after in range(1, 60):
        log, disk = opened()
        for end in (50, 60):
            plan = log.plan_install(1, ImportedLog(end, [3], [0], b"state of %d" % end, []))
            assert plan is not None
            disk.crash_after = crash_after if end == 60 else None
            try:
                log.run_install(plan)
                log.install_done(plan)
            except PowerLost:
                disk = disk.as_killed()
        disk.crash_after = None
        log = NodeLog.open("/node", SMALL, disk.as_killed())
        expected = [append(log, 1, epoch=4)]
        commit(log)
        newest = max(name for name in disk.list_directory("/node") if name.startswith("manifest-"))
        disk.data_of(f"/node/{newest}")[30] ^= 1
        found = NodeLog.open("/node", SMALL, disk.as_killed(), repair=True).partitions[1]
        assert (read_all(found), found.suspect) == (expected, False), crash_after
