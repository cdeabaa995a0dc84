"""Who gets the leadership of a node that lets others lead: never one that is being emptied, full or slow, where another
choice exists."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.limits import HAND_OVERS_AT_ONCE_MAX, RETIRE_MS_MAX
from storage_nodes.machines.cluster.commands import RegisterNode, SetNodeState, encode_command
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.raft.effects import PeerStatus
from storage_nodes.model import NodeState
from storage_nodes.node.disk_care.maintenance import DiskMaintenance
from storage_nodes.node.membership.replica_moves import Moves
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.hand_over import hand_over_some

OWN, PLAIN, EMPTIED, FULL, STOPPING, WRONG_CLOCK = 1, 2, 3, 4, 5, 6
# Those that are worth less hold more of the log: it is not the log that decides.
MATCH = {PLAIN: 10, EMPTIED: 20, FULL: 30, STOPPING: 40, WRONG_CLOCK: 50}


class Led:
    """A replica that this node leads, in a group with some others."""

    def __init__(self, *others: int, learners: tuple[int, ...] = ()) -> None:
        members = (*others, *learners)
        peers = [PeerStatus(node, True, MATCH.get(node, 0), 0, node in learners) for node in members]
        self.raft = SimpleNamespace(status=lambda: SimpleNamespace(peers=peers), voters=(OWN, *others))
        self.partition = 7
        self.serving = True
        self.handing_over = False
        self.target = 0

    def hand_over(self, target: int) -> None:
        self.target, self.handing_over = target, True


class Links:
    read_only, slow = True, False

    def retire(self) -> None:
        pass

    def may_lead(self, node: int) -> bool:
        return node not in (FULL, STOPPING, WRONG_CLOCK)

    def may_follow(self, node: int) -> bool:
        return node not in (FULL, STOPPING)

    def stays(self, node: int) -> bool:
        return node != STOPPING


def moves_of(replicas: dict[int, Any]) -> Moves:
    machine = ClusterMachine()
    for node in (OWN, PLAIN, EMPTIED, FULL, STOPPING, WRONG_CLOCK):
        machine.apply(encode_command(RegisterNode(node, "h", node, "z")))
    for node in (OWN, EMPTIED):
        machine.apply(encode_command(SetNodeState(node, NodeState.DRAINING)))
    cluster: Any = SimpleNamespace(machine=machine, serving=False, look_at_progress=lambda: None)
    loop: Any = SimpleNamespace(call_later=lambda *_: None)
    moves = Moves(loop, OWN, Links(), replicas, lambda: cluster)  # type: ignore[arg-type]
    moves._running = True
    return moves


async def stop(replica: Any) -> None:
    times = iter([0, 0, RETIRE_MS_MAX])
    node: Any = StorageNode.__new__(StorageNode)
    node.links, node.replicas, node.moves = Links(), {7: replica}, moves_of({7: replica})
    node.clock = SimpleNamespace(mono_ms=lambda: next(times))
    await node._retire()


async def be_full(replica: Any) -> None:
    may_lead = moves_of({7: replica}).may_lead
    node: Any = SimpleNamespace(links=Links(), replicas={7: replica}, may_lead=may_lead)
    scrub: Any = None
    maintenance = DiskMaintenance(node, scrub, 0)
    maintenance._hand_over_if_unfit()


async def be_emptied(replica: Any) -> None:
    moves_of({7: replica})._turn()


async def be_removed(replica: Any) -> None:
    moves_of({7: replica})._hand_over(replica, 0, leaving=OWN)


EVERY = [stop, be_full, be_emptied, be_removed]


@pytest.mark.parametrize("why", EVERY)
def test_node_that_lets_others_lead_chooses_one_that_is_neither_emptied_nor_full_nor_stopping(why: Any) -> None:
    replica = Led(STOPPING, FULL, WRONG_CLOCK, EMPTIED, PLAIN)
    asyncio.run(why(replica))
    assert replica.target == PLAIN


@pytest.mark.parametrize(
    ("why", "second", "third"),
    [(stop, EMPTIED, FULL), (be_full, EMPTIED, 0), (be_emptied, 0, 0), (be_removed, EMPTIED, 0)],
)
def test_node_that_finds_no_good_leader_takes_the_next_best_that_helps(why: Any, second: int, third: int) -> None:
    without_plain, without_two = Led(STOPPING, FULL, EMPTIED), Led(STOPPING, FULL)
    asyncio.run(why(without_plain))
    asyncio.run(why(without_two))
    assert (without_plain.target, without_two.target) == (second, third)


@pytest.mark.parametrize(
    ("why", "target"), [(stop, WRONG_CLOCK), (be_full, 0), (be_emptied, 0), (be_removed, WRONG_CLOCK)]
)
def test_node_whose_clock_is_off_leads_rather_than_that_a_stop_or_a_move_waits(why: Any, target: int) -> None:
    replica = Led(FULL, WRONG_CLOCK)
    asyncio.run(why(replica))
    assert replica.target == target


def test_node_whose_clock_is_off_may_take_replicas() -> None:
    moves = moves_of({})
    assert moves._may_take(WRONG_CLOCK) and not moves._may_take(FULL)


def test_hand_overs_are_a_few_at_a_time_and_none_goes_to_a_learner() -> None:
    alone = Led(learners=(PLAIN,))
    many: list[Any] = [alone, *(Led(PLAIN) for _ in range(HAND_OVERS_AT_ONCE_MAX + 1))]
    assert hand_over_some(many, lambda _node: True) == HAND_OVERS_AT_ONCE_MAX
    assert [replica.handing_over for replica in many] == [False, *[True] * HAND_OVERS_AT_ONCE_MAX, False]
