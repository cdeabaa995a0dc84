"""One seed: a cluster of storage nodes and their clients, first under faults, then healed.

Safety phase: anything may fail, nothing promised may break. Liveness phase: faults stop, everybody who can start
does, and then leaders, acknowledgements, catching up and an empty queue are demanded within their time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import NamedTuple

from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.node.queue_replica import QueueReplica
from storage_nodes.protocol.messages import PartitionInfo
from tests.simulation.clients import Client, Creator, Receiver, Referee, Sender
from tests.simulation.clockwork import Scheduler
from tests.simulation.faults import FaultInjector, describe, draw_faults, tiny_bounds
from tests.simulation.guards import NotDeterministic, guarded
from tests.simulation.ledger import QueueBook
from tests.simulation.network import Network
from tests.simulation.oracle import BrokenInvariant, Oracle
from tests.simulation.planted import Planted
from tests.simulation.process import SimProcess, node_in

STEPS_DEFAULT = 4_000
LEADERS_WITHIN_US = 10_000_000
DRAINED_WITHIN_US = 90_000_000
LOOK_EVERY_US = 250_000
# Nothing in a phase may take this many steps: then something spins.
LIVENESS_STEPS_MAX = 400_000


class Outcome(NamedTuple):
    seed: int
    steps: int
    digest: int
    simulated_s: float
    nodes: int
    acked: int
    delivered: int
    elections: int
    recoveries: int
    flushes: int


class World:
    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.seed = str(seed)
        chance = random.Random(f"{seed}-world")
        self.faults = draw_faults(random.Random(f"{seed}-swarm"))
        self.scheduler = Scheduler(self.seed)
        self.scheduler.trace = trace
        self.network = Network(self.scheduler, self.seed, self.faults.links)
        self.node_ids = list(range(1, chance.choice([1, 3, 3, 3, 3, 5]) + 1))
        self.draining = False
        self.partition = -1
        self.oracle = Oracle(self)
        self.referee = Referee(self)
        self.clients: list[Client] = []
        self.processes = {node_id: SimProcess(self, node_id, self.faults.bounds) for node_id in self.node_ids}
        self.current = self.processes[1]
        self._chance = chance
        if self.faults.drift:
            for process in self.processes.values():
                process.drift_ppm = chance.randrange(-1_000, 1_000)
                process.skew_ms = chance.randrange(-2_000, 2_000)
        if trace is not None:
            trace(f"seed {seed}: {len(self.node_ids)} nodes, {describe(self.faults)}")

    def run(self, steps: int = STEPS_DEFAULT) -> Outcome:
        with ExitStack() as stack:
            stack.enter_context(node_in(self))
            stack.enter_context(tiny_bounds(self.faults.tiny))
            stack.enter_context(guarded())
            self._start()
            while self.scheduler.steps < steps:
                self.scheduler.step()
            self._heal()
            self._demand_liveness()
        self.oracle.check_everything()
        self.referee.check_outcomes()
        self.referee.check_promises()
        return self._outcome()

    def queue_created(self, info: PartitionInfo) -> None:
        """The queue is there: let the clients loose."""
        self.partition = info.partition
        number = 1
        for kind in [Sender] * self._chance.choice([1, 2, 4]) + [Receiver] * self._chance.choice([1, 2, 4]):
            client = kind(self, number, self.partition)
            self.clients.append(client)
            self.scheduler.after(number * 500, client.next_message if isinstance(client, Sender) else client.receive)
            number += 1

    def book(self) -> QueueBook:
        return self.oracle.books.setdefault(self.partition, QueueBook())

    # --- phases -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for process in self.processes.values():
            self.scheduler.after(self._chance.randrange(100_000), self._start_one, process)
        self.clients.append(Creator(self, 0))
        self.scheduler.after(1_000, self.clients[0].start)  # type: ignore[attr-defined]
        # The first leader may come in peace.
        self.scheduler.after(3_000_000, FaultInjector(self).tick)

    @staticmethod
    def _start_one(process: SimProcess) -> None:
        if not process.is_up:
            process.start()

    def _heal(self) -> None:
        self.draining = True
        self.faults.heal()
        self.network.heal()
        for process in self.processes.values():
            process.disk.eio_rate = 0.0
            if process.is_up:
                process.loop.paused_until_us = min(process.loop.paused_until_us, self.scheduler.now_us)
            self._start_one(process)

    def _demand_liveness(self) -> None:
        healed_us = self.scheduler.now_us
        last_step = self.scheduler.steps + LIVENESS_STEPS_MAX
        look_us = healed_us
        while True:
            while self.scheduler.now_us < look_us:
                self.scheduler.step()
            if self.scheduler.steps > last_step:
                self.oracle.fail("L4 settles", f"{LIVENESS_STEPS_MAX} steps were not enough")
            look_us += LOOK_EVERY_US
            since_us = self.scheduler.now_us - healed_us
            if since_us > LEADERS_WITHIN_US:
                if any(self._waits_for_all(partition) for partition in (CLUSTER_PARTITION, self.partition)):
                    return
                self.check_leaders()
            if self._unsettled() == "":
                return
            if since_us > DRAINED_WITHIN_US:
                self.oracle.fail("L2-L4 drains and catches up", self._unsettled())
            for process in self.processes.values():
                # A fault that was under way when the world healed may end a process a moment later.
                self._start_one(process)

    def _waits_for_all(self, partition: int) -> bool:
        """A node is gone for good (rotten), and of the others too few are above suspicion to elect anybody (R12b).

        Empty directories cannot be told from lost ones, so a first election needs every voter: nothing was ever
        acknowledged there, and nothing can be demanded. A group that lost what it had would know a commit position.
        """
        replicas = [
            process.node.replicas[partition]
            for process in self.processes.values()
            if process.node is not None and partition in process.node.replicas
        ]
        above_suspicion = sum(not replica.raft.suspect for replica in replicas)
        return (
            len(replicas) < len(self.node_ids)
            and above_suspicion <= len(self.node_ids) // 2
            and all(replica.raft.commit == 0 for replica in replicas)
        )

    def check_leaders(self) -> None:
        """L1: every partition is led, by one node."""
        for partition in sorted({CLUSTER_PARTITION, max(self.partition, CLUSTER_PARTITION)}):
            leaders = [
                node_id
                for node_id, process in self.processes.items()
                if process.node is not None
                and partition in process.node.replicas
                and process.node.replicas[partition].serving
            ]
            if len(leaders) != 1:
                self.oracle.fail("L1 led by one", f"partition {partition} is led by {leaders}")

    def _unsettled(self) -> str:
        """L2 to L4: what is still missing; empty when all is well."""
        if self.partition < 0:
            return "the queue is not created"
        if any(isinstance(client, Sender) and not client.is_idle for client in self.clients):
            return "a sender is not done"
        book = self.book()
        left = [offset for offset in book.bodies if offset not in book.gone]
        if left:
            return f"messages {left[:10]} ({len(left)}) are still in the queue"
        for partition in (CLUSTER_PARTITION, self.partition):
            ends = []
            for process in self.processes.values():
                if process.is_up and process.node is not None and partition in process.node.replicas:
                    replica = process.node.replicas[partition]
                    ends.append((replica.raft.commit, replica.applied, replica.log.log_end, replica.log.durable_end))
            if len({end for positions in ends for end in positions}) != 1:
                return f"replicas of partition {partition} differ: (commit, applied, log end, durable end) {ends}"
            if len(ends) <= len(self.node_ids) // 2 and partition == CLUSTER_PARTITION:
                return f"only {len(ends)} nodes are up"
        return ""

    def _outcome(self) -> Outcome:
        oracle, scheduler = self.oracle, self.scheduler
        acked = sum(client.acked for client in self.clients if isinstance(client, Sender))
        for process in self.processes.values():
            if process.is_up and process.node is not None:
                replica = process.node.replicas.get(self.partition)
                if isinstance(replica, QueueReplica) and replica.machine.state.fresh_count:
                    raise BrokenInvariant("L4 queue drains", f"node {process.process_id} still holds messages")
        return Outcome(
            int(self.seed), scheduler.steps, scheduler.digest, scheduler.now_us / 1e6, len(self.node_ids), acked,
            self.referee.delivered, oracle.elections, oracle.recoveries, oracle.flushes,
        )  # fmt: skip


def run_seed(seed: int, steps: int = STEPS_DEFAULT, trace: Callable[[str], None] | None = None) -> Outcome:
    """The same seed, the same run. Raises BrokenInvariant."""
    return World(seed, trace).run(steps)


class Catch(NamedTuple):
    seed: int  # that caught it
    seeds: int  # that were run
    steps: int  # over all of them
    rule: str  # that was found broken; empty when nothing was


def hunt(planted: Planted, first: int, seeds_max: int) -> Catch:
    """Run seeds with a planted bug until one fails that passes without it: then the bug was noticed, and nothing else.

    A node that stops by an assertion of its own counts as noticing.
    """
    total = 0
    for seed in range(first, first + seeds_max):
        rule, steps = _verdict(seed, planted, planted.plant())
        total += steps
        if rule and not _verdict(seed, planted, nullcontext())[0]:
            return Catch(seed, seed - first + 1, total, rule)
    return Catch(-1, seeds_max, total, "")


def _verdict(seed: int, planted: Planted, bug: AbstractContextManager[object]) -> tuple[str, int]:
    """(rule that was broken, empty where none was; steps)."""
    world = World(seed)
    planted.provoke(world.faults)
    try:
        with bug:
            world.run(planted.steps)
    except NotDeterministic:
        raise
    except BrokenInvariant as error:
        return error.rule, world.scheduler.steps
    except Exception as error:
        return type(error).__name__, world.scheduler.steps
    return "", world.scheduler.steps
