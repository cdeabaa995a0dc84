"""A damaged node opens for repair: what is provably intact stays, replicas that may lack something are suspect
(`storage_nodes/log/salvage.py`; R12, R20)."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from storage_nodes.limits import DAMAGE_NOTES_BYTES_MAX
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import ImportedLog, NodeLog
from storage_nodes.log.salvage import append_notes
from storage_nodes.log.wal import RECORD_VOTE, VOTE, wal_number
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import (
    SMALL,
    append,
    commit,
    facts_of,
    fill_until_flush_due,
    flush,
    none_live,
    read_all,
)

FIRST_WAL = "/node/wal/0000000000000001.wal"
MARK = "/node/synced"


class Store:
    """Two partitions with entries in segments and in the write-ahead log, several files of it."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = FaultyDisk(random.Random(seed))
        self.log = NodeLog.open("/node", SMALL, self.disk)
        self.batches: dict[int, list[bytes]] = {1: [], 2: []}
        for partition in (1, 2):
            self.log.create(partition, 1, f"queue-{partition}")
        self.batches[1] += fill_until_flush_due(self.log, 1)
        flush(self.log, facts_of(self.log))
        for turn in range(30):
            partition = 1 + turn % 2
            self.batches[partition].append(append(self.log, partition, body=b"%d" % turn * 30))
            commit(self.log)
        self.log.save_vote(1, 7, 2)
        self.log.save_vote(2, 9, 3)
        commit(self.log)

    def wal_paths(self) -> list[str]:
        return [f"/node/wal/{name}" for name in self.disk.list_directory("/node/wal") if wal_number(name)]

    def needed(self) -> list[str]:
        """The write-ahead log files that a start replays."""
        first = self.log._manifests.newest.head.first_file
        return [path for path in self.wal_paths() if wal_number(path.rpartition("/")[2]) >= first]  # type: ignore[operator]

    def repaired(self) -> NodeLog:
        return NodeLog.open("/node", SMALL, self.disk, incarnation_min=5_000, repair=True)


def assert_is_prefix(found: NodeLog, store: Store) -> None:
    for partition, batches in store.batches.items():
        if partition in found.partitions:
            stored = read_all(found.partitions[partition])
            assert stored == batches[: len(stored)]


def notes(disk: FaultyDisk) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in bytes(disk.data_of("/node/damage.log")).splitlines()]


def flip(path: str, position: int) -> Callable[[Store], None]:
    def damage(store: Store) -> None:
        store.disk.data_of(path)[position] ^= 4

    return damage


def kept_by_repair(store: Store, damaged_at: tuple[str, int]) -> int:
    """How many entries are left: a prefix of each log, suspect, that goes on like any other with the damage behind
    it."""
    found = store.repaired()
    assert found.damage, damaged_at
    assert all(log.suspect for log in found.partitions.values())
    assert_is_prefix(found, store)
    before = {partition: read_all(log) for partition, log in found.partitions.items()}
    kept = sum(map(len, before.values()))
    for partition in before:
        before[partition].append(append(found, partition, epoch=20))
    commit(found)
    again = NodeLog.open("/node", SMALL, store.disk.as_killed())
    assert {partition: read_all(log) for partition, log in again.partitions.items()} == before
    assert all(log.suspect for log in again.partitions.values())
    return kept


def test_every_byte_of_the_log_flipped_leaves_a_prefix_suspect_and_goes_on() -> None:
    positions = [(path, at) for path in Store().needed() for at in range(0, 2_000, 61)]
    kept = set()
    for path, at in positions:
        store = Store()
        data = store.disk.data_of(path)
        if at >= len(data) or not any(data[at : at + 40]):
            continue
        data[at] ^= 4
        kept.add(kept_by_repair(store, (path, at)))
    assert len(kept) > 5


@pytest.mark.parametrize("cut", range(0, 2_000, 83))
def test_log_cut_anywhere_is_found_and_repaired(cut: int) -> None:
    store = Store()
    last = store.needed()[-1]
    used = len(bytes(store.disk.data_of(last)).rstrip(b"\0"))
    del store.disk.data_of(last)[min(cut, used - 1) :]
    with pytest.raises(CorruptionError):
        NodeLog.open("/node", SMALL, store.disk)
    found = store.repaired()
    assert "was synced" in found.damage[-1].problem or "later WAL file" in found.damage[-1].problem
    assert all(log.suspect for log in found.partitions.values())
    assert_is_prefix(found, store)
    assert not NodeLog.open("/node", SMALL, store.disk, repair=True).damage


@pytest.mark.parametrize("which", range(3))
def test_log_file_missing_is_found_and_repaired(which: int) -> None:
    store = Store()
    paths = store.needed()
    store.disk.remove(paths[which % len(paths)])
    found = store.repaired()
    assert found.damage and all(log.suspect for log in found.partitions.values())
    assert_is_prefix(found, store)
    assert not NodeLog.open("/node", SMALL, store.disk, repair=True).damage


def test_votes_behind_the_damage_are_kept() -> None:
    store = Store()
    path = store.needed()[0]
    store.disk.data_of(path)[50] ^= 1
    found = store.repaired()
    assert [(log.epoch, log.voted_for) for log in found.partitions.values()] == [(7, 2), (9, 3)]
    again = NodeLog.open("/node", SMALL, store.disk)
    assert [(log.epoch, log.voted_for) for log in again.partitions.values()] == [(7, 2), (9, 3)]


def test_entries_behind_the_damage_count_only_where_their_epoch_proves_that_they_follow() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    for partition in (1, 2, 3):
        log.create(partition, 1, "queue")
    kept = [append(log, 1), append(log, 2), append(log, 3)]
    commit(log)
    group_at = log._wal.gathering.position
    log._wal.add(RECORD_VOTE, 1, VOTE.pack(1, 1))  # what will be damaged, and says nothing about entries
    commit(log)
    follows = append(log, 1)  # the same epoch: follows, whatever the damaged group was
    append(log, 2, epoch=2)  # a new epoch: a truncation may have come before it
    commit(log)
    append(log, 2, epoch=2)
    log.truncate(3, 0)
    first = append(log, 3, epoch=5)  # the first of its log
    commit(log)
    disk.data_of(FIRST_WAL)[group_at + 45] ^= 1
    found = NodeLog.open("/node", SMALL, disk, repair=True)
    assert read_all(found.partitions[1]) == [kept[0], follows]
    assert read_all(found.partitions[2]) == [kept[1]]
    assert read_all(found.partitions[3]) == [first]


def test_replica_whose_log_ends_below_its_checkpoint_starts_empty_and_suspect() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    log.save_vote(1, 4, 2)
    fill_until_flush_due(log, 1)
    append(log, 1)
    commit(log)
    flush(log, facts_of(log))  # the checkpoint covers entries that are in the second file only
    assert log.partitions[1].checkpoint_offset > log.partitions[1].flushed_end
    second = "/node/wal/0000000000000002.wal"
    disk.data_of(second)[:] = bytes(len(disk.data_of(second)))
    found = NodeLog.open("/node", SMALL, disk, repair=True).partitions[1]
    assert (found.log_end, found.checkpoint, found.suspect) == (0, None, True)
    assert (found.epoch, found.voted_for) == (4, 2)
    assert [name for name in disk.list_directory("/node/trash") if name.endswith(".seg")]


def test_dropped_partition_stays_gone() -> None:
    store = Store()
    store.log.drop(1)
    commit(store.log)
    store.disk.data_of(store.needed()[0])[50] ^= 1
    assert set(store.repaired().partitions) == {2}
    assert set(NodeLog.open("/node", SMALL, store.disk).partitions) == {2}
    assert [name for name in store.disk.list_directory("/node/trash") if name.endswith(".seg")]


def test_segment_missing_costs_its_replica_only() -> None:
    store = Store()
    store.disk.remove(store.log._store.segments.path(1, store.log.partitions[1].segments[0].number))
    with pytest.raises(CorruptionError, match="missing"):
        NodeLog.open("/node", SMALL, store.disk)
    found = store.repaired()
    assert [(log.suspect, log.log_end > 0) for log in found.partitions.values()] == [(True, False), (False, True)]
    assert read_all(found.partitions[2]) == store.batches[2]


@pytest.mark.parametrize("newest", [True, False])
def test_one_manifest_damaged_loses_nothing_and_is_noted(newest: bool) -> None:
    store = Store()
    names = sorted(name for name in store.disk.list_directory("/node") if name.startswith("manifest-"))
    store.disk.data_of(f"/node/{names[-1 if newest else 0]}")[30] ^= 1
    found = store.repaired()
    assert {partition: read_all(log) for partition, log in found.partitions.items()} == store.batches
    assert not any(log.suspect for log in found.partitions.values())
    assert "same state" in found.damage[0].outcome
    assert not NodeLog.open("/node", SMALL, store.disk, repair=True).damage


def test_new_store_has_two_manifests_from_its_first_moment() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    batch = append(log, 1)
    commit(log)
    disk.data_of("/node/manifest-0000000000000002")[20] ^= 1
    found = NodeLog.open("/node", SMALL, disk, repair=True)
    assert read_all(found.partitions[1]) == [batch] and not found.partitions[1].suspect


def test_no_manifest_readable_everything_goes_to_trash_and_the_store_is_new() -> None:
    store = Store()
    for name in store.disk.list_directory("/node"):
        if name.startswith("manifest-"):
            del store.disk.data_of(f"/node/{name}")[20:]
    with pytest.raises(CorruptionError):
        NodeLog.open("/node", SMALL, store.disk)
    wal_files = store.wal_paths()
    found = store.repaired()
    assert not found.partitions
    trash = store.disk.list_directory("/node/trash")
    assert {f"damaged-{path.rpartition('/')[2]}" for path in wal_files} <= set(trash)
    assert len([name for name in trash if name.startswith("damaged-manifest-")]) == 2
    assert notes(store.disk)[0]["outcome"] == found.damage[0].outcome


@pytest.mark.parametrize("lost", ["removed", "garbled"])
def test_mark_lost_leaves_every_replica_suspect(lost: str) -> None:
    store = Store()
    if lost == "removed":
        store.disk.remove(MARK)
    else:
        store.disk.data_of(MARK)[:] = b"\xee" * 1_024
    found = store.repaired()
    assert {partition: read_all(log) for partition, log in found.partitions.items()} == store.batches
    assert all(log.suspect for log in found.partitions.values())
    assert not NodeLog.open("/node", SMALL, store.disk, repair=True).damage


def test_one_slot_of_the_mark_damaged_is_the_other_slots_mark() -> None:
    store = Store()
    sequence = store.log._wal.mark.sequence
    store.disk.data_of(MARK)[sequence % 2 * 512 + 9] ^= 1
    again = NodeLog.open("/node", SMALL, store.disk)
    assert not any(log.suspect for log in again.partitions.values())


def test_damage_is_noted_with_what_was_done_and_damaged_files_are_kept() -> None:
    store = Store()
    path = store.needed()[0]
    store.disk.data_of(path)[50] ^= 1
    damaged = bytes(store.disk.data_of(path))
    found = store.repaired()
    (note,) = notes(store.disk)
    assert note["path"] == path and note["found_ms"] == 5_000 and "suspect" in str(note["outcome"])
    assert found.damage[0].problem == note["problem"]
    assert bytes(store.disk.data_of(f"/node/trash/damaged-{path.rpartition('/')[2]}")) == damaged


def test_notes_stay_within_their_bound() -> None:
    disk = FaultyDisk(random.Random(1))
    disk.make_directory("/node")
    for _ in range(5):
        append_notes(disk, "/node", [b"x" * (DAMAGE_NOTES_BYTES_MAX // 2) + b"\n"])
    assert len(disk.data_of("/node/damage.log")) <= DAMAGE_NOTES_BYTES_MAX
    assert len(disk.data_of("/node/damage.log.1")) <= DAMAGE_NOTES_BYTES_MAX


@pytest.mark.parametrize("survival", range(3))
@pytest.mark.parametrize("power_loss", [False, True])
def test_crash_anywhere_in_a_repair_is_followed_by_the_same_repair(survival: int, power_loss: bool) -> None:
    for crash_after in range(1, 80):
        store = Store(survival)
        store.disk.data_of(store.needed()[0])[50] ^= 1
        for inode in (store.disk._names["/node/wal"][name] for name in store.disk.list_directory("/node/wal")):
            inode.sync()
        expected = None
        store.disk.crash_after = crash_after
        crashed = False
        try:
            expected = store.repaired()
        except PowerLost:
            crashed = True
            store.disk = store.disk.after_power_loss() if power_loss else store.disk.as_killed()
            expected = store.repaired()
        assert all(log.suspect for log in expected.partitions.values())
        assert_is_prefix(expected, store)
        assert [(log.epoch, log.voted_for) for log in expected.partitions.values()] == [(7, 2), (9, 3)]
        if not crashed:
            break
    assert not crashed


def test_flush_after_a_repair_works_and_old_manifests_are_not_needed() -> None:
    store = Store()
    store.disk.data_of(store.needed()[0])[50] ^= 1
    found = store.repaired()
    fill_until_flush_due(found, 2)
    flush(found, facts_of(found, none_live))
    again = NodeLog.open("/node", SMALL, store.disk.after_power_loss())
    assert again.partitions[2].log_end == found.partitions[2].log_end


def test_incarnation_grows_past_one_that_stood_in_the_damaged_part_only_though_the_clock_is_behind() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk, incarnation_min=9_000)
    log.create(1, 1, "queue-1")
    commit(log)
    (path,) = (f"/node/wal/{name}" for name in disk.list_directory("/node/wal") if wal_number(name))
    data = disk.data_of(path)
    data[:] = bytes(len(data))
    found = NodeLog.open("/node", SMALL, disk.as_killed(), incarnation_min=5_000, repair=True)
    assert found.damage and found.incarnation == 9_001 + 5_000


def test_no_manifest_says_that_a_replica_is_trusted_before_the_entries_are_durable_for_which_it_is() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    log.set_suspect(1, True)
    fill_until_flush_due(log, 1)
    append(log, 1)
    log.set_suspect(1, False)
    assert log.begin_flush() is None
    commit(log)
    flush(log, facts_of(log))
    again = NodeLog.open("/node", SMALL, disk.after_power_loss()).partitions[1]
    assert (again.suspect, again.log_end) == (False, log.partitions[1].log_end)


def test_replica_that_is_emptied_right_after_it_was_trusted_is_suspect_after_a_restart_too() -> None:
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    log.create(1, 1, "queue")
    append(log, 1)
    log.set_suspect(1, True)
    commit(log)
    log.set_suspect(1, False)
    plan = log.plan_reset(1)
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    commit(log)
    for found in (log, NodeLog.open("/node", SMALL, disk.as_killed())):
        assert (found.partitions[1].suspect, found.partitions[1].log_end) == (True, 0)


def test_flush_goes_on_after_a_replica_was_emptied_because_a_file_of_it_is_missing() -> None:
    store = Store()
    log = store.log
    store.disk.remove(log._store.segments.path(1, log.partitions[1].segments[0].number))
    plan = log.plan_reset(1)
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    fill_until_flush_due(log, 2)
    flush(log, facts_of(log))
    assert log.partitions[2].flushed_end


def test_entries_written_after_a_repair_are_not_taken_for_those_that_a_snapshot_replaced() -> None:
    """The rows name the groups that a snapshot made void; what told of them, the log and its mark, is lost."""
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    for partition in (1, 2):
        log.create(partition, 1, "queue")
    for _ in range(10):
        append(log, 2)
        commit(log)
    plan = log.plan_install(1, ImportedLog(7, [1], [0], b"state", []))
    assert plan is not None
    log.run_install(plan)
    log.install_done(plan)
    for name in disk.list_directory("/node/wal"):
        disk.remove(f"/node/wal/{name}")
    disk.remove(MARK)
    found = NodeLog.open("/node", SMALL, disk, incarnation_min=5_000, repair=True)
    found.set_suspect(1, False)
    append(found, 1, epoch=2)
    commit(found)
    again = NodeLog.open("/node", SMALL, disk.as_killed()).partitions[1]
    assert (again.log_end, again.suspect) == (8, False)


@pytest.mark.parametrize("power_loss", [False, True])
def test_crash_anywhere_in_the_repair_of_a_lost_mark_and_a_cut_log_leaves_every_replica_suspect(
    power_loss: bool,
) -> None:
    """Without the mark the cut looks like a torn tail, so that the mark is lost must not be forgotten."""
    crashed = True
    crash_after = 0
    while crashed:
        crash_after += 1
        store = Store()
        last = store.needed()[-1]
        used = len(bytes(store.disk.data_of(last)).rstrip(b"\0"))
        store.disk.data_of(last)[used - 60 :] = bytes(60)
        store.disk.open(last).sync()
        store.disk.remove(MARK)
        store.disk.sync_directory("/node")
        store.disk.crash_after = crash_after
        try:
            found = store.repaired()
            crashed = False
        except PowerLost:
            store.disk = store.disk.after_power_loss() if power_loss else store.disk.as_killed()
            found = store.repaired()
        assert all(log.suspect for log in found.partitions.values()), crash_after
        assert not NodeLog.open("/node", SMALL, store.disk.as_killed(), repair=True).damage
        assert "synced.new" not in store.disk.list_directory("/node")
