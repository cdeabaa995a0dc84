"""Flush: what is still wanted of finished WAL files moves to segments, and the files are used again.

Order of a flush, and why nothing can be lost wherever it stops:

    1. on the event loop, some partitions in each of its turns: what every partition keeps is planned
    2. segments and large checkpoints are written and synced, then their directories
    3. a new manifest names them (temporary file, fsync, rename, fsync of the directory)
    4. files that neither this manifest nor the one before it needs are removed or recycled; those of dropped
       partitions go to trash/
    5. on the event loop, some partitions in each of its turns: the indexes swap

**Slices.** Thousands of partitions planned in one turn would stall the node for longer than its peers wait. So they are
planned as of different moments, which is as good as one: each row says what its own partition is, the later records of
all of them are in files that are kept, and nothing leaves memory or the disk before the one manifest at the end names
it. Only a drop or a truncation that came between two slices must be durable before that manifest is (`is_ready`): a
partition planned after it no longer has what it removed.

Before 3 a crash leaves files that no manifest names: the next start removes them, and the WAL still has everything.
"Neither this nor the one before": step 4 lags one flush behind, so that a manifest that turns out unreadable can be
replaced by the one before it without losing a vote or an entry.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.checkpoint import Blob
from storage_nodes.log.disk import Disk
from storage_nodes.log.install import ImportedLog, InstallPlan
from storage_nodes.log.manifest import Head, PartitionRow
from storage_nodes.log.manifest_keeper import ManifestKeeper
from storage_nodes.log.partition_log import LogStore, PartitionLog, read_run, split_runs
from storage_nodes.log.retained import kept_ranges
from storage_nodes.log.segment import SegmentRef, SegmentWriter
from storage_nodes.log.wal import PLACE_SHIFT, WalFile, WriteGroup, wal_number
from storage_nodes.protocol.configuration import encode_configuration

_NOTHING = array("q")
# How many index entries the flush thread turns into Python numbers at once.
_PIECE_ENTRIES = 4_096


class FlushFacts(NamedTuple):
    """What the owner of a partition says about it at flush time."""

    commit: int  # only entries that end at or below it are flushed
    checkpoint: Blob  # machine state as of `applied`
    applied: int
    replicated: int  # dead entries below need not be kept for a voter that is behind
    live: Callable[[int, int], bool]  # does any offset in [base, last] still hold a live message


class FlushItem:
    """One partition's part of a flush."""

    __slots__ = ("bases", "checkpoint", "entries", "gone", "kept", "lengths", "log", "places", "row")

    def __init__(self, log: PartitionLog, entries: int, row: PartitionRow, gone: list[SegmentRef]) -> None:
        self.log = log
        self.entries = entries  # how many of its oldest unflushed entries leave the index
        self.row = row  # as it will stand in the manifest, but for the new segments and a large checkpoint
        self.gone = gone  # segments that hold nothing any more
        self.checkpoint: Blob | None = None  # to be written to a file of its own
        # Copies of the index: entry i is [bases[i], bases[i + 1]). Plain memory copies, since this is the event loop.
        self.bases = _NOTHING
        self.places = _NOTHING
        self.lengths = _NOTHING
        self.kept: list[tuple[int, int]] = []  # [first, last) of the entries that go to segments


class FlushPlan:
    __slots__ = (
        "adopted", "dropped", "first_file", "first_sequence", "incarnation", "items", "removal_sequence", "through",
        "waiting",
    )  # fmt: skip

    def __init__(self, through: int, incarnation: int, dropped: list[tuple[PartitionLog, int]]) -> None:
        self.through = through  # the last finished WAL file
        self.first_file = through + 1  # the first one that is needed after this flush
        self.first_sequence = 0
        self.incarnation = incarnation
        self.waiting: deque[PartitionLog] = deque()  # not planned yet
        self.items: list[FlushItem] = []
        self.dropped = dropped  # and the group of the tombstone
        self.removal_sequence = 0  # the manifest waits for this group
        self.adopted = 0  # so many items are swapped in


class ForgetPlan:
    """A dropped partition that is to leave the manifest now."""

    __slots__ = ("log", "sequence")

    def __init__(self, log: PartitionLog, sequence: int) -> None:
        self.log = log
        self.sequence = sequence


class Flusher:
    def __init__(
        self,
        disk: Disk,
        bounds: LogBounds,
        store: LogStore,
        manifests: ManifestKeeper,
        partitions: dict[int, PartitionLog],
    ) -> None:
        self._disk = disk
        self._bounds = bounds
        self._store = store
        self._manifests = manifests
        self._partitions = partitions
        # Event loop
        self._finished_file = 0  # all groups of this file and those before it are durable
        self._confirmed_sequence = 0
        self._removal_sequence = 0
        self._wanted = False
        self._running = False
        self._leftover: set[int] = set()  # partitions that keep entries in finished files
        self._dropped: list[tuple[PartitionLog, int]] = []
        self._revisit: list[int] = []

    # --- start ---------------------------------------------------------------------------------------------------

    def resume(self, wal_names: list[str]) -> None:
        """After recovery: all files but the current one are finished; spares are found by name."""
        wal = self._store.wal
        self._finished_file = wal.current.number - 1
        self._confirmed_sequence = wal.gathering.sequence - 1
        self._wanted = any(number <= self._finished_file for number in wal.files)
        wal.spares = [os.path.join(wal.directory, name) for name in wal_names if name.startswith("spare-")]
        for number in filter(None, map(wal_number, wal_names)):
            # Not replayed: kept for the previous manifest, to be released by the next flush.
            wal.files.setdefault(number, WalFile(number, 0, None, 0))

    def begin_manifest_rewrite(self) -> bool:
        if self._running:
            return False
        self._running = True
        return True

    def end_manifest_rewrite(self) -> None:
        self._running = False

    def take_dropped(self) -> list[str]:
        """Files of partitions that the replay dropped and that are gone from the manifest already."""
        dropped, self._dropped = self._dropped, []
        return [path for log, _sequence in dropped for path in self._manifests.files_of(log)]

    # --- event loop ----------------------------------------------------------------------------------------------

    def due(self) -> bool:
        return self._wanted and not self._running

    def group_written(self, group: WriteGroup, sealed: bool) -> None:
        self._confirmed_sequence = group.sequence
        if sealed:
            self._finished_file = group.file_number
            self._wanted = True

    def dropped(self, log: PartitionLog, sequence: int) -> None:
        self._dropped.append((log, sequence))
        self.removed(sequence)

    def removed(self, sequence: int) -> None:
        """A drop or a truncation was staged in that group. Until it is durable, what it removes from the indexes must
        stay in the WAL files, so no flush is planned."""
        self._removal_sequence = sequence

    def begin(self) -> FlushPlan | None:
        """None if nothing can be done now: no finished file, a flush under way, the next file not begun, or a drop or
        truncation not yet durable."""
        wal = self._store.wal
        through = self._finished_file
        next_file = wal.files.get(through + 1)
        if not self.due() or next_file is None or self._confirmed_sequence < next_file.first_sequence:
            return None
        if self._removal_sequence > self._confirmed_sequence:
            return None
        self._wanted = False
        self._running = True
        touched = self._leftover.union(*(file.touched for file in list(wal.files.values()) if file.number <= through))
        self._leftover = set()
        plan = FlushPlan(through, wal.incarnation, self._dropped)
        self._dropped = []
        logs = map(self._partitions.get, touched.union(self._next_revisits()))
        plan.waiting.extend(log for log in logs if log is not None)
        return plan

    def plan_slice(
        self, plan: FlushPlan, facts: Callable[[int], FlushFacts | None], is_over: Callable[[], bool]
    ) -> bool:
        """Plan the next few partitions, or the next one alone once `is_over`. False: there are more."""
        for _ in range(min(len(plan.waiting), self._bounds.flush_slice_partitions)):
            log = plan.waiting.popleft()
            # One that was dropped since the flush began keeps its files: the next flush lets go of them.
            self._plan_partition(plan, log, None if log.dropped else facts(log.partition))
            if is_over():  # the checkpoint of a large one takes its time
                break
        if plan.waiting:
            return False
        oldest = self._store.wal.files.get(plan.first_file)
        assert oldest is not None
        plan.first_sequence = oldest.first_sequence
        plan.removal_sequence = self._removal_sequence
        return True

    def is_ready(self, plan: FlushPlan) -> bool:
        """Is everything planned, and what was removed between the slices durable?"""
        return not plan.waiting and plan.removal_sequence <= self._confirmed_sequence

    def adopt_slice(self, plan: FlushPlan) -> bool:
        """Swap the next few indexes to what `run` wrote. False: there are more."""
        first, plan.adopted = plan.adopted, plan.adopted + self._bounds.flush_slice_partitions
        with self._store.lock:
            self._store.generation += 1
            for item in plan.items[first : plan.adopted]:
                item.log.adopt_flush(item.row, item.entries)
        if plan.adopted < len(plan.items):
            return False
        for number, file in list(self._store.wal.files.items()):
            if number <= plan.through:
                file.touched = {}
        self._running = False
        return True

    def plan_install(self, log: PartitionLog, image: ImportedLog, suspect: bool) -> InstallPlan | None:
        """None while a flush runs, or entries of the partition are staged but not on their way to the disk."""
        wal = self._store.wal
        if self._running or log.partition in wal.gathering.ends:
            return None
        self._running = True
        inline = image.checkpoint is None or len(image.checkpoint) <= self._bounds.checkpoint_inline_bytes_max
        log_start = image.segments[0][1].base if image.segments else image.end_offset
        at = image.configuration
        row = PartitionRow(
            log.partition, log.kind, log.tag, log.epoch, log.voted_for, log_start, image.end_offset,
            tuple(image.epochs), tuple(image.starts), image.end_offset, image.checkpoint if inline else None, 0, (),
            image.end_offset, wal.gathering.sequence - 1, suspect,
            () if at is None else ((at.end_offset, encode_configuration(at.configuration)),), log.last_stamp_ms,
        )  # fmt: skip
        return InstallPlan(log, image, row)

    def is_dropping(self, partition: int) -> bool:
        """Was it dropped, with its row still in the manifest?"""
        return any(log.partition == partition for log, _ in self._dropped)

    def forget_made_again(self) -> None:
        """BLOCKING, at the start: of a partition that the replay dropped and made again the manifest has the row of the
        earlier log, which must go before the later one gets its own."""
        for log in [log for log, _sequence in self._dropped if log.partition in self._partitions]:
            plan = self.plan_forget(log.partition)
            assert plan is not None, "what was replayed is durable, and no flush runs"
            self.run_forget(plan)
            self.forget_done()

    def plan_forget(self, partition: int) -> ForgetPlan | None:
        """None while a flush runs or the tombstone is not durable."""
        log, sequence = next(item for item in self._dropped if item[0].partition == partition)
        if self._running or sequence > self._confirmed_sequence:
            return None
        self._running = True
        self._dropped.remove((log, sequence))
        return ForgetPlan(log, sequence)

    def forget_done(self) -> None:
        self._running = False

    def install_done(self, plan: InstallPlan) -> None:
        wal = self._store.wal
        with self._store.lock:
            self._store.generation += 1
            plan.log.adopt_install(plan.row, plan.was_suspect)
        for group in (*wal.writing, wal.gathering):
            group.ends.pop(plan.log.partition, None)
        self._running = False

    def _next_revisits(self) -> list[int]:
        """A few partitions with segments, in turn, so that what expired in idle ones goes too."""
        if not self._revisit:
            self._revisit = [log.partition for log in self._partitions.values() if log.segments]
        count = self._bounds.flush_revisits_max
        now, self._revisit = self._revisit[:count], self._revisit[count:]
        return now

    def _plan_partition(self, plan: FlushPlan, log: PartitionLog, facts: FlushFacts | None) -> None:
        index = log.index
        in_finished = 0 if index is None else index.count_before_place((plan.through + 1) << PLACE_SHIFT)
        bases, places, lengths, kept = _NOTHING, _NOTHING, _NOTHING, []
        entries = 0
        checkpoint: tuple[int, Blob | None, int] = log.checkpoint_source
        segments, gone = list(log.segments), []
        if facts is not None:
            # A state that is ahead of the own disk (the others made the majority) is not a state to restart from.
            if checkpoint[0] <= facts.applied <= log.durable_end:
                checkpoint = (facts.applied, facts.checkpoint, 0)
            disposable_end = min(checkpoint[0], facts.replicated)
            if index is not None and in_finished:
                bases, places, lengths = index.copy_first(in_finished, log.log_end)
                entries = max(bisect_right(bases, facts.commit) - 1, 0)
                kept = kept_ranges(bases, lengths, entries, disposable_end, facts.live, self._bounds.flush_run_bytes)
            segments = [s for s in log.segments if s.end > disposable_end or facts.live(s.base, s.end - 1)]
            gone = [s for s in log.segments if s not in segments]
        flushed_end = bases[entries] if entries else log.flushed_end
        log_start = max(log.log_start, segments[0].base if segments else bases[kept[0][0]] if kept else flushed_end)
        epochs, starts = log.boundaries(log_start, flushed_end)
        whole_from = max(_whole_from(log, gone, bases, entries, kept), log_start)
        blob = checkpoint[1]
        # One in pieces is large. How large, its writer finds out.
        inline = blob if isinstance(blob, bytes) and len(blob) <= self._bounds.checkpoint_inline_bytes_max else None
        row = PartitionRow(
            log.partition, log.kind, log.tag, log.epoch, log.voted_for, log_start, flushed_end, epochs, starts,
            checkpoint[0], inline, checkpoint[2], tuple(segments), whole_from,
            log.void_sequence, log.suspect, log.configurations_below(checkpoint[0], flushed_end), log.last_stamp_ms,
        )  # fmt: skip
        item = FlushItem(log, entries, row, gone)
        item.checkpoint = blob if inline is None else None
        item.bases, item.places, item.lengths, item.kept = bases, places, lengths, kept
        plan.items.append(item)
        if entries < in_finished:
            assert index is not None
            self._leftover.add(log.partition)
            plan.first_file = min(plan.first_file, index.places[entries] >> PLACE_SHIFT)

    # --- flush thread ----------------------------------------------------------------------------------------------

    def run(self, plan: FlushPlan) -> None:
        assert self.is_ready(plan), "a manifest says nothing of what a power loss may bring back"
        manifests = self._manifests
        number = manifests.next_number
        rows = manifests.newest.rows
        garbage = manifests.take_garbage()
        for log, _sequence in plan.dropped:
            manifests.discard(manifests.files_of(log), to_trash=True)
            rows.pop(log.partition, None)
        for item in plan.items:
            number = self._run_item(item, number)
            rows[item.row.partition] = item.row
        self._disk.sync_directory(self._store.segments.directory)
        self._disk.sync_directory(self._store.checkpoints.directory)
        tombstones = {p: at for p, at in manifests.newest.head.tombstones.items() if at >= plan.first_sequence}
        tombstones.update((log.partition, at) for log, at in plan.dropped if at >= plan.first_sequence)
        head = Head(
            manifests.newest.head.identity, plan.incarnation, plan.first_file, plan.first_sequence, number, tombstones,
            True,
        )  # fmt: skip
        manifests.replace(head, rows)
        manifests.collect(garbage)

    def run_install(self, plan: InstallPlan) -> None:
        """The manifest switch: before it the old log is there, after it the new one, whenever the power fails."""
        manifests = self._manifests
        garbage = manifests.take_garbage()
        manifest = manifests.newest
        number = manifest.head.next_number
        partition = plan.log.partition
        refs: list[SegmentRef] = []
        for path, ref in plan.image.segments:
            self._disk.rename(path, self._store.segments.path(partition, number))
            refs.append(ref._replace(number=number))
            number += 1
        checkpoint_number = 0
        checkpoint = plan.image.checkpoint
        if plan.row.checkpoint is None and checkpoint is not None:
            checkpoint_number, number = number, number + 1
            self._store.checkpoints.write(partition, checkpoint_number, plan.row.flushed_end, checkpoint)
        self._disk.sync_directory(self._store.segments.directory)
        self._disk.sync_directory(self._store.checkpoints.directory)
        # What a damaged log consisted of is not thrown away.
        manifests.discard(manifests.files_of(plan.log), to_trash=not plan.image.end_offset)
        plan.row = msgspec.structs.replace(plan.row, checkpoint_number=checkpoint_number, segments=tuple(refs))
        manifest.rows[partition] = plan.row
        head = msgspec.structs.replace(manifest.head, next_number=number)
        # Twice, so that the manifest to fall back to has it too: what follows in the WAL fits the new log only.
        for _ in range(2):
            manifests.replace(head, manifest.rows)
        manifests.collect(garbage)

    def run_forget(self, plan: ForgetPlan) -> None:
        """What a flush does about a dropped partition, for one alone. The tombstone in the manifest keeps its WAL
        records apart from those of a log that takes its name later."""
        manifests = self._manifests
        garbage = manifests.take_garbage()
        manifests.discard(manifests.files_of(plan.log), to_trash=True)
        manifest = manifests.newest
        manifest.rows.pop(plan.log.partition, None)
        tombstones = {**manifest.head.tombstones, plan.log.partition: plan.sequence}
        head = msgspec.structs.replace(manifest.head, tombstones=tombstones)
        manifests.replace(head, manifest.rows)
        manifests.collect(garbage)

    def _run_item(self, item: FlushItem, number: int) -> int:
        """Write what the partition keeps; the next free file number."""
        log = item.log
        segments = list(item.row.segments)
        checkpoint_number = item.row.checkpoint_number
        if item.checkpoint is not None:
            self._store.checkpoints.write(log.partition, number, item.row.checkpoint_offset, item.checkpoint)
            checkpoint_number, number = number, number + 1
        old_checkpoint = log.checkpoint_source[2]
        if old_checkpoint and old_checkpoint != checkpoint_number:
            self._manifests.discard([self._store.checkpoints.path(log.partition, old_checkpoint)])
        if item.gone:
            self._manifests.discard([self._store.segments.path(log.partition, ref.number) for ref in item.gone])
        number = self._write_segments(item, segments, number)
        item.row = msgspec.structs.replace(item.row, checkpoint_number=checkpoint_number, segments=tuple(segments))
        return number

    def _write_segments(self, item: FlushItem, segments: list[SegmentRef], number: int) -> int:
        partition = item.log.partition
        writer: SegmentWriter | None = None
        for bases, places, lengths in _pieces(item):
            epochs = item.log.epochs_of(bases)
            for first, last in split_runs(places, lengths):
                run = bases[first:last], epochs[first:last], places[first:last], lengths[first:last]
                batches = read_run(self._store, partition, *run)
                for at, batch in enumerate(batches, first):
                    if writer is not None and writer.size_bytes + len(batch) > self._bounds.segment_bytes_max:
                        segments.append(writer.finish(number))
                        writer, number = None, number + 1
                    if writer is None:
                        writer = self._store.segments.create(partition, number)
                    writer.add(batch, bases[at], bases[at + 1])
        if writer is not None:
            segments.append(writer.finish(number))
            number += 1
        return number


def _whole_from(
    log: PartitionLog, gone: list[SegmentRef], bases: array[int], entries: int, kept: list[tuple[int, int]]
) -> int:
    """From where on no entry is missing, once the `gone` segments are and of the first `entries` only `kept` stay."""
    whole_from = max([log.whole_from, *(ref.end for ref in gone)])
    if entries and (not kept or kept[-1][1] < entries):
        return bases[entries]
    if kept and kept[-1][0] > 0:
        return max(whole_from, bases[kept[-1][0]])
    return whole_from


def _pieces(item: FlushItem) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """(bases and one end more, places, lengths) of the kept entries, not too many at a time."""
    for first, last in item.kept:
        for start in range(first, last, _PIECE_ENTRIES):
            end = min(start + _PIECE_ENTRIES, last)
            places, lengths = item.places[start:end], item.lengths[start:end]
            yield item.bases[start : end + 1].tolist(), places.tolist(), lengths.tolist()
