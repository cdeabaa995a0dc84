"""Cron expressions in a time zone: when is the next tick? Pure.

Five fields (minute, hour, day of the month, month, day of the week) or six, with the seconds in front. As in cron, a
day matches when either of the two day fields does, if both are restricted. `croniter` knows the fields; it is asked
about local times without a zone, and what clocks do is decided here, between two changes of the offset at a time:

    a clock goes forward   a time that does not exist comes at the moment of the change, once: 02:30 daily comes at
                           03:00 on that day. Not so for expressions whose hour is `*` (or `*/n`): they go on after it
    a clock goes back      a time that comes twice counts the first time only. Expressions whose hour is `*` (or `*/n`)
                           come in both hours

So a schedule "daily at" comes once a day, every day, and one "every ten minutes" comes every ten minutes. The zone's
rules are those of the tz database as installed at the moment of asking; a tick is computed when the one before it was.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

from api import limits

_FIELD = re.compile(r"[0-9A-Z*,/#?-]+", re.ASCII)
_WORD = re.compile(r"[A-Z]+")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WORDS = frozenset((*_MONTHS, "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "L"))
_RANGES = (
    "the fields are minute (0-59), hour (0-23), day of the month (1-31), month (1-12), day of the week (0-7); "
    "of six the first is the second (0-59)"
)
_SECOND = timedelta(seconds=1)
# No zone changes its offset twice within it.
_STRIDE = timedelta(days=7)


# In the tz database, too: the zone of whatever machine reads it, and that of a machine nobody has set up.
_NO_PLACES = frozenset(("Factory", "localtime"))


class CronError(ValueError):
    """Why this is no schedule, in a sentence for who asked."""


def check_cron(text: str) -> str:
    """The expression in its normal form. Raises CronError."""
    fields = text.upper().split()
    if len(text) > limits.CRON_CHARACTERS_MAX or len(fields) not in (5, 6):
        raise CronError("A cron expression has five fields, or six with the seconds in front.")
    for field in fields:
        if _FIELD.fullmatch(field) is None or not _WORDS.issuperset(_WORD.findall(field)):
            raise CronError(f"The field {field[:20]} of the cron expression is not understood.")
    normal = " ".join(fields)
    try:
        _matcher(normal, datetime(2024, 1, 1))
    except (CroniterBadCronError, ValueError, KeyError, IndexError):
        raise CronError(f"The cron expression is not understood: {_RANGES}.") from None
    return normal


def check_zone(name: str) -> str:
    """Raises CronError."""
    if name in _NO_PLACES or name not in available_timezones():
        raise CronError("The time zone must be one of the tz database, for example Europe/Paris.")
    return name


def next_tick(cron: str, zone_name: str, after: datetime) -> datetime:
    """The first tick later than `after`, in UTC. Raises CronError where none comes within some years."""
    zone = ZoneInfo(zone_name)
    hourly = cron.split()[-4].startswith("*")
    start = after.astimezone(UTC).replace(microsecond=0)
    latest = start + timedelta(days=366 * limits.CRON_YEARS_MAX)
    # All times from here on are without a zone: `local` is what clocks show, less its offset it is UTC.
    offset = _offset(zone, start)
    local = _naive(start) + offset
    while True:
        try:
            candidate = _matcher(cron, local).get_next(datetime)
        except CroniterBadDateError:
            raise CronError("The cron expression names no time that comes.") from None
        tick = (candidate - offset).replace(tzinfo=UTC)
        if tick > latest:
            raise CronError("The cron expression names no time that comes.")
        change = _change_of_offset(zone, (local - offset).replace(tzinfo=UTC), tick, offset)
        if change is None:
            if hourly or not tick.astimezone(zone).fold:
                return tick
            local = candidate  # it was here an hour ago
            continue
        new_offset = _offset(zone, change)
        if candidate < _naive(change) + new_offset and not hourly:
            return change  # a time that does not exist
        # On, from just before the first moment of the new offset.
        local, offset = _naive(change) + new_offset - _SECOND, new_offset


def _matcher(cron: str, start: datetime) -> croniter:
    return croniter(cron, start, second_at_beginning=True, max_years_between_matches=limits.CRON_YEARS_MAX)


def _change_of_offset(zone: ZoneInfo, start: datetime, end: datetime, offset: timedelta) -> datetime | None:
    """The first second in (start, end] at which the offset is another one."""
    low = start
    while low < end:
        high = min(low + _STRIDE, end)
        if _offset(zone, high) != offset:
            while high - low > _SECOND:
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            return high
        low = high
    return None


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _naive(at: datetime) -> datetime:
    return at.replace(tzinfo=None)
