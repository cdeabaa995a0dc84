"""A settlement's files as rows, and their merge into PostgreSQL: the one place where Spark's figures meet the billing.

`api.billing.settling` merges a run in one transaction, replacing what the hours had: a run that is repeated
after a crash at any point leaves the same rows.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from django.db.models import Max

from api.billing.models import UsageRun, UsageRunState
from api.billing.pricing.periods import Interval
from api.billing.selectors import first_account_opened, settled_up_to
from api.billing.settling import SettledRun, UsageRow, begin_run, merge_run, note_run
from workers.spark_jobs.spans import HourSpan
from workers.usage.left_out import note_left_out


class SettlementError(Exception):
    """The files are not a whole settlement."""


def begin_settlement(run: UUID, span: HourSpan) -> None:
    """Before the lake is read for it. Raises `api.billing.settling.SettlingError`."""
    begin_run(run, interval_of(span))


def merge_settlement(directory: Path, run: UUID, span: HourSpan, is_partial: bool = False) -> SettledRun:
    """`is_partial`: files of the lake could not be read. Raises SettlementError, or SettlingError."""
    return merge_run(run, interval_of(span), rows_of(directory), recount=True, is_partial=is_partial)


def note_settlement(run: UUID, note: str, is_lost: bool) -> None:
    """What was left out; or why it was not merged (`is_lost`)."""
    note_run(run, note, UsageRunState.FAILED if is_lost else None)


def last_merged_at() -> datetime | None:
    found: datetime | None = UsageRun.objects.filter(state=UsageRunState.DONE).aggregate(at=Max("ended_at"))["at"]
    return found


class DatabaseSettlements:
    """`workers.usage.rounds.Settlements`."""

    begin = staticmethod(begin_settlement)
    merge = staticmethod(merge_settlement)
    note = staticmethod(note_settlement)
    settled_up_to = staticmethod(settled_up_to)
    last_merged_at = staticmethod(last_merged_at)
    first_hour = staticmethod(first_account_opened)
    note_left_out = staticmethod(note_left_out)


def interval_of(span: HourSpan) -> Interval:
    return Interval(time_of(span.from_ms), time_of(span.to_ms))


def rows_of(directory: Path) -> Iterator[UsageRow]:
    """Raises SettlementError for files that are not all there, or a line that is none."""
    if not (directory / "_SUCCESS").exists():
        raise SettlementError(f"{directory}: the job that wrote it did not end")
    for path in sorted(directory.glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            for line in csv.reader(lines):
                yield _row(line, path)


def time_of(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _row(line: list[str], path: Path) -> UsageRow:
    try:
        account_id, hour_ms, queue_uuid, partition_id, origin, *counters = line
        figures = [int(counter) for counter in counters]
        return UsageRow(account_id, time_of(int(hour_ms)), UUID(queue_uuid), int(partition_id), origin, *_all(figures))
    except ValueError as error:
        raise SettlementError(f"{path}: {line!r}: {error}") from None


def _all(figures: list[int]) -> list[int]:
    expected = len(UsageRow._fields) - 5
    if len(figures) != expected:
        raise ValueError(f"{len(figures)} counters and not {expected}")
    return figures
