"""How rollups come in: one run, one transaction, by COPY to staging tables and a merge (`merging.py`).

A run has an id, the hours that it settles, and rows of hours or of days. Rows replace what their keys had: the same run
twice, or two runs over the same hours, leave the same rows. `begin_run` notes the hours as started in the fill ledger,
`merge_run` and `merge_days` merge and note them as done, together: after a crash in between the hours are still to be
done, and nothing of them is there. A row of an hour that other runs have done is late, and merged as well.

With `recount` the rows are all that there is for the hours: what is there beside them goes. Where part of what was
counted could not be read (`is_partial`) nothing goes, and no figure becomes smaller.

The run that began an hour last is the one that may merge it: one that began before and comes later, because its worker
stood still, is refused. So what counts a run's rows must begin after `begin_run`.

A row that cannot be billed is quarantined with its reason, and the others are merged. A record that is quarantined
again is the same row; it is resolved when a good row of its key comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from api import clock
from api.billing import limits, merging
from api.billing.merging import Merged, MergeOptions
from api.billing.models import FillLedger, UsageRun, UsageRunState
from api.billing.pricing.meters import COUNTER_NAMES
from api.billing.pricing.periods import HOUR, Interval, floor_hour

ALL_PARTITIONS = 0
OF_FRONT_ENDS = -1


class UsageRow(NamedTuple):
    """As HourlyUsage. Counters are those of the whole hour."""

    account_id: str
    hour: datetime
    queue_uuid: UUID
    partition_id: int
    origin: str
    messages_sent: int = 0
    messages_delivered: int = 0
    messages_deleted: int = 0
    messages_moved: int = 0
    messages_dead_lettered: int = 0
    messages_scheduled: int = 0
    sent_bytes: int = 0
    delivered_bytes: int = 0
    sent_units: int = 0
    delivered_units: int = 0
    stored_byte_ms: int = 0
    requests: int = 0
    empty_receives: int = 0


assert UsageRow._fields == (*merging.HOUR_KEY, *COUNTER_NAMES)


class SettledRun(NamedTuple):
    """`merged` counts rows that are new or changed, `removed` those that a recount took away."""

    merged: int
    removed: int
    quarantined: int


class SettlingError(Exception):
    """The run's hours make no sense; the text says why."""


class RunOvertaken(SettlingError):
    """Another run has begun hours of this one since: its figures are later ones."""


def settle(run: UUID, hours: Interval, rows: Iterable[UsageRow], recount: bool = False) -> SettledRun:
    """All of a run. Safe to call again, with the same run or another. Raises SettlingError, and what `rows` raise."""
    begin_run(run, hours)
    try:
        return merge_run(run, hours, rows, recount)
    except Exception as error:
        note_run(run, str(error), UsageRunState.FAILED)
        raise


@transaction.atomic
def begin_run(run: UUID, hours: Interval) -> None:
    """Hours that are done stay done while they are counted again. Raises SettlingError."""
    now = clock.now()
    for end in hours:
        if floor_hour(end) != end:
            raise SettlingError(f"{end} is no whole hour")
    if not 0 < hours.hours <= limits.HOURS_PER_RUN_MAX:
        raise SettlingError(f"a run settles 1 to {limits.HOURS_PER_RUN_MAX} hours")
    if hours.end > now:
        raise SettlingError(f"the hour before {hours.end} has not ended")
    rows = [FillLedger(hour=hour, run=run, state="started", started_at=now) for hour in _each(hours)]
    FillLedger.objects.bulk_create(rows, ignore_conflicts=True)
    FillLedger.objects.filter(hour__gte=hours.start, hour__lt=hours.end).update(run=run, started_at=now)
    overlapping = UsageRun.objects.filter(hour_from__lt=hours.end, hour_to__gt=hours.start).exclude(pk=run)
    overlapping.filter(state=UsageRunState.STARTED).update(state=UsageRunState.OVERTAKEN, ended_at=now)
    begun = {"hour_from": hours.start, "hour_to": hours.end, "state": UsageRunState.STARTED, "started_at": now}
    UsageRun.objects.update_or_create(pk=run, defaults=begun)


def merge_run(
    run: UUID, hours: Interval, rows: Iterable[UsageRow], recount: bool = False, is_partial: bool = False
) -> SettledRun:
    """Needs `begin_run` of the same run. Raises RunOvertaken."""
    options = MergeOptions(run, hours, recount and not is_partial, is_partial)
    return _merged(options, lambda cursor: merging.merge_hours(cursor, options, rows))


def merge_days(run: UUID, hours: Interval, files: Iterable[Iterable[bytes]], is_partial: bool = False) -> SettledRun:
    """As `merge_run` with `recount`, of rows of days as `merging.DAY_COLUMNS` has them: text for COPY, each key in one
    of the files. Their hours lie within `hours`. Raises RunOvertaken; SettlingError for a line that is none."""
    options = MergeOptions(run, hours, not is_partial, is_partial)
    try:
        return _merged(options, lambda cursor: merging.merge_days(cursor, options, files))
    except merging.BadLine as error:
        raise SettlingError(str(error)) from None


@transaction.atomic
def _merged(options: MergeOptions, merge: Callable[[Any], Merged]) -> SettledRun:
    run, hours = options.run, options.hours
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (limits.SETTLING_LOCK_KEY,))
        if FillLedger.objects.filter(hour__gte=hours.start, hour__lt=hours.end).exclude(run=run).exists():
            raise RunOvertaken("a later run has begun these hours")
        done = SettledRun(*merge(cursor))
        cursor.execute(_LEDGER_DONE, (clock.now(), done.merged, done.quarantined, hours.start, hours.end))
    UsageRun.objects.filter(pk=run).update(state=UsageRunState.DONE, ended_at=clock.now(), **done._asdict())
    return done


def note_run(run: UUID, note: str, state: UsageRunState | None = None) -> None:
    """What was left out of it; or, with `state`, how it ended without being merged."""
    said = note[: limits.DETAIL_CHARACTERS_MAX].replace("\0", "?")
    UsageRun.objects.filter(pk=run).update(note=said)
    if state is not None:
        UsageRun.objects.filter(pk=run, state=UsageRunState.STARTED).update(state=state, ended_at=clock.now())


def _each(hours: Interval) -> list[datetime]:
    return [hours.start + HOUR * number for number in range(hours.hours)]


_LEDGER_DONE = """
UPDATE fill_ledger SET state = 'done', done_at = %s, rows = %s, quarantined = %s, times_done = times_done + 1
 WHERE hour >= %s AND hour < %s
"""
