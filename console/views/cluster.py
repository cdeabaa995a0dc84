"""The storage nodes as operators see them, and what can be changed of them: drains and moves of replicas."""

from __future__ import annotations

import os
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from api import clock
from api.billing.work_notes import work_rounds
from api.cluster import actions
from api.cluster.public_certificate import expires_at
from api.cluster.selectors import ClusterView, look_at_cluster, new_nodes, queue_scopes
from api.cluster.system_alarms import system_alarms
from api.queues.selectors import backlog_of_lifecycle
from api.series.heat import busiest_partitions
from api.series.selectors import BusyQueue, busiest_queues
from api.settings.environment import environment
from console.error_notices import ErrorNotice
from console.pages import operator_page, require_recent_sign_in, show, told
from console.visits import Visit
from storage_nodes.ids import PARTITION_ID_MAX, is_node_id, node_name, parse_node_name
from storage_nodes.model import NodeState

HERE = "/console/operators/"
HEAT_SPAN = timedelta(minutes=5)
BUSY_SHOWN = 10
# Among so many of the busiest queues the busiest partitions are looked for.
BUSY_QUEUES_READ = 100
# Where the launcher keeps what it knows of an installation.
STATE_FILE = "run/state.json"
_DIGITS_MAX = len(str(PARTITION_ID_MAX))


@operator_page("GET")
def cluster(request: HttpRequest, visit: Visit) -> HttpResponse:
    partition, target = _number(request.GET, "partition"), _node(request.GET, "target")
    commands = [_command("node add"), _command("node decommission ID")]
    shown = {"move": _move_offered(partition, target), "commands": commands}
    return render(request, "console/operators/cluster.html", shown)


@operator_page("GET")
def cluster_now(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Asked for again every few seconds."""
    view = async_to_sync(look_at_cluster)()
    since = clock.now() - HEAT_SPAN
    busy = busiest_queues(since, BUSY_QUEUES_READ)
    hot = busiest_partitions(busy, environment().cluster_id, since, BUSY_SHOWN)
    ends_at = expires_at(_data() / STATE_FILE)
    left_s = None if ends_at is None else ends_at - clock.now().timestamp()
    shown = {
        "cluster": view,
        "scopes": {} if view is None else queue_scopes(view),
        "alarms": system_alarms(view, work_rounds(), left_s),
        "busy": [(one, _leaders(one, view)) for one in busy[:BUSY_SHOWN]],
        "hot": [(one, *_place(one.partition, view)) for one in hot],
        "joining": [] if view is None else new_nodes(view),
        "heat_minutes": int(HEAT_SPAN.total_seconds() // 60),
        "work": backlog_of_lifecycle(),
    }
    return render(request, "console/operators/now.html", shown)


@operator_page("POST")
def change_node(request: HttpRequest, visit: Visit, node_id: int, verb: str) -> HttpResponse:
    if not is_node_id(node_id):
        return HttpResponse(status=404)
    require_recent_sign_in(visit)
    if verb == "drain":
        actions.drain_node(visit.actor, node_id)
        return told(HERE, f"Node {node_name(node_id)} is being drained: its replicas move to other nodes.", "warn")
    if verb == "activate":
        actions.activate_node(visit.actor, node_id)
        return told(HERE, f"Node {node_name(node_id)} is active again. Moves that are under way still end.")
    return HttpResponse(status=404)


@operator_page("POST")
def move_replica(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    partition = _number(request.POST, "partition")
    source, target = (_node(request.POST, name) for name in ("source", "target"))
    if not partition or not source or not target:
        text = "Give the partition, the node that the replica leaves, and the node that takes it."
        return show(request, ErrorNotice(400, text, "Their numbers stand in the tables of the page."))
    actions.move_replica(visit.actor, partition, source, target)
    return told(HERE, f"Partition {partition} moves from node {node_name(source)} to node {node_name(target)}.")


@operator_page("POST")
def cancel_move(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    partition, number = (_number(request.POST, name) for name in ("partition", "number"))
    actions.cancel_move(visit.actor, partition, number)
    return told(HERE, f"The move of partition {partition} is cancelled, if it had not ended.", "warn")


def _leaders(queue: BusyQueue, view: ClusterView | None) -> list[int]:
    found = {0} if view is None else {view.leaders.get(partition, 0) for partition in queue.partitions}
    return sorted(found - {0})


def _place(partition: int, view: ClusterView | None) -> tuple[int, list[int]]:
    """Who leads it, and who holds it."""
    return (0, []) if view is None else (view.leaders.get(partition, 0), view.replicas.get(partition, []))


def _move_offered(partition: int, target: int) -> dict[str, Any]:
    """What the form begins with. Of a partition that is named it offers the nodes that hold it, its leader first, and
    those that could take it."""
    view = async_to_sync(look_at_cluster)() if partition else None
    leader, holders = _place(partition, view)
    takers = [] if view is None else [node for node in view.nodes if node.alive and node.state is NodeState.ACTIVE]
    return {
        "partition": partition or "",
        "target": target or "",
        "leader": leader,
        "sources": sorted(holders, key=lambda node: node != leader),
        "targets": [node.node_id for node in takers if node.node_id not in holders] if holders else [],
    }


def _command(words: str) -> str:
    """For this installation."""
    data = _data()
    where = f" --data-dir {shlex.quote(str(data))}" if os.path.exists(data / STATE_FILE) else ""
    return f"./penstock {words}{where}"


def _data() -> Path:
    """The launcher keeps it beside its secrets."""
    return Path(environment().secrets_dir).parent


def _node(given: QueryDict, name: str) -> int:
    """0: what was given names no node."""
    text = given.get(name, "").strip()
    try:
        return parse_node_name(text) if len(text) <= _DIGITS_MAX else 0
    except ValueError:
        return 0


def _number(given: QueryDict, name: str) -> int:
    """0: what was given is no number."""
    text = given.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else 0
