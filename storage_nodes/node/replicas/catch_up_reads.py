"""Feeding replicas that are behind from disk, without starving those that keep pace.

A node that was away wants everything it missed at once. Read and sent as fast as it goes, that takes disk, network and
CPU from the partitions that serve clients meanwhile. So whatever has to be read back from disk for a peer (the log
behind the memtable, the entries of a snapshot) goes through one queue per node, and the queue is paced:

    rate = max(FEED_BYTES_PER_S_MIN, FEED_SHARE x what this node appends as a leader)

What a leader owes a peer grows by what it appends, so with a share above one every peer catches up in the end, however
much is written; what the node writes as a follower is fed by others. Reads are one at a time and the next starts when
the last one's bytes have had their time: a thousand partitions that are a little behind cost a thousand small reads and
hold the bytes of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from storage_nodes.limits import FEED_BYTES_PER_S_MIN, FEED_SHARE, FEED_WINDOW_MS

Read = Callable[[], list[bytes]]
Done = Callable[[list[bytes]], None]


class ReadRate:
    """When the next bytes may go. Pure: times are given, in milliseconds of any clock that does not go back."""

    __slots__ = ("_free_ms", "_rate_bytes_ms", "_window_ms", "appended_bytes")

    def __init__(self) -> None:
        self.appended_bytes = 0  # by leaders here since the last window; they add to it
        self._free_ms = 0.0
        self._rate_bytes_ms = FEED_BYTES_PER_S_MIN / 1000
        self._window_ms = 0.0

    def look(self, now_ms: float) -> None:
        """To be called now and then while anything is appended: a window may be over."""
        elapsed_ms = now_ms - self._window_ms
        if elapsed_ms >= FEED_WINDOW_MS:
            appended = self.appended_bytes / elapsed_ms
            self._rate_bytes_ms = max(FEED_BYTES_PER_S_MIN / 1000, FEED_SHARE * appended)
            self._window_ms = now_ms
            self.appended_bytes = 0

    def spent(self, size_bytes: int, now_ms: float) -> float:
        """So much was fed just now; how long to wait before the next, in milliseconds."""
        self._free_ms = max(self._free_ms, now_ms) + size_bytes / self._rate_bytes_ms
        return self._free_ms - now_ms


class CatchUpReads:
    """The queue of one node. `run_cold` does the blocking reads (its last argument is called where there was nothing
    to be read), `call_later` the waiting."""

    def __init__(
        self,
        run_cold: Callable[[Read, Done, Callable[[], None]], None],
        call_later: Callable[[float, Callable[[], None]], object],
        now_ms: Callable[[], float],
    ) -> None:
        self.rate = ReadRate()
        self._run_cold = run_cold
        self._call_later = call_later
        self._now_ms = now_ms
        self._waiting: deque[tuple[Read, Done]] = deque()
        self._busy = False

    def submit(self, read: Read, done: Done) -> None:
        """Read when it is this one's turn, then `done` with what was found."""
        self._waiting.append((read, done))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            read, done = self._waiting.popleft()
            # What was damaged is set aside with its replica; the others go on.
            self._run_cold(read, lambda found: self._found(found, done), self._next)

    def _found(self, found: list[bytes], done: Done) -> None:
        wait_ms = self.rate.spent(sum(map(len, found)), self._now_ms())
        if wait_ms < 1:
            self._next()
        else:
            self._call_later(wait_ms / 1000, self._next)
        done(found)
