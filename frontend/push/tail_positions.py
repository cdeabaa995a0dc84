"""Where a live tail stands in the log of each partition. Pure.

A tail begins at the end of each log. A partition that the queue gets later is looked at from its beginning: all that it
holds came since. Where a log moves faster than the tail looks, the tail goes on near its end; the places that it passed
over are counted. A place may hold a message or what was done to one, so the count is a bound and no number of messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frontend.limits import TAIL_AHEAD, TAIL_BEHIND_MAX


class TailPositions:
    """`passed` counts the places passed over since it was asked for last."""

    __slots__ = ("_next", "_passed")

    def __init__(self, log_ends: Mapping[int, int]) -> None:
        self._next = dict(log_ends)
        self._passed = 0

    def follow(self, partitions: Sequence[int]) -> None:
        """The queue has these partitions now."""
        self._next = {partition: self._next.get(partition, 0) for partition in partitions}

    def of(self, partition: int) -> int:
        return self._next[partition]

    def looked(self, partition: int, next_offset: int, log_end: int) -> bool:
        """The log was looked at up to `next_offset`. True: there is more to look at now."""
        assert next_offset >= 0
        # A new leader may end earlier than what the old one promised to look at next.
        position = max(next_offset, self._next[partition])
        if log_end - position > TAIL_BEHIND_MAX:
            ahead = log_end - TAIL_AHEAD
            self._passed += ahead - position
            position = ahead
        self._next[partition] = position
        return position < log_end

    def take_passed(self) -> int:
        passed, self._passed = self._passed, 0
        return passed
