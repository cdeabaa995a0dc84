"""The first page of an account: what is there, what needs attention, the first steps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from api import clock
from api.accounts.models import Account
from api.alarms.judging import AlarmState
from api.alarms.selectors import alarms_of
from api.audit.selectors import entries_of
from api.billing.actions.plans import ensure_standard_plan
from api.billing.meter import cost_meter
from api.billing.pricing.periods import period_of
from api.people.roles import Act
from api.queues import selectors
from api.queues.selectors import QueueSearch
from api.quotas.selectors import holder_of
from api.series.collecting import OF_ACCOUNT
from api.series.selectors import account_levels
from api.settings.environment import environment
from console.data_plane import DataPlaneError
from console.error_notices import notice_of
from console.metric_charts import ACCOUNT_CHARTS, ChartReader, span_named
from console.pages import account_page
from console.same_as import creating
from console.views.audit_log import actor_names
from console.views.billing import held_by_budgets
from console.visits import AccountVisit

# Dead-letter queues and lately changed queues that are looked at.
LOOKED_AT_MAX = 50
SHOWN = 6
OLDEST_SHOWN = 5
TRAFFIC_SPAN = "24h"
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


@account_page(Act.READ_ACCOUNT, "GET")
def overview(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    if not visit.reads_all_queues:
        base = f"/console/a/{visit.account_id}"
        if visit.finds_queues:
            return HttpResponseRedirect(f"{base}/queues")
        return HttpResponseRedirect(visit.money_page or f"{base}/settings")
    entries = entries_of(visit.account_id, None, SHOWN) if visit.may(Act.READ_AUDIT) else []
    shown = {
        **(_queues_of(visit.account_id) if visit.lists_queues else {}),
        "entries": entries,
        "actors": actor_names(visit.account_id, entries),
        "snippets": creating(environment().endpoint, environment().region, "orders", {}),
    }
    return render(request, "console/overview.html", shown)


def _queues_of(account_id: str) -> dict[str, object]:
    recent, total = selectors.search_queues(account_id, QueueSearch(sort="-modified"), 0, SHOWN)
    _, paused = selectors.search_queues(account_id, QueueSearch(kind="paused"), 0, 1)
    _, dead = selectors.search_queues(account_id, QueueSearch(kind="dead-letter"), 0, 1)
    return {"recent": recent, "total": total, "paused": paused, "dead": dead}


@account_page(Act.READ_QUEUES, "GET")
def traffic(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """Loaded after the page: what all queues did in a day, and what they hold, from the series."""
    if not visit.reads_metrics:
        return HttpResponse(status=204)
    span = span_named(TRAFFIC_SPAN)
    found = ChartReader(visit.account_id, OF_ACCOUNT, ALWAYS, span, clock.now()).read(ACCOUNT_CHARTS)
    shown = {
        "charts": found.charts,
        "totals": found.totals,
        "levels": account_levels(visit.account_id, OLDEST_SHOWN) if visit.lists_queues else None,
        "span": span,
    }
    return render(request, "console/parts/traffic.html", shown)


@account_page(Act.READ_METER, "GET")
def cost(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """Loaded after the page: what the month costs so far."""
    ensure_standard_plan()
    now = clock.now()
    meter = cost_meter(Account.objects.get(pk=visit.account_id), period_of(now), now, queues=())
    shown = {"meter": meter, "held": held_by_budgets(visit.account_id)}
    return render(request, "console/parts/cost.html", shown)


@account_page(Act.READ_QUEUES, "GET")
def attention(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """Loaded after the page: dead letters, held groups, and the oldest backlog of the queues looked at."""
    looked_at = _looked_at(visit.account_id) if visit.lists_queues else _LookedAt([], [], [])
    names = list(dict.fromkeys([*looked_at.dead, *looked_at.recent]))
    try:
        counts = visit.data_plane.counts(names) if names and visit.is_active else {}
    except DataPlaneError as error:
        return render(request, "console/parts/refusal.html", {"refusal": notice_of(error)})
    known = {name: one for name, one in counts.items() if "error" not in one}
    holder = holder_of(visit.account_id)
    shown = {
        "stopped": "" if holder is None else holder.sending_stopped,
        "dead": [(name, known[name]) for name in looked_at.dead if known.get(name, {}).get("waiting")],
        "parked": [(name, one) for name, one in known.items() if one["parked_groups"]],
        "paused": looked_at.paused,
        "alarms": [one for one in alarms_of(visit.account_id) if one.state == AlarmState.ALARM]
        if visit.reads_alarms
        else [],
        "now": clock.now(),
        "waiting": sum(one["waiting"] for one in known.values()),
        "in_flight": sum(one["in_flight"] for one in known.values()),
        "oldest_ms": min((one["oldest_sent_ms"] for one in known.values() if one["oldest_sent_ms"]), default=None),
        "counted": len(known),
        "asked": len(names),
    }
    return render(request, "console/parts/attention.html", shown)


class _LookedAt(NamedTuple):
    """Names of queues."""

    dead: list[str]
    recent: list[str]
    paused: list[str]


def _looked_at(account_id: str) -> _LookedAt:
    dead = selectors.dead_letter_names(account_id, LOOKED_AT_MAX)
    recent, _ = selectors.search_queues(account_id, QueueSearch(sort="-modified"), 0, LOOKED_AT_MAX)
    paused, _ = selectors.search_queues(account_id, QueueSearch(kind="paused"), 0, LOOKED_AT_MAX)
    return _LookedAt(dead, [queue.name for queue in recent], [queue.name for queue in paused])
