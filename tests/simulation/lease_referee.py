"""Leases of leaders (R8): nothing is answered by a leader that another one may have taken the place of.

Two laws. When somebody is elected, and whenever it commits something, no leader of an earlier epoch holds a lease, by
its own clock at that moment. And what a leader answers from its own state, it answers before a leader of a later epoch
committed anything: before that nobody else serves, so nobody can have been told what contradicts it. No time is
allowed for: not for a process that stood still, not for messages under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from storage_nodes.machines.raft.effects import Role
from storage_nodes.protocol.messages import Opcode
from tests.simulation.transport import SimTransport

if TYPE_CHECKING:
    from tests.simulation.clients import Operation
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

# Answered from what the leader knows; the others tell what a majority committed, which stays true.
LEASED = frozenset(
    {Opcode.ACQUIRE, Opcode.STREAM_READ, Opcode.GROUP_READ, Opcode.GROUP_HEARTBEAT, Opcode.GROUP_COMMITTED}
)


class LeaseReferee:
    def __init__(self, world: World) -> None:
        self._world = world
        self.broken = ""

    def check_alone(self, node_id: int, partition: int, epoch: int) -> None:
        """R8: whoever was elected is alone."""
        for process in self._world.processes.values():
            node = process.node
            if node is None or not process.is_up or process.process_id == node_id:
                continue
            replica = getattr(node, "replicas", {}).get(partition)
            if replica is None or replica.raft.role is not Role.LEADER or replica.raft.epoch >= epoch:
                continue
            until_ms = max(replica._leased_until_ms, replica.raft.lease_until_ms(node.leases.until_ms))
            left_ms = until_ms - process.clock.boottime_ms()
            if left_ms > 0:
                text = f"partition {partition}: node {node_id} leads epoch {epoch}, node {process.process_id}"
                self._world.oracle.fail(
                    "R8 one lease", f"{text} has a lease of epoch {replica.raft.epoch}: {left_ms} ms"
                )

    def watch(self, there: SimTransport, operations: Mapping[int, Operation]) -> None:
        """See what a node answers at the moment at which it does: it may leave later, for its client reads slowly."""

        def accepted(connection: Any) -> None:
            real = connection.answer

            def answer(token: Any, *more: Any) -> None:
                operation = operations.get(token.request_id)
                if operation is not None and operation.opcode in LEASED:
                    self.check_not_stale(there.own, operation.request.partition)  # type: ignore[arg-type]
                real(token, *more)

            connection.answer = answer

        if there.protocol is None:
            there.on_accept = accepted
        else:
            accepted(there.protocol)

    def check_not_stale(self, process: SimProcess, partition: int) -> None:
        """R8: a leader answers nothing once a later one has committed something."""
        truth = self._world.oracle.committed.get(partition)
        replica = process.node.replicas.get(partition) if process.node is not None else None
        if truth is None or replica is None or not truth.growth:
            return
        epoch, now_us = replica.raft.epoch, self._world.scheduler.now_us
        since_us = next((at_us for by, _, _, at_us in truth.growth if by > epoch), None)
        if since_us is not None:
            text = f"node {process.process_id}, partition {partition}, epoch {epoch}"
            self.broken = f"{text}, {(now_us - since_us) // 1_000} ms too late"
            self.check_broken()

    def check_broken(self) -> None:
        """Said again for an answer that the node gives instead: it takes what is raised here for its own error."""
        if self.broken:
            self._world.oracle.fail("R8 stale leader serves", self.broken)
