"""The clock of a node: monotonic for leases and elections, wall time anchored to it for record stamps.

Wall time is read once at start and then follows the monotonic clock, so a step of the system clock (F19) moves neither
leases nor record times of a running node.
"""

from __future__ import annotations

import time


class NodeClock:
    """Milliseconds, both ways."""

    def __init__(self) -> None:
        self._wall_offset_ms = int(time.time() * 1000) - self.mono_ms()

    def mono_ms(self) -> int:
        """Monotonic milliseconds; meaningful only as differences within this process."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch that never fall and never jump."""
        return time.monotonic_ns() // 1_000_000 + self._wall_offset_ms

    def wall_to_mono(self, wall_ms: int) -> int:
        """When `wall_ms` will be, on the monotonic clock."""
        return wall_ms - self._wall_offset_ms
