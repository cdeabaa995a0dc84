"""The first page of an account: what is there, what needs attention, the first steps."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from api.audit.selectors import entries_of
from api.people.roles import Act
from api.queues import selectors
from api.queues.selectors import QueueSearch
from api.settings.environment import environment
from console.actors import actor_names
from console.data_plane import DataPlaneError
from console.error_notices import notice_of
from console.pages import account_page
from console.same_as import creating
from console.visits import AccountVisit

# Dead-letter queues and lately changed queues that are looked at.
LOOKED_AT_MAX = 50
SHOWN = 6


@account_page(Act.READ_ACCOUNT, "GET")
def overview(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    if not visit.may(Act.READ_QUEUES):
        return HttpResponseRedirect(visit.money_page or f"/console/a/{visit.account_id}/settings")
    recent, total = selectors.search_queues(visit.account_id, QueueSearch(sort="-modified"), 0, SHOWN)
    _, paused = selectors.search_queues(visit.account_id, QueueSearch(kind="paused"), 0, 1)
    _, dead = selectors.search_queues(visit.account_id, QueueSearch(kind="dead-letter"), 0, 1)
    entries = entries_of(visit.account_id, None, SHOWN) if visit.may(Act.READ_AUDIT) else []
    shown = {
        "recent": recent,
        "total": total,
        "paused": paused,
        "dead": dead,
        "entries": entries,
        "actors": actor_names(visit.account_id, entries),
        "snippets": creating(environment().endpoint, environment().region, "orders", {}),
    }
    return render(request, "console/overview.html", shown)


@account_page(Act.READ_QUEUES, "GET")
def attention(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """Loaded after the page: dead letters, held groups, and the oldest backlog of the queues looked at."""
    dead = selectors.dead_letter_names(visit.account_id, LOOKED_AT_MAX)
    recent, _ = selectors.search_queues(visit.account_id, QueueSearch(sort="-modified"), 0, LOOKED_AT_MAX)
    paused, _ = selectors.search_queues(visit.account_id, QueueSearch(kind="paused"), 0, LOOKED_AT_MAX)
    names = list(dict.fromkeys([*dead, *(queue.name for queue in recent)]))
    try:
        counts = visit.data_plane.counts(names) if names and visit.is_active else {}
    except DataPlaneError as error:
        return render(request, "console/parts/refusal.html", {"refusal": notice_of(error)})
    known = {name: one for name, one in counts.items() if "error" not in one}
    shown = {
        "dead": [(name, known[name]) for name in dead if known.get(name, {}).get("waiting")],
        "parked": [(name, one) for name, one in known.items() if one["parked_groups"]],
        "paused": [queue.name for queue in paused],
        "waiting": sum(one["waiting"] for one in known.values()),
        "in_flight": sum(one["in_flight"] for one in known.values()),
        "oldest_ms": min((one["oldest_sent_ms"] for one in known.values() if one["oldest_sent_ms"]), default=None),
        "counted": len(known),
        "asked": len(names),
    }
    return render(request, "console/parts/attention.html", shown)
