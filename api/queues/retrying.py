"""An operator asks for a queue's pending work now, and not when the pause after its failures is over."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from api import clock
from api.audit.actions import Actor, record
from api.queues.models import Queue


@transaction.atomic
def retry_queue(actor: Actor, account_id: str, name: str) -> bool:
    """Workers find the row by themselves within seconds. False: nothing is pending, or a worker is at it. A queue
    that is deleted and kept may have had the name, too: its work is asked for as well."""
    pending = Queue.objects.select_for_update().exclude(generation=F("observed_generation"))
    waiting = [queue.pk for queue in pending.filter(account_id=account_id, name=name, claim=None).order_by("pk")]
    if not waiting:
        return False
    Queue.objects.filter(pk__in=waiting).update(next_attempt_at=clock.now())
    record(actor, account_id, "queue.retry", f"queue:{name}")
    return True
