"""Segments written anew: what is dead goes, what is live stays, whenever the machine stops."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.log.rewrite import RewriteFacts, RewritePlan
from tests.storage_nodes.log.faulty_disk import FaultyDisk, PowerLost
from tests.storage_nodes.log.writing import (
    SMALL,
    carry_out,
    facts_of,
    fill_until_flush_due,
    flush,
    planned_flush,
    read_all,
)

BOUNDS = replace(
    SMALL, segment_bytes_max=100_000, segment_small_bytes=1, segment_index_interval_bytes=1, merge_segments_min=3
)


class Store:
    def __init__(self, flushes: int = 1, small: bool = False, seed: int = 1) -> None:
        self.bounds = replace(BOUNDS, segment_small_bytes=1_000_000) if small else BOUNDS
        self.disk = FaultyDisk(random.Random(seed))
        self.log = NodeLog.open("/node", self.bounds, self.disk)
        self.log.create(1, 1, "queue")
        self.batches: list[bytes] = []
        for _ in range(flushes):
            self.batches += fill_until_flush_due(self.log, 1)
            flush(self.log, facts_of(self.log))
        self.part = self.log.partitions[1]
        self.live = {read_header(batch).base_offset for batch in self.batches}

    def plan(self) -> RewritePlan | None:
        rewriter = self.log.rewriter
        refs = rewriter.candidate(self.part, self.part.segments[0].number)
        indexes = rewriter.read_indexes(1, refs)
        return rewriter.plan(self.part, refs, indexes, self.facts())

    def facts(self) -> RewriteFacts:
        return RewriteFacts(self.part.durable_end, lambda first, last: any(first <= at <= last for at in self.live))

    def rewritten(self) -> None:
        plan = self.plan()
        assert plan is not None
        self.log.rewriter.run(plan)
        self.log.rewriter.done(plan)

    def kept(self, found: NodeLog) -> list[int]:
        stored = read_all(found.partitions[1])
        assert set(stored) <= set(self.batches)
        return [read_header(batch).base_offset for batch in stored]


def test_segment_with_little_that_is_live_keeps_just_that() -> None:
    store = Store()
    flushed = [at for at in store.live if at < store.part.flushed_end]
    store.live -= {at for at in flushed if at % 5}
    before = store.part.segments[0].size_bytes
    store.rewritten()
    assert store.kept(store.log) == sorted(store.live)
    assert store.part.segments[0].size_bytes < before / 2
    assert store.part.whole_from > flushed[-2], "dead entries between live ones are missing now"
    again = NodeLog.open("/node", store.bounds, store.disk.after_power_loss())
    assert store.kept(again) == sorted(store.live)
    assert again.partitions[1].whole_from == store.part.whole_from


def test_segment_in_which_all_is_dead_goes() -> None:
    store = Store()
    store.live = {at for at in store.live if at >= store.part.flushed_end}
    store.rewritten()
    assert not store.part.segments and store.part.log_start == store.part.flushed_end
    assert store.kept(NodeLog.open("/node", store.bounds, store.disk.after_power_loss())) == sorted(store.live)


def test_what_is_dead_is_not_read() -> None:
    """What stands before the live entry is damaged, and nobody minds."""
    store = Store()
    middle = sorted(store.live)[len(store.live) // 4]
    store.live = {middle, *(at for at in store.live if at >= store.part.flushed_end)}
    plan = store.plan()
    assert plan is not None
    data = store.disk.data_of(store.log._store.segments.path(1, store.part.segments[0].number))
    data[30] ^= 1
    store.log.rewriter.run(plan)
    store.log.rewriter.done(plan)
    assert store.kept(store.log) == sorted(store.live)
    assert store.part.whole_from == plan.old[0].end


def test_log_whose_ends_were_kept_is_whole_from_behind_the_gap_only() -> None:
    """Who has less is not fed by appends, which would pass over what is missing."""
    store = Store()
    flushed = sorted(at for at in store.live if at < store.part.flushed_end)
    store.live -= {*flushed[1:-1]}
    store.rewritten()
    assert store.kept(store.log) == sorted(store.live)
    assert (store.part.log_start, store.part.whole_from) == (flushed[0], flushed[-1])


def test_segment_that_is_mostly_live_is_left_alone_and_so_is_what_was_rewritten() -> None:
    store = Store()
    assert store.plan() is None
    store.live -= {at for at in store.live if at < store.part.flushed_end and at % 5}
    store.rewritten()
    assert store.plan() is None
    assert store.log.flush_due() is False


def test_dead_entries_that_some_voter_lacks_stay() -> None:
    store = Store()
    store.live = set()
    refs = store.part.segments
    indexes = store.log.rewriter.read_indexes(1, refs)
    assert store.log.rewriter.plan(store.part, refs, indexes, store.facts()._replace(replicated=0)) is None


def test_small_neighbours_become_one() -> None:
    store = Store(flushes=4, small=True)
    assert len(store.part.segments) == 4
    store.rewritten()
    assert len(store.part.segments) == 1
    assert read_all(store.part) == store.batches
    assert read_all(NodeLog.open("/node", store.bounds, store.disk.after_power_loss()).partitions[1]) == store.batches
    assert store.plan() is None


def test_nothing_is_rewritten_beside_a_flush() -> None:
    store = Store()
    store.live = set()
    store.batches += fill_until_flush_due(store.log, 1)
    flush_plan = planned_flush(store.log, facts_of(store.log))
    assert store.plan() is None
    carry_out(store.log, flush_plan)
    plan = store.plan()
    assert plan is not None and not store.log.flush_due() and store.log.plan_install(1, None) is None  # type: ignore[arg-type]


def test_damaged_segment_is_not_written_anew() -> None:
    store = Store()
    store.live = {0}
    plan = store.plan()
    assert plan is not None
    store.disk.data_of(store.log._store.segments.path(1, store.part.segments[0].number))[30] ^= 1
    with pytest.raises(CorruptionError):
        store.log.rewriter.run(plan)
    store.log.rewriter.failed()
    assert store.part.segments == plan.segments


def test_segments_gone_since_their_indexes_were_read_are_no_plan() -> None:
    store = Store()
    refs = store.part.segments
    indexes = store.log.rewriter.read_indexes(1, refs)
    store.live = {at for at in store.live if at >= store.part.flushed_end}
    store.rewritten()
    assert store.log.rewriter.plan(store.part, refs, indexes, store.facts()) is None
    assert store.log.rewriter.candidate(store.part, refs[0].number) == ()


@pytest.mark.parametrize("survival", range(3))
def test_power_loss_anywhere_in_a_rewrite_leaves_all_that_is_live(survival: int) -> None:
    for crash_after in range(1, 60):
        store = Store(flushes=2, seed=survival)
        store.live -= {at for at in store.live if at < store.part.flushed_end and at % 5}
        store.disk.crash_after = crash_after
        try:
            store.rewritten()
        except PowerLost:
            found = NodeLog.open("/node", store.bounds, store.disk.after_power_loss())
            assert set(store.kept(found)) >= store.live
        else:
            break
    assert crash_after > 5
