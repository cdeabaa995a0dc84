"""The manifests of a node, as one takes the place of another: which files they need, and which ones go.

"Neither this nor the one before": what a new manifest no longer names is garbage of this round, and goes with the next
one. So a manifest that turns out unreadable can be replaced by the one before it.

Called by the flush thread, but for the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from storage_nodes.log.checkpoint import checkpoint_name
from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError, UnreadableError
from storage_nodes.log.manifest import TEMPORARY_NAME, Head, Manifest, PartitionRow, manifest_version, write_manifest
from storage_nodes.log.partition_log import LogStore, PartitionLog
from storage_nodes.log.recovery import LoadedManifests
from storage_nodes.log.segment import SegmentRef, segment_name

# Files in trash that somebody may want to look at.
DAMAGED_PREFIX = "damaged-"


class ManifestKeeper:
    """`newest` is in force. Callers change its rows and hand them to `replace`, which makes the next one of them."""

    def __init__(self, disk: Disk, directory: str, store: LogStore, loaded: LoadedManifests) -> None:
        self._disk = disk
        self._directory = directory
        self._store = store
        self._trash = os.path.join(directory, "trash")
        self.newest = loaded.newest
        self._previous_first_file = (loaded.previous or loaded.newest).head.first_file
        self._next_version = loaded.next_version
        # Needed by the previous manifest only: (path, goes to trash). The next flush lets go of them.
        self._garbage: list[tuple[str, bool]] = []
        self._loaded_previous = loaded.previous

    def check_files(self, manifest: Manifest) -> dict[int, CorruptionError]:
        """What neither the manifest nor the one before it names is a leftover of a crash and goes. Returns the
        partitions of which a file is missing that the manifest names."""
        needed = _named_files(manifest)
        previous = _named_files(self._loaded_previous) if self._loaded_previous else {}
        present: set[str] = set()
        for directory in (self._store.segments.directory, self._store.checkpoints.directory):
            for name in self._disk.list_directory(directory):
                path = os.path.join(directory, name)
                present.add(name)
                if name in needed:
                    continue
                if name in previous:
                    self._garbage.append((path, previous[name] not in manifest.rows))
                else:
                    self._disk.remove(path)
        self._disk.remove(os.path.join(self._directory, TEMPORARY_NAME))
        self._loaded_previous = None
        return {
            needed[name]: CorruptionError(
                os.path.join(self._directory, name), 0, "a file that the manifest names is missing"
            )
            for name in sorted(set(needed) - present)
        }

    def rewrite(self, head: Head, rows: dict[int, PartitionRow]) -> None:
        """BLOCKING: two manifests that say this, so that the one to fall back to says it too."""
        head = msgspec.structs.replace(head, identity=self.newest.head.identity, marked=True)
        head = msgspec.structs.replace(head, next_number=self.newest.head.next_number)
        for _ in range(2):
            self.replace(head, rows)

    @property
    def next_number(self) -> int:
        """For files; of the flush thread."""
        return self.newest.head.next_number

    def replace_segments(
        self,
        log: PartitionLog,
        segments: tuple[SegmentRef, ...],
        old: tuple[SegmentRef, ...],
        next_number: int,
        log_start: int,
        whole_from: int,
    ) -> None:
        """BLOCKING: a manifest that names these segments of a partition, and not `old`."""
        garbage = self.take_garbage()
        self._disk.sync_directory(self._store.segments.directory)
        self.discard(self._store.segments.path(log.partition, ref.number) for ref in old)
        rows = self.newest.rows
        rows[log.partition] = msgspec.structs.replace(
            rows[log.partition], segments=segments, log_start=log_start, whole_from=whole_from
        )
        head = msgspec.structs.replace(self.newest.head, next_number=next_number)
        self.replace(head, rows)
        self.collect(garbage)

    def rewrite_unchanged(self) -> None:
        """BLOCKING: two manifests that say what the newest one does: one was damaged or missing, or knew of no mark."""
        self.rewrite(self.newest.head, self.newest.rows)

    # --- what goes ----------------------------------------------------------------------------------------------

    def take_garbage(self) -> list[tuple[str, bool]]:
        """What the round before left; from now on that of this round is gathered."""
        garbage, self._garbage = self._garbage, []
        return garbage

    def discard(self, paths: Iterable[str], to_trash: bool = False) -> None:
        """The next manifest does not name these files."""
        self._garbage += [(path, to_trash) for path in paths]

    def replace(self, head: Head, rows: dict[int, PartitionRow]) -> None:
        """Make it durable, then let go of the version before the previous one."""
        manifest = Manifest(self._next_version, head, rows)
        write_manifest(self._disk, self._directory, manifest)
        self._previous_first_file = self.newest.head.first_file
        kept = {manifest.version, self.newest.version}
        self.newest = manifest
        self._next_version = manifest.version + 1
        for name in self._disk.list_directory(self._directory):
            version = manifest_version(name)
            if version is not None and version not in kept:
                self._disk.remove(os.path.join(self._directory, name))

    def collect(self, garbage: list[tuple[str, bool]]) -> None:
        """Let go of what only the manifest before the previous one needed."""
        self._store.generation += 1
        for path, to_trash in garbage:
            if to_trash:
                with suppress(FileNotFoundError):  # that it was missing may be why its replica was emptied
                    self._disk.rename(path, os.path.join(self._trash, os.path.basename(path)))
            else:
                self._disk.remove(path)
        if any(to_trash for _path, to_trash in garbage):
            self._disk.sync_directory(self._trash)
        self._store.wal.release_before(self._previous_first_file)

    def files_of(self, log: PartitionLog) -> list[str]:
        number = log.checkpoint_source[2]
        paths = [self._store.segments.path(log.partition, ref.number) for ref in log.segments]
        return paths + ([self._store.checkpoints.path(log.partition, number)] if number else [])

    def purge_trash(self, older_than_ms: int, damaged_older_than_ms: int, bytes_max: int) -> int:
        found: list[tuple[bool, int, str]] = []
        for name in self._disk.list_directory(self._trash):
            path = os.path.join(self._trash, name)
            with suppress(FileNotFoundError):  # an operator may empty the trash meanwhile
                found.append((name.startswith(DAMAGED_PREFIX), self._disk.changed_ms(path), path))
        kept_bytes = purged = 0
        # The youngest first, damaged ones before all: what exceeds the bound is the oldest of the others.
        for damaged, changed_ms, path in sorted(found, key=lambda file: (not file[0], -file[1])):
            with suppress(FileNotFoundError, IsADirectoryError):  # a directory is not ours
                with suppress(UnreadableError):
                    kept_bytes += self._disk.open(path).size()
                if kept_bytes > bytes_max or changed_ms < (damaged_older_than_ms if damaged else older_than_ms):
                    self._disk.remove(path)
                    purged += 1
        return purged


def _named_files(manifest: Manifest) -> dict[str, int]:
    """File name -> partition."""
    names: dict[str, int] = {}
    for row in manifest.rows.values():
        names.update((segment_name(row.partition, ref.number), row.partition) for ref in row.segments)
        if row.checkpoint_number:
            names[checkpoint_name(row.partition, row.checkpoint_number)] = row.partition
    return names
