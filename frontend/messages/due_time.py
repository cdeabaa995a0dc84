"""When a message is to be delivered: two message attributes of ours, so that any SQS client can send them. Pure.

    Penstock.DeliverAt      String   a time with its zone, ISO 8601: 2027-03-01T09:00:00+01:00
                            Number   milliseconds since the epoch
    Penstock.DelaySeconds   Number   seconds from now, up to a year; up to three decimals

They stay attributes of the message, so its receiver sees them, and what moves it later leaves them alone: only a send
reads them. REST has numbers of milliseconds instead, which are written into the same attributes. In the record a due
time is HEADER_DUE, absolute or counted from the append.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from frontend.crypto.envelope import Attributes
from frontend.errors import RequestError, invalid
from storage_nodes.limits import SCHEDULE_MS_MAX
from storage_nodes.protocol.records import HEADER_DELAY_MS, HEADER_DUE

DELIVER_AT = "Penstock.DeliverAt"
DELAY_SECONDS = "Penstock.DelaySeconds"

_EPOCH_MS = re.compile(r"[0-9]{1,15}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,8}(\.[0-9]{1,3})?", re.ASCII)
_TIME_CHARS_MAX = 64
# What these two expressions let through.
_EPOCH_MS_MAX = 10**15 - 1
_DELAY_MS_MAX = 10**11 - 1

Headers = tuple[tuple[bytes, bytes], ...]


class DueTime(NamedTuple):
    """Milliseconds since the epoch or, where `is_delay`, from the append of the message."""

    ms: int
    is_delay: bool

    @property
    def header(self) -> bytes:
        """The content of HEADER_DUE."""
        return b"+%d" % self.ms if self.is_delay else b"%d" % self.ms


def read_due_time(attributes: Attributes) -> DueTime | None:
    """What the attributes of a message say; None where nothing. Raises RequestError."""
    at, delay = attributes.get(DELIVER_AT), attributes.get(DELAY_SECONDS)
    if at is None and delay is None:
        return None
    if at is not None and delay is not None:
        raise invalid(f"Either {DELIVER_AT} or {DELAY_SECONDS} may be given, not both.")
    if at is not None:
        return DueTime(_time_ms(*at), False)
    assert delay is not None
    return DueTime(_delay_ms(*delay), True)


def due_time_of(deliver_at_ms: int | None, delay_ms: int | None, attributes: Attributes) -> DueTime | None:
    """What numbers given beside the attributes say, else the attributes; those of the numbers are among them already.
    Raises RequestError."""
    if deliver_at_ms is not None and delay_ms is not None:
        raise invalid("Either deliver_at_ms or delay_ms may be given, not both.")
    if (deliver_at_ms is None and delay_ms is None) or (DELIVER_AT in attributes and DELAY_SECONDS in attributes):
        return read_due_time(attributes)
    if delay_ms is None:
        assert deliver_at_ms is not None
        if not 0 <= deliver_at_ms <= _EPOCH_MS_MAX:
            raise invalid("deliver_at_ms must be a number of milliseconds since the epoch.")
        return DueTime(deliver_at_ms, False)
    if not 0 <= delay_ms <= _DELAY_MS_MAX:
        raise invalid("delay_ms must be a number of milliseconds, not negative.")
    return DueTime(delay_ms, True)


def time_attributes(deliver_at_ms: int | None, delay_ms: int | None) -> Attributes:
    """The attributes that say the same as the numbers."""
    attributes: Attributes = {}
    if deliver_at_ms is not None:
        attributes[DELIVER_AT] = ("Number", b"%d" % deliver_at_ms)
    if delay_ms is not None:
        attributes[DELAY_SECONDS] = ("Number", b"%d.%03d" % divmod(delay_ms, 1000))
    return attributes


def check_due_time(due: DueTime, now_s: float) -> None:
    """Raises RequestError for a time that is more than a year ahead. One that has passed is due at once."""
    ahead_ms = due.ms if due.is_delay else due.ms - int(now_s * 1000)
    if ahead_ms > SCHEDULE_MS_MAX:
        raise _too_far()


def check_due_ms(deliver_at_ms: int | None, delay_ms: int | None, now_s: float) -> int:
    """A time as REST gives it, in ms since the epoch: exactly one of the two. Raises RequestError."""
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


def with_due_time(headers: Headers, due: DueTime) -> Headers:
    """A due time takes the place of the queue's delay."""
    return (*(header for header in headers if header[0] != HEADER_DELAY_MS), (HEADER_DUE, due.header))


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
    raise _bad_time()


def _delay_ms(data_type: str, value: bytes) -> int:
    text = value.decode("utf-8", "replace")
    if data_type != "Number" or _SECONDS.fullmatch(text) is None:
        raise _bad_delay()
    return int(Decimal(text) * 1000)


def _bad_time() -> RequestError:
    return invalid(
        f"The message attribute '{DELIVER_AT}' must be a String with an ISO 8601 time and its zone "
        "(2027-03-01T09:00:00+01:00), or a Number of milliseconds since the epoch."
    )


def _bad_delay() -> RequestError:
    return invalid(f"The message attribute '{DELAY_SECONDS}' must be a Number of seconds, with up to three decimals.")


def _too_far() -> RequestError:
    days = SCHEDULE_MS_MAX // 86_400_000
    return invalid(f"A message can be scheduled at most {days} days ahead.")
