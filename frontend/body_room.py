"""Room for request bodies that come in several reads, or are large: each gets room for all of its bytes, or waits.

An address over its share waits, and is read no further: the first bytes of a body are here, the rest is with the
client. A body that has its room needs nothing from one that waits, so it always comes to its end.

    place    the bytes of one body, as its Content-Length says (REQUEST_BODY_BYTES_MAX where nothing says it), from its
             second read to its answer; of one that came in one read from there on
    waiter   a body without a place; it counts as BODY_WAITING_BYTES until it has one or is refused
"""

from __future__ import annotations

from frontend.limits import BODIES_HELD_BYTES_MAX, BODIES_WAITING_BYTES_MAX, BODY_WAIT_S_MAX, BODY_WAITING_BYTES
from frontend.shared_room import SharedRoom


def make_body_room(held_bytes_max: int, waiting_bytes_max: int) -> SharedRoom:
    """Each holder has its share of what is held and of what waits, for BODY_WAIT_S_MAX at most."""
    return SharedRoom(held_bytes_max, waiting_bytes_max, BODY_WAITING_BYTES, BODY_WAIT_S_MAX)


body_room = make_body_room(BODIES_HELD_BYTES_MAX, BODIES_WAITING_BYTES_MAX)
