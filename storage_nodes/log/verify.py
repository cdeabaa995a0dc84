"""Reading stored files for the sake of checking them: what a scrub does, file by file, piece by piece.

A file may go while it is read: a flush drops or replaces segments and checkpoints. Then it is no longer named, and
there is nothing to find. Only a file that is still named and cannot be read is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError, NotVerifiedError
from storage_nodes.log.manifest import manifest_name, manifest_version, read_manifest
from storage_nodes.log.partition_log import LogStore, PartitionLog
from storage_nodes.log.segment import SegmentRef

# Manifests belong to all partitions, and come first.
NO_PARTITION = -1


class StoredFile(NamedTuple):
    partition: int
    number: int
    size_bytes: int  # 0 = not known before it is read
    segment: SegmentRef | None = None
    checkpoint_offset: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Files are read in this order."""
        return self.partition, self.number


def stored_files(disk: Disk, directory: str, partitions: Mapping[int, PartitionLog]) -> list[StoredFile]:
    versions = filter(None, map(manifest_version, disk.list_directory(directory)))
    files = [StoredFile(NO_PARTITION, version, 0) for version in versions]
    # In one step, since the event loop makes and drops partitions meanwhile.
    for log in list(partitions.values()):
        files += [StoredFile(log.partition, ref.number, ref.size_bytes, ref) for ref in log.segments]
        offset, _blob, number = log.checkpoint_source
        if number:
            files.append(StoredFile(log.partition, number, 0, None, offset))
    files.sort(key=_place)
    return files


def verify(
    disk: Disk,
    directory: str,
    store: LogStore,
    partitions: Mapping[int, PartitionLog],
    file: StoredFile,
    piece_bytes: int,
) -> Iterator[int]:
    """BLOCKING steps. Raises CorruptionError; NotVerifiedError where the reason is not the file (no descriptor is left,
    say)."""
    try:
        if file.partition == NO_PARTITION:
            read_manifest(disk, directory, file.number)
        elif file.segment is not None:
            yield from store.segments.open_apart(file.partition, file.segment).verify_pieces(piece_bytes)
        else:
            yield len(store.checkpoints.read(file.partition, file.number, file.checkpoint_offset, from_disk=True))
    except FileNotFoundError as error:
        if _is_named(partitions, file):
            path = error.filename or _path(store, directory, file)
            raise CorruptionError(path, 0, "a file that the manifest names is missing") from error
    except OSError as error:
        raise NotVerifiedError(f"{error.filename or _path(store, directory, file)}: {error.strerror}") from error
    except CorruptionError:
        if _is_named(partitions, file) or file.partition == NO_PARTITION:
            raise


def _is_named(partitions: Mapping[int, PartitionLog], file: StoredFile) -> bool:
    log = partitions.get(file.partition)
    if log is None:
        return False
    return file.segment in log.segments if file.segment is not None else log.checkpoint_source[2] == file.number


def _path(store: LogStore, directory: str, file: StoredFile) -> str:
    if file.partition == NO_PARTITION:
        return os.path.join(directory, manifest_name(file.number))
    if file.segment is not None:
        return store.segments.path(file.partition, file.number)
    return store.checkpoints.path(file.partition, file.number)


def _place(file: StoredFile) -> tuple[int, int]:
    return file.place
