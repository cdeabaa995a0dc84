"""What a node remembers of a peer's comings and goings, in words for operators: since when it is up or down, and how it
went down. Decides nothing.
"""

from __future__ import annotations

from collections import deque

from storage_nodes.limits import PEER_TIMEOUT_MS, RETIRE_MS_MAX

# How many times it went down; older ones are not told any more.
DOWNS_KNOWN_MAX = 16

SILENT = f"went silent for {PEER_TIMEOUT_MS} ms"
NO_PROCESS = "has no process (its port refuses connections)"
RESTARTED = "was restarted"
STOPPED = "was stopped"


class PeerHistory:
    """Times are monotonic ms of this node; `since_ms` is 0 where the peer has not been up since this node started."""

    __slots__ = ("_downs", "_expected", "_retiring_ms", "since_ms")

    def __init__(self) -> None:
        self.since_ms = 0
        self._downs: deque[tuple[int, str]] = deque(maxlen=DOWNS_KNOWN_MAX)
        self._expected = SILENT
        self._retiring_ms = 0

    def expect(self, why: str) -> None:
        """Should it be down now, then for this reason."""
        if self._expected is SILENT:
            self._expected = why

    def retiring(self, now_ms: int) -> None:
        """It says that it is about to stop."""
        self._retiring_ms = now_ms
        self._expected = STOPPED

    def changed(self, up: bool, now_ms: int) -> str:
        """It is up, or down: then in what way."""
        self.since_ms = now_ms
        why, self._expected = self._expected, SILENT
        if up:
            return ""
        self._downs.append((now_ms, why))
        return why

    def is_stopping(self, at_ms: int) -> bool:
        """Had it, by `at_ms`, just said that it is about to stop?"""
        return bool(self._retiring_ms) and 0 <= at_ms - self._retiring_ms <= 2 * RETIRE_MS_MAX

    def down_reason(self, at_ms: int) -> str:
        """How it went down last, as of `at_ms`; empty where that is not known any more."""
        for down_ms, why in reversed(self._downs):
            if down_ms <= at_ms:
                return why
        return ""
