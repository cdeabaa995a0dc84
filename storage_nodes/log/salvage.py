"""A node whose files were damaged opens all the same: what is provably intact stays, its group feeds it the rest.

What was found, and what becomes of it (R12, R20):

    one manifest unreadable           the one before it and the write-ahead log give the same state: nothing is lost
    no manifest readable              every file goes to trash/, the node starts like one whose directory was lost
    write-ahead log damaged or cut,   the log is walked past the damage, what is provably intact is written anew, and
    or its mark lost                  *every* replica becomes suspect: votes are in there too
    a segment or checkpoint missing   that replica starts empty and suspect
    a log that ends below its         the same: entries between the end and the folded state are gone, so the state
    checkpoint                        does not continue the log

**What is provably intact behind damage.** Before it, everything. Behind it an entry counts only if it follows the log's
end *and is of the same epoch as the last entry before it*, or is the first of its log: the leader of an epoch writes an
offset once, so an entry (offset, epoch) that directly follows an entry of the same epoch has that one before it in the
leader's log too (log matching). Any other may stand behind a truncation that was in the damaged part. Votes only rise,
so all that can be read count. A drop counts, being decided by a committed command (R23).

A log cut back like this is one that this replica once had, which Raft allows for a replica that may not vote for itself
alone: that is what suspect means.

**Order.** Intact entries go to new WAL files behind all others, synced; then two manifests (so that the one to fall
back to knows nothing of the old files either) name those files and mark the replicas; then the old files move to
trash/. A crash before the manifests finds the same damage again, and the copies behind it follow nothing.

Nothing damaged is ever removed here: it goes to trash/ under a name that begins with `damaged-`, and what was found is
noted in `damage.log`, one JSON line each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from storage_nodes.limits import DAMAGE_NOTES_BYTES_MAX
from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.manifest import Head, PartitionRow
from storage_nodes.log.manifest_keeper import DAMAGED_PREFIX
from storage_nodes.log.mark import MARK_NAME, NEW_MARK_NAME, SyncMark
from storage_nodes.log.memtable import UnflushedIndex
from storage_nodes.log.partition_log import LogStore, PartitionLog, read_run, split_runs
from storage_nodes.log.wal import RECORD_ENTRY, Wal

NOTES_NAME = "damage.log"
OLD_NOTES_NAME = "damage.log.1"
# A group of intact entries that are written once more is closed at this length.
_REWRITE_GROUP_BYTES = 4 * 1024 * 1024


class Damage(NamedTuple):
    """One thing that was found, and what was done about it."""

    path: str
    position: int
    problem: str
    outcome: str


class Salvage:
    """What was found while one log was opened for repair, or while it was in use."""

    def __init__(self, disk: Disk, directory: str, trash: str, found_ms: int) -> None:
        self.findings: list[Damage] = []
        self._noted = 0
        self._found_ms = found_ms
        self._disk = disk
        self._directory = directory
        self._trash = trash

    def found(self, error: CorruptionError, outcome: str) -> None:
        self.findings.append(Damage(error.path, error.position, error.problem, outcome))

    def found_in_wal(self, errors: Sequence[CorruptionError]) -> None:
        for error in errors:
            self.found(error, "what is intact was kept, every replica is suspect and is fed again by its group")

    def quarantine(self, path: str) -> None:
        """Move a file to trash/, under a name of its own."""
        taken = set(self._disk.list_directory(self._trash))
        name = free = f"{DAMAGED_PREFIX}{os.path.basename(path)}"
        again = 0
        while free in taken:
            again += 1
            free = f"{name}.{again}"
        self._disk.rename(path, os.path.join(self._trash, free))
        self._disk.sync_directory(self._trash)
        self._disk.sync_directory(os.path.dirname(path))

    def quarantine_if_there(self, path: str) -> None:
        if os.path.basename(path) in self._disk.list_directory(os.path.dirname(path)):
            self.quarantine(path)

    def start_over(self, error: CorruptionError, subdirectories: list[str], manifests: list[str]) -> None:
        """No manifest can be read, so nothing can: all of it goes to trash/. The manifests last, so that a crash
        in between is followed by the rest of this."""
        self._disk.make_directory(self._trash)
        self.found(error, "every file was moved to trash/, the node starts empty and is fed again by the others")
        self.note()
        present = set(self._disk.list_directory(self._directory))
        for subdirectory in present.intersection(subdirectories):
            directory = os.path.join(self._directory, subdirectory)
            for name in self._disk.list_directory(directory):
                self.quarantine(os.path.join(directory, name))
        for name in manifests:
            self.quarantine(os.path.join(self._directory, name))

    def note(self) -> None:
        """Write down, durably, what was found since the last call."""
        fresh, self._noted = self.findings[self._noted :], len(self.findings)
        notes = [msgspec.json.encode({"found_ms": self._found_ms, **finding._asdict()}) + b"\n" for finding in fresh]
        if notes:
            append_notes(self._disk, self._directory, notes)


def append_notes(disk: Disk, directory: str, notes: list[bytes]) -> None:
    """BLOCKING: add lines to the notes. The bound is kept by starting a new file; the one before it stays."""
    lines = b"".join(notes)
    path = os.path.join(directory, NOTES_NAME)
    try:
        file = disk.open(path)
    except FileNotFoundError:
        file = disk.open(path, create=True)
    if file.size() + len(lines) > DAMAGE_NOTES_BYTES_MAX:
        disk.rename(path, os.path.join(directory, OLD_NOTES_NAME))
        file = disk.open(path, create=True)
    file.write(file.size(), [lines])
    file.sync()
    disk.sync_directory(directory)


def row_of(log: PartitionLog) -> PartitionRow:
    """The partition as it stands in memory, but for its unflushed entries."""
    offset, blob, number = log.checkpoint_source
    epochs, starts = log.boundaries(log.log_start, log.flushed_end)
    return PartitionRow(
        log.partition, log.kind, log.tag, log.epoch, log.voted_for, log.log_start, log.flushed_end, epochs, starts,
        offset, blob, number, log.segments, log.whole_from, log.void_sequence, log.suspect,
        log.configurations_below(offset, log.flushed_end), log.last_stamp_ms,
    )  # fmt: skip


def doubt(
    store: LogStore, partitions: dict[int, PartitionLog], incomplete: set[int], doubtful: bool
) -> list[PartitionLog]:
    """Begin each replica anew whose files are missing or whose log ends below its checkpoint, and make the others
    suspect where the write-ahead log is `doubtful`. Returns the logs that were replaced."""
    replaced = []
    for log in list(partitions.values()):
        if log.partition in incomplete or log.checkpoint_offset > log.log_end:
            replaced.append(log)
            partitions[log.partition] = _emptied(store, log)
        elif doubtful:
            log.suspect = True
            if log.epoch < log.last_epoch:
                log.epoch, log.voted_for = log.last_epoch, 0  # the record of it was in the damaged part
    return replaced


def _emptied(store: LogStore, log: PartitionLog) -> PartitionLog:
    """The same replica without its log: suspect, its hard state and the committed configuration kept."""
    empty = PartitionLog(store, log.partition, log.kind, log.tag)
    empty.epoch, empty.voted_for = log.epoch, log.voted_for
    empty.last_stamp_ms = log.last_stamp_ms
    empty.suspect = True
    committed = log.committed_configuration()
    empty.configurations = () if committed is None else (committed,)
    return empty


def _unflushed_runs(store: LogStore, log: PartitionLog) -> Iterator[tuple[list[int], list[bytes]]]:
    """BLOCKING: (base offsets, entries) of everything that is in the write-ahead log only, run by run."""
    index = log.index
    if index is None:
        return
    bases, places, lengths = (part.tolist() for part in index.copy_first(len(index), log.log_end))
    for first, last in split_runs(places, lengths):
        epochs = log.epochs_of(bases[first:last])
        batches = read_run(store, log.partition, bases[first:last], epochs, places[first:last], lengths[first:last])
        yield bases[first:last], batches


def rewrite_unflushed(store: LogStore, logs: Sequence[PartitionLog], wal: Wal, commit: Callable[[], None]) -> None:
    """BLOCKING: all entries that are in old write-ahead log files only, into the one that begins here; durable on
    return. `commit` writes what is gathered."""
    indexes: list[tuple[PartitionLog, UnflushedIndex]] = []
    for log in logs:
        index = UnflushedIndex()
        for bases, batches in _unflushed_runs(store, log):
            for base, batch in zip(bases, batches, strict=True):
                place = wal.add(RECORD_ENTRY, log.partition, batch)
                _add_to_index(index, base, place, len(batch))
            if wal.gathering.length_bytes >= _REWRITE_GROUP_BYTES:
                commit()
        if len(index):
            indexes.append((log, index))
    commit()
    for log, index in indexes:
        log.adopt_index(index)


def open_mark(disk: Disk, directory: str, head: Head, salvage: Salvage | None) -> tuple[SyncMark, bool]:
    """BLOCKING: the mark, and whether it was lost, so that nobody knows whether the end of the write-ahead log is.

    Raises CorruptionError where nothing is to be salvaged."""
    if head.marked:
        try:
            return SyncMark.open(disk, directory, head.identity), False
        except CorruptionError as error:
            if salvage is None:
                raise
            salvage.found(error, "whether synced groups are lost is not known: every replica is suspect")
    return SyncMark.create(
        disk, directory, head.identity, name=NEW_MARK_NAME if head.marked else MARK_NAME
    ), head.marked


def name_mark(disk: Disk, directory: str) -> None:
    """BLOCKING: the mark made in the place of a lost one counts from now on. Before, a start finds the old one lost."""
    disk.rename(os.path.join(directory, NEW_MARK_NAME), os.path.join(directory, MARK_NAME))
    disk.sync_directory(directory)


def _add_to_index(index: UnflushedIndex, base: int, place: int, length: int) -> None:
    index.bases.append(base)
    index.places.append(place)
    index.lengths.append(length)
