"""Whether what a client sends, a body or a frame, arrives too slowly to be waited for. Pure."""

from __future__ import annotations

from frontend.limits import BODY_BYTES_PER_S_MIN, BODY_GRACE_S, REQUEST_READ_S_MAX


def lateness(what: str, age_s: float, arrived_bytes: int) -> str:
    """The reason in words; empty while there is none."""
    if age_s >= REQUEST_READ_S_MAX:
        return f"no whole {what} within {REQUEST_READ_S_MAX:g} s"
    if age_s >= BODY_GRACE_S and arrived_bytes < BODY_BYTES_PER_S_MIN * age_s:
        return f"{arrived_bytes} bytes in {age_s:.0f} s"
    return ""
