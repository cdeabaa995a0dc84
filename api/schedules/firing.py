"""Which ticks are due, and noting that they were handed over: the database half. The storage half is `workers/cron`.

    claim   rows whose next tick is near -> each names who works on it, for CRON_CLAIM_LEASE_MS
    note    conditional on the claim: these ticks are in storage, committed; the next one is known
    fail    conditional on the claim: gives the row back, to be tried again soon

Every tick is one message: it is handed over with a deduplication id made of the schedule and the tick, and only then
noted. A worker that dies in between leaves a row whose claim runs out; the next one sends the same ticks with the same
ids, which the partition drops as long as it remembers them (the queue's deduplication window, five minutes by default).

Ticks that nobody looked at for CRON_LATE_MS_MAX were missed: the first of them comes, late; the others are counted in
`missed` and do not come. So a schedule that stood still says so once, and does not flood its queue. Schedules of an
account that may not send now stand still.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction

from api import clock, limits
from api.queues.models import QueueStatus
from api.queues.moving import record_of
from api.quotas.selectors import stopped_accounts, stopped_queues
from api.schedules.cron import CronError, next_tick
from api.schedules.models import CronSchedule
from frontend.metadata.records import QueueRecord


class CronClaim(NamedTuple):
    """A schedule with ticks to be handed over. `skips`: ticks were missed that do not come."""

    claim: uuid.UUID
    schedule_id: int
    schedule_uuid: uuid.UUID
    queue: QueueRecord
    content_sealed: bytes
    group: str
    ticks: list[datetime]
    next_tick_at: datetime
    skips: bool


@transaction.atomic
def claim_due(now: datetime | None = None) -> list[CronClaim]:
    """Empty when nothing is due, or others are at it."""
    now = now or clock.now()
    near = now + timedelta(milliseconds=limits.CRON_AHEAD_MS)
    rows = CronSchedule.objects.select_for_update(skip_locked=True, of=("self",)).select_related("queue__account")
    due = rows.filter(enabled=True, next_tick_at__lte=near, free_at__lte=now, queue__state=QueueStatus.ACTIVE)
    due = due.exclude(queue__account_id__in=stopped_accounts()).exclude(queue_id__in=stopped_queues())
    claims: list[CronClaim] = []
    for schedule in due.order_by("next_tick_at")[: limits.CRON_CLAIMED_MAX]:
        queue = record_of(schedule.queue)
        assert queue is not None
        try:
            ticks, following, skips = due_ticks(schedule.cron, schedule.zone, schedule.next_tick_at, now)
        except CronError as error:
            schedule.enabled, schedule.last_error = False, str(error)
            schedule.save(update_fields=["enabled", "last_error"])
            continue
        schedule.claim = uuid.uuid4()
        schedule.free_at = now + timedelta(milliseconds=limits.CRON_CLAIM_LEASE_MS)
        schedule.save(update_fields=["claim", "free_at"])
        sealed = bytes(schedule.content_sealed)
        claims.append(
            CronClaim(
                schedule.claim, schedule.pk, schedule.uuid, queue, sealed, schedule.group, ticks, following, skips
            )
        )
    return claims


def due_ticks(cron: str, zone: str, first: datetime, now: datetime) -> tuple[list[datetime], datetime, bool]:
    """(ticks from `first` on that are near or were late, the next one after them, whether some were missed). Pure."""
    near = now + timedelta(milliseconds=limits.CRON_AHEAD_MS)
    latest_missed = now - timedelta(milliseconds=limits.CRON_LATE_MS_MAX)
    ticks = [first]
    following = next_tick(cron, zone, first)
    skips = following <= latest_missed
    if skips:
        following = next_tick(cron, zone, latest_missed)
    while following <= near and len(ticks) < limits.CRON_TICKS_AT_ONCE_MAX:
        ticks.append(following)
        following = next_tick(cron, zone, following)
    return ticks, following, skips


@transaction.atomic
def note_handed_over(claims: Sequence[CronClaim]) -> None:
    """These ticks are in storage, committed. A schedule that was paused or deleted meanwhile is not touched."""
    for claim in claims:
        schedule = _claimed(claim)
        if schedule is None:
            continue
        schedule.next_tick_at = claim.next_tick_at
        schedule.last_tick_at = claim.ticks[-1]
        schedule.fired += len(claim.ticks)
        schedule.missed += claim.skips
        schedule.claim, schedule.free_at = None, clock.now()
        schedule.failures, schedule.last_error = 0, ""
        schedule.save()


@transaction.atomic
def note_failed(claims: Sequence[CronClaim], reason: str) -> None:
    for claim in claims:
        schedule = _claimed(claim)
        if schedule is None:
            continue
        schedule.failures += 1
        schedule.last_error = reason[: limits.SCHEDULE_ERROR_CHARACTERS_MAX]
        schedule.claim = None
        schedule.free_at = clock.now() + timedelta(milliseconds=limits.CRON_RETRY_MS)
        schedule.save(update_fields=["failures", "last_error", "claim", "free_at"])


def _claimed(claim: CronClaim) -> CronSchedule | None:
    return CronSchedule.objects.select_for_update().filter(pk=claim.schedule_id, claim=claim.claim).first()
