"""Changes of who holds what, under load and beside any other fault (F31): replicas move, moves are taken back, a node
is emptied and taken back.

A change is asked for once. What a refused request, or one whose answer was lost, left behind is not asked: at the end
of every cycle nothing may move any more, all nodes must tell the same, and whoever gave a replica away must have
dropped it (`Bench.settled`). It takes one node more than a partition has replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import PartitionInfo
from tests.blackbox.bench import Bench

NODES_TO_MOVE = 4
# A change begins at a random moment so soon after a fault: before it hits, while it lasts, or when it is healed.
CHANGE_DELAY_S_MAX = 2.0
TAKE_BACK_DELAY_S_MAX = 0.15

Cycle = Callable[[Bench], Awaitable[None]]


async def beside(bench: Bench, fault: Cycle) -> None:
    """A fault and a change at the same time."""
    await together(bench, fault, bench.rng.choice(CHANGES))


async def together(bench: Bench, fault: Cycle, change: Cycle) -> None:
    """Both at the same time, and the rest that must come of it."""
    await asyncio.gather(fault(bench), _begin(bench, change))
    await bench.settled()
    await bench.recovered()
    await bench.caught_up()
    bench.healed(change.__name__)


async def _begin(bench: Bench, change: Cycle) -> None:
    await asyncio.sleep(bench.rng.random() * CHANGE_DELAY_S_MAX)
    try:
        await change(bench)
    except StorageError as error:
        # Of unknown outcome, or refused because an earlier one of unknown outcome had happened.
        bench.notes[f"{change.__name__}: {error.code.name}"] += 1


async def move_replica(bench: Bench) -> None:
    """One replica, the leader's or another, goes to a node that holds none of the partition."""
    await _move(bench)
    bench.notes["replicas moved"] += 1


async def take_move_back(bench: Bench) -> None:
    """A move that is cancelled in the middle; it may have ended by then."""
    moving = await _move(bench)
    await asyncio.sleep(bench.rng.random() * TAKE_BACK_DELAY_S_MAX)
    assert moving.move is not None, "a move that was begun is named"
    await bench.patient.cancel_move(moving.partition, moving.move.number)
    bench.notes["moves taken back"] += 1


async def drain_node(bench: Bench) -> None:
    """One node gives away all it holds, whatever else happens, and is taken back."""
    victim = bench.rng.choice(await bench.holders(bench.load.queue))
    bench.fault("drain", [], f"node {victim}")
    try:
        await bench.patient.set_node_state(victim, NodeState.DRAINING)
        await bench.emptied(victim)
        bench.notes["nodes drained"] += 1
    finally:
        await bench.all_active()


async def _move(bench: Bench) -> PartitionInfo:
    partition = bench.rng.choice((bench.load.queue, bench.load.stream))
    holders = await bench.holders(partition)
    source = bench.rng.choice(holders)
    target = bench.rng.choice([node for node in bench.cluster.node_ids if node not in holders])
    bench.fault("move", [], f"partition {partition} from node {source} to node {target}")
    return await bench.patient.move_replica(partition, source, target)


CHANGES: tuple[Cycle, ...] = (move_replica, move_replica, take_move_back, drain_node)
