"""One queue: counts, settings, tags; pause, purge, delete. Its policy: queue_policy.py."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.accounts.selectors import account_of
from api.iam.authorisation import Targets
from api.people.roles import Act
from api.queues import actions, selectors
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.queues.pausing import set_paused_and_wait
from api.queues.serializers import QueueSerializer
from api.settings.environment import environment
from console import attribute_words
from console.data_plane import DataPlaneError
from console.error_notices import ErrorNotice, notice_of
from console.pages import account_page, told
from console.same_as import creating, receiving
from console.views.queue_forms import queue_or_404, queue_url
from console.visits import AccountVisit
from frontend.authz.actions import Demand

SOURCES_SHOWN_MAX = 50


@account_page(Act.READ_QUEUES, "GET")
def queue_page(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    env = environment()
    chosen = attribute_words.not_default(queue.attributes, name)
    url = f"{env.endpoint}/{visit.account_id}/{name}"
    shown = {
        **tab_of(visit, queue, "overview"),
        "sections": attribute_words.set_fields(queue.attributes, queue.fifo),
        "json": QueueSerializer(queue).data,
        "sources": _sources(visit, name),
        "url": url,
        "receiving": receiving(env.endpoint, env.region, url),
        "snippets": creating(env.endpoint, env.region, name, {key: chosen[key] for key in chosen if key != "Policy"}),
    }
    return render(request, "console/queues/queue.html", shown)


@account_page(Act.READ_QUEUES, "GET")
def queue_counts(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """Asked for again every few seconds while the page is looked at."""
    queue = queue_or_404(visit, name)
    if not visit.is_active:
        return HttpResponse(status=204)
    try:
        counts = visit.data_plane.counts([name])[name]
    except DataPlaneError as error:
        return render(request, "console/parts/refusal.html", {"refusal": notice_of(error)})
    if "error" in counts:
        refusal = ErrorNotice(503, counts["error"]["detail"], "The page retries automatically.")
        return render(request, "console/parts/refusal.html", {"refusal": refusal})
    return render(request, "console/queues/numbers.html", {"queue": queue, "counts": counts})


@account_page(Act.READ_QUEUES, "GET", "POST", does="sqs:ListQueueTags")
def tags(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    refusal = None
    if request.method == "POST":
        key = request.POST.get("key", "")
        try:
            if "remove" in request.POST:
                _require_tagging(visit, "sqs:UntagQueue", Targets(name, tag_keys=(key,)))
                actions.untag_queue(visit.actor, visit.account_id, name, [key])
            else:
                change = rules.check_tags({key.strip(): request.POST.get("value", "").strip()})
                _require_tagging(visit, "sqs:TagQueue", Targets(name, tags=change, tag_keys=tuple(change)))
                actions.tag_queue(visit.actor, visit.account_id, name, change)
            return told(queue_url(visit, name, "/tags"), "The tags are changed.")
        except QueueProblem as error:
            refusal = notice_of(error)
    shown = {**tab_of(visit, queue, "tags"), "refusal": refusal}
    return render(request, "console/queues/tags.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.MANAGE_QUEUES, "POST", does="penstock:PauseQueue")
def pause(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    async_to_sync(set_paused_and_wait)(visit.actor, visit.account_id, name, True)
    return told(queue_url(visit, name), "Delivery is paused. Sends are still accepted.", "warn")


@account_page(Act.MANAGE_QUEUES, "POST", does="penstock:ResumeQueue")
def resume(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    async_to_sync(set_paused_and_wait)(visit.actor, visit.account_id, name, False)
    return told(queue_url(visit, name), "Delivery is resumed.")


@account_page(Act.READ_QUEUES, "GET", "POST", does="sqs:DeleteQueue")
def delete(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    if request.method == "POST":
        if request.POST.get("typed", "").strip() != name:
            return _typed_wrong(request, visit, queue, "delete")
        actions.delete_queue(visit.actor, visit.account_id, name)
        return told(f"/console/a/{visit.account_id}/queues", f"The queue {name} is deleted.", "warn")
    shown = {"queue": queue, "what": "delete", "sources": _sources(visit, name), "row": account_of(visit.account_id)}
    return render(request, "console/queues/typed.html", shown)


@account_page(Act.READ_QUEUES, "GET", "POST", does="sqs:PurgeQueue")
def purge(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    if request.method == "POST":
        if request.POST.get("typed", "").strip() != name:
            return _typed_wrong(request, visit, queue, "purge")
        visit.data_plane.ask(name, "messages/purge")
        return told(queue_url(visit, name), "The messages that the queue held are deleted.", "warn")
    return render(request, "console/queues/typed.html", {"queue": queue, "what": "purge"})


def tab_of(visit: AccountVisit, queue: Queue, tab: str) -> dict[str, object]:
    """What the head of every page of a queue shows."""
    return {
        "queue": queue,
        "tab": tab,
        "base": queue_url(visit, queue.name),
        "paused": queue.attributes.get("Penstock.Paused") == "true",
        "is_dead_letter_queue": bool(selectors.dead_letter_names_among(visit.account_id, [queue.name])),
    }


def require_change(visit: AccountVisit, action: str) -> None:
    """Raises AccessDenied."""
    visit.require_change(Act.MANAGE_QUEUES, action)


def _require_tagging(visit: AccountVisit, action: str, targets: Targets) -> None:
    """With the tags, which conditions look at. Raises AccessDenied."""
    visit.require_change(Act.MANAGE_QUEUES)
    visit.rights.require((Demand(action),), targets)


def _sources(visit: AccountVisit, name: str) -> list[Queue]:
    """Queues whose dead letters come here, for members who may know."""
    if not visit.may_do("sqs:ListDeadLetterSourceQueues"):
        return []
    return selectors.dead_letter_sources_of(visit.account_id, name, "", SOURCES_SHOWN_MAX)


def _typed_wrong(request: HttpRequest, visit: AccountVisit, queue: Queue, what: str) -> HttpResponse:
    refusal = ErrorNotice(400, "What you typed is not the name of the queue.", "Type the name exactly as it is shown.")
    shown = {"queue": queue, "what": what, "refusal": refusal, "row": account_of(visit.account_id)}
    return render(request, "console/queues/typed.html", shown, status=400)
