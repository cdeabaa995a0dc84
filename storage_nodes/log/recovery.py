"""Opening a node's log: the manifest, then the write-ahead log from where the manifest says.

What a bad group block means is decided by what lies behind it. A group is written only after the sync of the one before
it returned, so a crash can spoil the last group only:

    bad block, nothing valid behind it, above the mark  torn tail: never acknowledged, cut
    the same, at or below the mark (`mark.py`)          corruption: synced groups are gone
    bad block, a valid later block behind it            corruption: synced bytes changed
    file not sealed by its last valid block, and there is a next file     corruption (that file began after a sync)
    bad block that the device cannot read               corruption: a write that was torn can be read
    sequence numbers or files missing                   corruption

Nothing is ever cut on any other ground. Corruption ends the opening with CorruptionError, unless it is opened for
repair: then the walk goes on behind the damage, and `salvage.py` says what becomes of what it found.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import NamedTuple

import google_crc32c

from storage_nodes.log.disk import Disk, File
from storage_nodes.log.errors import CorruptionError, UnreadableError
from storage_nodes.log.manifest import Manifest, manifest_name, manifest_version, read_manifest
from storage_nodes.log.wal import (
    CHECKED_HEADER,
    FLAG_SEALS,
    GROUP_HEADER,
    GROUP_HEADER_BYTES,
    MAGIC,
    wal_name,
    wal_number,
)

_WINDOW_BYTES = 1024 * 1024
# What is lost with one sector that cannot be read: devices and the page cache read no less.
UNREADABLE_STEP_BYTES = 4_096


class LoadedManifests(NamedTuple):
    newest: Manifest
    previous: Manifest | None  # the one to fall back to; its files are kept
    next_version: int
    unreadable: tuple[CorruptionError, ...] = ()  # versions that could not be read although another one could


def load_manifests(disk: Disk, directory: str) -> LoadedManifests | None:
    """BLOCKING. None where there never was one. Raises CorruptionError if there are some and none can be read."""
    versions = sorted(filter(None, map(manifest_version, disk.list_directory(directory))), reverse=True)
    if not versions:
        return None
    readable: list[Manifest] = []
    failures: list[CorruptionError] = []
    for version in versions:
        try:
            readable.append(read_manifest(disk, directory, version))
        except CorruptionError as error:
            failures.append(error)
    if not readable:
        raise failures[0]
    previous = readable[1] if len(readable) > 1 else None
    return LoadedManifests(readable[0], previous, versions[0] + 1, tuple(failures))


class Block(NamedTuple):
    """A valid group block."""

    sequence: int
    incarnation: int
    flags: int
    position: int
    body: bytes

    @property
    def end(self) -> int:
        return self.position + GROUP_HEADER_BYTES + len(self.body)


class WalScanner:
    """Reads the groups of one WAL file, in order."""

    def __init__(self, file: File, number: int, identity: bytes) -> None:
        self._file = file
        self._number = number
        self._seed = google_crc32c.value(identity)
        self._window = b""
        self._window_at = 0
        self._unreadable: set[int] = set()  # steps of UNREADABLE_STEP_BYTES that turned out so
        self.size_bytes = file.size()

    def block_at(self, position: int) -> Block | None:
        """The block at `position`; None if there is no valid one."""
        header = self._bytes(position, GROUP_HEADER_BYTES)
        if len(header) < GROUP_HEADER_BYTES:
            return None
        magic, number, sequence, incarnation, flags, length, crc = GROUP_HEADER.unpack(header)
        if magic != MAGIC or number != self._number or position + GROUP_HEADER_BYTES + length > self.size_bytes:
            return None
        body = self._bytes(position + GROUP_HEADER_BYTES, length)
        checked = header[: CHECKED_HEADER.size]
        if google_crc32c.extend(google_crc32c.extend(self._seed, checked), body) != crc:
            return None
        block = Block(sequence, incarnation, flags, position, body)
        # The zeros in the place of unreadable bytes can be what stood there, but nobody could read the block again.
        return None if self._holds_unreadable(position, block.end) else block

    def later_block(self, position: int, after_sequence: int) -> Block | None:
        """The first valid block behind `position` with a sequence number above `after_sequence`."""
        needle = CHECKED_HEADER.pack(MAGIC, self._number, 0, 0, 0, 0)[:12]
        at = position + 1
        while at < self.size_bytes:
            window = self._read(at, _WINDOW_BYTES + len(needle))
            found = window.find(needle)
            while found >= 0:
                block = self.block_at(at + found)
                if block is not None and block.sequence > after_sequence:
                    return block
                found = window.find(needle, found + 1)
            at += _WINDOW_BYTES
        return None

    def is_unreadable(self, position: int) -> bool:
        """Is the block at `position`, if there is one, not valid because the device cannot read it?"""
        header = self._bytes(position, GROUP_HEADER_BYTES)
        length = 0
        if header.startswith(MAGIC + self._number.to_bytes(8, "big")) and len(header) == GROUP_HEADER_BYTES:
            # Not one of an earlier life of the file: that stands where nothing was written since.
            length = min(GROUP_HEADER.unpack(header)[5], self.size_bytes)
            self._bytes(position + GROUP_HEADER_BYTES, length)
        return self._holds_unreadable(position, position + GROUP_HEADER_BYTES + length)

    def _holds_unreadable(self, start: int, end: int) -> bool:
        """Does [start, end), which was read before, hold bytes that the device cannot read?"""
        steps = range(start // UNREADABLE_STEP_BYTES, (end - 1) // UNREADABLE_STEP_BYTES + 1)
        return not self._unreadable.isdisjoint(steps)

    def _read(self, position: int, length: int) -> bytes:
        """As `File.read`, with zeros in the place of what cannot be read."""
        try:
            return self._file.read(position, length)
        except UnreadableError:
            data = bytearray()
            while len(data) < length and position + len(data) < self.size_bytes:
                at = position + len(data)
                step = UNREADABLE_STEP_BYTES - at % UNREADABLE_STEP_BYTES
                step = min(step, length - len(data), self.size_bytes - at)
                try:
                    data += self._file.read(at, step)
                except UnreadableError:
                    data += bytes(step)
                    self._unreadable.add(at // UNREADABLE_STEP_BYTES)
            return bytes(data)

    def _bytes(self, position: int, length: int) -> bytes:
        start = position - self._window_at
        if start < 0 or start + length > len(self._window):
            self._window = self._read(position, max(length, _WINDOW_BYTES))
            self._window_at = position
            start = 0
        return self._window[start : start + length]


class WalEnd(NamedTuple):
    """Where the write-ahead log goes on."""

    number: int
    position: int
    sequence: int  # of the next group
    incarnation: int  # the highest seen


class WalWalk:
    """Walks all groups from the manifest's first file to the end of the log, and tells a torn tail from corruption.

    `files` holds every file it opened, with the sequence number of its first group. With `tolerant`, damage is
    gathered in `damage` and the walk goes on with what is valid behind it.
    """

    def __init__(
        self, disk: Disk, directory: str, manifest: Manifest, synced_sequence: int = 0, tolerant: bool = False
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._identity = manifest.head.identity
        self._number = manifest.head.first_file
        self._sequence = manifest.head.first_sequence  # expected next
        self._incarnation = manifest.head.incarnation
        # Only the manifest of a store that was never opened to its end may be without a first group.
        self._opened_before = manifest.head.incarnation > 0
        self._synced_sequence = synced_sequence
        self._tolerant = tolerant
        numbers = map(wal_number, disk.list_directory(directory))
        self._present = {number for number in numbers if number is not None and number >= self._number}
        self.files: dict[int, tuple[File, int]] = {}
        self.damage: list[CorruptionError] = []
        self.end: WalEnd

    def __iter__(self) -> Iterator[tuple[int, Block]]:
        """(file number, block) of every group; `end` is known after the last. Raises CorruptionError."""
        started_in, position = self._number, 0
        while True:
            later = self._later_file()
            if self._number not in self._present:
                if not later:
                    break
                self._found(0, f"the file is missing, yet {wal_name(later)} exists")
                self._number = later
                later = self._later_file()
            sealed, position = yield from self._walk_file()
            if not sealed and not later:
                break
            self._number = self._number + 1 if sealed else later
            position = 0
        if self._number == started_in and position == 0 and self._opened_before:
            self._found(0, "the first group after the last flush is missing, yet the manifest names it")
        if self._synced_sequence >= self._sequence:
            self._found(position, f"group {self._synced_sequence} was synced, yet group {self._sequence} is not there")
        self.end = WalEnd(self._number, position, self._sequence, self._incarnation)

    @property
    def free_number(self) -> int:
        """Above every file there is."""
        return max([self._number, *self._present]) + 1

    def _walk_file(self) -> Generator[tuple[int, Block], None, tuple[bool, int]]:
        """(was the last block the file's seal, position behind it)."""
        file = self._disk.open(self._path())
        self.files[self._number] = (file, self._sequence)
        scanner = WalScanner(file, self._number, self._identity)
        position = 0
        while True:
            block = scanner.block_at(position)
            if block is None or block.sequence != self._sequence:
                block = self._block_behind(scanner, position)
                if block is None:
                    return False, position
            yield self._number, block
            self._sequence = block.sequence + 1
            self._incarnation = max(self._incarnation, block.incarnation)
            position = block.end
            if block.flags & FLAG_SEALS:
                return True, position

    def _block_behind(self, scanner: WalScanner, position: int) -> Block | None:
        """The first valid block behind a bad one, which is damage then; None at what may be a torn tail."""
        later = scanner.later_block(position - 1, self._sequence - 1)
        if later is not None:
            problem = f"group {self._sequence} is not valid, yet group {later.sequence} at {later.position} is"
            self._found(position, problem)
        elif self._later_file():
            self._found(position, f"group {self._sequence} is not valid, yet a later WAL file exists")
        elif scanner.is_unreadable(position):
            self._found(position, f"group {self._sequence} cannot be read")
        return later

    def _later_file(self) -> int:
        """0 = there is none."""
        return min((number for number in self._present if number > self._number), default=0)

    def _found(self, position: int, problem: str) -> None:
        error = CorruptionError(self._path(), position, problem)
        if not self._tolerant:
            raise error
        self.damage.append(error)

    def _path(self) -> str:
        return os.path.join(self._directory, wal_name(self._number))


def require_fresh(disk: Disk, directory: str, subdirectories: list[str]) -> None:
    """Without a manifest there must be nothing at all: it is written before anything else. Raises CorruptionError."""
    for name in subdirectories:
        path = os.path.join(directory, name)
        if name in disk.list_directory(directory) and disk.list_directory(path):
            manifest = os.path.join(directory, manifest_name(1))
            raise CorruptionError(manifest, 0, f"there is no manifest, yet {path} is not empty")
