"""What a leader knows to wait: a stretch [first range, end) of the log ahead of the cursor, every fresh message in it.

Derived from the replicated state and the log, and thrown away with the leadership. `head` is the leader's own cursor:
everything below it was taken. Data batches that arrive at its end extend it for nothing; where it had to stop
(READ_AHEAD_MESSAGES_MAX) the driver reads on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from storage_nodes.limits import READ_AHEAD_MESSAGES_MAX
from storage_nodes.machines.queue.effects import FreshRange
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.queue_state import QueueState

_first_offset = attrgetter("first_offset")


class Window:
    """Fresh messages known ahead of the cursor, as ranges in offset order; every offset in them is fresh."""

    __slots__ = ("_state", "count", "end", "ranges")

    def __init__(self, state: QueueState) -> None:
        self._state = state
        self.ranges: deque[FreshRange] = deque()
        self.count = 0  # messages in `ranges`
        self.end = state.cursor  # every fresh message below it is in `ranges` or was taken

    @property
    def head(self) -> int:
        return self.ranges[0].first_offset if self.ranges else self.end

    def extend(self, first: int, last: int, timestamp_ms: int, without: Sequence[int]) -> None:
        """Add a range at the end, except the offsets `without` (ascending)."""
        for offset in without:
            if first < offset:
                self._append(first, offset - 1, timestamp_ms)
            first = offset + 1
        if first <= last:
            self._append(first, last, timestamp_ms)

    def arrived(self, base: int, last: int, timestamp_ms: int, before: int, noted: FoldedHeaders | None) -> None:
        """A data batch was folded when the log ended at `before`; take it in if it continues the window."""
        if self.end < before or (self.ranges and self.count + last + 1 - base > READ_AHEAD_MESSAGES_MAX):
            return
        self.extend(base, last, timestamp_ms, noted.unavailable_offsets() if noted is not None else ())
        self.end = last + 1

    def commands_arrived(self, before: int) -> None:
        """A control batch was folded when the log ended at `before`."""
        if self._state.fresh_count == 0:
            self.clear(self._state.log_end)
        elif self.end >= before:
            self.end = self._state.log_end

    def fetched(self, ranges: Iterable[FreshRange], keys: Sequence[Any], end: int) -> None:
        """The log was read up to `end`; its ranges may hold messages that are delayed or gone. They have no keys."""
        gone = self._state.removed_above_cursor
        live = self._state.live
        for first, last, timestamp_ms in ranges:
            first, last = max(first, self.end), min(last, end - 1)
            if first > last:
                continue
            offsets = range(first, last + 1)
            if live.keys().isdisjoint(offsets) and (not gone or gone.is_disjoint(first, last + 1)):
                self.extend(first, last, timestamp_ms, ())
            else:
                self.extend(first, last, timestamp_ms, [o for o in offsets if o in live or o in gone])
        self.end = max(self.end, end)

    def holds(self, offset: int) -> bool:
        return self._place_of(offset) >= 0

    def take(self, count_max: int) -> FreshRange:
        """Take up to count_max messages off the first range."""
        first, last, timestamp_ms = self.ranges[0]
        if last - first < count_max:
            self.count -= last - first + 1
            return self.ranges.popleft()
        self.count -= count_max
        self.ranges[0] = FreshRange(first + count_max, last, timestamp_ms)
        return FreshRange(first, first + count_max - 1, timestamp_ms)

    def became_ready(self, offsets: Sequence[int]) -> None:
        """These may be received again: the leases know them."""

    def removed(self, offsets: Sequence[int], groups: Mapping[int, bytes]) -> None:
        """Messages were removed from wherever they stood."""
        self.cut(offsets)

    @property
    def oldest_ms(self) -> int:
        """When the first waiting message was sent; 0 where none is in view."""
        return self.ranges[0].timestamp_ms if self.ranges else 0

    def group_counts(self) -> tuple[int, int]:
        """Groups in view, and the locked ones among them."""
        return 0, 0

    def check(self) -> None:
        waiting = sum([last - first + 1 for first, last, _ in self.ranges])
        assert waiting == self.count, f"{waiting} messages stand in ranges, {self.count} are counted"

    def cut(self, gone: Sequence[int]) -> None:
        """Messages that were deleted ahead of the cursor (rare: their lease was lost in a failover)."""
        for offset in gone:
            at = self._place_of(offset)
            if at >= 0:
                first, last, timestamp_ms = self.ranges[at]
                del self.ranges[at]
                for part in ((offset + 1, last), (first, offset - 1)):
                    if part[0] <= part[1]:
                        self.ranges.insert(at, FreshRange(*part, timestamp_ms))
                self.count -= 1

    def clear(self, end: int) -> None:
        """Nothing below `end` is fresh."""
        self.ranges.clear()
        self.count = 0
        self.end = max(self.end, end)

    def _place_of(self, offset: int) -> int:
        """Of the range that holds it; -1 = none does."""
        at = bisect_right(self.ranges, offset, key=_first_offset) - 1
        return at if at >= 0 and offset <= self.ranges[at].last_offset else -1

    def _append(self, first: int, last: int, timestamp_ms: int) -> None:
        self.ranges.append(FreshRange(first, last, timestamp_ms))
        self.count += last - first + 1
