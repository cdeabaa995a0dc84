"""Checkpoints that are too large for the manifest, each in a file of its own.

Files `checkpoints/<partition>-<file number>.ckp`, 16 hex digits each, written and synced before the manifest names
them. Big-endian.

    offset  size  field
         0     4  magic "PCK" + format version (1)
         4     8  partition                unsigned
        12     8  checkpoint offset        signed: replay the log from here on
        20     8  length of the blob       unsigned, bytes
        28     4  CRC-32C                  of the store identity, bytes 0..28, the blob
        32        blob
"""

from __future__ import annotations

import os
import struct

import google_crc32c

from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError

MAGIC = b"PCK\x01"
_HEADER = struct.Struct(">4sQqQ")
_HEADER_BYTES = 32


def checkpoint_name(partition: int, number: int) -> str:
    return f"{partition:016x}-{number:016x}.ckp"


def checkpoint_partition(name: str) -> int | None:
    """Whose checkpoint a file is, by its name; None for any other file."""
    partition, dash, rest = name.partition("-")
    return int(partition, 16) if dash and len(partition) == 16 and rest.endswith(".ckp") else None


class CheckpointStore:
    """Writes and reads checkpoint files. Both BLOCKING."""

    def __init__(self, disk: Disk, directory: str, identity: bytes) -> None:
        self.directory = directory
        self._disk = disk
        self._seed = google_crc32c.value(identity)

    def path(self, partition: int, number: int) -> str:
        return os.path.join(self.directory, checkpoint_name(partition, number))

    def write(self, partition: int, number: int, offset: int, blob: bytes) -> None:
        """Durable on return but for the name."""
        file = self._disk.open(self.path(partition, number), create=True)
        header = _HEADER.pack(MAGIC, partition, offset, len(blob))
        crc = google_crc32c.extend(google_crc32c.extend(self._seed, header), blob)
        file.write(0, [header, crc.to_bytes(4, "big"), blob])
        file.sync()

    def read(self, partition: int, number: int, offset: int, from_disk: bool = False) -> bytes:
        """`from_disk`: past the page cache. Raises CorruptionError."""
        path = self.path(partition, number)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            raise CorruptionError(path, 0, "the checkpoint that the manifest names is missing") from None
        if from_disk:
            file.forget(0, file.size())
        data = file.read(0, file.size())
        header, crc, blob = data[: _HEADER.size], data[_HEADER.size : _HEADER_BYTES], data[_HEADER_BYTES:]
        expected = google_crc32c.extend(google_crc32c.extend(self._seed, header), blob)
        if crc != expected.to_bytes(4, "big") or header != _HEADER.pack(MAGIC, partition, offset, len(blob)):
            raise CorruptionError(path, 0, "the checksum of the checkpoint does not match")
        return blob
