"""The directory of a node's log: what stands in it, and how it is made ready before the log is opened."""

from __future__ import annotations

import os

from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.manifest import Head, Manifest, manifest_version, write_manifest
from storage_nodes.log.mark import SyncMark
from storage_nodes.log.recovery import LoadedManifests, load_manifests, require_fresh
from storage_nodes.log.salvage import Salvage

WAL_DIRECTORY = "wal"
SEGMENTS_DIRECTORY = "segments"
CHECKPOINTS_DIRECTORY = "checkpoints"
TRASH_DIRECTORY = "trash"
_SUBDIRECTORIES = (WAL_DIRECTORY, SEGMENTS_DIRECTORY, CHECKPOINTS_DIRECTORY, TRASH_DIRECTORY)
_IDENTITY_BYTES = 16


def prepare_directory(disk: Disk, directory: str, salvage: Salvage | None) -> LoadedManifests:
    """The manifests in it; two first ones where the directory is new. They are durable before anything else is made."""
    try:
        loaded = load_manifests(disk, directory)
        if loaded is None:
            require_fresh(disk, directory, [name for name in _SUBDIRECTORIES if name != TRASH_DIRECTORY])
    except CorruptionError as error:
        if salvage is None:
            raise
        manifests = [name for name in disk.list_directory(directory) if manifest_version(name) is not None]
        salvage.start_over(error, [name for name in _SUBDIRECTORIES if name != TRASH_DIRECTORY], manifests)
        loaded = None
    if loaded is None:
        identity = disk.random_bytes(_IDENTITY_BYTES)
        SyncMark.create(disk, directory, identity)
        first, second = (Manifest(version, Head(identity, 0, 1, 1, 1, {}, True), {}) for version in (1, 2))
        write_manifest(disk, directory, first)
        write_manifest(disk, directory, second)
        loaded = LoadedManifests(second, first, 3)
    for name in _SUBDIRECTORIES:
        disk.make_directory(os.path.join(directory, name))
    # A process that was killed may have made or renamed files whose names are not durable yet; what is built on them
    # from here on must not vanish with a power loss.
    for name in ["", *_SUBDIRECTORIES]:
        disk.sync_directory(os.path.join(directory, name) if name else directory)
    if salvage is not None:
        for unreadable in loaded.unreadable:
            salvage.found(unreadable, "moved to trash/; the one before it and the write-ahead log give the same state")
            salvage.quarantine(unreadable.path)
    return loaded
