"""When an inbound connection that does not come to the point is cut."""

from __future__ import annotations

from storage_nodes.limits import FRAME_BYTES_PER_S_MIN, FRAME_MS_MAX, GREETING_MS_MAX, LOOK_COUNTS_MS_MAX


class ConnectionDeadline:
    """Told the time by its caller; pure. Time in which this node stood still does not count, for it read nothing:
    both times are moved on by that."""

    __slots__ = ("_frame_since_ms", "_frames", "_looked_ms", "_made_ms")

    def __init__(self) -> None:
        self._looked_ms = 0
        self._made_ms = 0
        self._frames = -1
        self._frame_since_ms = 0

    def look(self, now_ms: int) -> None:
        """To be called before the others: this is the time now."""
        lost_ms = now_ms - self._looked_ms - LOOK_COUNTS_MS_MAX
        if lost_ms > 0 and self._looked_ms:
            self._made_ms += lost_ms if self._made_ms else 0
            self._frame_since_ms += lost_ms if self._frame_since_ms else 0
        self._looked_ms = now_ms

    def greeting_is_over(self, now_ms: int) -> bool:
        self._made_ms = self._made_ms or now_ms
        return now_ms - self._made_ms >= GREETING_MS_MAX

    def frame_is_over(self, now_ms: int, frames: int, pending_bytes: int) -> bool:
        """`frames` came in so far, and so much of the next one. One that comes fast enough may take its time."""
        if not pending_bytes or frames != self._frames:
            self._frames = frames
            self._frame_since_ms = now_ms if pending_bytes else 0
            return False
        if not self._frame_since_ms:
            self._frame_since_ms = now_ms
        taken_ms = now_ms - self._frame_since_ms
        return taken_ms >= FRAME_MS_MAX and pending_bytes * 1000 < FRAME_BYTES_PER_S_MIN * taken_ms
