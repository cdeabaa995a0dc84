"""A settlement's files, and their merge into PostgreSQL: the one place where Spark's figures meet the billing.

`api.billing.settling` merges a run in one transaction, replacing what the hours had: a run that is repeated
after a crash at any point leaves the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
from django.db.models import Max

from api.billing.models import UsageRun, UsageRunState
from api.billing.pricing.periods import Interval
from api.billing.selectors import first_account_opened, settled_up_to
from api.billing.settling import SettledRun, begin_run, merge_days, note_run
from workers.spark_jobs.spans import HourSpan
from workers.usage.left_out import note_left_out

# As `workers.spark_jobs.lake.settlement_files` writes it; that needs Spark.
LISTED = "files.json"
_PIECE_BYTES = 1024 * 1024


class SettlementError(Exception):
    """The files are not a whole settlement."""


def begin_settlement(run: UUID, span: HourSpan) -> None:
    """Before the lake is read for it. Raises `api.billing.settling.SettlingError`."""
    begin_run(run, interval_of(span))


def merge_settlement(directory: Path, run: UUID, span: HourSpan, is_partial: bool = False) -> SettledRun:
    """`is_partial`: files of the lake could not be read. Raises SettlementError, or SettlingError."""
    return merge_days(run, interval_of(span), files_of(directory), is_partial)


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


def files_of(directory: Path) -> Iterator[Iterator[bytes]]:
    """The content of each file. Raises SettlementError for files that are not all there."""
    try:
        names = msgspec.json.decode((directory / LISTED).read_bytes(), type=list[str])
    except FileNotFoundError:
        raise SettlementError(f"{directory}: the job that wrote it did not end") from None
    for name in names:
        yield _pieces(directory / name)


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
    except OSError as error:
        raise SettlementError(f"{path}: {error}") from None


def time_of(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
