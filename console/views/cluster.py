"""The storage nodes as operators see them, and what can be changed of them: drains and moves of replicas."""

from __future__ import annotations

from datetime import timedelta

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.billing.work_notes import work_rounds
from api.cluster import actions
from api.cluster.selectors import ClusterView, look_at_cluster, queue_scopes
from api.cluster.system_alarms import system_alarms
from api.queues.selectors import backlog_of_lifecycle
from api.series.selectors import BusyQueue, busiest_queues
from console.error_notices import ErrorNotice
from console.pages import operator_page, require_recent_sign_in, show, told
from console.visits import Visit

HERE = "/console/operators/"
HEAT_SPAN = timedelta(minutes=5)
BUSY_SHOWN = 10
_DIGITS_MAX = 9


@operator_page("GET")
def cluster(request: HttpRequest, visit: Visit) -> HttpResponse:
    return render(request, "console/operators/cluster.html", {})


@operator_page("GET")
def cluster_now(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Asked for again every few seconds."""
    view = async_to_sync(look_at_cluster)()
    busy = busiest_queues(clock.now() - HEAT_SPAN, BUSY_SHOWN)
    shown = {
        "cluster": view,
        "scopes": {} if view is None else queue_scopes(view),
        "alarms": system_alarms(view, work_rounds()),
        "busy": [(one, _leaders(one, view)) for one in busy],
        "heat_minutes": int(HEAT_SPAN.total_seconds() // 60),
        "work": backlog_of_lifecycle(),
    }
    return render(request, "console/operators/now.html", shown)


@operator_page("POST")
def change_node(request: HttpRequest, visit: Visit, node_id: int, verb: str) -> HttpResponse:
    require_recent_sign_in(visit)
    if verb == "drain":
        actions.drain_node(visit.actor, node_id)
        return told(HERE, f"Node {node_id} is being drained: its replicas move to other nodes.", "warn")
    if verb == "activate":
        actions.activate_node(visit.actor, node_id)
        return told(HERE, f"Node {node_id} is active again. Moves that are under way still end.")
    return HttpResponse(status=404)


@operator_page("POST")
def move_replica(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    partition, source, target = (_number(request, name) for name in ("partition", "source", "target"))
    if not partition or not source or not target:
        text = "Give the partition, the node that the replica leaves, and the node that takes it, as numbers."
        return show(request, ErrorNotice(400, text, "The numbers stand in the tables of the page."))
    actions.move_replica(visit.actor, partition, source, target)
    return told(HERE, f"Partition {partition} moves from node {source} to node {target}.")


@operator_page("POST")
def cancel_move(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    partition, number = (_number(request, name) for name in ("partition", "number"))
    actions.cancel_move(visit.actor, partition, number)
    return told(HERE, f"The move of partition {partition} is cancelled, if it had not ended.", "warn")


def _leaders(queue: BusyQueue, view: ClusterView | None) -> list[int]:
    found = {0} if view is None else {view.leaders.get(partition, 0) for partition in queue.partitions}
    return sorted(found - {0})


def _number(request: HttpRequest, name: str) -> int:
    """0: what was given is no number."""
    text = request.POST.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else 0
