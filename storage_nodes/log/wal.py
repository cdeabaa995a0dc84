"""The write-ahead log of a node: one sequence of groups, shared by all its partitions.

Files `wal/<number, 16 hex digits>.wal`, written in place, groups back to back from position 0. A file that was
used before is recycled: renamed to `spare-<old number>.wal`, later to its new number. File numbers and group sequence
numbers are never reused, so bytes of an earlier life of the file never validate. All integers big-endian.

    group block
    offset  size  field
         0     4  magic "PWG" + format version (1)
         4     8  WAL file number            unsigned
        12     8  group sequence number      unsigned, +1 per group over all files
        20     8  incarnation                unsigned, of the process that wrote it
        28     4  flags                      bit 0: the last block of this file, the next group is in the next file
                                             bit 1: written by a clean close
        32     4  length of the body         unsigned, bytes
        36     4  CRC-32C                    of the store identity, bytes 0..36 of the block, and the body
        40        body: records back to back

    record
         0     1  type                       1 entry, 2 truncate, 3 vote, 4 create, 5 drop, 6 suspect
         1     8  partition                  unsigned
         9     4  length of what follows     unsigned, bytes
        13        entry: one record batch
                  truncate: int64 offset
                  vote: int64 epoch, int64 voted for
                  create: uint8 kind, tag in UTF-8
                  drop: nothing
                  suspect: uint8, 1 = from here on, 0 = no longer

The store identity (16 random bytes made with the store, kept in the manifest) seeds the checksum, so that a file of
another node, or a block that a client wrapped in a message, is not taken for a group of this one.

A group is written only after the sync of the one before it returned. So at most the last group can be torn, which is
what lets recovery tell a torn tail from corruption. After each sync the mark (`mark.py`) says so outside of the file,
which is what lets recovery tell a torn tail from one that somebody cut off.
"""

from __future__ import annotations

import os
import struct
import threading

import google_crc32c

from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.disk import Disk, File
from storage_nodes.log.errors import DiskFailedError
from storage_nodes.log.mark import SyncMark

MAGIC = b"PWG\x01"
GROUP_HEADER = struct.Struct(">4sQQQIII")
GROUP_HEADER_BYTES = 40
CHECKED_HEADER = struct.Struct(">4sQQQII")
assert GROUP_HEADER.size == GROUP_HEADER_BYTES == CHECKED_HEADER.size + 4

FLAG_SEALS = 1
FLAG_CLOSED = 2

RECORD = struct.Struct(">BQI")
RECORD_BYTES = 13
assert RECORD.size == RECORD_BYTES
RECORD_ENTRY = 1
RECORD_TRUNCATE = 2
RECORD_VOTE = 3
RECORD_CREATE = 4
RECORD_DROP = 5
RECORD_SUSPECT = 6

OFFSET = struct.Struct(">q")
VOTE = struct.Struct(">qq")

PLACE_SHIFT = 32
PLACE_MASK = (1 << PLACE_SHIFT) - 1


def wal_name(number: int) -> str:
    return f"{number:016x}.wal"


def wal_number(name: str) -> int | None:
    """The number of a WAL file by its name; None for anything else in the directory."""
    stem, dot, suffix = name.partition(".")
    if len(stem) != 16 or dot + suffix != ".wal":
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None


class WriteGroup:
    """What is written by one group commit: filled on the event loop, written by a thread, then confirmed."""

    __slots__ = ("ends", "file_number", "flags", "length_bytes", "parts", "position", "sequence")

    def __init__(self, file_number: int, position: int, sequence: int) -> None:
        self.file_number = file_number
        self.position = position
        self.sequence = sequence
        self.flags = 0
        self.parts: list[bytes] = []
        self.length_bytes = 0  # of the body
        self.ends: dict[int, int] = {}  # partition -> log end that this group makes durable


class WalFile:
    """A WAL file that still holds something."""

    __slots__ = ("allocated_bytes", "file", "first_sequence", "number", "touched")

    def __init__(self, number: int, first_sequence: int, file: File | None, allocated_bytes: int) -> None:
        self.number = number
        self.first_sequence = first_sequence
        self.file = file  # None until the writer made it
        self.allocated_bytes = allocated_bytes  # really written, zeros or groups: writing there changes no metadata
        # Partitions with any record in it, while that matters to the next flush. Of thousands, a set would weigh four
        # times as much.
        self.touched: dict[int, None] = {}


class Wal:
    """Gathers records into groups, writes groups, and keeps the files."""

    def __init__(self, disk: Disk, directory: str, bounds: LogBounds, identity: bytes, incarnation: int) -> None:
        self.disk = disk
        self.directory = directory
        self.bounds = bounds
        self.incarnation = incarnation
        self.files: dict[int, WalFile] = {}
        self.spares: list[str] = []
        self.current: WalFile  # the file that the gathering group goes to
        self.gathering: WriteGroup
        self.mark: SyncMark  # set by recovery before the first group
        self.writing: list[WriteGroup] = []  # taken, not confirmed yet
        self._seed = google_crc32c.value(identity)
        self._one_writer = threading.Lock()
        self._failed = False
        self.roll_wanted = False  # the next group is to be the last of its file

    def resume(self, number: int, position: int, sequence: int) -> None:
        """Continue where recovery found the end: the next group has this place and sequence number."""
        current = self.files.get(number)
        if current is None:
            current = self.files[number] = WalFile(number, sequence, None, 0)
        if position == 0:
            current.first_sequence = sequence
        self.current = current
        self.gathering = WriteGroup(number, position, sequence)

    def add(self, kind: int, partition: int, payload: bytes) -> int:
        """Stage one record; its payload's place."""
        group = self.gathering
        position = group.position + GROUP_HEADER_BYTES + group.length_bytes + RECORD_BYTES
        group.parts.append(RECORD.pack(kind, partition, len(payload)))
        group.parts.append(payload)
        group.length_bytes += RECORD_BYTES + len(payload)
        self.current.touched[partition] = None
        return (group.file_number << PLACE_SHIFT) + position

    def take(self, flags: int = 0) -> WriteGroup:
        """Close the gathering group and start the next one behind it, in the next file if this one is full."""
        group = self.gathering
        position = group.position + GROUP_HEADER_BYTES + group.length_bytes
        number = group.file_number
        if position >= self.bounds.wal_file_bytes or self.roll_wanted:
            self.roll_wanted = False
            flags |= FLAG_SEALS
            number += 1
            position = 0
            self.current = self.files[number] = WalFile(number, group.sequence + 1, None, 0)
        group.flags = flags
        self.gathering = WriteGroup(number, position, group.sequence + 1)
        self.writing.append(group)
        return group

    def write(self, group: WriteGroup) -> None:
        """Write the group and return once it is on stable storage. In any thread, one group at a time, in order."""
        assert self.writing and self.writing[0] is group, "groups are written one at a time, in order"
        if self._failed:
            raise DiskFailedError
        with self._one_writer:
            try:
                self._write(group)
            except BaseException:
                # What reached the disk is unknown from here on, and a second fsync may claim success (R21).
                self._failed = True
                raise

    def _write(self, group: WriteGroup) -> None:
        wal_file = self.files[group.file_number]
        file = wal_file.file or self._make_file(wal_file)
        body = b"".join(group.parts)
        checked = CHECKED_HEADER.pack(
            MAGIC, group.file_number, group.sequence, self.incarnation, group.flags, group.length_bytes
        )
        crc = google_crc32c.extend(google_crc32c.extend(self._seed, checked), body)
        file.write(group.position, [checked + crc.to_bytes(4, "big"), body])
        end = group.position + GROUP_HEADER_BYTES + group.length_bytes
        if end > wal_file.allocated_bytes:
            self._grow(wal_file, file, end)
        file.sync()
        self.mark.note(group.sequence, group.file_number)
        if group.flags & (FLAG_SEALS | FLAG_CLOSED):
            self.mark.sync()

    def _make_file(self, wal_file: WalFile) -> File:
        path = os.path.join(self.directory, wal_name(wal_file.number))
        try:
            spare = self.spares.pop()
        except IndexError:
            file = self.disk.open(path, create=True)
        else:
            self.disk.rename(spare, path)
            file = self.disk.open(path)
        self.disk.sync_directory(self.directory)
        wal_file.allocated_bytes = file.size()
        wal_file.file = file
        return file

    def _grow(self, wal_file: WalFile, file: File, end: int) -> None:
        step = self.bounds.wal_grow_bytes
        target = min(-(-end // step) * step, max(self.bounds.wal_file_bytes, end))
        file.write_zeros(end, target - end)
        wal_file.allocated_bytes = target

    def confirm(self, group: WriteGroup) -> bool:
        """The group is durable. True if it was the last one of its file."""
        first = self.writing.pop(0)
        assert first is group, "groups are confirmed in the order they were taken"
        group.parts = []
        return bool(group.flags & FLAG_SEALS)

    def release_before(self, number: int) -> bool:
        """Recycle every file below `number`: nothing needs them any more. BLOCKING, in the flush thread."""
        old = sorted(candidate for candidate in list(self.files) if candidate < number)
        for candidate in old:
            path = os.path.join(self.directory, wal_name(candidate))
            if len(self.spares) < self.bounds.wal_spare_files_max:
                spare = os.path.join(self.directory, "spare-" + wal_name(candidate))
                self.disk.rename(path, spare)
                self.disk.sync_directory(self.directory)
                del self.files[candidate]
                self.spares.append(spare)
            else:
                del self.files[candidate]
                self.disk.remove(path)
        return bool(old)
