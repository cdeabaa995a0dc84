"""The storage cluster as an operator sees it: what each node that answers knows, put together.

A node only knows what it has seen. So all are asked, and of a partition the row counts that knows most: of the leader
itself, which alone knows who elected it, or else of the newest epoch.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from deploy import limits
from deploy.commands.disk_levels import note_closed
from deploy.installation import Installation
from deploy.state import State
from storage_nodes.ids import node_name

PARTITION_FIELDS = ("partition", "tag", "leader", "epoch", "replicas")
# Of a process that should be up.
HEALTHS = {"failing": "dies again and again", "unhealthy": "does not answer"}
# Leader changes of this last while are shown, so many of them.
RECENT_S = 600
SHOWN_MAX = 10


async def describe_cluster(installation: Installation, state: State) -> dict[str, Any]:
    """Nodes and partitions as the cluster reports them; empty lists with the reason when no node answers."""
    from storage_nodes.client import StorageClient

    addresses = installation.nodes(state)
    client = StorageClient(
        state.cluster_id, addresses, name="penstock-status", credentials=installation.credentials(state)
    )
    await client.start()
    try:
        asked = (
            asyncio.wait_for(client.describe_node(address.node_id), limits.CONTROL_TIMEOUT_S) for address in addresses
        )
        answers = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        await client.close()
    views = {
        address.node_id: answer
        for address, answer in zip(addresses, answers, strict=True)
        if not isinstance(answer, BaseException)
    }
    if not views:
        error = next(answer for answer in answers if isinstance(answer, BaseException))
        return {
            "nodes": [],
            "partitions": [],
            "quarantined": [],
            "feature_level": None,
            "cluster_error": str(error) or type(error).__name__,
        }
    partitions = merge_partitions(views)
    nodes = merge_nodes(views, partitions)
    await note_closed(state, nodes)
    return {
        "nodes": nodes, "partitions": partitions, "quarantined": stopped_rows(views),
        "feature_level": max(view.level for view in views.values()),
    }  # fmt: skip


def merge_partitions(views: dict[int, Any]) -> list[dict[str, Any]]:
    """One row for each partition, by id. `views`: the ClusterInfo of each node that answers."""
    best: dict[int, tuple[tuple[bool, bool, int, bool], Any]] = {}
    for node_id, view in views.items():
        for row in view.partitions:
            # Who leads knows best, who holds no replica nothing; a leader that does not answer may be none any more.
            rank = (row.leader == node_id, row.leader_since_ms > 0, row.epoch, row.leader in views)
            if row.partition not in best or rank > best[row.partition][0]:
                best[row.partition] = (rank, row)
    return [partition_row(row) for _, (_, row) in sorted(best.items())]


def partition_row(row: Any) -> dict[str, Any]:
    shown = {name: getattr(row, name) for name in PARTITION_FIELDS}
    return {**shown, "leader_since": row.leader_since_ms / 1000 or None, "leader_reason": row.leader_reason}


def merge_nodes(views: dict[int, Any], partitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A node that answers is alive, and knows since when itself; one that does not is what the others say of it."""
    leads: dict[int, list[int]] = {}
    replicas: Counter[int] = Counter()
    for row in partitions:
        leads.setdefault(row["leader"], []).append(row["partition"])
        replicas.update(row["replicas"])
    known: dict[int, Any] = {}
    for node_id, view in views.items():
        for node in view.nodes:
            if node.node_id not in known or node.node_id == node_id:
                known[node.node_id] = node
    return [
        {
            "node_id": node.node_id,
            "name": node_name(node.node_id),
            "zone": node.zone,
            "alive": node.alive,
            "since": node.since_ms / 1000 or None,
            "why": "" if node.alive else node.why,
            "replicas": replicas[node.node_id],
            "leads": leads.get(node.node_id, []),
            "disk_free_bytes": node.disk_free_bytes or None,
            "feature_level_max": node.levels[1],
            "feature_level_allowed": node.levels[2],
            "clock_off": node.clock_off and node.alive,
            "clock_offset_s": None if node.clock_offset_ms is None else node.clock_offset_ms / 1000,
            "read_only": node.read_only and node.alive,
            "disk_closed": False,
            "slow_disk": node.slow and node.alive,
            "damage_unrepaired": node.unrepaired,
            "fed_again": sorted(set(node.quarantined) - {one.partition for one in node.stopped}),
        }
        for _, node in sorted(known.items())
    ]


def stopped_rows(views: dict[int, Any]) -> list[dict[str, Any]]:
    """One row for each partition, the eldest first. `views`: the ClusterInfo of each node that answers."""
    rows: dict[int, dict[str, Any]] = {}
    told = [
        (one.since_ms, node.node_id, one)
        for node_id, view in views.items()
        for node in view.nodes
        if node.node_id == node_id
        for one in node.stopped
    ]
    for since_ms, node_id, one in sorted(told, key=lambda item: item[:2]):
        row = rows.setdefault(
            one.partition,
            {
                "partition": one.partition, "tag": one.tag, "account_id": one.account_id, "nodes": [], "kind": one.kind,
                "offset": one.offset, "reason": one.reason, "since": since_ms / 1000,
            },
        )  # fmt: skip
        row["nodes"].append(node_id)
    return list(rows.values())


def with_processes(nodes: list[dict[str, Any]], processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes as the cluster reports them; of one that is down and should be up, the supervisor knows why: others
    know how it went down first, for example that it was stopped."""
    own = {row["id"]: row for row in processes if row["role"] == "storage-node" and row["not_up"] is not None}
    return [
        {**node, "why": why_not_up(own[node["node_id"]])} if node["node_id"] in own and not node["alive"] else node
        for node in nodes
    ]


def why_not_up(process: dict[str, Any]) -> str:
    words, end = health_words(process["health"]), process["not_up"]["last_end"]
    return f"{words} ({end})" if end else words


def health_words(health: str) -> str:
    return HEALTHS.get(health, f"is {health}")


# --- words --------------------------------------------------------------------------------------------------


def node_rows(status: dict[str, Any]) -> list[list[str]]:
    total = len(status["partitions"])
    rows = []
    for node in status["nodes"]:
        state = "alive" if node["alive"] else f"DOWN: {node['why'] or 'never seen up'}"
        free = node["disk_free_bytes"] or (0 if node["read_only"] else None)
        rows.append(
            [
                node_name(node["node_id"]), node["zone"], state, when(node["since"]), f"{node['replicas']:,}",
                f"{len(node['leads']):,} of {total:,}", "-" if free is None else size(free),
                clock(node["alive"], node["clock_off"], node["clock_offset_s"]),
            ]
        )  # fmt: skip
    return rows


def size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def clock(alive: bool, is_off: bool, offset_s: float | None) -> str:
    """How far a node's clock is ahead of what most of them say."""
    if not alive or offset_s is None:
        return "-"
    return f"OFF {offset_s:+,.1f} s" if is_off else f"{offset_s:+.2f} s"


def clock_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """Nodes whose clocks are wrong, and what to do."""
    return [
        f"node {node_name(node['node_id'])}: CLOCK OFF by {node['clock_offset_s'] or 0:+,.1f} s from those of most "
        "nodes: it leads nothing that others can lead until its clock is set right (NTP)"
        for node in nodes
        if node["clock_off"]
    ]


def disk_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """Nodes whose disks need an operator, or whose replicas are not whole yet, and what that means."""
    lines = []
    for node in nodes:
        name = f"node {node_name(node['node_id'])}"
        free = size(node["disk_free_bytes"] or 0)
        if node["disk_closed"]:
            lines.append(
                f"{name}: DISK FULL, {free} free, below a quarter of its reserve: its replicas take no messages, "
                "so what is sent has a copy less; give it room (docs/operations.md)"
            )
        elif node["read_only"]:
            lines.append(
                f"{name}: DISK NEARLY FULL, {free} free, below its reserve: it takes no messages for what it leads; "
                "give it room (docs/operations.md)"
            )
        if node["slow_disk"]:
            lines.append(f"{name}: SLOW DISK: others lead until it is fast again")
        if node["damage_unrepaired"]:
            lines.append(f"{name}: DAMAGE NOT REPAIRED, {node['damage_unrepaired']:,}: see ./penstock scrub")
        if node["fed_again"]:
            lines.append(
                f"{name}: {len(node['fed_again']):,} replicas may lack something that they acknowledged, and are fed "
                "again by the others: stop no other node before that is over"
            )
    if nodes and all(node["read_only"] or not node["alive"] for node in nodes):
        lines.append("no node has room: sends are refused with 503; receives and deletes go on, and free space")
    return lines


def level_lines(status: dict[str, Any]) -> list[str]:
    """At which feature level the cluster is, and which nodes keep it there (docs/upgrades.md)."""
    level, nodes = status["feature_level"], status["nodes"]
    if level is None:
        return []
    highest = max((node["feature_level_max"] for node in nodes), default=level)
    if highest <= level and all(node["feature_level_max"] >= level for node in nodes):
        return [f"feature level {level}"]
    lines = [f"feature level {level} of {max(highest, level)}"]
    for node in nodes:
        speaks, allowed = node["feature_level_max"], node["feature_level_allowed"]
        name = f"  node {node_name(node['node_id'])}"
        if speaks < level:
            lines.append(f"{name} speaks level {speaks} at most and serves nobody: start a release of level {level}")
        elif speaks < highest:
            lines.append(f"{name} speaks level {speaks} at most: upgrade it")
        elif allowed < highest:
            lines.append(f"{name} is held at level {allowed} by its operator: PENSTOCK_FEATURE_LEVEL_MAX={allowed}")
        elif not node["alive"]:
            lines.append(f"{name} is down: start it, or decommission it")
    return lines


def leaderless_lines(partitions: list[dict[str, Any]]) -> list[str]:
    """Partitions without a leader, and what each waits for."""
    without = [row for row in partitions if not row["leader"]]
    lines = [
        f"{partition_name(row)}: NO LEADER since {when(row['leader_since'])}: "
        f"{row['leader_reason'] or 'no node that holds it answers'}"
        for row in without[:SHOWN_MAX]
    ]
    if len(without) > SHOWN_MAX:
        lines.append(f"and {len(without) - SHOWN_MAX:,} partitions more without a leader")
    return lines


def recent_rows(partitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    now = time.time()
    return [row for row in partitions if row["leader"] and now - (row["leader_since"] or 0) < RECENT_S]


def recent_lines(partitions: list[dict[str, Any]]) -> list[str]:
    """Partitions whose leader changed lately, newest first; alike ones in one line where there are many."""
    recent = recent_rows(partitions)
    if len(recent) <= SHOWN_MAX:
        return [leader_line(row) for row in sorted(recent, key=lambda row: -row["leader_since"])]
    alike: dict[tuple[int, str], list[float]] = {}
    for row in recent:
        cause = row["leader_reason"].partition("; ")[0]
        alike.setdefault((row["leader"], cause), []).append(row["leader_since"])
    largest = sorted(alike.items(), key=lambda item: -len(item[1]))[:SHOWN_MAX]
    return [
        f"{len(times):,} partitions: node {node_name(leader)} leads since {when(max(times))} at the latest: {cause}"
        for (leader, cause), times in largest
    ]


def partition_name(row: dict[str, Any]) -> str:
    """By its queue, where `named` knew one."""
    queue = row.get("queue")
    name = row["tag"] if queue is None else f"queue {queue} of {row['account']}"
    return f"partition {row['partition']} ({name})"


def leader_line(row: dict[str, Any]) -> str:
    name = partition_name(row)
    if not row["leader"]:
        return leaderless_lines([row])[0]
    return f"{name}: node {node_name(row['leader'])} leads since {when(row['leader_since'])}: {row['leader_reason']}"


def when(wall_s: float | None) -> str:
    """`12:03:11 (4 min)`, with the day where it was another one."""
    if not wall_s:
        return "-"
    ago_s = max(time.time() - wall_s, 0)
    form = "%H:%M:%S" if ago_s < 12 * 3600 else "%Y-%m-%d %H:%M:%S"
    return f"{time.strftime(form, time.localtime(wall_s))} ({duration(ago_s)})"


def duration(seconds: float) -> str:
    for size_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
