"""The live tail of a queue: the page, and the ticket with which its script opens a websocket of a front end."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from api.iam.errors import AccessDenied
from api.people.roles import Act
from api.tails.actions import make_ticket
from console.pages import account_page
from console.views.queue import tab_of
from console.views.queue_forms import queue_or_404
from console.visits import AccountVisit

TEXT_CHARS_MAX = 256


@account_page(Act.READ_MESSAGES, "GET")
def tail(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    _require_member(visit)
    queue = queue_or_404(visit, name)
    text = request.GET.get("text", "")[:TEXT_CHARS_MAX]
    return render(request, "console/messages/tail.html", {**tab_of(visit, queue, "tail"), "text": text})


@account_page(Act.READ_MESSAGES, "POST")
def ticket(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """Good for one socket, within a minute."""
    _require_member(visit)
    queue = queue_or_404(visit, name)
    made = make_ticket(visit.session, visit.account_id, queue.name)
    return JsonResponse({"ticket": made, "socket": f"/v1/queues/{queue.name}/tail"})


def _require_member(visit: AccountVisit) -> None:
    """What a tail shows is no request that the trail could note. Raises AccessDenied."""
    if visit.acts_for is not None:
        raise AccessDenied("An operator who acts as a member opens no live tail.")
