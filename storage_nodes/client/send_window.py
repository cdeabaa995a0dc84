"""How much of the sends to one partition is under way at a time; what is beyond waits here, in order.

A leader refuses sends while too much waits for a majority. A client that had all of a burst under way would carry each
refused byte to it again with every attempt: after a stall the network would be full of what is refused, and nothing
would get through. So a client keeps no more under way than a leader takes from several of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from storage_nodes.limits import SENDS_UNDER_WAY_BYTES_MAX


class SendWindow:
    """Of one partition, in one client. `go` tells whether the send still wants to be made."""

    __slots__ = ("_admitting", "_bytes", "_waiting")

    def __init__(self) -> None:
        self._bytes = 0
        self._admitting = False
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._bytes and not self._waiting

    def enter(self, size_bytes: int, go: Callable[[], bool]) -> None:
        """Call `go` when there is room: at once, or once others have left. One send always has room."""
        if self._waiting or self._admitting or (self._bytes and self._bytes + size_bytes > SENDS_UNDER_WAY_BYTES_MAX):
            self._waiting.append((size_bytes, go))
            self._admit()
            return
        self._bytes += size_bytes
        if not go():
            self.leave(size_bytes)

    def leave(self, size_bytes: int) -> None:
        """A send for which `go` was called, and answered True, is over."""
        self._bytes -= size_bytes
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        if self._admitting:
            return  # a send was over at once: the loop below goes on
        self._admitting = True
        waiting = self._waiting
        try:
            while waiting and (not self._bytes or self._bytes + waiting[0][0] <= SENDS_UNDER_WAY_BYTES_MAX):
                size_bytes, go = waiting.popleft()
                self._bytes += size_bytes
                if not go():
                    self._bytes -= size_bytes
        finally:
            self._admitting = False
