"""Reads record bodies by offset for delivery.

Picks of a standard queue come mostly in order, so a queue that is read from disk is read a stretch at a time:

    consumed | batch parsed last |  ahead: whole batches, as read  |  not read yet
                     ^ frontier: end of what was handed out

`ahead` grows by what was read to find the positions of messages (`keep_ahead`), and where that does not reach, by a
stretch from the first offset that is missing on (`read_later`). What lies behind the frontier (messages that are given
again) is read batch by batch. One read is under way at a time; who asks meanwhile waits, and mostly finds what he needs
in memory then. A FIFO queue hands out messages that stand far apart, and keeps several batches parsed instead.

Every batch was checked when it was read, and a leader's committed batches never change: what is kept is dropped with
the leadership, when nobody asked for a while, and when all partitions of a node together keep more than
BODY_CACHE_BYTES_MAX, the partition used longest ago first. The more of them read, the shorter their stretches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from storage_nodes.limits import BODY_CACHE_BYTES_MAX, READ_AHEAD_BYTES_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.log.record_batch import body_spans, read_header

T = TypeVar("T")

assert READ_AHEAD_BYTES_MAX < BODY_CACHE_BYTES_MAX, "one read-ahead must fit"

# A reader keeps so many stretches: one that is handed out and one for afterwards.
_STRETCHES_KEPT = 2


class RunCold(Protocol):
    """Runs blocking reads in a thread, then `done` on the event loop."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], None]) -> None: ...


class BodyCache:
    """One per node: which partitions keep batches, least recently used first."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = BODY_CACHE_BYTES_MAX if bytes_max is None else bytes_max
        self._readers: OrderedDict[BodyReader, None] = OrderedDict()
        self.bytes_held = 0

    def stretch_bytes(self) -> int:
        """How much of a log to read ahead at a time, so that all who read find room."""
        return min(READ_AHEAD_BYTES_MAX, self._bytes_max // (_STRETCHES_KEPT * (len(self._readers) + 1)))

    def grown(self, reader: BodyReader, size_bytes: int) -> None:
        self.bytes_held += size_bytes
        self._readers[reader] = None
        self._readers.move_to_end(reader)
        while self.bytes_held > self._bytes_max and len(self._readers) > 1:
            next(iter(self._readers)).clear()

    def shrunk(self, size_bytes: int) -> None:
        self.bytes_held -= size_bytes

    def gone(self, reader: BodyReader, size_bytes: int) -> None:
        self.bytes_held -= size_bytes
        self._readers.pop(reader, None)

    def drop_idle(self) -> None:
        """Who was not asked for anything since the last call keeps nothing any more."""
        for reader in list(self._readers):
            if reader.was_asked:
                reader.was_asked = False
            else:
                reader.clear()


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


class _Read(NamedTuple):
    """What a read from disk brought: the bodies asked for, the batches they were in, all that came with a stretch."""

    bodies: dict[int, bytes]
    parsed: list[_Parsed]
    ahead: list[bytes]


Done = Callable[[dict[int, bytes]], None]


class BodyReader:
    """Offsets to bodies, for one partition that is led here. An offset asked for must hold a committed message.

    `parsed_bytes_max`: parsed batches kept beside the last one, for a queue whose messages leave in another order.
    """

    __slots__ = (
        "_ahead",
        "_ahead_bases",
        "_ahead_bytes",
        "_ahead_end",
        "_bases",
        "_cache",
        "_closed",
        "_frontier",
        "_last",
        "_log",
        "_parsed",
        "_parsed_bytes",
        "_parsed_bytes_max",
        "_reading",
        "_run_cold",
        "_waiting",
        "bytes_held",
        "was_asked",
    )

    def __init__(self, log: PartitionLog, cache: BodyCache, run_cold: RunCold, parsed_bytes_max: int = 0) -> None:
        self._log = log
        self._cache = cache
        self._run_cold = run_cold
        self._parsed_bytes_max = parsed_bytes_max
        # Batches read ahead, neighbours in the log, with their base offsets and where the last one ends.
        self._ahead: list[bytes] = []
        self._ahead_bases: list[int] = []
        self._ahead_bytes = self._ahead_end = 0
        # Behind the highest offset that was handed out.
        self._frontier = 0
        # Parsed batches by base offset, least recently used first; and their base offsets in order.
        self._parsed: OrderedDict[int, _Parsed] = OrderedDict()
        self._bases: list[int] = []
        self._parsed_bytes = 0
        self._last = _NOTHING
        self.bytes_held = 0
        # Those whose bodies were not in memory; for the first of them a read may be under way.
        self._waiting: deque[tuple[list[int], Done]] = deque()
        self._reading = False
        self._closed = False
        self.was_asked = True

    @property
    def is_idle(self) -> bool:
        """Nothing is kept and nobody waits: another reader would do as well."""
        return not (self.bytes_held or self._waiting)

    def clear(self) -> None:
        """Keep nothing, for now."""
        self._cache.gone(self, self.bytes_held)
        self._ahead, self._ahead_bases, self._bases, self._last = [], [], [], _NOTHING
        self._parsed.clear()
        self.bytes_held = self._parsed_bytes = self._ahead_bytes = self._ahead_end = 0

    def close(self) -> None:
        """The leadership is over: all who wait are answered with nothing, and nothing is kept ever again."""
        self.clear()
        self._closed = True
        while self._waiting:
            self._waiting.popleft()[1]({})

    def keep_ahead(self, from_offset: int, batches: list[bytes]) -> None:
        """These were read from disk, from there on, to find messages; their bodies will be wanted, after those that
        are kept already."""
        if self._parsed_bytes_max:
            for batch in batches:
                self._keep(_parse(batch))
            return
        self._drop_consumed()
        if from_offset <= self._ahead_end or not self._ahead:
            self._extend(batches)

    def read(self, offsets: list[int]) -> dict[int, bytes] | None:
        """Bodies of `offsets`, the last of which is the highest or not new, or None when some are not in memory."""
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
        self._handed_out(offsets)
        return found

    def read_later(self, offsets: list[int], done: Done) -> None:
        """The same, what is not in memory from disk; `done` is called on the event loop. What is no more there is left
        out."""
        self._waiting.append((offsets, done))
        self._read_on()

    def _read_on(self) -> None:
        while self._waiting and not self._reading:
            offsets, done = self._waiting[0]
            bodies: dict[int, bytes] = {}
            missing: list[int] = []
            for offset in offsets:
                parsed = self._find(offset)
                if parsed is None:
                    missing.append(offset)
                else:
                    bodies[offset] = parsed.body(offset)
            if missing:
                self._reading = True
                stretch_bytes = 0 if self._parsed_bytes_max else self._cache.stretch_bytes()
                read = partial(_read_missing, self._log, sorted(missing), self._frontier, stretch_bytes)
                self._run_cold(read, partial(self._arrived, bodies))
                return
            self._waiting.popleft()
            self._handed_out(offsets)
            done(bodies)

    def _arrived(self, bodies: dict[int, bytes], read: _Read) -> None:
        if self._closed:
            return
        self._reading = False
        bodies.update(read.bodies)
        for parsed in read.parsed:
            self._keep(parsed)
        if read.ahead:
            self._drop_ahead(len(self._ahead))
            self._extend(read.ahead)
        offsets, done = self._waiting.popleft()
        self._handed_out(offsets)
        done(bodies)
        self._read_on()

    def _handed_out(self, offsets: list[int]) -> None:
        self.was_asked = True
        if offsets[-1] >= self._frontier:
            self._frontier = offsets[-1] + 1

    def _find(self, offset: int) -> _Parsed | None:
        at = bisect_right(self._bases, offset) - 1
        if at >= 0:
            parsed = self._parsed[self._bases[at]]
            if offset < parsed.end:
                self._parsed.move_to_end(parsed.base)
                return parsed
        batch = self._batch(offset)
        if batch is None:
            return None
        parsed = _parse(batch)
        return self._keep(parsed) if parsed.base <= offset < parsed.end else None

    def _batch(self, offset: int) -> bytes | None:
        """The batch in memory that holds the offset, if it is there and nothing was dropped from the log meanwhile."""
        if offset < self._ahead_end:
            at = bisect_right(self._ahead_bases, offset) - 1
            if at >= 0 and offset <= read_header(self._ahead[at]).last_offset:
                return self._ahead[at]
        batches = self._log.read_hot(offset, 1)
        return batches[0] if batches else None

    # --- what is kept -----------------------------------------------------------------------------------------

    def _extend(self, batches: list[bytes]) -> None:
        """Keep as many of these as there is room for, behind the others."""
        room_bytes = _STRETCHES_KEPT * self._cache.stretch_bytes()
        before_bytes = self._ahead_bytes
        for batch in batches:
            header = read_header(batch)
            if header.base_offset < self._ahead_end:
                continue
            if self._ahead and self._ahead_bytes + len(batch) > room_bytes:
                break
            self._ahead.append(batch)
            self._ahead_bases.append(header.base_offset)
            self._ahead_bytes += len(batch)
            self._ahead_end = header.end_offset
        if self._ahead_bytes > before_bytes:
            self._grow(self._ahead_bytes - before_bytes)

    def _drop_consumed(self) -> None:
        """Forget what lies before the batch that holds the frontier."""
        if self._frontier >= self._ahead_end:
            self._drop_ahead(len(self._ahead))
        else:
            self._drop_ahead(max(bisect_right(self._ahead_bases, self._frontier) - 1, 0))

    def _drop_ahead(self, count: int) -> None:
        dropped_bytes = sum(map(len, self._ahead[:count]))
        del self._ahead[:count]
        del self._ahead_bases[:count]
        self._ahead_bytes -= dropped_bytes
        self.bytes_held -= dropped_bytes
        self._cache.shrunk(dropped_bytes)
        if not self._ahead:
            self._ahead_end = 0

    def _keep(self, parsed: _Parsed) -> _Parsed:
        if parsed.base in self._parsed:
            return parsed
        while self._parsed and self._parsed_bytes + len(parsed.batch) > self._parsed_bytes_max:
            base, oldest = self._parsed.popitem(last=False)
            self._bases.remove(base)
            self._parsed_bytes -= len(oldest.batch)
            self.bytes_held -= len(oldest.batch)
            self._cache.shrunk(len(oldest.batch))
        self._parsed[parsed.base] = parsed
        insort(self._bases, parsed.base)
        self._parsed_bytes += len(parsed.batch)
        self._grow(len(parsed.batch))
        return parsed

    def _grow(self, size_bytes: int) -> None:
        self.bytes_held += size_bytes
        self._cache.grown(self, size_bytes)


def read_scattered(log: PartitionLog, run_cold: RunCold, offsets: list[int], done: Done) -> None:
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


def _read_missing(log: PartitionLog, missing: list[int], frontier: int, stretch_bytes: int) -> _Read:
    """BLOCKING: the batches of these offsets, which ascend, from the frontier on with what follows them."""
    read = _Read({}, [], [])
    read_to = 0
    for offset in missing:
        if offset < read_to:
            continue
        is_ahead = stretch_bytes > 0 and offset >= frontier
        batches = log.read_cold(offset, stretch_bytes if is_ahead else 1)
        if is_ahead:
            read.ahead.extend(batches)
        for batch in batches:
            header = read_header(batch)
            read_to = header.end_offset
            wanted = _within(missing, header.base_offset, read_to)
            if wanted:
                parsed = _parse(batch)
                read.parsed.append(parsed)
                read.bodies.update((found, parsed.body(found)) for found in wanted)
    return read


def _take_bodies(batch: bytes, ordered: list[int], found: dict[int, bytes]) -> int:
    """Those of the batch that are asked for; where it ends."""
    parsed = _parse(batch)
    found.update((offset, parsed.body(offset)) for offset in _within(ordered, parsed.base, parsed.end))
    return parsed.end


def _within(ordered: list[int], base: int, end: int) -> list[int]:
    return ordered[bisect_left(ordered, base) : bisect_left(ordered, end)]


def _parse(batch: bytes) -> _Parsed:
    header = read_header(batch)
    return _Parsed(header.base_offset, header.end_offset, batch, *body_spans(batch))
