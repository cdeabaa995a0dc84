"""Segments: immutable files of committed entries of one partition.

Files `segments/<partition>-<file number>.seg`, 16 hex digits each; file numbers are unique on the node. A segment is
written and synced as a whole before the manifest names it; a file that no manifest names was never in use. Offsets
inside may have gaps (dead entries). All integers big-endian.

    entry, from position 0, back to back
         0     4  length of the batch             unsigned, bytes
         4     4  CRC-32C                          of the store identity, uint64 partition, and the batch
         8        one record batch                 (its base offset and epoch are in it, so they are covered)
    sparse index: one per `segment_index_interval_bytes` of entries, ascending, the first entry always
         0     8  base offset of an entry          signed
         8     8  its position in the file         unsigned
    footer, the last 64 bytes
         0     4  magic "PSG" + format version (1)
         4     8  partition                        unsigned
        12     8  base offset of the first entry   signed
        20     8  end offset of the last entry     signed, exclusive
        28     8  entries                          unsigned
        36     8  position of the sparse index     unsigned, = length of the entries in bytes
        44     8  index items                      unsigned
        52     4  CRC-32C of all entry CRCs in order    (a left-out or doubled entry is caught by a whole read)
        56     4  zero
        60     4  CRC-32C of store identity, sparse index, footer up to here
"""

from __future__ import annotations

import os
import struct
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from storage_nodes.log.bounds import LogBounds
from storage_nodes.log.disk import Disk, File
from storage_nodes.log.errors import CorruptionError
from storage_nodes.log.record_batch import BatchError, read_header

MAGIC = b"PSG\x01"
_ENTRY = struct.Struct(">II")
_ENTRY_BYTES = 8
_FOOTER = struct.Struct(">4sQqqQQQII")
_FOOTER_BYTES = 64
_PARTITION = struct.Struct(">Q")
_INDEX_ITEM_BYTES = 16
assert _FOOTER.size + 4 == _FOOTER_BYTES

# How much a segment writer gathers before it writes.
_WRITE_BYTES = 1024 * 1024


class SegmentRef(NamedTuple):
    """A segment as the manifest and the partition know it."""

    number: int
    base: int
    end: int
    size_bytes: int


def segment_name(partition: int, number: int) -> str:
    return f"{partition:016x}-{number:016x}.seg"


def segment_partition(name: str) -> int:
    """Whose segment a file is, by its name; 0 for any other file."""
    partition, dash, rest = name.partition("-")
    if not dash or len(partition) != 16 or not rest.endswith(".seg"):
        return 0
    return int(partition, 16)


def partition_seed(identity: bytes, partition: int) -> int:
    """What the checksum of every entry of a partition starts from."""
    return google_crc32c.extend(google_crc32c.value(identity), _PARTITION.pack(partition))


class SegmentWriter:
    """Writes one segment, entry by entry, in large pieces."""

    def __init__(self, file: File, identity: bytes, partition: int, index_interval_bytes: int) -> None:
        self._file = file
        self._identity = identity
        self._partition = partition
        self._seed = partition_seed(identity, partition)
        self._interval_bytes = index_interval_bytes
        self._buffers: list[bytes] = []
        self._buffered_bytes = 0
        self._written_bytes = 0
        self._indexed_until = 0  # position from which on the next entry gets an index item
        self._index_bases = array("q")
        self._index_positions = array("q")
        self._entries = 0
        self._chain = 0
        self.base = -1
        self.end = -1

    @property
    def size_bytes(self) -> int:
        return self._written_bytes + self._buffered_bytes

    def add(self, batch: bytes, base: int, end: int) -> None:
        """Append an entry. They come in offset order."""
        assert base >= self.end, "entries of a segment are in offset order"
        if self.base < 0:
            self.base = base
        position = self.size_bytes
        if position >= self._indexed_until:
            self._index_bases.append(base)
            self._index_positions.append(position)
            self._indexed_until = position + self._interval_bytes
        crc = google_crc32c.extend(self._seed, batch)
        head = _ENTRY.pack(len(batch), crc)
        self._chain = google_crc32c.extend(self._chain, head[4:])
        self._buffers.append(head)
        self._buffers.append(batch)
        self._buffered_bytes += _ENTRY_BYTES + len(batch)
        self._entries += 1
        self.end = end
        if self._buffered_bytes >= _WRITE_BYTES:
            self._write_out()

    def finish(self, number: int) -> SegmentRef:
        """Write index and footer; durable on return but for the name."""
        assert self._entries, "a segment holds at least one entry"
        self._write_out()
        entries_bytes = self._written_bytes
        index = _pack_index(self._index_bases, self._index_positions)
        items = len(self._index_bases)
        footer = _FOOTER.pack(
            MAGIC, self._partition, self.base, self.end, self._entries, entries_bytes, items, self._chain, 0
        )
        crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(self._identity), index), footer)
        self._file.write(entries_bytes, [index, footer, crc.to_bytes(4, "big")])
        self._file.sync()
        return SegmentRef(number, self.base, self.end, entries_bytes + len(index) + _FOOTER_BYTES)

    def _write_out(self) -> None:
        if self._buffers:
            self._file.write(self._written_bytes, [b"".join(self._buffers)])
            self._written_bytes += self._buffered_bytes
            self._buffers = []
            self._buffered_bytes = 0


def _pack_index(bases: array[int], positions: array[int]) -> bytes:
    interleaved = array("q", bytes(_INDEX_ITEM_BYTES * len(bases)))
    interleaved[0::2] = bases
    interleaved[1::2] = positions
    interleaved.byteswap()  # to big-endian: only little-endian machines are supported, which `bounds` cannot express
    return interleaved.tobytes()


class OpenSegment:
    """A segment that is being read: its file and its sparse index."""

    __slots__ = ("_chain", "_end", "_entries", "_entries_bytes", "_file", "_index_bases", "_index_positions", "_seed")

    def __init__(self, file: File, identity: bytes, partition: int, ref: SegmentRef) -> None:
        self._file = file
        self._seed = partition_seed(identity, partition)
        size = file.size()
        if size != ref.size_bytes:
            raise CorruptionError(file.path, size, f"the segment has {size} bytes, the manifest says {ref.size_bytes}")
        footer = file.read(size - _FOOTER_BYTES, _FOOTER_BYTES)
        magic, owner, base, end, entries, index_at, items, chain, _zero = _FOOTER.unpack_from(footer)
        index_bytes = items * _INDEX_ITEM_BYTES
        if magic != MAGIC or owner != partition or (base, end) != (ref.base, ref.end):
            raise CorruptionError(file.path, size - _FOOTER_BYTES, "not the footer of the segment the manifest names")
        if index_at + index_bytes + _FOOTER_BYTES != size:
            raise CorruptionError(file.path, size - _FOOTER_BYTES, "the footer of the segment does not fit its length")
        index = file.read(index_at, index_bytes)
        crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(identity), index), footer[:-4])
        if crc.to_bytes(4, "big") != footer[-4:]:
            raise CorruptionError(file.path, index_at, "the checksum of index and footer does not match")
        interleaved = array("q", index)
        interleaved.byteswap()
        self._index_bases = interleaved[0::2]
        self._index_positions = interleaved[1::2]
        self._entries_bytes = index_at
        self._entries = entries
        self._end = end
        self._chain = chain

    def read(self, offset: int, bytes_max: int, at_least_one: bool = True) -> list[bytes]:
        """Batches from the one that covers `offset`, or the first after it, up to `bytes_max`."""
        item = max(bisect_right(self._index_bases, offset) - 1, 0)
        position = self._index_positions[item]
        batches: list[bytes] = []
        taken_bytes = 0
        window = b""
        window_at = position
        while position < self._entries_bytes:
            batch, crc_ok = self._entry_in(window, position - window_at)
            if batch is None:
                window, window_at = self._window(position, max(bytes_max - taken_bytes, 0)), position
                batch, crc_ok = self._entry_in(window, 0)
            if batch is None or not crc_ok:
                raise self._mismatch(position)
            position += _ENTRY_BYTES + len(batch)
            if not batches and self._end_of(batch, position) <= offset:
                continue
            if (batches or not at_least_one) and taken_bytes + len(batch) > bytes_max:
                break
            batches.append(batch)
            taken_bytes += len(batch)
        return batches

    def intervals(self) -> tuple[list[int], list[int]]:
        """Base offsets and positions of the sparse index, and behind the last one the end of the segment."""
        return [*self._index_bases, self._end], [*self._index_positions, self._entries_bytes]

    def entries(self, first: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        """BLOCKING: (batch, base offset, end offset) of every entry that begins in [first, end), and of none of the
        file much else is read. Raises CorruptionError."""
        item = max(bisect_right(self._index_bases, first) - 1, 0)
        for _window, found in self._pieces(_WRITE_BYTES, self._index_positions[item]):
            for _at, batch in found:
                header = read_header(batch)
                if header.base_offset >= end:
                    return
                if header.base_offset >= first:
                    yield batch, header.base_offset, header.end_offset

    def verify(self) -> None:
        """BLOCKING: read everything and check it, the chain included. Raises CorruptionError."""
        for _ in self.verify_pieces(_WRITE_BYTES):
            pass

    def verify_pieces(self, piece_bytes: int) -> Iterator[int]:
        """The same from the disk and not from the page cache, which is left as cold as it was: a step reads about
        `piece_bytes` and says how many. Raises CorruptionError."""
        entries = chain = 0
        self._file.forget(0, self._entries_bytes)
        for window, found in self._pieces(piece_bytes):
            for at, _batch in found:
                chain = google_crc32c.extend(chain, window[at + 4 : at + _ENTRY_BYTES])
            entries += len(found)
            yield found[-1][0] + _ENTRY_BYTES + len(found[-1][1])
        if (entries, chain) != (self._entries, self._chain):
            problem = "the chain of entry checksums does not match"
            raise CorruptionError(self._file.path, self._entries_bytes, problem)

    def _pieces(self, piece_bytes: int, position: int = 0) -> Iterator[tuple[bytes, list[tuple[int, bytes]]]]:
        """(window, [(position in it, batch) of each whole entry in it]), piece by piece from there to the end of the
        segment; what was read leaves the page cache. Raises CorruptionError."""
        while position < self._entries_bytes:
            window = self._window(position, piece_bytes)
            found: list[tuple[int, bytes]] = []
            at = 0
            while True:
                batch, crc_ok = self._entry_in(window, at)
                if batch is None:
                    break
                if not crc_ok:
                    raise self._mismatch(position + at)
                found.append((at, batch))
                at += _ENTRY_BYTES + len(batch)
            if not at:
                raise CorruptionError(self._file.path, position, "the entry is longer than the file")
            self._file.forget(position, at)
            yield window, found
            position += at

    def _mismatch(self, position: int) -> CorruptionError:
        return CorruptionError(self._file.path, position, "the checksum of the entry does not match")

    def _window(self, position: int, bytes_wanted: int) -> bytes:
        """Bytes from `position` on, at least one whole entry."""
        head = self._file.read(position, _ENTRY_BYTES)
        if len(head) < _ENTRY_BYTES:
            raise CorruptionError(self._file.path, position, "the segment ends inside an entry")
        first_bytes = _ENTRY_BYTES + int(_ENTRY.unpack(head)[0])
        return self._file.read(position, min(max(first_bytes, bytes_wanted), self._entries_bytes - position))

    def _entry_in(self, window: bytes, at: int) -> tuple[bytes | None, bool]:
        """(the entry at `at` in the window, checksum right), or (None, False) if it is not wholly in there."""
        if at + _ENTRY_BYTES > len(window):
            return None, False
        length, crc = _ENTRY.unpack_from(window, at)
        batch = window[at + _ENTRY_BYTES : at + _ENTRY_BYTES + length]
        if len(batch) < length:
            return None, False
        return batch, google_crc32c.extend(self._seed, batch) == crc

    def _end_of(self, batch: bytes, position: int) -> int:
        try:
            return read_header(batch).end_offset
        except BatchError as error:
            raise CorruptionError(self._file.path, position, str(error)) from error


class SegmentStore:
    """Opens segments by name and keeps the recently read ones open, within a bound."""

    def __init__(self, disk: Disk, directory: str, identity: bytes, bounds: LogBounds) -> None:
        self.directory = directory
        self._disk = disk
        self._identity = identity
        self._bounds = bounds
        self._open: OrderedDict[int, OpenSegment] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, partition: int, number: int) -> str:
        return os.path.join(self.directory, segment_name(partition, number))

    def create(self, partition: int, number: int) -> SegmentWriter:
        file = self._disk.open(self.path(partition, number), create=True)
        return SegmentWriter(file, self._identity, partition, self._bounds.segment_index_interval_bytes)

    def create_incoming(self, partition: int, name: str) -> tuple[str, SegmentWriter]:
        """A segment under a name that no manifest ever names: it is renamed when it is put to use."""
        path = os.path.join(self.directory, f"incoming-{partition:016x}-{name}.seg")
        file = self._disk.open(path, create=True)
        return path, SegmentWriter(file, self._identity, partition, self._bounds.segment_index_interval_bytes)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def open_apart(self, partition: int, ref: SegmentRef) -> OpenSegment:
        """BLOCKING: as `open`, for one reader that must not push out what others keep open."""
        return OpenSegment(self._disk.open(self.path(partition, ref.number)), self._identity, partition, ref)

    def open(self, partition: int, ref: SegmentRef) -> OpenSegment:
        """BLOCKING. Raises CorruptionError, and FileNotFoundError where the file is gone."""
        with self._lock:
            segment = self._open.get(ref.number)
            if segment is not None:
                self._open.move_to_end(ref.number)
                return segment
        segment = self.open_apart(partition, ref)
        with self._lock:
            self._open[ref.number] = segment
            while len(self._open) > self._bounds.open_segment_files_max:
                self._open.popitem(last=False)
        return segment

    def forget_all(self) -> None:
        with self._lock:
            self._open.clear()
