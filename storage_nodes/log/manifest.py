"""The manifest: what a node's log is made of, apart from the write-ahead log files it still needs.

Files `manifest-<version, 16 hex digits>`. A new version is written to `manifest.tmp`, fsynced, renamed, and the
directory fsynced; the version before it is kept. Whatever the older of the two needs (WAL files, segments, checkpoint
files) is kept too, so that falling back to it loses nothing: replaying the WAL from its `first_file` gives the same
state.

    offset  size  field                     big-endian, unsigned
         0     4  magic "PMF" + format version (1)
         4     4  CRC-32C                   of everything after this field
         8     8  version                   the one in the file's name
        16     8  length of the body        bytes
        24        body: blocks, each a uint32 length and a msgpack value
                    first block: Head
                    other blocks: array of PartitionRow, at most ROWS_PER_BLOCK

Fields may be added at the end of Head and PartitionRow with a default; none may be removed or reordered.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import google_crc32c
import msgspec

from storage_nodes.log.disk import Disk
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.segment import SegmentRef

MAGIC = b"PMF\x01"
TEMPORARY_NAME = "manifest.tmp"
ROWS_PER_BLOCK = 512
_HEADER = struct.Struct(">4sIQQ")
_LENGTH = struct.Struct(">I")
_CHECKED_FROM = 8


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The state of the node as a whole."""

    identity: bytes  # of this store; seeds all checksums
    incarnation: int
    first_file: int  # replay the WAL from the start of this file
    first_sequence: int  # which starts with this group
    next_number: int  # for segment and checkpoint files
    tombstones: dict[int, int]  # dropped partition -> group of its drop: older WAL records of it mean nothing
    marked: bool = False  # there is a mark of the synced end (`mark.py`): without it something was lost


class PartitionRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One partition as of the WAL files that were flushed. Its later records are in the WAL."""

    partition: int
    kind: int
    tag: str
    epoch: int
    voted_for: int
    log_start: int
    flushed_end: int  # entries below are in segments or were dropped
    epochs: tuple[int, ...]  # boundaries: epochs[i] starts at starts[i]
    starts: tuple[int, ...]
    checkpoint_offset: int
    checkpoint: bytes | None  # where it is small
    checkpoint_number: int  # 0, or the number of the file that holds it
    segments: tuple[SegmentRef, ...]
    whole_from: int = -1  # every entry from here on is there; -1 = not known below flushed_end
    void_sequence: int = 0  # a snapshot replaced all entries in WAL groups up to this one: they mean nothing
    suspect: bool = False  # may lack what it acknowledged
    # (end offset, configuration): the group's, from the one in force at checkpoint_offset on; later ones are in the WAL
    configurations: tuple[tuple[int, bytes], ...] = ()
    last_stamp_ms: int = 0  # no entry of the log has a later one; 0 = none is known


class Manifest:
    """One version, in memory. `rows` belongs to the flush thread."""

    __slots__ = ("head", "rows", "version")

    def __init__(self, version: int, head: Head, rows: dict[int, PartitionRow]) -> None:
        self.version = version
        self.head = head
        self.rows = rows


def may_replace(previous: Manifest, newest: Manifest) -> bool:
    """Does a replay from `previous` give what `newest` says? Not where an install was cut short between its two."""
    return all(_follows(previous.rows.get(partition), row) for partition, row in newest.rows.items())


def _follows(before: PartitionRow | None, row: PartitionRow) -> bool:
    """Two installs between which no group was written have one void sequence, but the second's log is apart."""
    if before is None or not row.void_sequence == before.void_sequence > 0:
        return row.void_sequence == (before.void_sequence if before else 0)
    return row.whole_from <= before.flushed_end <= row.flushed_end


def manifest_name(version: int) -> str:
    return f"manifest-{version:016x}"


def manifest_version(name: str) -> int | None:
    prefix, _, digits = name.partition("-")
    if prefix != "manifest" or len(digits) != 16:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


def write_manifest(disk: Disk, directory: str, manifest: Manifest) -> None:
    """BLOCKING. Durable under its own name on return; the versions before it are left alone."""
    blocks = list(_encode_blocks(manifest))
    body = b"".join(blocks)
    header = _HEADER.pack(MAGIC, 0, manifest.version, len(body))
    crc = google_crc32c.extend(google_crc32c.value(header[_CHECKED_FROM:]), body)
    temporary = os.path.join(directory, TEMPORARY_NAME)
    file = disk.open(temporary, create=True)
    file.write(0, [_HEADER.pack(MAGIC, crc, manifest.version, len(body)), body])
    file.sync()
    disk.rename(temporary, os.path.join(directory, manifest_name(manifest.version)))
    disk.sync_directory(directory)


def _encode_blocks(manifest: Manifest) -> Iterator[bytes]:
    encoder = msgspec.msgpack.Encoder()
    head = encoder.encode(manifest.head)
    yield _LENGTH.pack(len(head))
    yield head
    rows = list(manifest.rows.values())
    for first in range(0, len(rows), ROWS_PER_BLOCK):
        block = encoder.encode(rows[first : first + ROWS_PER_BLOCK])
        yield _LENGTH.pack(len(block))
        yield block


def read_manifest(disk: Disk, directory: str, version: int) -> Manifest:
    """BLOCKING. Raises CorruptionError."""
    path = os.path.join(directory, manifest_name(version))
    file = disk.open(path)
    data = file.read(0, file.size())
    if len(data) < _HEADER.size:
        raise CorruptionError(path, 0, "shorter than the header of a manifest")
    magic, crc, written_version, length = _HEADER.unpack_from(data)
    if magic != MAGIC or written_version != version or length != len(data) - _HEADER.size:
        raise CorruptionError(path, 0, "not the header of this manifest version")
    if google_crc32c.value(data[_CHECKED_FROM:]) != crc:
        raise CorruptionError(path, 0, "the checksum of the manifest does not match")
    try:
        return _decode_body(version, memoryview(data)[_HEADER.size :])
    except (msgspec.DecodeError, struct.error) as error:
        raise CorruptionError(path, _HEADER.size, f"the manifest cannot be decoded: {error}") from error


def _decode_body(version: int, body: memoryview) -> Manifest:
    head: Head | None = None
    decode_rows = msgspec.msgpack.Decoder(list[PartitionRow]).decode
    rows: dict[int, PartitionRow] = {}
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        block = body[at + 4 : at + 4 + length]
        at += 4 + length
        if head is None:
            head = msgspec.msgpack.decode(block, type=Head)
        else:
            rows.update((row.partition, row) for row in decode_rows(block))
    if head is None:
        raise msgspec.DecodeError("no head block")
    return Manifest(version, head, rows)
