"""What queues of an account did since they were made, and what they hold: always as that account."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Exists, F, Min, OuterRef, Q, Subquery, Sum

from api.queues.models import GONE, Queue, QueueStatus
from api.series import limits
from api.series.collecting import OF_ACCOUNT
from api.series.models import SeriesMinute, SeriesQueue


class ScrapedQueues(NamedTuple):
    """By name; without totals: it was never used."""

    queues: list[tuple[str, SeriesQueue | None]]
    left_out: int


class OldestBacklog(NamedTuple):
    name: str
    waiting: int
    oldest_sent_ms: int


class BusyQueue(NamedTuple):
    """`messages`: sent, received and deleted. `partitions` are where it stands."""

    account_id: str
    name: str
    messages: int
    requests: int
    throttled: int
    partitions: list[int]
    queue_uuid: UUID


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
    sums = rows.aggregate(
        waiting=Sum("waiting"), in_flight=Sum("in_flight"), first=Min("oldest_sent_ms", filter=Q(oldest_sent_ms__gt=0))
    )
    active = Queue.objects.filter(account_id=account_id, uuid=OuterRef("queue_uuid"), state=QueueStatus.ACTIVE)
    named = rows.filter(oldest_sent_ms__gt=0).annotate(name=Subquery(active.values("name")[:1]))
    shown = named.order_by("oldest_sent_ms").values_list("name", "waiting", "oldest_sent_ms")[:listed]
    backlogs = [OldestBacklog(*row) for row in shown if row[0] is not None]
    return AccountLevels(sums["waiting"] or 0, sums["in_flight"] or 0, sums["first"], backlogs)


def busiest_queues(since: datetime, limit: int) -> list[BusyQueue]:
    """For operators: of all accounts, those with most requests and messages since then."""
    rows = SeriesMinute.objects.filter(at__gte=since).exclude(queue_uuid=OF_ACCOUNT)
    sums = rows.values("account_id", "queue_uuid").annotate(
        messages=Sum(F("messages_sent") + F("messages_delivered") + F("messages_deleted")),
        asked=Sum("requests"),
        refused=Sum("throttled"),
    )
    busiest = list(sums.order_by((F("messages") + F("asked")).desc(), "account_id", "queue_uuid")[:limit])
    queues = Queue.objects.filter(uuid__in=[row["queue_uuid"] for row in busiest]).exclude(state__in=GONE)
    named = {queue.uuid: queue for queue in queues.only("uuid", "name", "partitions")}
    return [
        BusyQueue(
            row["account_id"], queue.name, int(row["messages"]), int(row["asked"]), int(row["refused"]),
            list(queue.partitions), queue.uuid,
        )
        for row in busiest
        if (queue := named.get(row["queue_uuid"])) is not None and row["messages"] + row["asked"]
    ]  # fmt: skip
