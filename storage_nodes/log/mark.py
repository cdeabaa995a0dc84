"""The mark: how far the write-ahead log is known to have been synced, kept outside of it.

A bad block at the end of the log is a torn tail or the sign that somebody cut it: the log itself cannot tell, since
nothing valid lies behind. The mark can. It is written after the sync of a group returned and before anybody hears of
the group, so it never claims what was not synced, and whatever was acknowledged lies below it.

It costs one small write for each group and no sync: when a process is killed, the page cache still has it. After a
power loss it may be older than the log's end by what was written since the operating system, or `sync`, wrote it back.
So it always tells the truth, and only a power loss can leave it behind.

File `synced`, two slots of one sector each. A write goes to the one that does not hold the newest valid mark, so that a
torn write spoils no mark but an older one. Which slot that is does not follow from the sequence number: after a group
whose mark was torn, the next one is two further on than the newest mark. Big-endian.

    offset  size  field
         0     4  magic "PSM" + format version (2)
         4     8  sequence number of the last synced group   unsigned
        12     8  its WAL file number                        unsigned
        20     8  incarnation of the process that wrote it   unsigned
        28     4  CRC-32C                                    of the store identity, bytes 0..28

The incarnation stands here too, because it must grow even where the log's newest part, which has it, is damaged and the
clock, which it is taken from otherwise, is behind.
"""

from __future__ import annotations

import os
import struct

import google_crc32c

from storage_nodes.log.disk import Disk, File
from storage_nodes.log.errors import CorruptionError, UnreadableError

MARK_NAME = "synced"
# The mark of a repair that is under way: it takes its name once the manifests know what is suspect.
NEW_MARK_NAME = "synced.new"
MAGIC = b"PSM\x02"
SLOT_BYTES = 512
_SLOT = struct.Struct(">4sQQQ")


class SyncMark:
    """Of one store. Written by whoever writes the log, one group at a time."""

    def __init__(self, file: File, identity: bytes) -> None:
        """Use `create` or `open`."""
        self._file = file
        self._seed = google_crc32c.value(identity)
        self.sequence = 0
        self.file_number = 0
        # The newest that was noted; of this process, once it is set.
        self.incarnation = 0
        self._synced_sequence = 0
        self._newest_slot = SLOT_BYTES  # where the newest valid mark is; the next one goes to the other slot

    @staticmethod
    def create(
        disk: Disk, directory: str, identity: bytes, sequence: int = 0, file_number: int = 0, name: str = MARK_NAME
    ) -> SyncMark:
        """BLOCKING. Both slots and the name are durable on return."""
        mark = SyncMark(disk.open(os.path.join(directory, name), create=True), identity)
        for _ in range(2):
            mark.note(sequence, file_number)
        mark._file.sync()
        disk.sync_directory(directory)
        return mark

    @staticmethod
    def open(disk: Disk, directory: str, identity: bytes) -> SyncMark:
        """BLOCKING. Raises CorruptionError if there is none, or neither slot is valid."""
        path = os.path.join(directory, MARK_NAME)
        try:
            mark = SyncMark(disk.open(path), identity)
        except FileNotFoundError:
            raise CorruptionError(path, 0, "the mark of the synced end of the log is missing") from None
        valid = [(found, position) for position in (0, SLOT_BYTES) if (found := mark._read(position)) is not None]
        if not valid:
            raise CorruptionError(path, 0, "neither slot of the mark is valid")
        (mark.sequence, mark.file_number, mark.incarnation), mark._newest_slot = max(valid)
        # What it says may be in the page cache only, and a repair that it leads to may be cut short by a power loss.
        mark._file.sync()
        return mark

    def note(self, sequence: int, file_number: int) -> None:
        """The group was synced."""
        position = SLOT_BYTES - self._newest_slot
        self._write(position, sequence, file_number)
        self._newest_slot = position

    def sync(self) -> None:
        """BLOCKING, any thread: let it survive a power loss as it is now."""
        sequence = self.sequence
        if sequence != self._synced_sequence:
            self._file.sync()
            self._synced_sequence = sequence

    def _write(self, position: int, sequence: int, file_number: int) -> None:
        head = _SLOT.pack(MAGIC, sequence, file_number, self.incarnation)
        crc = google_crc32c.extend(self._seed, head)
        self._file.write(position, [head + crc.to_bytes(4, "big")])
        self.sequence = sequence
        self.file_number = file_number

    def _read(self, position: int) -> tuple[int, int, int] | None:
        try:
            data = self._file.read(position, _SLOT.size + 4)
        except UnreadableError:
            return None  # the next mark, or the one after it, is written over it
        if len(data) < _SLOT.size + 4:
            return None
        magic, sequence, file_number, incarnation = _SLOT.unpack_from(data)
        crc = google_crc32c.extend(self._seed, data[: _SLOT.size])
        if magic != MAGIC or data[_SLOT.size :] != crc.to_bytes(4, "big"):
            return None
        return sequence, file_number, incarnation
