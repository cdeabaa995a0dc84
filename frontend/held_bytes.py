"""How many bytes this process holds of one kind, by who sent them.

No holder may have more than is still free for the others: one alone gets half, two get a third each.

    held_headers   of requests whose header is not whole, from the first read on; by address
    held_frames    of websockets, that are not whole yet, or that wait to be worked on; by account, or by address while
                   the key is not known
    held_bodies    of requests whose body comes in several reads, from the first read to the answer; by address
"""

from __future__ import annotations

from frontend.limits import BODIES_HELD_BYTES_MAX, FRAMES_HELD_BYTES_MAX, HEADERS_HELD_BYTES_MAX


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

    def is_over(self, holder: str) -> bool:
        """Whether the holder has more than its share."""
        return self._by_holder.get(holder, 0) > self._bytes_max - self.held_bytes


held_headers = HeldBytes(HEADERS_HELD_BYTES_MAX)
held_frames = HeldBytes(FRAMES_HELD_BYTES_MAX)
held_bodies = HeldBytes(BODIES_HELD_BYTES_MAX)
