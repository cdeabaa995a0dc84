"""When a message is to be delivered: two message attributes of ours, so that any SQS client can send them. Pure.

    Penstock.DeliverAt      String   a time with its zone, ISO 8601: 2027-03-01T09:00:00+01:00
                            Number   milliseconds since the epoch
    Penstock.DelaySeconds   Number   seconds from now, up to a year; up to three decimals

They stay attributes of the message, so its receiver sees them, and what moves it later leaves them alone: only a send
reads them. In the record a due time is HEADER_DUE, absolute or counted from the append.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal

from frontend.crypto.envelope import Attributes
from frontend.errors import Refusal, invalid
from storage_nodes.limits import SCHEDULE_MS_MAX
from storage_nodes.protocol.records import HEADER_DELAY_MS, HEADER_DUE

DELIVER_AT = "Penstock.DeliverAt"
DELAY_SECONDS = "Penstock.DelaySeconds"

_EPOCH_MS = re.compile(r"[0-9]{1,15}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,8}(\.[0-9]{1,3})?", re.ASCII)
_TIME_CHARS_MAX = 64

Headers = tuple[tuple[bytes, bytes], ...]


def read_due(attributes: Attributes) -> bytes:
    """What the attributes of a message say of its due time, as HEADER_DUE holds it; empty where nothing. Raises
    Refusal."""
    at, delay = attributes.get(DELIVER_AT), attributes.get(DELAY_SECONDS)
    if at is None and delay is None:
        return b""
    if at is not None and delay is not None:
        raise invalid(f"Either {DELIVER_AT} or {DELAY_SECONDS} may be given, not both.")
    if at is not None:
        return b"%d" % _time_ms(*at)
    assert delay is not None
    return b"+%d" % _delay_ms(*delay)


def check_due(due: bytes, now_s: float) -> None:
    """Raises Refusal for a time that is more than a year ahead. One that has passed is due at once."""
    ahead_ms = int(due) if due.startswith(b"+") else int(due) - int(now_s * 1000)
    if ahead_ms > SCHEDULE_MS_MAX:
        raise _too_far()


def check_due_ms(deliver_at_ms: int | None, delay_ms: int | None, now_s: float) -> int:
    """A time as REST gives it, in ms since the epoch: exactly one of the two. Raises Refusal."""
    if (deliver_at_ms is None) == (delay_ms is None):
        raise invalid("Either deliver_at_ms or delay_ms must be given.")
    now_ms = int(now_s * 1000)
    due_ms = deliver_at_ms if delay_ms is None else now_ms + delay_ms
    assert due_ms is not None
    if due_ms < 1 or (delay_ms is not None and delay_ms < 0):
        raise invalid("A delivery time must not be negative.")
    if due_ms > now_ms + SCHEDULE_MS_MAX:
        raise _too_far()
    return due_ms


def with_due(headers: Headers, due: bytes) -> Headers:
    """A due time takes the place of the queue's delay."""
    return (*(header for header in headers if header[0] != HEADER_DELAY_MS), (HEADER_DUE, due))


def _time_ms(data_type: str, value: bytes) -> int:
    text = value.decode("utf-8", "replace")
    if data_type == "Number" and _EPOCH_MS.fullmatch(text):
        return int(text)
    if data_type == "String" and len(text) <= _TIME_CHARS_MAX:
        try:
            at = datetime.fromisoformat(text)
            if at.tzinfo is not None:
                return max(0, round(at.timestamp() * 1000))
        except (ValueError, OverflowError):
            pass
    raise invalid(
        f"The message attribute '{DELIVER_AT}' must be a String with an ISO 8601 time and its zone "
        "(2027-03-01T09:00:00+01:00), or a Number of milliseconds since the epoch."
    )


def _delay_ms(data_type: str, value: bytes) -> int:
    text = value.decode("utf-8", "replace")
    if data_type != "Number" or _SECONDS.fullmatch(text) is None:
        raise invalid(
            f"The message attribute '{DELAY_SECONDS}' must be a Number of seconds, with up to three decimals."
        )
    return int(Decimal(text) * 1000)


def _too_far() -> Refusal:
    days = SCHEDULE_MS_MAX // 86_400_000
    return invalid(f"A message can be scheduled at most {days} days ahead.")
