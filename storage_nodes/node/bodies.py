"""Reads record bodies by offset for delivery.

Picks come mostly in order, and a cold queue was just read ahead for the positions of its messages. So per partition the
batches of the last read-ahead and the batch parsed last are kept, of a FIFO queue several; over all partitions of a
node no more than BODY_CACHE_BYTES_MAX, the partition used longest ago going first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from storage_nodes.limits import BODY_CACHE_BYTES_MAX, READ_AHEAD_BYTES_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import body_spans, read_header

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

    def shrunk(self, size_bytes: int) -> None:
        self._bytes -= size_bytes

    def gone(self, reader: BodyReader, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._readers.pop(reader, None)


class _Parsed(NamedTuple):
    base: int
    end: int
    batch: bytes
    starts: Sequence[int]  # of the bodies in the batch
    ends: Sequence[int]

    def body(self, offset: int) -> bytes:
        at = offset - self.base
        return self.batch[self.starts[at] : self.ends[at]]


_NOTHING = _Parsed(0, 0, b"", (), ())


class BodyReader:
    """Offsets to bodies, for one partition. An offset asked for must hold a message that was committed.

    `parsed_bytes_max`: parsed batches kept beside the last one. A FIFO queue hands out messages that stand far apart,
    and soon others of the same batches.
    """

    __slots__ = (
        "_ahead",
        "_ahead_bases",
        "_bases",
        "_cache",
        "_last",
        "_log",
        "_parsed",
        "_parsed_bytes",
        "_parsed_bytes_max",
        "_run_cold",
        "_size_bytes",
    )

    def __init__(self, log: PartitionLog, cache: BodyCache, run_cold: RunCold, parsed_bytes_max: int = 0) -> None:
        self._log = log
        self._cache = cache
        self._run_cold = run_cold
        self._parsed_bytes_max = parsed_bytes_max
        # Batches of the last read-ahead, by base offset.
        self._ahead: Sequence[bytes] = ()
        self._ahead_bases: Sequence[int] = ()
        # Parsed batches by base offset, least recently used first; and their base offsets in order.
        self._parsed: OrderedDict[int, _Parsed] = OrderedDict()
        self._bases: list[int] = []
        self._parsed_bytes = 0
        self._last = _NOTHING
        self._size_bytes = 0

    def clear(self) -> None:
        if self._size_bytes:
            self._cache.gone(self, self._size_bytes)
        self._ahead, self._ahead_bases, self._bases, self._last = (), (), [], _NOTHING
        self._parsed.clear()
        self._size_bytes = self._parsed_bytes = 0

    def keep_ahead(self, batches: list[bytes]) -> None:
        """These were read from disk to find messages; their bodies will be wanted next."""
        if self._parsed_bytes_max:
            for batch in batches:
                self._keep(_parse(batch))
            return
        self.clear()
        self._ahead = batches
        self._ahead_bases = [read_header(batch).base_offset for batch in batches]
        self._grow(sum(map(len, batches)))

    def read(self, offsets: list[int]) -> dict[int, bytes] | None:
        """Bodies of `offsets`, or None when some are not in memory."""
        found: dict[int, bytes] = {}
        base, end, batch, starts, ends = self._last
        for offset in offsets:
            if not base <= offset < end:
                parsed = self._find(offset)
                if parsed is None:
                    return None
                base, end, batch, starts, ends = self._last = parsed
            at = offset - base
            found[offset] = batch[starts[at] : ends[at]]
        return found

    def read_later(self, offsets: list[int], done: Callable[[dict[int, bytes]], None]) -> None:
        """The same, what is not in memory from disk; `done` is called on the event loop."""
        log = self._log
        bodies: dict[int, bytes] = {}
        missing: list[int] = []
        for offset in offsets:
            parsed = self._find(offset)
            if parsed is None:
                missing.append(offset)
            else:
                bodies[offset] = parsed.body(offset)

        def work() -> list[_Parsed]:
            read: list[_Parsed] = []
            for offset in missing:
                if not any(parsed.base <= offset < parsed.end for parsed in read):
                    read += [_parse(batch) for batch in log.read_cold(offset, 1)]
            return read

        def found(read: list[_Parsed]) -> None:
            for parsed in read:
                if self._parsed_bytes_max:
                    self._keep(parsed)
                bodies.update((offset, parsed.body(offset)) for offset in missing if parsed.base <= offset < parsed.end)
            done(bodies)

        self._run_cold(work, found)

    def _find(self, offset: int) -> _Parsed | None:
        at = bisect_right(self._bases, offset) - 1
        if at >= 0:
            parsed = self._parsed[self._bases[at]]
            if offset < parsed.end:
                self._parsed.move_to_end(parsed.base)
                return parsed
        batch = self._batch(offset)
        return None if batch is None else self._keep(_parse(batch))

    def _batch(self, offset: int) -> bytes | None:
        at = bisect_right(self._ahead_bases, offset) - 1
        if at >= 0 and offset <= read_header(self._ahead[at]).last_offset:
            return self._ahead[at]
        batches = self._log.read_hot(offset, 1)
        return batches[0] if batches else None

    def _keep(self, parsed: _Parsed) -> _Parsed:
        if parsed.base in self._parsed:
            return parsed
        while self._parsed and self._parsed_bytes + len(parsed.batch) > self._parsed_bytes_max:
            base, oldest = self._parsed.popitem(last=False)
            self._bases.remove(base)
            self._parsed_bytes -= len(oldest.batch)
            self._size_bytes -= len(oldest.batch)
            self._cache.shrunk(len(oldest.batch))
        self._parsed[parsed.base] = parsed
        insort(self._bases, parsed.base)
        self._parsed_bytes += len(parsed.batch)
        self._grow(len(parsed.batch))
        return parsed

    def _grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        self._cache.grown(self, size_bytes)


def read_scattered(
    log: PartitionLog, run_cold: RunCold, offsets: list[int], done: Callable[[dict[int, bytes]], None]
) -> None:
    """Bodies of offsets that lie anywhere in the log: each batch is read and parsed once, off the event loop, and none
    is kept. `done` is called on the loop; what is no more there is left out."""
    hot: list[bytes] = []
    cold: list[int] = []
    end = 0
    ordered = sorted(offsets)
    for offset in ordered:
        if offset < end:
            continue
        batches = log.read_hot(offset, 1)
        if batches:
            hot.append(batches[0])
            end = read_header(batches[0]).end_offset
        else:
            cold.append(offset)

    def work() -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        read_to = 0
        for offset in cold:
            if offset >= read_to:
                for batch in log.read_cold(offset, 1):
                    read_to = _take_bodies(batch, ordered, found)
        for batch in hot:
            _take_bodies(batch, ordered, found)
        return found

    run_cold(work, done)


def _take_bodies(batch: bytes, ordered: list[int], found: dict[int, bytes]) -> int:
    """Those of the batch that are asked for; where it ends."""
    parsed = _parse(batch)
    for offset in ordered[bisect_left(ordered, parsed.base) : bisect_left(ordered, parsed.end)]:
        found[offset] = parsed.body(offset)
    return parsed.end


def _parse(batch: bytes) -> _Parsed:
    header = read_header(batch)
    return _Parsed(header.base_offset, header.end_offset, batch, *body_spans(batch))
