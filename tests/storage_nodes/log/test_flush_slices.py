"""A flush is planned and swapped a slice of the partitions at a time; what happens between two slices harms nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storage_nodes.log.node_log import FlushFacts, FlushPlan, NodeLog
from tests.storage_nodes.log.faulty_disk import FaultyDisk
from tests.storage_nodes.log.writing import (
    SMALL,
    append,
    carry_out,
    commit,
    facts_of,
    fill_until_flush_due,
    flush,
    read_all,
)

PARTITIONS = 5


def opened() -> tuple[NodeLog, FaultyDisk, dict[int, list[bytes]]]:
    """Every partition has an entry in a finished file, and one after it."""
    disk = FaultyDisk(random.Random(1))
    log = NodeLog.open("/node", SMALL, disk)
    for partition in range(1, PARTITIONS + 1):
        log.create(partition, 1, f"queue-{partition}")
    entries = {partition: [append(log, partition)] for partition in log.partitions}
    entries[1] += fill_until_flush_due(log, 1)
    for partition in log.partitions:
        entries[partition].append(append(log, partition))
    commit(log)
    return log, disk, entries


def begun(log: NodeLog) -> FlushPlan:
    plan = log.begin_flush()
    assert plan is not None
    return plan


def finish(log: NodeLog, plan: FlushPlan) -> None:
    while not log.plan_flush(plan, facts_of(log)):  # type: ignore[arg-type]
        pass
    if not log.flush_ready(plan):
        commit(log)
    carry_out(log, plan)


def test_slice_asks_no_more_partitions_than_the_bound_and_swaps_no_more() -> None:
    log, _disk, _entries = opened()
    plan, facts, asked = begun(log), facts_of(log), []

    def counted(partition: int) -> FlushFacts:
        asked.append(partition)
        return facts(partition)  # type: ignore[operator]

    for turn in range(1, PARTITIONS + 1):
        assert log.plan_flush(plan, counted) == (turn == PARTITIONS)
        assert len(asked) == turn * SMALL.flush_slice_partitions
    log.run_flush(plan)
    for turn in range(1, PARTITIONS + 1):
        assert log.flush_done(plan) == (turn == PARTITIONS)
        assert sum(part.flushed_end > 0 for part in log.partitions.values()) == turn
    assert sorted(asked) == sorted(log.partitions)


def test_slice_ends_with_the_partition_that_took_its_time() -> None:
    log, _disk, _entries = opened()
    log._flusher._bounds = replace(SMALL, flush_slice_partitions=PARTITIONS)
    plan, facts, asked = begun(log), facts_of(log), []

    def counted(partition: int) -> FlushFacts:
        asked.append(partition)
        return facts(partition)  # type: ignore[operator]

    assert not log.plan_flush(plan, counted, lambda: len(asked) >= 2) and len(asked) == 2
    assert not log.plan_flush(plan, counted, lambda: True) and len(asked) == 3
    assert log.plan_flush(plan, counted, lambda: False) and sorted(asked) == sorted(log.partitions)
    assert log.flush_ready(plan)


@pytest.mark.parametrize("slices", range(PARTITIONS + 1))
def test_power_loss_between_any_two_slices_loses_nothing(slices: int) -> None:
    log, disk, entries = opened()
    plan = begun(log)
    for _ in range(slices):
        log.plan_flush(plan, facts_of(log))  # type: ignore[arg-type]
        entries[2].append(append(log, 2))
        commit(log)
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert {partition: read_all(part) for partition, part in again.partitions.items()} == entries


@pytest.mark.parametrize("slices", range(PARTITIONS))
def test_what_is_written_between_two_slices_is_there_after_the_flush_and_a_power_loss(slices: int) -> None:
    log, disk, entries = opened()
    plan = begun(log)
    for _ in range(slices):
        log.plan_flush(plan, facts_of(log))  # type: ignore[arg-type]
    for partition in log.partitions:
        log.save_vote(partition, 7, 2)
        entries[partition].append(append(log, partition, epoch=7))
    commit(log)
    finish(log, plan)
    flush_again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    for partition, part in flush_again.partitions.items():
        assert (read_all(part), part.epoch, part.voted_for) == (entries[partition], 7, 2)


@pytest.mark.parametrize("slices", range(PARTITIONS))
def test_manifest_waits_for_what_was_cut_between_two_slices(slices: int) -> None:
    """Else a power loss brings back a log that lacks the entries in the middle."""
    log, disk, entries = opened()
    committed = {partition: part.durable_end - 1 for partition, part in log.partitions.items()}
    plan = begun(log)

    def facts(partition: int) -> FlushFacts:
        end = committed[partition]
        return FlushFacts(end, b"state", end, end, lambda _first, _last: True)

    for _ in range(slices):
        log.plan_flush(plan, facts)
    for partition, end in committed.items():
        log.truncate(partition, end)
    while not log.plan_flush(plan, facts):
        pass
    assert not log.flush_ready(plan)
    with pytest.raises(AssertionError, match="power loss"):
        log.run_flush(plan)
    commit(log)
    assert log.flush_ready(plan)
    carry_out(log, plan)
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert {partition: read_all(part) for partition, part in again.partitions.items()} == {
        partition: batches[:-1] for partition, batches in entries.items()
    }


@pytest.mark.parametrize("slices", range(PARTITIONS))
def test_partition_dropped_between_two_slices_is_gone_and_its_files_go_with_the_next_flush(slices: int) -> None:
    log, disk, entries = opened()
    plan = begun(log)
    for _ in range(slices):
        log.plan_flush(plan, facts_of(log))  # type: ignore[arg-type]
    for partition in (2, 3, 4):
        log.drop(partition)
        del entries[partition]
    assert log.plan_forget(2) is None, "a flush is under way"
    finish(log, plan)
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert {partition: read_all(part) for partition, part in again.partitions.items()} == entries
    while log.is_dropping(2):
        entries[1] += fill_until_flush_due(log, 1)
        flush(log, facts_of(log))
    again = NodeLog.open("/node", SMALL, disk.after_power_loss())
    assert {partition: read_all(part) for partition, part in again.partitions.items()} == entries


def test_nothing_is_installed_rewritten_or_flushed_beside_slices() -> None:
    log, _disk, _entries = opened()
    plan = begun(log)
    log.plan_flush(plan, facts_of(log))  # type: ignore[arg-type]
    assert not log.plan_restate() and log.begin_flush() is None and log.plan_reset(3) is None
    finish(log, plan)
    assert log.plan_restate()
