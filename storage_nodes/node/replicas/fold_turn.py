"""How much the replicas of a node fold in one turn of its event loop: a bound that all of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from storage_nodes.limits import FOLD_TURN_BYTES


class FoldTurn:
    """Of one node."""

    __slots__ = ("_folded_bytes", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._folded_bytes = 0

    @property
    def is_over(self) -> bool:
        return self._folded_bytes >= FOLD_TURN_BYTES

    def folded(self, size_bytes: int) -> None:
        if not self._folded_bytes:
            self._loop.call_soon(self._begin)
        self._folded_bytes += size_bytes

    def when_next(self, call: Callable[..., None], *args: Any) -> None:
        """Called in the next turn, in the order in which they ask."""
        self._loop.call_soon(call, *args)

    def _begin(self) -> None:
        self._folded_bytes = 0
