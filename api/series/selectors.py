"""What queues of an account did since they were made, and what they hold: always as that account."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from django.db.models import Exists, Min, OuterRef, Sum

from api.queues.models import GONE, Queue, QueueStatus
from api.series import limits
from api.series.models import SeriesQueue


class ScrapedQueues(NamedTuple):
    """By name; without totals: it was never used."""

    queues: list[tuple[str, SeriesQueue | None]]
    left_out: int


class OldestBacklog(NamedTuple):
    name: str
    waiting: int
    oldest_sent_ms: int


class AccountLevels(NamedTuple):
    """Of all queues together, as they were looked at last. `oldest_sent_ms` None: nothing waits."""

    waiting: int
    in_flight: int
    oldest_sent_ms: int | None
    oldest: list[OldestBacklog]


def scraped_queues(account_id: str, prefix: str) -> ScrapedQueues:
    """The account's queues by name, as many as one answer has."""
    rows = Queue.objects.filter(account_id=account_id, state=QueueStatus.ACTIVE, name__startswith=prefix)
    named = list(rows.order_by("name").values_list("name", "uuid")[: limits.SCRAPED_QUEUES_MAX])
    of_named = SeriesQueue.objects.filter(account_id=account_id, queue_uuid__in=[queue for _, queue in named])
    totals = {row.queue_uuid: row for row in of_named}
    left_out = rows.count() - len(named) if len(named) == limits.SCRAPED_QUEUES_MAX else 0
    return ScrapedQueues([(name, totals.get(queue)) for name, queue in named], left_out)


def queues_named(account_id: str, names: Iterable[str]) -> dict[str, Queue]:
    rows = Queue.objects.filter(account_id=account_id, name__in=set(names)).exclude(state__in=GONE)
    return {queue.name: queue for queue in rows.only("name", "uuid", "created_at")}


def account_levels(account_id: str, listed: int) -> AccountLevels:
    """With the queues whose oldest message waits for longest. Without deleted queues, those that are kept included."""
    there = Queue.objects.filter(account_id=account_id, uuid=OuterRef("queue_uuid")).exclude(state__in=GONE)
    rows = SeriesQueue.objects.filter(Exists(there), account_id=account_id)
    rows = rows.exclude(waiting=0, in_flight=0, delayed=0)
    oldest = rows.filter(oldest_sent_ms__gt=0)
    sums = rows.aggregate(waiting=Sum("waiting"), in_flight=Sum("in_flight"))
    first = oldest.aggregate(first=Min("oldest_sent_ms"))["first"]
    shown = list(oldest.order_by("oldest_sent_ms")[:listed])
    names = _names_of(account_id, [row.queue_uuid for row in shown])
    backlogs = [
        OldestBacklog(names[row.queue_uuid], row.waiting, row.oldest_sent_ms)
        for row in shown
        if row.queue_uuid in names
    ]
    return AccountLevels(sums["waiting"] or 0, sums["in_flight"] or 0, first, backlogs)


def _names_of(account_id: str, queues: Iterable[UUID]) -> dict[UUID, str]:
    rows = Queue.objects.filter(account_id=account_id, uuid__in=list(queues), state=QueueStatus.ACTIVE)
    return dict(rows.values_list("uuid", "name"))
