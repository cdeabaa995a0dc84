"""Bugs that can be planted into the delivery, to see whether the fuzz would notice them. Most were in the product once.

Each is a context manager that takes its bug out again. Its docstring says the number and what is wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from storage_nodes.machines.queue.delivery.groups import GroupWindow
from storage_nodes.machines.queue.delivery.leases import Leases
from storage_nodes.machines.queue.delivery.strategy import EXPIRY_PAUSE_MS, DeliveryContext
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges
from storage_nodes.machines.queue.state.retry import RetryPolicy

Plant = AbstractContextManager[Any]


def revives_at_once() -> Plant:
    """Q1: a dead letter that did not move, and may be received again, is ready before it is due."""

    def spare(self: Leases, offsets: Iterable[int]) -> None:
        self.revive([offset for offset in offsets if offset in self.dead and self._may_live(offset)])

    return mock.patch.object(Leases, "spare", spare)


def spares_what_moves() -> Plant:
    """Q2: a letter that is moving is received again as soon as the configuration allows more receives."""
    real = Leases.configure

    def configure(self: Leases, receives_max: int, retry: RetryPolicy | None, _moving: Sequence[int]) -> None:
        real(self, receives_max, retry, ())

    return mock.patch.object(Leases, "configure", configure)


def counts_groups_that_left() -> Plant:
    """Q3: a group whose last message in flight is gone counts as one that has some."""
    real = GroupWindow.left_live

    def left_live(self: GroupWindow, gone: Iterable[tuple[bytes, int]]) -> None:
        before = self._with_back
        real(self, gone)
        self._with_back = before

    return mock.patch.object(GroupWindow, "left_live", left_live)


def expires_one_look_only() -> Plant:
    """Q4: a search for outlived messages ends with what one look let go of, unless groups are left to be looked at."""

    def pause_expiry(self: DeliveryContext, time_ms: int, window: Any, _found_some: bool) -> None:
        self.expiry_goes_on_ms = time_ms + EXPIRY_PAUSE_MS if getattr(window, "is_expiring", False) else 0

    return mock.patch.object(DeliveryContext, "pause_expiry", pause_expiry)


def leaves_blocks_apart() -> Plant:
    """Q5: an offset between two blocks of ranges does not make one range of what it joins."""
    real = OffsetRanges.take

    def take(self: OffsetRanges, offset: int) -> bool:
        at = bisect_right(self._lows, offset) - 1
        joins = 0 <= at < len(self._lows) - 1 and self._lows[at + 1] == offset + 1
        if not joins or offset in self:
            return real(self, offset)
        if self._ends[at][-1] == offset:
            self._ends[at][-1] = offset + 1
        else:
            self._insert(at, len(self._starts[at]), offset, offset + 1)
        return True

    return mock.patch.object(OffsetRanges, "take", take)


PLANTED: dict[str, Callable[[], Plant]] = {
    "Q1": revives_at_once,
    "Q2": spares_what_moves,
    "Q3": counts_groups_that_left,
    "Q4": expires_one_look_only,
    "Q5": leaves_blocks_apart,
}
