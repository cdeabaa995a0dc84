"""How the server ends a subscription: a code, and a reason in words behind it. `docs/refusals.md` has the table."""

from __future__ import annotations

from frontend.limits import SOCKET_CLOSE_REASON_BYTES_MAX
from frontend.rest.problems import in_members

CLOSE_GOING_AWAY = 1001
CLOSE_INTERNAL = 1011
CLOSE_RESTART = 1012
CLOSE_TRY_LATER = 1013
CLOSE_BAD_FRAME = 4400
CLOSE_UNAUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_QUEUE_GONE = 4404
CLOSE_LATE = 4408
CLOSE_OVER_LIMIT = 4429

# With these the connection asks the application to end the socket: its client is still there.
ASKED_TO_END = frozenset((CLOSE_RESTART, CLOSE_TRY_LATER, CLOSE_LATE, CLOSE_OVER_LIMIT))

STOPPING = "The front end is about to stop. Connect again."

_OF_STATUS = {
    401: CLOSE_UNAUTHENTICATED,
    403: CLOSE_FORBIDDEN,
    404: CLOSE_QUEUE_GONE,
    429: CLOSE_OVER_LIMIT,
    503: CLOSE_TRY_LATER,
}


def close_code_of(rest_status: int) -> int:
    """Of a subscription that an error with this status ends."""
    return _OF_STATUS.get(rest_status, CLOSE_GOING_AWAY)


def close_reason(text: str) -> str:
    """What fits into a close frame, cut between characters."""
    return in_members(text).encode(errors="replace")[:SOCKET_CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
