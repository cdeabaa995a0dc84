"""Queues that were deleted and are still kept: restored, or not kept any longer (docs/deletion.md)."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam.authorisation import Targets
from api.queues import attributes as rules
from api.queues import keeping, selectors
from api.queues.models import Queue, QueueStatus
from console.pages import operation_page, told
from console.visits import AccountVisit
from frontend.authz.actions import MANAGEMENT_OPERATIONS

SHOWN_MAX = 100


@operation_page("deleted_queues.list", "GET")
def deleted_queues(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    found = selectors.deleted_queues_of(visit.account_id, 0, SHOWN_MAX + 1)
    rows = [
        (queue, _may(visit, "deleted_queues.restore", queue), _may(visit, "deleted_queues.end", queue))
        for queue in found[:SHOWN_MAX]
    ]
    shown = {"rows": rows, "has_more": len(found) > SHOWN_MAX, "shown_max": SHOWN_MAX}
    return render(request, "console/queues/deleted.html", shown)


@operation_page("deleted_queues.list", "POST")
def restore(request: HttpRequest, visit: AccountVisit, queue_id: UUID) -> HttpResponse:
    name = request.POST.get("new_name", "").strip()
    _check(visit, "deleted_queues.restore", queue_id, name)
    restored = keeping.restore_queue(visit.actor, visit.account_id, queue_id, rules.check_name(name) if name else "")
    return told(f"/console/a/{visit.account_id}/queues/{restored.name}", f"The queue {restored.name} is restored.")


@operation_page("deleted_queues.list", "POST")
def let_go(request: HttpRequest, visit: AccountVisit, queue_id: UUID) -> HttpResponse:
    queue = _check(visit, "deleted_queues.end", queue_id)
    keeping.let_go(visit.actor, visit.account_id, queue_id)
    text = f"The queue {queue.name} is not kept any longer."
    return told(f"/console/a/{visit.account_id}/deleted-queues", text, "warn")


def _check(visit: AccountVisit, operation: str, queue_id: UUID, new_name: str = "") -> Queue:
    """Weighed first, so that who may not do it does not hear what is there. Raises AccessDenied and Http404."""
    queue = selectors.queue_of_id(visit.account_id, queue_id)
    former = queue.name if queue is not None else str(queue_id)
    targets = Targets(former, (new_name or former,), queue_id=queue_id)
    visit.rights.require(MANAGEMENT_OPERATIONS[operation], targets)
    if queue is None or queue.state != QueueStatus.KEPT:
        raise Http404
    return queue


def _may(visit: AccountVisit, operation: str, queue: Queue) -> bool:
    return visit.is_active and visit.rights.may(operation, Targets(queue.name, (queue.name,), queue_id=queue.uuid))
