"""Segments written anew: without what is dead in them, and many small ones as one.

A segment goes as a whole once nothing in it is live; one live message would keep all of it. So, now and then, a segment
is looked at:

    rewrite_candidate   event loop   it alone, or the run of small neighbours it stands in
    read_indexes        in a thread  the sparse indexes of those
    plan_rewrite        event loop   which stretches still matter: as a flush decides, in units of an index interval.
                                     None where too little would be gained
    run_rewrite         in a thread  those stretches go to new segments, synced; then a manifest names them instead
    rewrite_done        event loop   the partition reads from the new ones

Never beside a flush or an install. The manifest before the new one still names the old files, so they go with the next
flush, as all segments do; a reader that has one open keeps it. A crash before the manifest leaves files that the next
start removes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.flush import Flusher
from storage_nodes.log.manifest_keeper import ManifestKeeper
from storage_nodes.log.partition_log import LogStore, PartitionLog
from storage_nodes.log.retained import kept_ranges
from storage_nodes.log.segment import SegmentRef, SegmentWriter


class RewritePlan:
    __slots__ = ("kept", "log", "log_start", "old", "segments", "whole_from")

    def __init__(self, log: PartitionLog, old: tuple[SegmentRef, ...], kept: list[tuple[int, int]]) -> None:
        self.log = log
        self.old = old  # neighbours
        self.kept = kept  # [first, end) of the offsets that stay, ascending
        self.segments: tuple[SegmentRef, ...] = log.segments  # all of the partition, after `run`
        self.log_start = log.log_start
        self.whole_from = log.whole_from

    def kept_of(self, ref: SegmentRef) -> list[tuple[int, int]]:
        """None of them reaches into two segments."""
        return [(first, end) for first, end in self.kept if ref.base <= first < ref.end]


class SegmentIndex(NamedTuple):
    """Where the index intervals of one segment begin, in offsets and in bytes; each has the end as its last item."""

    bases: list[int]
    positions: list[int]


class RewriteFacts(NamedTuple):
    """What the owner of a partition says about it: `FlushFacts` without the state, which a rewrite has no use for, and
    which takes long to make where much is in flight."""

    replicated: int
    live: Callable[[int, int], bool]


class Rewriter:
    """Of one node's log."""

    def __init__(self, bounds: LogBounds, store: LogStore, flusher: Flusher, manifests: ManifestKeeper) -> None:
        self._bounds = bounds
        self._store = store
        self._flusher = flusher
        self._manifests = manifests

    def candidate(self, log: PartitionLog, number: int) -> tuple[SegmentRef, ...]:
        """The segment of that number, with its small neighbours if it is small too; empty if it is gone."""
        at = next((at for at, ref in enumerate(log.segments) if ref.number == number), -1)
        if at < 0:
            return ()
        first, last, size_bytes = at, at + 1, 0
        if self._is_small(log.segments[at]):
            while first and self._is_small(log.segments[first - 1]):
                first -= 1
            last = first
            while last < len(log.segments) and self._is_small(log.segments[last]):
                size_bytes += log.segments[last].size_bytes
                if size_bytes > self._bounds.segment_bytes_max and last > first:
                    break
                last += 1
        return log.segments[first:last]

    def read_indexes(self, partition: int, refs: tuple[SegmentRef, ...]) -> list[SegmentIndex]:
        """BLOCKING. Raises CorruptionError, and FileNotFoundError where a flush was quicker."""
        return [SegmentIndex(*self._store.segments.open_apart(partition, ref).intervals()) for ref in refs]

    def plan(
        self, log: PartitionLog, refs: tuple[SegmentRef, ...], indexes: list[SegmentIndex], facts: RewriteFacts
    ) -> RewritePlan | None:
        at = log.segments.index(refs[0]) if refs[0] in log.segments else -1
        if at < 0 or log.segments[at : at + len(refs)] != refs:
            return None
        disposable_end = min(log.checkpoint_source[0], facts.replicated)
        kept: list[tuple[int, int]] = []
        kept_bytes = 0
        for ref, (bases, positions) in zip(refs, indexes, strict=True):
            lengths = array("I", (end - start for start, end in pairwise(positions)))
            found = kept_ranges(array("q", bases), lengths, len(lengths), disposable_end, facts.live, 1)
            kept += [(bases[first], bases[last]) for first, last in found]
            kept_bytes += sum(positions[last] - positions[first] for first, last in found)
            assert bases[-1] == ref.end
        all_bytes = sum(positions[-1] for _, positions in indexes)
        worth = kept_bytes <= all_bytes * self._bounds.rewrite_live_share_max
        merges = len(refs) >= self._bounds.merge_segments_min
        if not (worth or merges) or not self._flusher.begin_manifest_rewrite():
            return None
        return RewritePlan(log, refs, kept)

    def run(self, plan: RewritePlan) -> None:
        """BLOCKING. Raises CorruptionError: then nothing has changed."""
        number = self._manifests.next_number
        made: list[SegmentRef] = []
        writer: SegmentWriter | None = None
        partition = plan.log.partition
        for batch, base, end in self._kept_entries(plan):
            if writer is not None and writer.size_bytes + len(batch) > self._bounds.segment_bytes_max:
                made.append(writer.finish(number))
                writer, number = None, number + 1
            if writer is None:
                writer = self._store.segments.create(partition, number)
            writer.add(batch, base, end)
        if writer is not None:
            made.append(writer.finish(number))
            number += 1
        at = plan.log.segments.index(plan.old[0])
        plan.segments = (*plan.log.segments[:at], *made, *plan.log.segments[at + len(plan.old) :])
        plan.whole_from = max(plan.whole_from, _gone_until(plan))
        if not at and plan.log.log_start <= plan.old[0].base:
            first = plan.segments[0].base if plan.segments else plan.log.flushed_end
            plan.log_start = max(plan.log.log_start, first)
        plan.whole_from = max(plan.whole_from, plan.log_start)
        self._manifests.replace_segments(plan.log, plan.segments, plan.old, number, plan.log_start, plan.whole_from)

    def done(self, plan: RewritePlan) -> None:
        with self._store.lock:
            self._store.generation += 1
            plan.log.adopt_rewrite(plan.segments, plan.log_start, plan.whole_from)
        self._flusher.end_manifest_rewrite()

    def failed(self) -> None:
        """`run` raised: the next start removes what it wrote."""
        self._flusher.end_manifest_rewrite()

    def _kept_entries(self, plan: RewritePlan) -> Iterator[tuple[bytes, int, int]]:
        """Raises CorruptionError. What is dead is not read: a segment of a queue that was emptied costs nothing."""
        for ref in plan.old:
            kept = plan.kept_of(ref)
            if kept:
                segment = self._store.segments.open_apart(plan.log.partition, ref)
                for first, end in kept:
                    yield from segment.entries(first, end)

    def _is_small(self, ref: SegmentRef) -> bool:
        return ref.size_bytes < self._bounds.segment_small_bytes


def _gone_until(plan: RewritePlan) -> int:
    """Above all that the plan leaves out; 0 = it keeps everything."""
    gone_until = 0
    for ref in plan.old:
        at = ref.base
        for first, end in plan.kept_of(ref):
            gone_until = first if first > at else gone_until
            at = end
        gone_until = ref.end if at < ref.end else gone_until
    return gone_until
