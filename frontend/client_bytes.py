"""What clients send is bounded twice: in the bytes that this process holds of one kind, by who sent them, and in the
time for which a body or a frame may arrive (`lateness`).

No holder may have more than is still free for the others: one alone gets half, two get a third each.

    held_headers   of requests whose header is not whole, from the first read on; by address
    held_frames    of websockets, that are not whole yet, or that wait to be worked on; by account, or by address while
                   the key is not known
    body_room      of request bodies, by address (frontend/body_room.py)

`frontend/shared_room.py` lets wait who does not fit; calls share the control plane by it, too.
"""

from __future__ import annotations

from frontend.limits import (
    BODY_BYTES_PER_S_MIN,
    BODY_GRACE_S,
    FRAMES_HELD_BYTES_MAX,
    HEADERS_HELD_BYTES_MAX,
    REQUEST_READ_S_MAX,
)


class HeldBytes:
    """`held_bytes`: of all holders."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_holder: dict[str, int] = {}
        self.held_bytes = 0

    def change(self, holder: str, by_bytes: int) -> None:
        self.held_bytes += by_bytes
        left = self._by_holder.get(holder, 0) + by_bytes
        if left:
            self._by_holder[holder] = left
        else:
            self._by_holder.pop(holder, None)

    def held_by(self, holder: str) -> int:
        return self._by_holder.get(holder, 0)

    def is_over(self, holder: str) -> bool:
        """Whether the holder has more than its share."""
        return not self.fits(holder, 0)

    def fits(self, holder: str, count_bytes: int) -> bool:
        """Whether so many bytes more are within the holder's share."""
        return self._by_holder.get(holder, 0) + self.held_bytes + 2 * count_bytes <= self._bytes_max


held_headers = HeldBytes(HEADERS_HELD_BYTES_MAX)
held_frames = HeldBytes(FRAMES_HELD_BYTES_MAX)


def lateness(what: str, age_s: float, arrived_bytes: int) -> str:
    """The reason in words; empty while there is none."""
    if age_s >= REQUEST_READ_S_MAX:
        return f"no whole {what} within {REQUEST_READ_S_MAX:g} s"
    if age_s >= BODY_GRACE_S and arrived_bytes < BODY_BYTES_PER_S_MIN * age_s:
        return f"{arrived_bytes} bytes in {age_s:.0f} s"
    return ""
