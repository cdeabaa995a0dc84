"""Charts of a queue, from its series. The span stands in the address."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.accounts.models import Account
from api.alarms.selectors import alarms_of
from api.billing.actions.plans import ensure_standard_plan
from api.people.roles import Act
from api.series.reading import collected_up_to
from console.metric_charts import QUEUE_CHARTS, SPANS, ChartReader, span_named
from console.pages import account_page, denied
from console.queue_cost import queue_cost
from console.views.queue import tab_of
from console.views.queue_forms import queue_or_404
from console.visits import AccountVisit


@account_page(Act.READ_QUEUES, "GET")
def queue_metrics(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    if not visit.reads_metrics:
        return denied(request, visit, Act.READ_METRICS)
    queue = queue_or_404(visit, name)
    shown = {**tab_of(visit, queue, "metrics"), "spans": SPANS, "span": span_named(request.GET.get("span", ""))}
    return render(request, "console/queues/metrics.html", shown)


@account_page(Act.READ_QUEUES, "GET")
def queue_costs(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """Loaded once, beside the charts: pricing a month takes longer than reading a series."""
    if not visit.reads_usage:
        return denied(request, visit, Act.READ_USAGE)
    ensure_standard_plan()
    queue, span = queue_or_404(visit, name), span_named(request.GET.get("span", ""))
    cost = queue_cost(Account.objects.get(pk=visit.account_id), queue.uuid, span, clock.now())
    return render(request, "console/queues/costs.html", {"cost": cost, "queue": queue, "span": span})


@account_page(Act.READ_QUEUES, "GET")
def queue_charts(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """Asked for again every minute while the page is looked at."""
    if not visit.reads_metrics:
        return denied(request, visit, Act.READ_METRICS)
    queue = queue_or_404(visit, name)
    span = span_named(request.GET.get("span", ""))
    now = clock.now()
    found = ChartReader(visit.account_id, queue.uuid, queue.created_at, span, now).read(QUEUE_CHARTS)
    shown = {
        "charts": found.charts,
        "totals": found.totals,
        "span": span,
        "collected": collected_up_to(),
        "queue": queue,
        "now": now,
        "alarms": alarms_of(visit.account_id, queue.uuid) if visit.reads_alarms else [],
    }
    return render(request, "console/queues/charts.html", shown)
