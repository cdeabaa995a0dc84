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
from bisect import bisect_right
from itertools import accumulate
from typing import Protocol, TypeAlias

import google_crc32c

from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError

MAGIC = b"PCK\x01"
_HEADER = struct.Struct(">4sQqQ")
_HEADER_BYTES = 32


class LazyPiece(Protocol):
    """Made when they are asked for, the same each time."""

    @property
    def nbytes(self) -> int: ...
    def __bytes__(self) -> bytes: ...


Blob: TypeAlias = bytes | list[bytes | LazyPiece]
"""A checkpoint to be written; where it is large in pieces, one behind the other."""
# Pieces in one write. Between two writes this thread keeps the event loop from the interpreter's lock, a fraction of a
# millisecond; a write lets go of it.
_PIECES_AT_ONCE = 16


def blob_bytes(blob: Blob) -> int:
    return len(blob) if isinstance(blob, bytes) else sum(map(_size, blob))


def joined(blob: Blob) -> bytes:
    return blob if isinstance(blob, bytes) else b"".join(map(bytes, blob))


def _size(piece: bytes | LazyPiece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


class BlobReader:
    """Reads stretches of a checkpoint in pieces, without joining all of it."""

    def __init__(self, blob: Blob) -> None:
        self._pieces: list[bytes | LazyPiece] = [blob] if isinstance(blob, bytes) else blob
        self._ends = list(accumulate(map(_size, self._pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def read(self, start: int, length: int) -> bytes:
        """Fewer at the end."""
        found: list[memoryview] = []
        at = bisect_right(self._ends, start)
        while length > 0 and at < len(self._pieces):
            piece = memoryview(bytes(self._pieces[at]))
            first = start - (self._ends[at] - len(piece))
            found.append(piece[first : first + length])
            start, length = start + len(found[-1]), length - len(found[-1])
            at += 1
        return b"".join(found)


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

    def write(self, partition: int, number: int, offset: int, blob: Blob) -> None:
        """Durable on return but for the name."""
        file = self._disk.open(self.path(partition, number), create=True)
        header = _HEADER.pack(MAGIC, partition, offset, blob_bytes(blob))
        pieces: list[bytes | LazyPiece] = [blob] if isinstance(blob, bytes) else blob
        crc = google_crc32c.extend(self._seed, header)
        at = _HEADER_BYTES
        for first in range(0, len(pieces), _PIECES_AT_ONCE):
            some = [bytes(piece) for piece in pieces[first : first + _PIECES_AT_ONCE]]
            for piece in some:
                crc = google_crc32c.extend(crc, piece)
            file.write(at, some)
            at += sum(map(len, some))
        file.write(0, [header, crc.to_bytes(4, "big")])
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
