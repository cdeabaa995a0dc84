"""One seed: a cluster of storage nodes and their clients, first under faults, then healed.

Safety phase: anything may fail, nothing promised may break. Liveness phase: faults stop, everybody who can start
does, and then leaders, acknowledgements, catching up and an empty queue are demanded within their time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from storage_nodes.model import CLUSTER_PARTITION, PartitionKind
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.protocol.messages import PartitionInfo
from tests.simulation.accidents import Accidents
from tests.simulation.books import QueueBook
from tests.simulation.clients import Client
from tests.simulation.clocks import ClockFaults
from tests.simulation.clockwork import Scheduler
from tests.simulation.faults import (
    FaultInjector,
    Faults,
    describe,
    draw_accidents,
    draw_faults,
    draw_times,
    draw_transport,
    tiny_bounds,
)
from tests.simulation.front_ends import FrontEnd, Receive
from tests.simulation.group_clients import GroupMember
from tests.simulation.group_referee import GROUPS, GroupReferee
from tests.simulation.guards import guarded
from tests.simulation.keeper_clients import Keeper
from tests.simulation.lease_referee import LeaseReferee
from tests.simulation.log_oracle import BrokenInvariant
from tests.simulation.lost_disks import PAIR_NODES, LostDisks, draw_pairs
from tests.simulation.manager_clients import TOPIC_PARTITIONS, Creator, Manager
from tests.simulation.memory_oracle import MemoryOracle
from tests.simulation.mixed_levels import MixedLevels, draw_levels
from tests.simulation.move_clients import Mover
from tests.simulation.network import Network
from tests.simulation.older_directories import OlderDirectories, draw_older
from tests.simulation.oracle import Oracle
from tests.simulation.process import SimProcess, node_in
from tests.simulation.queue_clients import FifoSender, Receiver, Sender
from tests.simulation.referee import Referee
from tests.simulation.stream_clients import Appender, Reader
from tests.simulation.usage_referee import UsageReferee

STEPS_DEFAULT = 4_000
CONSUMERS_PER_GROUP = 3
LEADERS_WITHIN_US = 10_000_000
MOVED_WITHIN_US = 2_000_000
DRAINED_WITHIN_US = 90_000_000
LOOK_EVERY_US = 250_000
# 2 s by which time may be off, the longest poll of a receiver, and its pause.
LATE_US_MAX = 7_000_000
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
    installs: int
    resets: int
    drops: int
    wipes: int
    went_back: int
    stops: int
    read: int
    duplicates: int
    moves: int
    dead_letters: int
    grants: int
    commits: int
    expired: int
    clock_jumps: int
    sleeps: int
    calls: int
    calls_acked: int
    stopped: int
    spoiled: int
    upgrades: int
    rolled_back: int
    pairs: int


class World:
    def __init__(
        self,
        seed: int,
        trace: Callable[[str], None] | None = None,
        adjust: Callable[[Faults], None] | None = None,
        check_all: bool = False,
    ) -> None:
        """`adjust` changes the faults that the seed drew. `check_all`: look at what did not change, too."""
        self.seed = str(seed)
        self.check_all = check_all
        chance = random.Random(f"{seed}-world")
        self.faults = draw_faults(random.Random(f"{seed}-swarm"))
        draw_times(self.faults, random.Random(f"{seed}-times"))
        draw_transport(self.faults, random.Random(f"{seed}-transport"))
        draw_accidents(self.faults, random.Random(f"{seed}-accident-rates"))
        draw_older(self.faults, random.Random(f"{seed}-back"))
        draw_levels(self.faults, random.Random(f"{seed}-mixed"))
        draw_pairs(self.faults, random.Random(f"{seed}-pairs"))
        if adjust is not None:
            adjust(self.faults)
        self.scheduler = Scheduler(self.seed)
        self.scheduler.trace = trace
        self.network = Network(self.scheduler, self.seed, self.faults.links)
        self.network.on_cut = lambda transport: self.memory.check_cut(transport)
        count = chance.choice([1, 3, 3, 3, 3, 5])
        if self.faults.movers:
            count = chance.choice([3, 4, 4, 5])
        if self.faults.pairs:
            count = PAIR_NODES
        self.node_ids = list(range(1, count + 1))
        self.draining = False
        self.partition = -1
        self.dead_partition = -1  # where dead letters of that one go; -1 = they stay
        self.topic: list[int] = []  # the stream that consumer groups read
        self.groups: list[bytes] = []
        self.partitions: dict[int, PartitionInfo] = {}  # created, and nobody is about to drop them
        self.wipes = self.stops = 0
        self._leaving: set[int] = set()  # to be dropped
        self._dropped: set[int] = set()  # of those, the ones of which nothing is used any more
        self._unled_us: dict[int, int] = {}  # and when it was last seen without one leader
        self._led_us: dict[int, int] = {}  # when each partition was last seen led, after everything healed
        self.oracle = Oracle(self)
        self.memory = MemoryOracle(self)
        self.referee = Referee(self)
        self.group_referee = GroupReferee(self)
        self.usage_referee = UsageReferee(self)
        self.lease_referee = LeaseReferee(self)
        self.older = OlderDirectories(self)
        self.levels = MixedLevels(self)
        self.lost_disks = LostDisks(self)
        self.clients: list[Client] = []
        self.front_ends: list[FrontEnd] = []
        # Receives that named an attempt and were given up: whoever asks next may repeat one, at whatever front end.
        self.given_up: list[Receive] = []
        self.processes = {node_id: SimProcess(self, node_id, self.faults.bounds) for node_id in self.node_ids}
        self.current = self.processes[1]
        self._chance = chance
        self._front_chance = random.Random(f"{seed}-front-ends")
        self.clock_faults = ClockFaults(self)
        self.accidents = Accidents(self)
        if trace is not None:
            trace(f"seed {seed}: {len(self.node_ids)} nodes, {describe(self.faults)}")

    def run(self, steps: int = STEPS_DEFAULT) -> Outcome:
        with ExitStack() as stack:
            stack.enter_context(node_in(self))
            stack.enter_context(tiny_bounds(self.faults))
            stack.enter_context(self.accidents.in_product())
            stack.enter_context(guarded())
            stack.callback(self._end)
            self._start()
            self.scheduler.run(steps)
            self._heal()
            self._demand_liveness()
            self.oracle.check_kept()
        self.oracle.check_everything(at_end=True)
        self.referee.check_outcomes()
        self.referee.check_promises()
        self.referee.check_calls()
        return self._outcome()

    def _end(self) -> None:
        """However it ended: nothing goes on."""
        for process in self.processes.values():
            if process.is_up:
                process.loop.end()
        for front_end in self.front_ends:
            front_end.end()

    def queue_created(self, info: PartitionInfo) -> None:
        """The queue is there: let the clients loose."""
        self.partition = info.partition
        self.partitions[info.partition] = info
        sender = FifoSender if self.faults.fifo else Sender
        for kind in [sender] * self._chance.choice([1, 2, 4]) + [Receiver] * self._chance.choice([1, 2, 4]):
            self._let_loose(kind, info.partition)
        for number in range(self.faults.front_ends):
            self.front_ends.append(FrontEnd(self, number))
            self.scheduler.after(self._front_chance.randrange(1_000_000), self.front_ends[-1].start)
        for _ in range(self.faults.managers):
            manager = Manager(self, len(self.clients))
            self.clients.append(manager)
            self.scheduler.after(self._chance.randrange(1_000_000), manager.start)
        if self.faults.pauses or self.faults.park_groups:
            keeper = Keeper(self, len(self.clients))
            self.clients.append(keeper)
            self.scheduler.after(self._chance.randrange(1_000_000), keeper.start)
        for _ in range(self.faults.movers):
            mover = Mover(self, len(self.clients))
            self.clients.append(mover)
            self.scheduler.after(self._chance.randrange(1_000_000), mover.start)

    def dead_letter_queue_created(self, info: PartitionInfo) -> None:
        """Nobody sends to it, but the nodes themselves."""
        self.dead_partition = info.partition
        self.partitions[info.partition] = info
        for _ in range(2):
            self._let_loose(Receiver, info.partition)

    def topic_created(self, info: PartitionInfo) -> None:
        """One partition more of the stream that consumer groups read; they come with the second one."""
        self.topic.append(info.partition)
        self.partitions[info.partition] = info
        self._let_loose(Appender, info.partition)
        if len(self.topic) != 2:
            return
        for number in range(self.faults.consumers):
            group = GROUPS[number // CONSUMERS_PER_GROUP]
            if group not in self.groups:
                self.groups.append(group)
            member = GroupMember(self, len(self.clients), group)
            self.clients.append(member)
            self.scheduler.after(self._chance.randrange(1_000_000), member.start)

    def partition_created(self, info: PartitionInfo) -> None:
        """Another partition is there, perhaps not for the first time, perhaps not any more."""
        if info.partition not in self.partitions and info.partition not in self._leaving:
            self.partitions[info.partition] = info
            kinds: tuple[Any, ...] = (Appender, Reader, Reader)
            if info.kind == PartitionKind.QUEUE:
                kinds = (FifoSender, FifoSender, Receiver, Receiver) if ":fifo:" in info.tag else (Sender, Receiver)
            for kind in kinds:
                self._let_loose(kind, info.partition)

    def leaving(self, partition: int) -> None:
        """A manager wants the partition deleted: nothing can be demanded of it any more. Clients go on."""
        self._leaving.add(partition)
        del self.partitions[partition]

    def dropping(self, partition: int) -> None:
        """And now it goes: clients need not try any more."""
        self._dropped.add(partition)

    def is_dropped(self, partition: int) -> bool:
        return partition in self._dropped

    def _let_loose(self, kind: type[Sender | Receiver | Reader], partition: int) -> None:
        number = len(self.clients)
        client = kind(self, number, partition)
        self.clients.append(client)
        if isinstance(client, Sender):
            self.scheduler.after(number * 500, client.next_message)
        else:
            self.scheduler.after(number * 500, client.read if isinstance(client, Reader) else client.receive)

    def others_are_sound(self, process: SimProcess) -> bool:
        """Do all other disks hold, beyond doubt, all that they acknowledged? Then this one may lose something."""
        others = [other for other in self.processes.values() if other is not process]
        return bool(others) and all(map(self.oracle.is_sound, others))

    def leads(self, node_id: int) -> bool:
        """Does this node serve the queue?"""
        node = self.processes[node_id].node
        replica = getattr(node, "replicas", {}).get(self.partition)
        return replica is not None and replica.serving

    def book(self, partition: int) -> QueueBook:
        book = self.oracle.books.get(partition, QueueBook())
        assert isinstance(book, QueueBook)
        return book

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
        self.clock_faults.heal()
        self.faults.heal()
        self.network.heal()
        for process in self.processes.values():
            process.disk.eio_rate = 0.0
            process.disk.full = False
            if process.is_up:
                process.loop.resume()
            self._start_one(process)
        for front_end in self.front_ends:
            front_end.start()

    def _demand_liveness(self) -> None:
        healed_us = self.scheduler.now_us
        last_step = self.scheduler.steps + LIVENESS_STEPS_MAX
        look_us = healed_us
        while True:
            self.scheduler.run(until_us=look_us)
            if self.scheduler.steps > last_step:
                self.oracle.fail("L4 settles", f"{LIVENESS_STEPS_MAX} steps were not enough")
            look_us += LOOK_EVERY_US
            since_us = self.scheduler.now_us - healed_us
            if since_us > LEADERS_WITHIN_US:
                self.check_leaders()
                self.check_not_late(healed_us)
            if self._unsettled() == "":
                return
            if since_us > DRAINED_WITHIN_US:
                self.oracle.fail("L2-L4 drains and catches up", self._unsettled())
            self.levels.heal()
            for process in self.processes.values():
                # A fault that was under way when the world healed may end a process a moment later.
                self._start_one(process)

    def check_leaders(self) -> None:
        """L1: every partition is led, by one node; but for the moment in which the nodes' balance moves a leader."""
        for partition in (CLUSTER_PARTITION, *self.partitions):
            leaders = [
                node_id
                for node_id, process in self.processes.items()
                if process.node is not None
                and partition in process.node.replicas
                and process.node.replicas[partition].serving
            ]
            now_us = self.scheduler.now_us
            if self._is_stopped(partition):
                self._led_us[partition] = now_us + LEADERS_WITHIN_US
            elif len(leaders) == 1:
                self._led_us[partition] = now_us
                continue
            elif now_us - self._led_us.setdefault(partition, now_us) > MOVED_WITHIN_US:
                self.oracle.fail("L1 led by one", f"partition {partition} is led by {leaders}")
            self._unled_us[partition] = now_us

    def check_not_late(self, healed_us: int) -> None:
        """LATE: receivers ask all the time, so a message is handed out soon after its lease or delay ended.

        Or others in front of it; and not where somebody holds the queue back. One that is dead goes to the dead-letter
        queue, once that is led.
        """
        book, faults = self.oracle.books.get(self.partition), self.faults
        if type(book) is not QueueBook or faults.retry_kind or faults.pauses:
            return
        now_us = self.scheduler.now_us
        led_us = max(self._unled_us.get(self.partition, 0), healed_us, self.referee.delivered_us)
        dead_led_us = max(self._unled_us.get(self.dead_partition, 0), led_us)
        for offset in book.bodies:
            if offset not in book.gone and offset not in book.scheduled:
                free_us = max(book.times.free_since_us(offset), dead_led_us if book.is_dead(offset) else led_us)
                if now_us - free_us > LATE_US_MAX:
                    text = f"offset {offset} is free for {(now_us - free_us) // 1_000} ms, and nobody got it"
                    self.oracle.fail("LATE by true time", text)

    def _is_stopped(self, partition: int) -> bool:
        """Is a replica stopped? It is tried again STOPPED_RETRY_MS later, and until then followers may take it for the
        leader, because its node is up."""
        nodes = [process.node for process in self.processes.values() if process.node is not None]
        return any(partition in node.stopped for node in nodes if hasattr(node, "stopped"))

    def _unsettled(self) -> str:
        """L2 to L4: what is still missing; empty when all is well."""
        if self.partition < 0:
            return "the queue is not created"
        if any(isinstance(client, Sender | Manager | Mover) and not client.is_idle for client in self.clients):
            return "a sender or manager is not done"
        if not all(front_end.is_idle for front_end in self.front_ends):
            return "a front end is not done"
        for partition in self.partitions:
            book = self.oracle.books.get(partition)
            left = [o for o in book.bodies if o not in book.gone] if isinstance(book, QueueBook) else []
            if left:
                return f"messages {left[:10]} ({len(left)}) are still in queue {partition}"
        for client in self.clients:
            if isinstance(client, Reader) and client.partition in self.partitions and not client.is_level():
                return f"a reader of stream {client.partition} has come to {client.offset}"
        if self.faults.consumers and len(self.topic) < TOPIC_PARTITIONS:
            return "the stream of the consumer groups is not created"
        return (
            self.group_referee.unsettled()
            or self._not_level()
            or self._led_by_wrong_clocks()
            or self.memory.unsettled()
            or self.levels.unsettled()
        )

    def _led_by_wrong_clocks(self) -> str:
        """L1: whose clock is wrong leads nothing that others can lead."""
        for node_id in filter(self.clock_faults.is_wrong, self.node_ids):
            for partition, replica in getattr(self.processes[node_id].node, "replicas", {}).items():
                if replica.serving and len(replica.raft.voters) > 2:
                    return f"node {node_id} leads partition {partition}, and its clock is wrong"
        return ""

    def _not_level(self) -> str:
        """L3: every replica that can be there is there, holds the same, and what was deleted is gone."""
        dropped = self.oracle.cluster.deleted
        for partition in (CLUSTER_PARTITION, *self.partitions):
            ends = []
            for process in self.processes.values():
                if process.is_up and process.node is not None and partition in process.node.replicas:
                    replica = process.node.replicas[partition]
                    ends.append((replica.raft.commit, replica.applied, replica.log.log_end, replica.log.durable_end))
                    if replica.raft.suspect:
                        return f"the replica of partition {partition} on node {process.process_id} is suspect"
                    if partition == CLUSTER_PARTITION and not dropped.isdisjoint(process.log.partitions):
                        return f"node {process.process_id} holds deleted partitions"
                    if partition != CLUSTER_PARTITION and not self._belongs(partition, process):
                        return f"node {process.process_id} still has a replica of partition {partition}"
                elif process.is_up and self._belongs(partition, process):
                    return f"node {process.process_id} has no replica of partition {partition}"
            if len({end for positions in ends for end in positions}) != 1:
                return f"replicas of partition {partition} differ: (commit, applied, log end, durable end) {ends}"
            if len(ends) <= len(self.node_ids) // 2 and partition == CLUSTER_PARTITION:
                return f"only {len(ends)} nodes are up"
        return self._not_moved()

    def _not_moved(self) -> str:
        """L3: no move is under way, whoever is to hold nothing holds nothing, and groups are as the cluster says."""
        machine = self.oracle.cluster.machine
        for node_id, state in machine.states.items():
            if machine.held.get(node_id):
                return f"node {node_id} is {state.name}, it still holds {list(machine.held[node_id])}"
        for plan in machine.partitions.values():
            if plan.move is not None:
                return f"partition {plan.partition} is still moving: {plan.move}"
            truth = self.oracle.committed.get(plan.partition)
            group = truth.configuration(self.oracle.cluster.boots[plan.partition]) if truth is not None else None
            if group is not None and (set(group.voters) != set(plan.replicas) or group.learners):
                return f"the group of partition {plan.partition} is {group}, it should be {plan.replicas}"
        return ""

    def _belongs(self, partition: int, process: SimProcess) -> bool:
        plan = self.oracle.cluster.machine.partitions.get(partition)
        return plan is not None and process.process_id in plan.holders()

    def _outcome(self) -> Outcome:
        oracle, scheduler = self.oracle, self.scheduler
        acked = sum(client.acked for client in self.clients if isinstance(client, Sender))
        calls_acked = sum(front_end.acked for front_end in self.front_ends)
        calls = sum(front_end.calls for front_end in self.front_ends)
        for process in self.processes.values():
            if process.is_up and process.node is not None:
                for partition in self.partitions:
                    replica = process.node.replicas.get(partition)
                    if isinstance(replica, QueueReplica) and replica.machine.state.fresh_count:
                        raise BrokenInvariant("L4 queue drains", f"node {process.process_id} still holds messages")
        return Outcome(
            int(self.seed), scheduler.steps, scheduler.digest, scheduler.now_us / 1e6, len(self.node_ids), acked,
            self.referee.delivered, oracle.elections, oracle.recoveries, oracle.flushes, oracle.installs, oracle.resets,
            oracle.drops, self.wipes, self.older.went_back, self.stops, self.referee.read, self.referee.duplicates,
            oracle.cluster.moves_done, oracle.dead_letters, self.group_referee.grants, self.group_referee.commits,
            sum(len(book.times.expired) for book in oracle.books.values() if isinstance(book, QueueBook)),
            self.clock_faults.jumps, self.clock_faults.sleeps, calls, calls_acked,
            self.accidents.stops, sum(process.spoiled for process in self.processes.values()),
            self.levels.upgrades, self.levels.rolled_back, self.lost_disks.pairs,
        )  # fmt: skip


def run_seed(seed: int, steps: int = STEPS_DEFAULT, trace: Callable[[str], None] | None = None) -> Outcome:
    """The same seed, the same run. Raises BrokenInvariant."""
    return World(seed, trace).run(steps)
