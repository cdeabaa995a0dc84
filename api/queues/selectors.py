"""Reading queues, always as one account."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import F, OrderBy, OuterRef, Q, QuerySet, Subquery

from api.queues.models import DataKeyGrant, Queue, QueueCount, QueueStatus
from api.queues.redrive import LIVE as _LIVE
from api.queues.redrive import sources_of
from api.series.models import SeriesQueue
from frontend.queues.extensions import PAUSED


def queue_of(account_id: str, name: str) -> Queue | None:
    """The queue of this name, unless it is being deleted."""
    return Queue.objects.filter(account_id=account_id, name=name, state__in=_LIVE).first()


def queue_count(account_id: str) -> int:
    """Of those that count for the quota `queues`: all but those that are deleted for good."""
    return QueueCount.objects.filter(pk=account_id).values_list("count", flat=True).first() or 0


def queue_state(account_id: str, queue_id: int) -> str | None:
    """How far a queue has come; None where the account has no such queue."""
    rows = Queue.objects.filter(account_id=account_id, pk=queue_id)
    return rows.values_list("state", flat=True).first()


def is_reconciled(account_id: str, queue_id: int, generation: int) -> bool:
    """Returns whether storage has this generation of the queue, or a later one."""
    rows = Queue.objects.filter(account_id=account_id, pk=queue_id, observed_generation__gte=generation)
    return rows.exists()


def queues_of(account_id: str, prefix: str, after: str, limit: int) -> list[Queue]:
    """By name, from the first one behind `after` on. Names sort by their bytes (collation C)."""
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE, name__gt=after)
    if prefix:
        # Every allowed character of a name sorts below "~": the range uses the index, and needs no LIKE.
        rows = rows.filter(name__gte=prefix, name__lt=prefix + "~")
    return list(rows.order_by("name")[:limit])


def queues_under(account_id: str, encryption_key: str, limit: int) -> list[Queue]:
    """By name, those that name this encryption key, or named it and may hold messages under it."""
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE, encryption_keys__contains=[encryption_key])
    return list(rows.order_by("name")[:limit])


class QueueSearch(NamedTuple):
    """`sort` is a key of SORTS; `kind` is "", "standard", "fifo", "paused" or "dead-letter"."""

    text: str = ""
    kind: str = ""
    sort: str = "name"


# Word -> columns; the name makes each order one. A minus: the last, the most, the longest first.
SORTS: dict[str, tuple[str | OrderBy, ...]] = {
    "name": ("name",),
    "-name": ("-name",),
    "created": ("created_at", "name"),
    "-created": ("-created_at", "name"),
    "modified": ("modified_at", "name"),
    "-modified": ("-modified_at", "name"),
    "waiting": (F("waiting").asc(nulls_first=True), "name"),
    "-waiting": (F("waiting").desc(nulls_last=True), "name"),
    "age": (F("oldest_sent_ms").desc(nulls_first=True), "name"),
    "-age": (F("oldest_sent_ms").asc(nulls_last=True), "name"),
}
# Of what a queue holds, as the series last saw it; none where nothing waits.
_LEVELS = {"waiting": "waiting", "age": "oldest_sent_ms"}
KINDS = ("", "standard", "fifo", "paused", "dead-letter")


def search_queues(account_id: str, asked: QueueSearch, start: int, limit: int) -> tuple[list[Queue], int]:
    """A page of the account's queues whose names hold the text, and how many there are."""
    rows = _searched(account_id, asked)
    return list(_sorted(rows, asked.sort)[start : start + limit]), rows.count()


def names_and_tags(account_id: str, asked: QueueSearch, limit: int) -> list[tuple[str, dict[str, str]]]:
    """Of the first of those that a search finds: enough to weigh policies."""
    rows = _sorted(_searched(account_id, asked), asked.sort)
    return list(rows.values_list("name", "tags")[:limit])


def queues_named(account_id: str, names: Sequence[str]) -> list[Queue]:
    """In the order of the names; those that are not there, or not any more, are left out."""
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE, name__in=names)
    found = {queue.name: queue for queue in rows}
    return [found[name] for name in names if name in found]


def _sorted(rows: QuerySet[Queue], sort: str) -> QuerySet[Queue]:
    level = _LEVELS.get(sort.removeprefix("-"))
    if level is not None:
        seen = SeriesQueue.objects.filter(account_id=OuterRef("account_id"), queue_uuid=OuterRef("uuid"), waiting__gt=0)
        rows = rows.annotate(**{level: Subquery(seen.values(level)[:1])})
    return rows.order_by(*SORTS[sort])


def _searched(account_id: str, asked: QueueSearch) -> QuerySet[Queue]:
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE)
    if asked.text:
        rows = rows.filter(name__icontains=asked.text)
    if asked.kind in ("standard", "fifo"):
        rows = rows.filter(fifo=asked.kind == "fifo")
    elif asked.kind == "paused":
        rows = rows.filter(attributes__contains={PAUSED: "true"})
    elif asked.kind == "dead-letter":
        rows = rows.filter(name__in=_targets(account_id))
    return rows


def dead_letter_names(account_id: str, limit: int) -> list[str]:
    """Queues that are the dead-letter queue of another one, by name."""
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE, name__in=_targets(account_id))
    return list(rows.order_by("name").values_list("name", flat=True)[:limit])


def dead_letter_names_among(account_id: str, names: Sequence[str]) -> set[str]:
    return set(_targets(account_id).filter(dead_letter_target__in=names))


def _targets(account_id: str) -> QuerySet[Queue, str]:
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE).exclude(dead_letter_target="")
    return rows.values_list("dead_letter_target", flat=True)


def deleted_queues_of(account_id: str, after: int, limit: int) -> list[Queue]:
    """Those that can be restored, from the first one behind the row `after` on."""
    rows = Queue.objects.filter(account_id=account_id, state=QueueStatus.KEPT, pk__gt=after)
    return list(rows.order_by("pk")[:limit])


def queue_of_id(account_id: str, queue_uuid: UUID) -> Queue | None:
    """In whatever state: one that is live when rights are weighed may be deleted and kept when the call is made."""
    return Queue.objects.filter(account_id=account_id, uuid=queue_uuid).first()


class PendingQueue(NamedTuple):
    """A queue of any account whose desired state storage does not have yet."""

    account_id: str
    name: str
    state: str
    failures: int
    last_error: str
    modified_at: datetime


def backlog_of_lifecycle(limit: int = 50) -> list[PendingQueue]:
    """For operators: those that failed most often first."""
    rows = Queue.objects.exclude(generation=F("observed_generation")).order_by("-failures", "modified_at")
    fields = ("account_id", "name", "state", "failures", "last_error", "modified_at")
    return [PendingQueue(*row) for row in rows.values_list(*fields)[:limit]]


def dead_letter_sources_of(account_id: str, target: str, after: str, limit: int) -> list[Queue]:
    """Queues whose RedrivePolicy names the queue `target`, by name, from the first one behind `after` on."""
    return list(sources_of(account_id, target).filter(name__gt=after).order_by("name")[:limit])


def letter_holders_of(queue: Queue) -> tuple[str, ...]:
    """The names of the other queues that can read dead letters of this one: they hold copies of its data keys."""
    copies = DataKeyGrant.objects.filter(owner_uuid=queue.uuid, queue__account_id=queue.account_id)
    held = copies.exclude(queue_id=queue.pk).exclude(queue__state=QueueStatus.DELETING)
    return tuple(held.order_by("queue__name").values_list("queue__name", flat=True).distinct())


def letter_owners_of(account_id: str, name: str) -> tuple[str, ...]:
    """The names of the live queues whose dead letters may lie in this one: those that name it now, those that named it
    before, and those whose letters come by way of others. It holds copies of the data keys of all of them."""
    held = DataKeyGrant.objects.filter(queue__account_id=account_id, queue__name=name, queue__state__in=_LIVE)
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE)
    owners = rows.filter(Q(uuid__in=held.values("owner_uuid")) | Q(pk__in=sources_of(account_id, name).values("pk")))
    return tuple(owners.order_by("name").values_list("name", flat=True))
