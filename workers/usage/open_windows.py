"""Closes the metering windows that are open: all storage nodes at once, each its own partitions, in a bounded time.

What was acknowledged before the call stands in the usage stream afterwards, if the answer says so: a partition whose
leader changed while it was asked may have told neither, so the nodes are asked again; one without a leader, or whose
leader does not answer, is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage_nodes.client import StorageClient
from storage_nodes.ids import node_name
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import ClusterInfo
from workers import limits

Say = Callable[[str], None]
Leaders = dict[int, tuple[int, int]]
"""Of each queue partition: (leader, epoch)."""


async def close_windows(client: StorageClient, say: Say) -> str:
    """Why not all of it is in the stream; empty: it is. Raises StorageError where no node answers at all."""
    ends_s = asyncio.get_running_loop().time() + limits.USAGE_CLOSE_S_MAX
    missing = ""
    for _ in range(limits.USAGE_CLOSE_ROUNDS_MAX):
        before = await client.describe()
        names = [node.node_id for node in before.nodes]
        told = await asyncio.gather(*(_close_node(client, node, ends_s, say) for node in names))
        silent = {node for node, is_told in zip(names, told, strict=True) if not is_told}
        after = leaders_of(await client.describe())
        missing = what_is_missing(leaders_of(before), after, silent)
        if not missing or asyncio.get_running_loop().time() > ends_s:
            break
        await asyncio.sleep(limits.USAGE_CLOSE_PAUSE_S)
    return missing


def leaders_of(cluster: ClusterInfo) -> Leaders:
    queues = (one for one in cluster.partitions if one.kind == PartitionKind.QUEUE)
    return {one.partition: (one.leader, one.epoch) for one in queues}


def what_is_missing(before: Leaders, after: Leaders, silent: set[int]) -> str:
    """Partitions that were created since have no earlier usage; deleted ones are not asked."""
    led = {partition: after[partition] for partition in before if partition in after}
    without = sum(1 for leader, _ in led.values() if not leader)
    if without:
        return f"{without} partitions have no leader."
    unheard = sorted({leader for leader, _ in led.values() if leader in silent})
    if unheard:
        return f"Storage nodes {', '.join(map(node_name, unheard))} have not closed their windows."
    moved = sum(1 for partition, leader in led.items() if before[partition] != leader)
    return f"{moved} partitions changed their leader." if moved else ""


async def _close_node(client: StorageClient, node: int, ends_s: float, say: Say) -> bool:
    """Are all windows of what it leads in the usage stream?"""
    loop = asyncio.get_running_loop()
    begin = True
    try:
        async with asyncio.timeout_at(ends_s):
            while left := await client.close_usage(node, begin):
                say(f"node {node_name(node)}: {left:,} partitions have windows to close")
                begin = False
                await asyncio.sleep(limits.USAGE_CLOSE_POLL_S)
    except (StorageError, TimeoutError, OSError):
        return False
    return loop.time() <= ends_s
