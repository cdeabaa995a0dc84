"""Reading schedules, always as one account."""

from __future__ import annotations

from api.queues.models import GONE
from api.schedules.models import CronSchedule


def schedule_of(account_id: str, queue_name: str, name: str) -> CronSchedule | None:
    rows = CronSchedule.objects.filter(queue__account_id=account_id, queue__name=queue_name, name=name)
    return rows.exclude(queue__state__in=GONE).first()


def lock_schedule(account_id: str, queue_name: str, name: str) -> None:
    """Until the transaction ends, if there is such a schedule."""
    rows = CronSchedule.objects.select_for_update(of=("self",))
    rows.filter(queue__account_id=account_id, queue__name=queue_name, name=name).first()


def schedules_of(queue_id: int, after: str, limit: int) -> list[CronSchedule]:
    """By name, from the first one behind `after` on."""
    return list(CronSchedule.objects.filter(queue_id=queue_id, name__gt=after).order_by("name")[:limit])
