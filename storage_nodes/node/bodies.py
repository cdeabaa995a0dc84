"""Reads record bodies by offset for delivery.

Picks come mostly in order, and a cold queue was just read ahead for the positions of its messages. So per partition the
batches of the last read-ahead and the batch parsed last are kept; over all partitions of a node no more than
BODY_CACHE_BYTES_MAX, the partition used longest ago going first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from storage_nodes.limits import BODY_CACHE_BYTES_MAX, READ_AHEAD_BYTES_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import iterate_bodies, read_header

T = TypeVar("T")

assert READ_AHEAD_BYTES_MAX < BODY_CACHE_BYTES_MAX, "one read-ahead must fit"


class RunCold(Protocol):
    """Runs blocking reads in a thread, then `done` on the event loop."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


class BodyCache:
    """One per node: which partitions keep batches, least recently used first."""

    def __init__(self, bytes_max: int = BODY_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._readers: OrderedDict[BodyReader, None] = OrderedDict()
        self._bytes = 0

    def grown(self, reader: BodyReader, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._readers[reader] = None
        self._readers.move_to_end(reader)
        while self._bytes > self._bytes_max and len(self._readers) > 1:
            next(iter(self._readers)).clear()

    def gone(self, reader: BodyReader, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._readers.pop(reader, None)


class BodyReader:
    """Offsets to bodies, for one partition. An offset asked for must hold a message that was committed."""

    __slots__ = ("_ahead", "_ahead_bases", "_cache", "_log", "_parsed", "_run_cold", "_size_bytes")

    def __init__(self, log: PartitionLog, cache: BodyCache, run_cold: RunCold) -> None:
        self._log = log
        self._cache = cache
        self._run_cold = run_cold
        # Batches of the last read-ahead, by base offset.
        self._ahead: Sequence[bytes] = ()
        self._ahead_bases: Sequence[int] = ()
        # (base, end, bodies) of the batch parsed last.
        self._parsed: tuple[int, int, list[bytes]] = _NOTHING
        self._size_bytes = 0

    def clear(self) -> None:
        if self._size_bytes:
            self._cache.gone(self, self._size_bytes)
        self._ahead, self._ahead_bases, self._parsed, self._size_bytes = (), (), _NOTHING, 0

    def keep_ahead(self, batches: list[bytes]) -> None:
        """These were read from disk to find messages; their bodies will be wanted next."""
        self.clear()
        self._ahead = batches
        self._ahead_bases = [read_header(batch).base_offset for batch in batches]
        self._grow(sum(map(len, batches)))

    def read(self, offsets: list[int]) -> dict[int, bytes] | None:
        """Bodies of `offsets`, or None when some are not in memory."""
        found: dict[int, bytes] = {}
        base, end, bodies = self._parsed
        for offset in offsets:
            if not base <= offset < end:
                batch = self._batch(offset)
                if batch is None:
                    return None
                base, end, bodies = self._parse(batch)
            found[offset] = bodies[offset - base]
        return found

    def read_later(self, offsets: list[int], done: Callable[[dict[int, bytes]], None]) -> None:
        """The same from disk; `done` is called on the event loop."""
        log = self._log

        def work() -> dict[int, bytes]:
            found: dict[int, bytes] = {}
            for offset in offsets:
                if offset not in found:
                    for batch in log.read_cold(offset, 1):
                        found.update(iterate_bodies(batch))
            return found

        self._run_cold(work, done)

    def _batch(self, offset: int) -> bytes | None:
        at = bisect_right(self._ahead_bases, offset) - 1
        if at >= 0 and offset <= read_header(self._ahead[at]).last_offset:
            return self._ahead[at]
        batches = self._log.read_hot(offset, 1)
        return batches[0] if batches else None

    def _parse(self, batch: bytes) -> tuple[int, int, list[bytes]]:
        header = read_header(batch)
        bodies = [body for _, body in iterate_bodies(batch)]
        if self._parsed is _NOTHING:
            self._grow(len(batch))
        self._parsed = (header.base_offset, header.end_offset, bodies)
        return self._parsed

    def _grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        self._cache.grown(self, size_bytes)


_NOTHING: tuple[int, int, list[bytes]] = (0, 0, [])
