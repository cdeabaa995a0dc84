"""Reading queues, always as one account."""

from __future__ import annotations

from api.queues.models import Queue
from api.queues.redrive import LIVE as _LIVE
from api.queues.redrive import sources_of


def queue_of(account_id: str, name: str) -> Queue | None:
    """The queue of this name, unless it is being deleted."""
    return Queue.objects.filter(account_id=account_id, name=name, state__in=_LIVE).first()


def queue_state(account_id: str, queue_id: int) -> str | None:
    """How far a queue has come; None where the account has no such queue."""
    rows = Queue.objects.filter(account_id=account_id, pk=queue_id)
    return rows.values_list("state", flat=True).first()


def is_settled(account_id: str, queue_id: int, generation: int) -> bool:
    """Does storage follow this wish about the queue, or a later one?"""
    rows = Queue.objects.filter(account_id=account_id, pk=queue_id, settled_generation__gte=generation)
    return rows.exists()


def queues_of(account_id: str, prefix: str, after: str, limit: int) -> list[Queue]:
    """By name, from the first one behind `after` on. Names sort by their bytes (collation C)."""
    rows = Queue.objects.filter(account_id=account_id, state__in=_LIVE, name__gt=after)
    if prefix:
        # Every allowed character of a name sorts below "~": the range uses the index, and needs no LIKE.
        rows = rows.filter(name__gte=prefix, name__lt=prefix + "~")
    return list(rows.order_by("name")[:limit])


def dead_letter_sources_of(account_id: str, target: str, after: str, limit: int) -> list[Queue]:
    """Queues whose RedrivePolicy names the queue `target`, by name, from the first one behind `after` on."""
    return list(sources_of(account_id, target).filter(name__gt=after).order_by("name")[:limit])
