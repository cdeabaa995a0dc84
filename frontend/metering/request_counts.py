"""Requests, empty receives, throttled and failed requests of each account, queue and key in an hour: counted here, told
by `usage_reports.py`.

Figures are those of the hour so far, so what is told twice is the same record, and the greatest counts. Bounded: where
there is no room for a queue or key more, its requests count for the account alone, and where there is none for that
either, they are left out (`request_counts_dropped`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from frontend.limits import REQUEST_HOURS_HELD_MAX, REQUEST_ROWS_MAX

HOUR_MS = 3_600_000
NO_QUEUE = bytes(16)
NO_KEY = ""
# (account, queue, access key)
RowKey = tuple[str, bytes, str]
REQUESTS, EMPTY_RECEIVES, THROTTLED, ERRORS, CHANGED = range(5)
Counters = tuple[int, int, int, int]


class CountedRow(NamedTuple):
    """`counters`: requests, empty receives, throttled ones, those that failed or were refused for another reason."""

    key: RowKey
    counters: Counters


class CountedHour:
    """The rows of an hour: four counters each, and whether they changed since they were told."""

    __slots__ = ("hour_ms", "rows")

    def __init__(self, hour_ms: int) -> None:
        self.hour_ms = hour_ms
        self.rows: dict[RowKey, list[int]] = {}

    def untold(self) -> list[CountedRow]:
        return [CountedRow(key, (row[0], row[1], row[2], row[3])) for key, row in self.rows.items() if row[CHANGED]]

    def note_told(self, rows: Sequence[CountedRow]) -> None:
        for key, told in rows:
            row = self.rows[key]
            row[CHANGED] = (row[0], row[1], row[2], row[3]) != told


class RequestCounts:
    """Of one front end. Only the thread of the event loop writes."""

    def __init__(self, now_ms: int, count_dropped: Callable[[int], None] = lambda amount: None) -> None:
        self._hour = CountedHour(now_ms // HOUR_MS * HOUR_MS)
        self._past: list[CountedHour] = []
        self._count_dropped = count_dropped

    def count(self, account_id: str, queue_uuid: bytes, access_key_id: str, counter: int = REQUESTS) -> None:
        """One more."""
        key = (account_id, queue_uuid, access_key_id)
        row = self._hour.rows.get(key) or self._row(key)
        if row is not None:
            row[counter] += 1
            row[CHANGED] = 1

    def roll(self, now_ms: int) -> None:
        """Begins the hour of this moment, where another one was counted."""
        hour_ms = now_ms // HOUR_MS * HOUR_MS
        if hour_ms <= self._hour.hour_ms:
            return
        self._past.append(self._hour)
        self._hour = CountedHour(hour_ms)
        for lost in self._past[:-REQUEST_HOURS_HELD_MAX]:
            self._count_dropped(sum(row.counters[REQUESTS] for row in lost.untold()))
        del self._past[:-REQUEST_HOURS_HELD_MAX]

    def hours(self) -> list[CountedHour]:
        """The hours with rows that may not have been told, the oldest first."""
        self._past = [hour for hour in self._past if hour.untold()]
        return [*self._past, self._hour]

    def _row(self, key: RowKey) -> list[int] | None:
        rows = self._hour.rows
        if len(rows) >= REQUEST_ROWS_MAX:
            key = (key[0], NO_QUEUE, NO_KEY)
            if key not in rows and len(rows) >= 2 * REQUEST_ROWS_MAX:
                self._count_dropped(1)
                return None
        return rows.setdefault(key, [0, 0, 0, 0, 0])
