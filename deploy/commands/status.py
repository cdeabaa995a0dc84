"""`status`: the supervisor's processes, and what the storage cluster says about its partitions."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from deploy import control, limits, output
from deploy.errors import EXIT_NOT_RUNNING, CommandError
from deploy.installation import Installation, State

PARTITION_FIELDS = ("partition", "tag", "leader", "epoch", "replicas")
COLUMNS = ["ROLE", "ID", "PID", "ADDRESS", "HEALTH", "RESTARTS", "UP FOR"]


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    try:
        status = control.ask(installation.run, {"command": "status"})
    except CommandError:
        if not options.json:
            raise
        output.data_json({"running": False, "processes": [], "nodes": [], "partitions": []})
        return EXIT_NOT_RUNNING
    status = {"running": True, **status, **asyncio.run(describe_cluster(installation, state))}
    if options.json:
        output.data_json(status)
    else:
        print_status(status)
    return 0


async def describe_cluster(installation: Installation, state: State) -> dict[str, Any]:
    """Nodes and partitions as the cluster reports them; empty lists with the reason when no node answers."""
    from storage_nodes.client import StorageClient

    client = StorageClient(state.cluster_id, installation.nodes(state), name="penstock-status")
    await client.start()
    try:
        info = await asyncio.wait_for(client.describe(), limits.CONTROL_TIMEOUT_S)
    except Exception as error:  # whatever a sick cluster answers, the processes are still worth showing
        return {"nodes": [], "partitions": [], "cluster_error": str(error) or type(error).__name__}
    finally:
        await client.close()
    leads: dict[int, list[int]] = {node.node_id: [] for node in info.nodes}
    for partition in info.partitions:
        leads.setdefault(partition.leader, []).append(partition.partition)
    return {
        "nodes": [{"node_id": node.node_id, "leads": leads[node.node_id], "alive": node.alive} for node in info.nodes],
        "partitions": [{name: getattr(row, name) for name in PARTITION_FIELDS} for row in info.partitions],
    }


def print_status(status: dict[str, Any]) -> None:
    output.data(f"endpoint {status['endpoint']}   console {status['console']}")
    output.table(COLUMNS, [process_row(process) for process in status["processes"]])
    total = len(status["partitions"])
    for node in status["nodes"]:
        alive = "alive" if node["alive"] else "down"
        output.data(f"node {node['node_id']} {alive}, leads {len(node['leads'])} of {total} partitions")
    if "cluster_error" in status:
        output.say(f"penstock: the storage cluster does not answer: {status['cluster_error']}")


def process_row(process: dict[str, Any]) -> list[str]:
    shown = [process[name] for name in ("role", "id", "pid", "address", "health", "restarts")]
    return [*("-" if value is None else str(value) for value in shown), since(process["started_at"])]


def since(started_at: float | None) -> str:
    return "-" if started_at is None else f"{time.time() - started_at:.0f} s"
