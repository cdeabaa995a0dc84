"""The log of one storage node: all its partitions over one write-ahead log. READ FIRST.

The way of an entry, one call per step (contract: `docs/storage.md`, "Log"):

    append          event loop    into the gathering group, the partition's index, the payload cache
    take_group      event loop    close the gathering group, the next one starts behind it
    write_group     a thread      one pwrite, one fdatasync
    group_written   event loop    durable ends move
    begin_flush     event loop    after a WAL roll: which partitions have something in the finished files
    plan_flush      event loop    what of that must be kept; a slice of the partitions per call
    run_flush       a thread      segments, checkpoints, manifest; then the files of the flush before are recycled
    flush_done      event loop    indexes swap from WAL places to segments; a slice of the partitions per call

Below it: `wal` (groups, files), `memtable` (index, payload cache), `segment`, `manifest`, `flush`, `recovery`, `disk`.
Nothing here decides what is committed or live: the owner of the partition says so in FlushFacts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from storage_nodes.limits import INCARNATIONS_SPREAD
from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.checkpoint import CheckpointStore
from storage_nodes.log.directory import (
    CHECKPOINTS_DIRECTORY,
    SEGMENTS_DIRECTORY,
    TRASH_DIRECTORY,
    WAL_DIRECTORY,
    prepare_directory,
)
from storage_nodes.log.disk import Disk, Lock, OsDisk
from storage_nodes.log.errors import UnreadableError
from storage_nodes.log.flush import Flusher, FlushFacts, FlushPlan, ForgetPlan
from storage_nodes.log.install import EMPTY, ImportedLog, InstallPlan, LogImport
from storage_nodes.log.manifest import Head, may_replace
from storage_nodes.log.manifest_keeper import ManifestKeeper
from storage_nodes.log.memtable import PayloadCache
from storage_nodes.log.partition_log import LogStore, PartitionLog
from storage_nodes.log.record_batch import (
    ATTRIBUTE_CONFIGURATION,
    LENGTH_FIELD_END,
    raw_header,
    read_configuration,
    read_header,
)
from storage_nodes.log.recovery import LoadedManifests, WalWalk
from storage_nodes.log.replay import Replay
from storage_nodes.log.rewrite import Rewriter
from storage_nodes.log.salvage import (
    Damage,
    Salvage,
    append_notes,
    doubt,
    name_mark,
    open_mark,
    rewrite_unflushed,
    row_of,
)  # fmt: skip
from storage_nodes.log.segment import SegmentStore
from storage_nodes.log.verify import StoredFile, stored_files, verify
from storage_nodes.log.wal import (
    FLAG_CLOSED,
    GROUP_HEADER_BYTES,
    OFFSET,
    PLACE_SHIFT,
    RECORD,
    RECORD_BYTES,
    RECORD_CREATE,
    RECORD_DROP,
    RECORD_ENTRY,
    RECORD_SUSPECT,
    RECORD_TRUNCATE,
    RECORD_VOTE,
    VOTE,
    Wal,
    WalFile,
    WriteGroup,
    wal_name,
)

__all__ = [
    "Damage", "FlushFacts", "FlushPlan", "ImportedLog", "InstallPlan", "LogBounds", "LogImport", "NodeLog",
    "PartitionLog", "StoredFile", "WriteGroup",
]  # fmt: skip

_ENTRY_PLACE_BYTES = GROUP_HEADER_BYTES + RECORD_BYTES


class NodeLog:
    def __init__(self, directory: str, bounds: LogBounds, disk: Disk, lock: Lock, loaded: LoadedManifests) -> None:
        """Use `open`."""
        identity = loaded.newest.head.identity
        self.directory = directory
        self.bounds = bounds
        self.partitions: dict[int, PartitionLog] = {}
        self.incarnation = 0
        # The last group that was found when it was opened.
        self.recovered_sequence = 0
        # What was found damaged when it was opened for repair.
        self.damage: list[Damage] = []
        self._lock = lock
        self._disk = disk
        self._cache = PayloadCache(bounds.memtable_bytes_max)
        self._wal = Wal(disk, os.path.join(directory, WAL_DIRECTORY), bounds, identity, 0)
        segments = SegmentStore(disk, os.path.join(directory, SEGMENTS_DIRECTORY), identity, bounds)
        checkpoints = CheckpointStore(disk, os.path.join(directory, CHECKPOINTS_DIRECTORY), identity)
        self._store = LogStore(self._cache, self._wal, segments, checkpoints)
        self._manifests = ManifestKeeper(disk, directory, self._store, loaded)
        self._flusher = Flusher(disk, bounds, self._store, self._manifests, self.partitions)
        self.rewriter = Rewriter(bounds, self._store, self._flusher, self._manifests)
        self._imports = 0
        self._closed = False

    @staticmethod
    def open(
        directory: str,
        bounds: LogBounds = LogBounds(),  # noqa: B008 - frozen
        disk: Disk | None = None,
        incarnation_min: int = 0,
        repair: bool = False,
    ) -> NodeLog:
        """BLOCKING. Recovers the log in `directory`, or starts one there. On return everything in it is durable.

        The incarnation is more than the last, at least `incarnation_min`: given the time, a node whose directory was
        lost is still taken for a newer incarnation than the one before the loss. Where the last one is ahead of that,
        it is as much more as the time tells, so that an older directory does not give out one that was given out.

        With `repair`, damage does not end in CorruptionError: what is provably intact is kept, replicas that may lack
        something are suspect, and `damage` says what was found (`salvage.py`).

        Raises CorruptionError, DirectoryInUseError, OSError.
        """
        disk = disk or OsDisk()
        disk.make_directory(directory)
        lock = disk.lock_directory(directory)
        trash = os.path.join(directory, TRASH_DIRECTORY)
        salvage = Salvage(disk, directory, trash, incarnation_min) if repair else None
        try:
            loaded = prepare_directory(disk, directory, salvage)
            log = NodeLog(directory, bounds, disk, lock, loaded)
            log._recover(loaded, incarnation_min, salvage)
        except BaseException:
            lock.close()
            raise
        return log

    # --- staging ---------------------------------------------------------------------------------------------

    @property
    def staged_bytes(self) -> int:
        """Bytes of the gathering group. The committer stops asking partitions for more at WAL_GROUP_BYTES_MAX."""
        return self._wal.gathering.length_bytes

    def unsynced_bytes(self) -> int:
        """Bytes of the gathering group and of those on their way to the disk."""
        wal = self._wal
        size_bytes = wal.gathering.length_bytes
        for group in wal.writing:
            size_bytes += group.length_bytes
        return size_bytes

    @property
    def synced_sequence(self) -> int:
        """The last group that is durable."""
        return self._wal.mark.sequence

    @property
    def gathering_sequence(self) -> int:
        """The group that takes what is staged now."""
        return self._wal.gathering.sequence

    def create(self, partition: int, kind: int, tag: str) -> PartitionLog:
        """Staged; durable with the group that is gathering."""
        assert partition not in self.partitions and not self.is_dropping(partition), "one log of a name at a time"
        self._wal.add(RECORD_CREATE, partition, bytes([kind]) + tag.encode())
        log = self.partitions[partition] = PartitionLog(self._store, partition, kind, tag)
        return log

    def drop(self, partition: int) -> None:
        """Staged tombstone. Files go to trash/ with a later flush, once the tombstone is durable."""
        log = self.partitions.pop(partition)
        log.dropped = True
        self._wal.add(RECORD_DROP, partition, b"")
        self._flusher.dropped(log, self._wal.gathering.sequence)
        for group in (*self._wal.writing, self._wal.gathering):
            group.ends.pop(partition, None)

    def append(self, partition: int, batch: bytes) -> None:
        """Stage one batch, whose checksum the caller has verified. Its base offset is the log end."""
        log = self.partitions[partition]
        base, rest_bytes, epoch, _, _, attributes, last_delta, _, stamp_ms, *_ = raw_header(batch)
        length = len(batch)
        assert base == log.log_end and rest_bytes + LENGTH_FIELD_END == length, "entries follow each other"
        if epoch != log.last_epoch:
            log.start_epoch(epoch, base)
        # Wal.add, written out: this is the one staging call whose cost counts.
        wal = self._wal
        group = wal.gathering
        group.parts += (RECORD.pack(RECORD_ENTRY, partition, length), batch)
        place = (group.file_number << PLACE_SHIFT) + group.position + group.length_bytes + _ENTRY_PLACE_BYTES
        group.length_bytes += RECORD_BYTES + length
        group.ends[partition] = log.log_end = base + last_delta + 1
        if attributes & ATTRIBUTE_CONFIGURATION:
            log.configure(log.log_end, read_configuration(batch))
        if stamp_ms > log.last_stamp_ms:
            log.last_stamp_ms = stamp_ms
        wal.current.touched[partition] = None
        log.add_entry(base, place, length)
        self._cache.add(place, batch)

    def truncate(self, partition: int, offset: int) -> None:
        """Stage the cut of everything from `offset` on. Only what was not flushed can be cut."""
        self._cut(partition, offset)

    def restage(self, partition: int, batches: Sequence[bytes]) -> None:
        """Stage the last entries of a log anew, all in one group, which is on the disk whole or not at all: files that
        hold them now are not needed for them any more."""
        self._cut(partition, read_header(batches[0]).base_offset)
        for batch in batches:
            self.append(partition, batch)

    def _cut(self, partition: int, offset: int) -> None:
        log = self.partitions[partition]
        log.cut(offset)
        self._wal.add(RECORD_TRUNCATE, partition, OFFSET.pack(offset))
        self._flusher.removed(self._wal.gathering.sequence)
        # A group on its way to the disk must not report entries as durable that are no longer in the log.
        for group in (*self._wal.writing, self._wal.gathering):
            if group.ends.get(partition, 0) > offset:
                group.ends[partition] = offset

    def save_vote(self, partition: int, epoch: int, voted_for: int) -> None:
        """Stage the Raft hard state."""
        log = self.partitions[partition]
        assert epoch >= log.epoch, "the epoch of a replica never falls"
        self._wal.add(RECORD_VOTE, partition, VOTE.pack(epoch, voted_for))
        log.epoch = epoch
        log.voted_for = voted_for

    def set_suspect(self, partition: int, suspect: bool) -> None:
        """Stage that this replica may lack what it acknowledged, or no longer does (R12)."""
        self._wal.add(RECORD_SUSPECT, partition, bytes([suspect]))
        if not suspect:
            # It is trusted for entries that may not be durable yet: no manifest may say so before they are.
            self._flusher.removed(self._wal.gathering.sequence)
        self.partitions[partition].suspect = suspect

    # --- group commit ------------------------------------------------------------------------------------------

    def take_group(self) -> WriteGroup | None:
        """What was staged, to be written now; None when nothing is."""
        return self._wal.take() if self._wal.gathering.parts else None

    def write_group(self, group: WriteGroup) -> None:
        """BLOCKING, any thread, one at a time and in order. Once it raised, the process must end (R21)."""
        self._wal.write(group)

    def group_written(self, group: WriteGroup) -> list[tuple[int, int]]:
        """The group is on stable storage: (partition, durable end) of every partition with entries in it."""
        sealed = self._wal.confirm(group)
        end = group.position + GROUP_HEADER_BYTES + group.length_bytes
        self._cache.written_place = (group.file_number << PLACE_SHIFT) + end
        self._flusher.group_written(group, sealed)
        partitions = self.partitions
        ends = list(group.ends.items())
        for partition, durable_end in ends:
            partitions[partition].durable_end = durable_end
        return ends

    # --- behind the scenes ---------------------------------------------------------------------------------------

    def flush_due(self) -> bool:
        return self._flusher.due()

    def begin_flush(self) -> FlushPlan | None:
        """None = not now; ask again after the next group. Until it is done nothing is installed or rewritten."""
        return self._flusher.begin()

    def plan_flush(
        self, plan: FlushPlan, facts: Callable[[int], FlushFacts | None], is_over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Plan the next slice of partitions, which ends early when `is_over`; False: there are more. `facts` may be
        None for a partition that cannot be flushed now."""
        return self._flusher.plan_slice(plan, facts, is_over)

    def flush_ready(self, plan: FlushPlan) -> bool:
        """May it be run? Once all is planned it waits for one group at most."""
        return self._flusher.is_ready(plan)

    def run_flush(self, plan: FlushPlan) -> None:
        """BLOCKING, any thread, one at a time, once it is ready. Once it raised, the process must end."""
        self._flusher.run(plan)

    def flush_done(self, plan: FlushPlan) -> bool:
        """After `run_flush`: the next slice of indexes swaps; False: there are more."""
        return self._flusher.adopt_slice(plan)

    # --- a log from elsewhere (`install.py`) -----------------------------------------------------------------------

    def begin_import(self, partition: int) -> LogImport:
        self._imports += 1
        return LogImport(self._store, partition, self._imports, self.bounds.segment_bytes_max)

    def plan_install(self, partition: int, image: ImportedLog) -> InstallPlan | None:
        """Replace the partition's log by `image`. None = not now: a flush runs, or entries are staged; try again."""
        log = self.partitions[partition]
        return self._flusher.plan_install(log, image, log.suspect)

    def plan_reset(self, partition: int) -> InstallPlan | None:
        """Replace the partition's damaged log by an empty, suspect one; as `plan_install`. The hard state stays, and
        the configuration that was in force at the checkpoint: it is committed."""
        log = self.partitions[partition]
        image = EMPTY._replace(configuration=log.committed_configuration())
        plan = self._flusher.plan_install(log, image, True)
        if plan is not None:
            # That it is trusted may be staged already, and would come behind the manifest.
            self.set_suspect(partition, True)
        return plan

    def run_install(self, plan: InstallPlan) -> None:
        """BLOCKING, any thread, like `run_flush` and never beside it."""
        self._flusher.run_install(plan)

    def install_done(self, plan: InstallPlan) -> None:
        self._flusher.install_done(plan)

    def is_dropping(self, partition: int) -> bool:
        """Is something of a dropped log of this name still in the manifest? No log of that name may be created until
        `plan_forget` or a flush took it out: a restart could not tell the two apart."""
        return self._flusher.is_dropping(partition)

    def plan_forget(self, partition: int) -> ForgetPlan | None:
        """Take a log that `is_dropping` out of the manifest. None = not now; try again."""
        return self._flusher.plan_forget(partition)

    def run_forget(self, plan: ForgetPlan) -> None:
        """BLOCKING, any thread, like `run_flush` and never beside it."""
        self._flusher.run_forget(plan)

    def forget_done(self) -> None:
        self._flusher.forget_done()

    def stored_files(self) -> list[StoredFile]:
        """Every file that a scrub reads, in the order of (partition, number): manifests, then segments and checkpoints.
        The write-ahead log is not among them: it is read whole at every start, and is not there for long."""
        return stored_files(self._disk, self.directory, self.partitions)

    def verify(self, file: StoredFile, piece_bytes: int) -> Iterator[int]:
        """Each step is BLOCKING and reads one piece: how many bytes. A file that is no longer needed ends it. Raises
        CorruptionError."""
        return verify(self._disk, self.directory, self._store, self.partitions, file, piece_bytes)

    def needs(self, partition: int, path: str) -> bool:
        """Is the file one of the partition's segments, or its checkpoint?"""
        log = self.partitions.get(partition)
        return log is not None and path in self._manifests.files_of(log)

    def plan_restate(self) -> bool:
        """May `run_restate` be called now? Not beside a flush; `restate_done` ends it."""
        return self._flusher.begin_manifest_rewrite()

    def run_restate(self) -> None:
        """BLOCKING: write the manifest anew, and the one before it, since one of them is damaged."""
        self._manifests.rewrite_unchanged()

    def restate_done(self) -> None:
        self._flusher.end_manifest_rewrite()

    def read_note(self, name: str) -> bytes:
        """BLOCKING: a small file of the node's own; empty where there is none, or none that can be read."""
        try:
            file = self._disk.open(os.path.join(self.directory, name))
            return file.read(0, file.size())
        except (FileNotFoundError, UnreadableError):
            return b""

    def write_note(self, name: str, data: bytes) -> None:
        """BLOCKING. Not synced: whoever reads it must get along with nothing, or half of it."""
        self._disk.open(os.path.join(self.directory, name), create=True).write(0, [data])

    def sync_mark(self) -> None:
        """BLOCKING, any thread: how far the log is synced is known even after a power loss, as of now."""
        self._wal.mark.sync()

    def note_damage(self, note: bytes) -> None:
        """BLOCKING, a few bytes: a line for `damage.log`."""
        append_notes(self._disk, self.directory, [note])

    def purge_trash(self, older_than_ms: int, damaged_older_than_ms: int = 0, bytes_max: int = 1 << 62) -> int:
        """BLOCKING: remove what went to trash before that time, damaged files before theirs, and beyond `bytes_max` the
        oldest; how many files."""
        return self._manifests.purge_trash(older_than_ms, damaged_older_than_ms, bytes_max)

    @property
    def wal_file_number(self) -> int:
        """Of the file that is staged for now; they count up."""
        return self._wal.gathering.file_number

    def free_bytes(self) -> int:
        """BLOCKING: room on the node's disk."""
        return self._disk.free_bytes(self.directory)

    def roll(self) -> None:
        """Let the next group be the last of its file, so that a flush can free what is dead before the file is full.
        Something harmless is staged, for there to be a next group; and again until the next file is begun."""
        if self.partitions:
            self._wal.roll_wanted = not self._flusher.due()
            log = next(iter(self.partitions.values()))
            self.save_vote(log.partition, log.epoch, log.voted_for)

    def close(self) -> None:
        """BLOCKING: write what is staged and let go. No group and no flush may be under way."""
        if self._closed:
            return
        assert not self._wal.writing, "close while a group is being written"
        self._commit(FLAG_CLOSED)
        self._closed = True
        self._wal.files.clear()
        self._store.segments.forget_all()
        self._lock.close()

    def _commit(self, flags: int = 0) -> None:
        group = self._wal.take(flags)
        self._wal.write(group)
        self.group_written(group)

    # --- recovery ----------------------------------------------------------------------------------------------------

    def _recover(self, loaded: LoadedManifests, incarnation_min: int, salvage: Salvage | None) -> None:
        manifest = loaded.newest
        for row in manifest.rows.values():
            self.partitions[row.partition] = PartitionLog.from_row(self._store, row)
        incomplete = self._manifests.check_files(manifest)
        for error in incomplete.values():
            if salvage is None:
                raise error
            salvage.found(error, "its replica starts empty and is fed again by its group")
        self._wal.mark, mark_lost = open_mark(self._disk, self.directory, manifest.head, salvage)
        walk = WalWalk(self._disk, self._wal.directory, manifest, self._wal.mark.sequence, salvage is not None)
        replay = Replay(self._store, self.partitions, manifest, self._flusher)
        for number, block in walk:
            replay.apply(number, block.position, block.sequence, block.body, bool(walk.damage))
        doubtful = mark_lost or bool(walk.damage)
        replay.finish(doubtful)
        self.recovered_sequence = walk.end.sequence - 1
        last_incarnation = max(walk.end.incarnation, self._wal.mark.incarnation)
        next_incarnation = last_incarnation + 1 + incarnation_min % INCARNATIONS_SPREAD
        self.incarnation = next_incarnation if last_incarnation >= incarnation_min else incarnation_min
        self._wal.incarnation = self._wal.mark.incarnation = self.incarnation
        for number, (file, first_sequence) in walk.files.items():
            self._wal.files[number] = WalFile(number, first_sequence, file, file.size())
            self._wal.files[number].touched = replay.touched.get(number, {})
        if doubtful or incomplete:
            assert salvage is not None
            self._rebuild(walk, salvage, doubtful, mark_lost, set(incomplete))
        else:
            if walk.files:
                # A process that was killed may have left its last group in the page cache only.
                walk.files[max(walk.files)][0].sync()
            self._wal.resume(walk.end.number, walk.end.position, walk.end.sequence)
            self._flusher.resume(self._disk.list_directory(self._wal.directory))
            self._commit()
            self._flusher.forget_made_again()
            if loaded.previous is None or not manifest.head.marked or not may_replace(loaded.previous, manifest):
                self._manifests.rewrite_unchanged()
        self._wal.mark.sync()  # with the new incarnation
        if salvage is not None:
            salvage.note()
            self.damage = salvage.findings

    def _rebuild(self, walk: WalWalk, salvage: Salvage, doubtful: bool, mark_lost: bool, incomplete: set[int]) -> None:
        """Go on with what is intact (`salvage.py`)."""
        salvage.found_in_wal(walk.damage)
        replaced = doubt(self._store, self.partitions, incomplete, doubtful)
        voids = (log.void_sequence for log in self.partitions.values())
        first_sequence = 1 + max(walk.end.sequence - 1, self._wal.mark.sequence, *voids)
        self._wal.resume(walk.free_number, 0, first_sequence)
        rewrite_unflushed(self._store, list(self.partitions.values()), self._wal, self._commit)
        salvage.note()
        rows = {partition: row_of(log) for partition, log in self.partitions.items()}
        self._manifests.rewrite(Head(b"", self.incarnation, walk.free_number, first_sequence, 0, {}), rows)
        if mark_lost:
            name_mark(self._disk, self.directory)
        for path in [*chain.from_iterable(map(self._manifests.files_of, replaced)), *self._flusher.take_dropped()]:
            salvage.quarantine_if_there(path)
        for number in sorted(walk.files):
            del self._wal.files[number]
            salvage.quarantine(os.path.join(self._wal.directory, wal_name(number)))
        self._flusher.resume(self._disk.list_directory(self._wal.directory))
