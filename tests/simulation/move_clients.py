"""Clients that move replicas: they ask for moves, take them back, empty nodes and take those back, all at random.

Whom they ask for what is read off the committed log; by the time the manager hears of it, it may be nonsense, which it
must refuse.
"""

from __future__ import annotations

from typing import Any

from storage_nodes.model import NodeState
from storage_nodes.protocol.messages import (
    CancelMoveRequest,
    MoveReplicaRequest,
    Opcode,
    SetNodeStateRequest,
)
from tests.simulation.clients import Client, Operation

_TIMEOUT_US = 1_500_000


class Mover(Client):
    """One request after the other, none of them repeated."""

    is_idle = False

    def start(self) -> None:
        if self.world.draining:
            self.is_idle = True
            return
        chance = self.random.random()
        moving = self.world.oracle.cluster.machine.moving
        if chance < 0.15:
            self._set_state()
        elif chance < 0.3 and moving:
            plan = self.random.choice(list(moving.values()))
            assert plan.move is not None
            number = plan.move.number + self.random.choice([0, 0, 0, 1])
            self._ask(Opcode.CANCEL_MOVE, CancelMoveRequest(plan.partition, number))
        else:
            self._move()

    def _move(self) -> None:
        plans = self.world.oracle.cluster.machine.partitions
        if not plans:
            self._later()
            return
        # Mostly the queue that everybody uses.
        known = self.world.partition
        partition = known if known in plans and self.random.random() < 0.6 else self.random.choice(list(plans))
        source = self.random.choice(plans[partition].replicas)
        free = [node for node in self.world.node_ids if node not in plans[partition].replicas]
        target = self.random.choice(free or self.world.node_ids)
        self._ask(Opcode.MOVE_REPLICA, MoveReplicaRequest(partition, source, target))

    def _set_state(self) -> None:
        """Empty a node, or take one back."""
        away = list(self.world.oracle.cluster.machine.states)
        if away and self.random.random() < 0.6:
            self._ask(Opcode.SET_NODE_STATE, SetNodeStateRequest(self.random.choice(away), NodeState.ACTIVE))
        else:
            node_id = self.random.choice(self.world.node_ids)
            self._ask(Opcode.SET_NODE_STATE, SetNodeStateRequest(node_id, NodeState.DRAINING))

    def _ask(self, opcode: int, request: Any) -> None:
        def answered(operation: Operation) -> None:
            if operation.outcome != "ok":
                self.elsewhere(operation.reply)
            self._later()

        self.ask(opcode, request, _TIMEOUT_US, answered)

    def _later(self) -> None:
        self.at_leisure(self.random.randrange(20_000, 800_000), self.start)
