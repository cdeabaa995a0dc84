"""`node ...`: the storage nodes of an installation.

    start, stop    the process of one node; a stopped one stays down
    list           every node: its state, what it holds
    add            one node more, that joins and takes its share of what is created, moved, or short of copies
    drain          move everything off a node; --undo takes it back
    decommission   drain it, take it out of the cluster, stop it; --dead: it died for good
    move           one replica from a node to another; --cancel gives that up

The cluster does the work (the node's state and every move stand in its log), these commands ask for it and watch. So
Ctrl-C ends the watching only, and the same command again watches on.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from deploy import control, limits, output
from deploy.commands.cluster_view import clock
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation
from deploy.state import State
from deploy.watching import Watch, count_of
from storage_nodes.client import StorageClient
from storage_nodes.ids import node_name
from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import ClusterInfo, NodeInfo, PartitionInfo

COLUMNS = ["NODE", "ADDRESS", "ZONE", "HEALTH", "STATE", "REPLICAS", "LEADS", "CLOCK"]
Verb = Callable[["Cluster", argparse.Namespace], Awaitable[int]]


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    if options.verb in ("start", "stop"):
        return turn(installation, options)
    try:
        return asyncio.run(with_cluster(installation, options))
    except StorageError as error:
        raise CommandError(
            error.message or f"the storage cluster does not answer ({error}); see ./penstock status"
        ) from None


def turn(installation: Installation, options: argparse.Namespace) -> int:
    if options.verb == "stop" and not options.force:
        require_majority_without(installation, options.id)
    request = {"command": f"node {options.verb}", "id": options.id}
    # Stopping waits for the node's clean end, starting for its recovery.
    answer = control.ask(installation.run, request, limits.STOP_DEADLINE_S + limits.CONTROL_TIMEOUT_S)
    output.say(f"storage node {node_name(answer['id'])} is {answer['health']}")
    return 0


def require_majority_without(installation: Installation, node_id: int) -> None:
    """Raises CommandError where nothing could be sent or received without this node, and it is up."""
    rows = control.ask(installation.run, {"command": "status"})["processes"]
    nodes = {row["id"]: row["health"] for row in rows if row["role"] == "storage-node"}
    up = list(nodes.values()).count("healthy")
    if nodes.get(node_id) == "healthy" and up - 1 <= len(nodes) // 2:
        left = f"{up - 1} of {len(nodes)} storage nodes would be up without {node_name(node_id)}, which is no majority"
        text = f"{left}: nothing could be sent or received until one more is started"
        raise CommandError(f"{text}. Start another one first, or stop it all the same with --force")


class Cluster:
    """The installation and a client of its storage nodes."""

    def __init__(self, installation: Installation, state: State, client: StorageClient) -> None:
        self.installation = installation
        self.state = state
        self.client = client

    def ask_supervisor(self, command: str, node_id: int = 0) -> dict[str, Any]:
        timeout_s = limits.STOP_DEADLINE_S + limits.CONTROL_TIMEOUT_S
        return control.ask(self.installation.run, {"command": command, "id": node_id}, timeout_s)

    async def node(self, node_id: int) -> NodeInfo:
        found = find(await self.client.describe([]), node_id)
        if found is None:
            raise CommandError(f"there is no storage node {node_name(node_id)}; see ./penstock node list", EXIT_USAGE)
        return found

    async def partition(self, partition: int) -> PartitionInfo:
        infos = (await self.client.describe([partition])).partitions
        if not infos or not partition:
            raise CommandError(f"there is no partition {partition}; see ./penstock status", EXIT_USAGE)
        return infos[0]


async def with_cluster(installation: Installation, options: argparse.Namespace) -> int:
    state = installation.load_state()
    control.ask(installation.run, {"command": "status"})  # says how to start it, where it is not running
    credentials = installation.credentials(state)
    client = StorageClient(state.cluster_id, installation.nodes(state), name="penstock-node", credentials=credentials)
    await client.start()
    try:
        return await VERBS[options.verb](Cluster(installation, state, client), options)
    finally:
        await client.close()


def find(info: ClusterInfo, node_id: int) -> NodeInfo | None:
    return next((node for node in info.nodes if node.node_id == node_id), None)


# --- the verbs ----------------------------------------------------------------------------------------------


async def show(cluster: Cluster, options: argparse.Namespace) -> int:
    info = await cluster.client.describe()
    if not info.nodes:
        raise CommandError("the storage nodes that answer know no cluster: is a majority up? See ./penstock status")
    leads = Counter(partition.leader for partition in info.partitions)
    # As `status` counts: with the cluster's own partition, which stays where it is when a node is drained.
    replicas = Counter(node_id for partition in info.partitions for node_id in partition.replicas)
    moves = [partition for partition in info.partitions if partition.move is not None]
    for node_id in cluster.state.joining:
        if find(info, node_id) is not None:  # an `add` that was interrupted
            await asyncio.to_thread(cluster.ask_supervisor, "node joined", node_id)
    if options.json:
        output.data_json(
            {
                "manager": info.manager,
                "nodes": [described(node, replicas, leads) for node in info.nodes],
                "moves": [
                    {"partition": row.partition, "from": row.move.source, "to": row.move.target}
                    for row in moves
                    if row.move is not None
                ],
            }
        )
        return 0
    rows = [described(node, replicas, leads) for node in info.nodes]
    output.table(COLUMNS, [[str(value) for name, value in row.items() if name != "node"] for row in rows])
    for row in moves:
        assert row.move is not None
        source = f"from node {node_name(row.move.source)} " if row.move.source else ""
        output.data(f"partition {row.partition} is moving {source}to node {node_name(row.move.target)}")
    return 0


def described(node: NodeInfo, replicas: Counter[int], leads: Counter[int]) -> dict[str, Any]:
    return {
        "node": node.node_id,
        "name": node_name(node.node_id),
        "address": f"{node.host}:{node.port}",
        "zone": node.zone,
        "health": "up" if node.alive else "down",
        "state": NodeState(node.state).name.lower(),
        "replicas": replicas[node.node_id],
        "leads": leads[node.node_id],
        "clock": clock(
            node.alive, node.clock_off, None if node.clock_offset_ms is None else node.clock_offset_ms / 1000
        ),
    }


async def add(cluster: Cluster, options: argparse.Namespace) -> int:
    """Start a node and wait until it is a member that has the cluster's log."""
    started = await asyncio.to_thread(cluster.ask_supervisor, "node add")
    node_id = int(started["id"])
    output.say(f"storage node {node_name(node_id)} is started on {started['address']} and joins the cluster")
    watch = Watch(f"storage node {node_name(node_id)} joins", "it goes on joining; look with: ./penstock node list")

    async def is_member() -> bool:
        if find(await cluster.client.describe([]), node_id) is None:
            watch.say(f"it is not registered yet; why, ./penstock logs node-{node_name(node_id)} may say")
            return False
        own = await cluster.client.describe_node(node_id, [])
        watch.say("it is being sent the cluster's log")
        return own.manager != 0 and find(own, node_id) is not None

    await watch.until(is_member)
    await asyncio.to_thread(cluster.ask_supervisor, "node joined", node_id)
    output.say(
        f"storage node {node_name(node_id)} is a member. New queues use it; move what is there with "
        "./penstock node drain or move"
    )
    return 0


async def drain(cluster: Cluster, options: argparse.Namespace) -> int:
    node = await cluster.node(options.id)
    if options.undo:
        await cluster.client.set_node_state(node.node_id, NodeState.ACTIVE)
        output.say(f"storage node {node_name(node.node_id)} is active again; moves that are under way still end")
        return 0
    await cluster.client.set_node_state(node.node_id, NodeState.DRAINING)
    await watch_emptying(cluster, node)
    output.say(
        f"storage node {node_name(node.node_id)} holds no messages and gets none; the cluster log stays on it. "
        f"Take it back with ./penstock node drain {node_name(node.node_id)} --undo, or away with "
        "./penstock node decommission"
    )
    return 0


async def decommission(cluster: Cluster, options: argparse.Namespace) -> int:
    node_id = options.id
    node = find(await cluster.client.describe([]), node_id)
    if node is not None:
        if node.state != NodeState.LEAVING:
            await cluster.client.set_node_state(node_id, NodeState.LEAVING, options.dead)
        await watch_emptying(cluster, node)
        watch = Watch(f"storage node {node_name(node_id)} leaves the cluster", going_on(node_id))
        await watch.until(lambda: is_gone(cluster, node_id))
    elif node_id not in cluster.state.node_ids():
        raise CommandError(f"there is no storage node {node_name(node_id)}; see ./penstock node list", EXIT_USAGE)
    await asyncio.to_thread(cluster.ask_supervisor, "node remove", node_id)
    directory = cluster.installation.data / "nodes" / node_name(node_id)
    output.say(
        f"storage node {node_name(node_id)} is decommissioned and stopped. Its files in {directory} may be removed"
    )
    return 0


async def is_gone(cluster: Cluster, node_id: int) -> bool:
    return find(await cluster.client.describe([]), node_id) is None


async def watch_emptying(cluster: Cluster, node: NodeInfo) -> None:
    watch = Watch(f"storage node {node_name(node.node_id)} is being emptied", going_on(node.node_id))

    async def is_empty() -> bool:
        info = await cluster.client.describe([], moving=True)
        now = find(info, node.node_id)
        if now is None or now.replicas == 0:
            return True
        under_way = [row for row in info.partitions if row.move is not None and row.move.source == node.node_id]
        detail = await progress_of(cluster, under_way[0]) if under_way else "the next moves are being planned"
        watch.counted(now.replicas, detail)
        return False

    await watch.until(is_empty)


def going_on(node_id: int) -> str:
    return f"it goes on; look with ./penstock node list, stop it with ./penstock node drain {node_name(node_id)} --undo"


async def move(cluster: Cluster, options: argparse.Namespace) -> int:
    before = await cluster.partition(options.partition)
    if options.cancel:
        if before.move is None:
            raise CommandError(f"partition {before.partition} is not moving", EXIT_USAGE)
        await cluster.client.cancel_move(before.partition, before.move.number)
    elif options.source is None or options.target is None:
        raise CommandError("say from where to where: ./penstock node move PARTITION --from A --to B", EXIT_USAGE)
    else:
        begun = await cluster.client.move_replica(before.partition, options.source, options.target)
        before = begun
    assert before.move is not None
    number = before.move.number
    give_up = f"./penstock node move {before.partition} --cancel"
    text = f"it goes on; look with ./penstock node list, give it up with {give_up}"
    ends = f"from node {node_name(before.move.source)} to {node_name(before.move.target)}"
    watch = Watch(f"partition {before.partition} moves {ends}", text)

    async def is_over() -> bool:
        """The node that answers may be a little behind the manager, never ahead: the move was seen there first."""
        manager = (await cluster.client.describe([])).manager
        rows = (await cluster.client.describe_node(manager, [before.partition])).partitions
        if not rows or rows[0].move is None or rows[0].move.number != number:
            return True
        watch.say(await progress_of(cluster, rows[0]))
        return False

    await watch.until(is_over)
    after = await cluster.partition(before.partition)
    done = before.move.target in after.replicas
    text = f"partition {after.partition} is on nodes {count_of(after.replicas)}"
    output.say(text if done else f"{text}; it did not move")
    return 0 if done or options.cancel else 1


async def progress_of(cluster: Cluster, row: PartitionInfo) -> str:
    """How far one move is, as the partition's leader knows."""
    assert row.move is not None
    target = f"partition {row.partition} to node {node_name(row.move.target)}"
    try:
        rows = (await cluster.client.describe_node(row.leader, [row.partition])).partitions if row.leader else []
    except StorageError:
        rows = []
    if not rows or rows[0].move is None or not rows[0].move.log_end:
        return target
    return f"{target}: at {rows[0].move.match:,} of {rows[0].move.log_end:,} records"


VERBS: dict[str, Verb] = {"list": show, "add": add, "drain": drain, "decommission": decommission, "move": move}
