"""What is wrong with the installation now, judged from what nodes and workers say. Pure: nothing is read here.

Alarms of customers' metrics are `api/alarms`. The rules for Prometheus, which also watch while nobody looks at a page,
are in docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from api.billing.models import WorkRound
from api.cluster.selectors import ClusterView, NodeRow
from storage_nodes.ids import node_name

# A replica that lacks more offsets than this does not only wait for the next append.
LAG_OFFSETS_MAX = 10_000
# One round that failed is tried again by itself.
TROUBLED_ROUNDS_MAX = 2
NAMED_MAX = 5
# As `./penstock doctor` judges it.
CERTIFICATE_DAYS_LEFT_MIN = 14


class SystemAlarm(NamedTuple):
    """`is_severe`: messages are refused, or a further fault would lose some. `step`: what to do."""

    is_severe: bool
    text: str
    step: str


def system_alarms(
    view: ClusterView | None, rounds: Sequence[WorkRound], certificate_left_s: float | None = None
) -> list[SystemAlarm]:
    """The severe ones first. `view` None: no node answers. `certificate_left_s`: None: not known."""
    found = _of_work(rounds)
    if certificate_left_s is not None and certificate_left_s < CERTIFICATE_DAYS_LEFT_MIN * 86_400:
        ends = f"ends in {int(certificate_left_s // 86_400)} days" if certificate_left_s > 0 else "has expired"
        step = "Put new files in place of the old; no restart is needed."
        found.append(SystemAlarm(certificate_left_s <= 0, f"The certificate of the public port {ends}", step))
    if view is None:
        found.append(SystemAlarm(True, "No storage node answers", "See ./penstock status and ./penstock logs."))
    else:
        found += _of_cluster(view)
    return sorted(found, key=lambda alarm: not alarm.is_severe)


def _of_cluster(view: ClusterView) -> list[SystemAlarm]:
    silent = map(node_name, view.silent)
    found = [SystemAlarm(True, f"Node {name} does not answer", f"See ./penstock logs node-{name}.") for name in silent]
    for node in view.nodes:
        found += _of_node(node)
    if view.leaderless:
        text = f"{_counted(len(view.leaderless), 'partition')} without a leader: {_named(view.leaderless)}"
        found.append(SystemAlarm(True, text, "Start the nodes that are down: a majority must be up."))
    behind = [row for row in view.behind if row.lag > LAG_OFFSETS_MAX]
    if behind:
        text = f"Replicas of {_counted(len(behind), 'partition')} are far behind: {_named(behind)}"
        found.append(SystemAlarm(False, text, "Look for a node that is down, or a slow disk or network."))
    return found


def _of_node(node: NodeRow) -> list[SystemAlarm]:
    found, name = [], node_name(node.node_id)
    if node.clock_off:
        text = f"The clock of node {name} is off by {node.clock_offset_ms} ms"
        step = "Set it right (NTP): until then the node leads nothing that others can lead."
        found.append(SystemAlarm(False, text, step))
    if node.read_only:
        step = "Free space on it or enlarge it; ./penstock status shows what is left."
        found.append(SystemAlarm(True, f"The disk of node {name} is nearly full", step))
    if node.slow:
        step = "Replace the disk; until then other nodes lead."
        found.append(SystemAlarm(False, f"The disk of node {name} is slow", step))
    if node.quarantined:
        many = _counted(len(node.quarantined), "quarantined partition")
        names = ", ".join(map(str, node.quarantined[:NAMED_MAX]))
        text = f"Node {name} has {many}: {names}"
        found.append(SystemAlarm(True, text, f"See ./penstock scrub and ./penstock logs node-{name}."))
    elif node.unrepaired:
        text = f"Node {name} found damage that is not repaired ({node.unrepaired})"
        found.append(SystemAlarm(True, text, f"See ./penstock scrub and ./penstock logs node-{name}."))
    return found


def _of_work(rounds: Sequence[WorkRound]) -> list[SystemAlarm]:
    return [
        SystemAlarm(
            False,
            f"The background work {row.work} failed in its last {row.troubled_rounds} rounds",
            "See Background work.",
        )
        for row in rounds
        if row.troubled_rounds > TROUBLED_ROUNDS_MAX
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _named(rows: Sequence[object]) -> str:
    names = [str(getattr(row, "partition", row)) for row in rows[:NAMED_MAX]]
    return ", ".join(names) + (", …" if len(rows) > NAMED_MAX else "")
