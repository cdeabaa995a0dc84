"""An operator asks for a queue's pending work now, and not when the pause after its failures is over."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from api import clock
from api.audit.actions import Actor, record
from api.queues.models import Queue


@transaction.atomic
def retry_queue(actor: Actor, account_id: str, name: str) -> bool:
    """Workers find the row by themselves within seconds. False: nothing is pending, or a worker is at it."""
    pending = Queue.objects.select_for_update().exclude(generation=F("observed_generation"))
    queue = pending.filter(account_id=account_id, name=name, claim=None).order_by("-pk").first()
    if queue is None:
        return False
    queue.next_attempt_at = clock.now()
    queue.save(update_fields=["next_attempt_at"])
    record(actor, account_id, "queue.retry", f"queue:{name}")
    return True
