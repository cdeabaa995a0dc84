"""Empty values that idle queues share: a node has thousands of them, and an empty dict of its own weighs 64 bytes.

Whoever puts something into one makes one of his own first; forgetting that is a bug that ends in an assertion.
"""

from __future__ import annotations

from typing import Any, NoReturn

from storage_nodes.machines.queue.state.dedup import DedupWindow
from storage_nodes.machines.queue.state.offset_ranges import OffsetRanges
from storage_nodes.machines.queue.state.schedule import Schedule

_SHARED = "nothing is put into what thousands of queues share"


class _NoEntries(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise AssertionError(_SHARED)

    def update(self, *entries: Any, **more: Any) -> NoReturn:
        raise AssertionError(_SHARED)

    def setdefault(self, key: Any, default: Any = None) -> NoReturn:
        raise AssertionError(_SHARED)


class _NoOffsets(OffsetRanges):
    __slots__ = ()

    def add(self, first: int, end: int) -> NoReturn:
        raise AssertionError(_SHARED)

    def take(self, offset: int) -> NoReturn:
        raise AssertionError(_SHARED)


class _NoSchedule(Schedule):
    __slots__ = ()

    def add(self, offset: int, due_ms: int) -> NoReturn:
        raise AssertionError(_SHARED)


class _NoIds(DedupWindow):
    __slots__ = ()

    def begin(self, base_offset: int, time_ms: int) -> NoReturn:
        raise AssertionError(_SHARED)


EMPTY_ENTRIES: dict[int, Any] = _NoEntries()
EMPTY_OFFSETS: OffsetRanges = _NoOffsets()
EMPTY_SCHEDULE: Schedule = _NoSchedule()
EMPTY_IDS: DedupWindow = _NoIds(0)
