"""Is this node's disk so slow that others should lead? Pure: told what was measured, says yes or no (F18).

Slow is a disk whose 99th percentile of group syncs since the last look is above SLOW_SYNC_US_MAX, or above
SLOW_SYNC_US_MIN and more than SLOW_SYNC_FACTOR times the median of its peers' over their last SLOW_WINDOW_LOOKS looks,
in SLOW_LOOKS_MIN looks in a row: one hiccup is none. It is slow no longer after SLOW_RECOVERY_LOOKS_MIN looks in a row
below half of that. And it never counts as slow where no peer is better: where all are slow, moving leaders would only
add work.

A sync that does not return is measured too: by how long it has been under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from storage_nodes.limits import (
    SLOW_LOOKS_MIN,
    SLOW_RECOVERY_LOOKS_MIN,
    SLOW_SYNC_FACTOR,
    SLOW_SYNC_US_MAX,
    SLOW_SYNC_US_MIN,
    SLOW_WINDOW_LOOKS,
)


class SyncTimes:
    """What the groups took that were written lately."""

    def __init__(self) -> None:
        self._looks: deque[list[float]] = deque(maxlen=SLOW_WINDOW_LOOKS)

    def look(self, seconds: list[float], under_way_s: float) -> tuple[int, int]:
        """99th percentiles in µs: of those that ended since the last look, of the last SLOW_WINDOW_LOOKS looks;
        0 = nothing to tell."""
        self._looks.append([*seconds, under_way_s] if under_way_s else seconds)
        return _p99_us(self._looks[-1]), _p99_us([second for look in self._looks for second in look])


def _p99_us(seconds: list[float]) -> int:
    ordered = sorted(seconds)
    return int(ordered[-1 - len(ordered) // 100] * 1_000_000) if ordered else 0


class SlowDisk:
    def __init__(self) -> None:
        self.slow = False
        self._against = 0  # looks in a row that speak against the present answer

    def look(self, own_us: int, peers_us: Sequence[int], better_peers: int) -> bool:
        """`peers_us` of those that are up and know theirs; `better_peers` could lead instead."""
        if not better_peers:
            self.slow, self._against = False, 0
            return False
        limit_us = SLOW_SYNC_US_MAX
        if peers_us:
            limit_us = min(limit_us, max(SLOW_SYNC_US_MIN, int(SLOW_SYNC_FACTOR * median(peers_us))))
        speaks_against = own_us <= limit_us // 2 if self.slow else own_us > limit_us
        self._against = self._against + 1 if speaks_against else 0
        if self._against >= (SLOW_RECOVERY_LOOKS_MIN if self.slow else SLOW_LOOKS_MIN):
            self.slow, self._against = not self.slow, 0
        return self.slow
