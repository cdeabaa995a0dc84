"""A settlement's files as rows, and their merge into PostgreSQL: the one place where Spark's figures meet the billing.

`api.billing.settling.settle` merges a run in one transaction, replacing what the hours had: a run that is repeated
after a crash at any point leaves the same rows.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from api.billing.pricing.periods import Interval
from api.billing.settling import SettledRun, UsageRow, settle
from workers.spark_jobs.spans import HourSpan


class SettlementError(Exception):
    """The files are not a whole settlement."""


def merge_settlement(directory: Path, run: UUID, span: HourSpan) -> SettledRun:
    """Raises SettlementError, or `api.billing.settling.SettlingError`."""
    return settle(run, Interval(time_of(span.from_ms), time_of(span.to_ms)), rows_of(directory), recount=True)


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
