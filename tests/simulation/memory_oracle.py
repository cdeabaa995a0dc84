"""I14 in bytes: what nodes hold for others, in budgets, in buffers of connections and in logs without a majority.

Names of the product's that bound them are taken from it; where it has none yet, nothing is checked.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from storage_nodes import limits
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import CLUSTER_PARTITION
from tests.simulation.transport import SimTransport

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

# What one turn may bring beyond a bound: a group, its answers, some frames. Of large messages some more.
TURN_BYTES = 300_000
LARGE_PER_TURN = 24
# Heartbeats and the like that are always on their way.
IDLE_BYTES = 8_000
# Something left the buffer within so long: it makes progress.
PROGRESS_US = 1_000_000
# A sign of life may have been asked for this long ago. Where the other end's bytes were lost or late since, CUT says
# nothing.
SILENCE_US = 1_500_000


class MemoryOracle:
    def __init__(self, world: World) -> None:
        self._world = world
        self.most_bytes = 0  # of a node's budget

    @property
    def _slack_bytes(self) -> int:
        return TURN_BYTES + LARGE_PER_TURN * self._world.faults.large_bytes

    def check_node(self, process: SimProcess) -> None:
        """I14: no budget is outgrown by more than what a turn brings; nor are uncommitted bytes of a partition."""
        budget = _budget(process)
        if budget is not None:
            total = budget.total
            self.most_bytes = max(self.most_bytes, total)
            if total > budget.bytes_max + self._slack_bytes:
                self._fail(f"node {process.process_id} holds {total} bytes of {budget.bytes_max}")
        bound = self._world.faults.tight_uncommitted_bytes or getattr(limits, "UNCOMMITTED_BYTES_MAX", 0)
        ledger = self._world.oracle.ledgers[process.process_id]
        for partition, replica in getattr(process.node, "replicas", {}).items():
            raft = replica.raft
            if bound and raft.role is Role.LEADER and partition != CLUSTER_PARTITION:
                mirror = ledger.staged[partition]
                if mirror.end <= raft.commit:
                    continue  # all is committed
                count = min(len(mirror.ends) - bisect_right(mirror.ends, raft.commit), 200)
                size = sum(map(len, mirror.batches[-count:])) if count else 0
                if size > bound + self._slack_bytes:
                    self._fail(f"node {process.process_id}, partition {partition}: {size} bytes are not committed")

    def check_cut(self, transport: SimTransport) -> None:
        """CUT: nobody gives up a connection because much waits in it, while the other end reads."""
        now_us = self._world.scheduler.now_us
        if transport.get_write_buffer_size() <= 0:
            return
        if transport.peer.closed or not transport.peer.own.is_up or now_us - transport.read_us > PROGRESS_US:
            return
        if now_us - transport.peer.hindered_us <= SILENCE_US:
            return
        text = f"{transport.own.process_id} cuts its connection to {transport.peer.own.process_id}"
        waiting = transport.get_write_buffer_size()
        self._world.oracle.fail("CUT for a burst", f"{text}: {waiting} bytes wait, some were read just now")

    def unsettled(self) -> str:
        """L4: what was taken of a budget was given back."""
        for process in self._world.processes.values():
            budget = _budget(process)
            if budget is not None and budget.total > IDLE_BYTES:
                return f"node {process.process_id} still holds {budget.total} bytes for others"
        return ""

    def _fail(self, text: str) -> None:
        self._world.oracle.fail("I14 bounded in bytes", text)


def _budget(process: SimProcess) -> Any:
    room = getattr(process.node, "room", None)
    return room.budget if room is not None else None
