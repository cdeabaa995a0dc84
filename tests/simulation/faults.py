"""What goes wrong in a seed: each draws its own kinds of faults and rates, so some are quiet and some are wild."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from storage_nodes.limits import DEDUP_WINDOW_MS_DEFAULT, RETENTION_MS_DEFAULT
from storage_nodes.log.bounds import LogBounds
from tests.simulation.network import LinkFaults
from tests.storage_nodes.log.faulty_disk import SECTOR_BYTES

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

TICK_US = 50_000

# Bounds of the code under test that a seed may make tiny, so that their edges are met all the time.
TINY = {
    "storage_nodes.machines.queue.delivery.in_order.READ_AHEAD_MESSAGES_MAX": 8,
    "storage_nodes.machines.queue.delivery.window.READ_AHEAD_MESSAGES_MAX": 8,
    "storage_nodes.machines.queue.delivery.fair.READ_AHEAD_MESSAGES_MAX": 8,
    "storage_nodes.machines.queue.delivery.backlog.SIGHT_RUNS_NEAR": 10,
    "storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_RUNS_MAX": 40,
    "storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_STEPS_MAX": 4,
    "storage_nodes.machines.queue.delivery.fairness.NOISY_IN_FLIGHT_MIN": 3,
    "storage_nodes.machines.queue.delivery.fair.TAKEN_AHEAD_RANGES_MAX": 12,
    "storage_nodes.machines.queue.delivery.pending_commands.KEYS_PER_COMMAND_BYTES_MAX": 100,
    "storage_nodes.node.replicas.queue_replica.FIFO_READ_AHEAD_BYTES_MAX": 600,
    "storage_nodes.node.replicas.queue_replica.READ_AHEAD_BYTES_MAX": 600,
    "storage_nodes.node.replicas.deliveries.READ_AHEAD_BYTES_MAX": 600,
    "storage_nodes.node.replicas.folding.FOLD_TURN_BYTES": 500,
    "storage_nodes.node.replicas.fold_turn.FOLD_TURN_BYTES": 500,
    "storage_nodes.node.replicas.append_sending.APPEND_BYTES_MAX": 700,
    "storage_nodes.node.replicas.appends.BATCH_BYTES_MAX": 3_000,
    "storage_nodes.node.replicas.dead_letters.DEAD_LETTERS_PER_MOVE_BYTES_MAX": 1_000,
    "storage_nodes.node.replicas.disposable.LAGGARD_BYTES_MAX": 4_000,
    "storage_nodes.machines.raft.progress.APPEND_IN_FLIGHT_BYTES_MAX": 1_500,
    "storage_nodes.node.replicas.snapshots.SNAPSHOT_CHUNK_BYTES_MAX": 300,
}

# How much is done in one turn, or at a time, for thousands of partitions; the handful of a seed never comes near.
ONE_BY_ONE = {
    "storage_nodes.node.transport.inbox.INBOX_SLICE_MESSAGES": 2,
    "storage_nodes.node.timers.TIMERS_SLICE_PARTITIONS": 1,
    "storage_nodes.node.replicas.stopped_replicas.STOPPED_RETRIES_AT_ONCE_MAX": 1,
    "storage_nodes.node.disk.tails.STOPPED_WAL_FILES_MAX": 1,
    "storage_nodes.node.transport.peer_state_notifier.PEER_NEWS_SLICE_PARTITIONS": 1,
    "storage_nodes.node.node.STARTS_PER_MS_MAX": 1,
    "storage_nodes.node.replicas.hand_over.HAND_OVERS_AT_ONCE_MAX": 1,
    "storage_nodes.node.membership.balance.BALANCE_TRANSFERS_MAX": 1,
    "storage_nodes.node.replicas.snapshots.SNAPSHOTS_SENDING_MAX": 1,
    "storage_nodes.node.replicas.catch_up_reads.FEED_BYTES_PER_S_MIN": 20_000,
    "storage_nodes.node.replicas.disposable.LAGGARD_MS_MAX": 1_000,
    "storage_nodes.node.replicas.cluster_replica.CREATING_AT_ONCE_MAX": 1,
    "storage_nodes.machines.cluster.planner.MOVES_PER_NODE_MAX": 1,
    "storage_nodes.machines.cluster.planner.PLAN_PARTITIONS_MAX": 1,
    "storage_nodes.machines.queue.delivery.groups.FIFO_READ_AHEAD_MESSAGES_MAX": 12,
    "storage_nodes.machines.queue.delivery.by_group.FIFO_READ_AHEAD_MESSAGES_MAX": 12,
    "storage_nodes.machines.queue.delivery.by_group.PARKED_GROUPS_MAX": 1,
    "storage_nodes.machines.queue.state.fifo_state.ATTEMPTS_MAX": 2,
    "storage_nodes.machines.queue.delivery.backlog.LOOKAHEAD_TAG_QUEUES_MAX": 2,
    "storage_nodes.machines.stream.coordinator.CONSUMER_COMMANDS_PER_BATCH_MAX": 1,
    "storage_nodes.machines.stream.coordinator.CONSUMER_FENCES_AT_ONCE_MAX": 1,
    "storage_nodes.machines.stream.machine.STREAM_COMMANDS_LEFT_MAX": 5,
    "storage_nodes.machines.queue.state.queue_state.DEAD_LETTERS_BY_AGE_MAX": 2,
    "storage_nodes.machines.queue.state.queue_state.DELAYED_LIVE_MAX": 2,
    "storage_nodes.machines.queue.state.held_messages.CHECKPOINT_PIECES_MESSAGES": 2,
    "storage_nodes.machines.queue.state.held_messages.LAZY_RANGES_MIN": 2,
    "storage_nodes.machines.producers.LAZY_ROWS_MIN": 2,
    "storage_nodes.machines.queue.state.checkpoint.LAZY_RANGES_MIN": 2,
    "storage_nodes.machines.queue.state.offset_ranges.BLOCK_RANGES_MAX": 2,
    "storage_nodes.machines.queue.delivery.leases.LEASE_STEPS_PER_INPUT_MAX": 3,
    "storage_nodes.machines.queue.delivery.leases.AGAIN_READY_MAX": 4,
    "storage_nodes.node.replicas.queue_replica.FIFO_PARSED_BYTES_MAX": 1_000,
    "storage_nodes.node.replicas.bodies.BODY_CACHE_BYTES_MAX": 2_000,
}


# Buffers and budgets, where they are bounded.
TIGHT_BYTES = 20_000
TIGHT = dict.fromkeys(
    (
        "storage_nodes.node.transport.connections.CONNECTION_ANSWERS_BYTES_MAX",
        "storage_nodes.node.transport.peer_link.LINK_BYTES_MAX",
        "storage_nodes.node.transport.outflow.TRANSPORT_BYTES_MAX",
        "storage_nodes.node.transport.outflow.WRITE_BYTES",
    ),
    TIGHT_BYTES,
)
TIGHT_SENDS = {
    "storage_nodes.node.replicas.appends.UNCOMMITTED_BYTES_MAX": TIGHT_BYTES,
    "storage_nodes.client.connection.CLIENT_WRITE_BUFFER_BYTES": TIGHT_BYTES // 4,
    "storage_nodes.client.sequences.PRODUCER_WINDOW_RECORDS": 64,
    "storage_nodes.machines.producers.PRODUCER_WINDOW_RECORDS": 64,
    # No send has more records than a producer's window (storage_nodes/limits.py).
    "storage_nodes.machines.queue.leader.letters.DEAD_LETTERS_PER_MOVE_MAX": 50,
}
# A queue's retention is a minute at least, and a stopped replica is tried again after half of one: longer than most
# seeds live. And the sectors of the simulated disk are small.
SHORT = {
    "storage_nodes.machines.queue.state.configs.RETENTION_MS_MIN": 1,
    "storage_nodes.log.recovery.UNREADABLE_STEP_BYTES": SECTOR_BYTES,
    "storage_nodes.node.replicas.stopped_replicas.STOPPED_RETRY_MS": 5_000,
    "storage_nodes.node.replicas.stopped_replicas.STOPPED_RETRY_DOUBLINGS_MAX": 1,
}

# What can be switched off, one by one, when a failure is made smaller.
KINDS: dict[str, tuple[str, ...]] = {
    "crash": ("crash_rate",),
    "power": ("power_share", "power_failure_rate"),
    "power-failure": ("power_failure_rate",),
    "pause": ("pause_rate",),
    "cut": ("cut_rate",),
    "isolate": ("isolate_rate",),
    "rot": ("rot_rate", "segment_rot_rate"),
    "eio": ("eio_rate",),
    "spoil": ("spoil_rate",),
    "unreadable": ("unreadable",),
    "poison": ("poison_rate",),
    "violation": ("violation_rate",),
    "full": ("full_rate",),
    "wipe": ("wipe_rate",),
    "pairs": ("pairs",),
    "back": ("back_rate",),
    "stop": ("stop_rate",),
    "managers": ("managers",),
    "movers": ("movers",),
    "dead-letters": ("receives_max",),
    "consumers": ("consumers",),
    "keys": ("keyed",),
    "levels": ("mixed",),
    "leisure": ("leisure",),
    "drift": ("drift",),
    "jumps": ("jump_rate",),
    "suspend": ("suspend_rate",),
    "sleep": ("sleep_rate",),
    "retention": ("retention_ms",),
    "window": ("dedup_ms",),
    "tiny": ("tiny",),
    "tight": ("tight",),
    "one-by-one": ("one_by_one",),
    "retry": ("retry_kind",),
    "parking": ("park_groups",),
    "pauses": ("pauses",),
    "slow-disk": ("disk_us",),
    "early-work": ("early_work",),
    "loss": ("links.loss",),
    "client-loss": ("links.client_loss",),
    "duplicate": ("links.duplicate",),
    "reorder": ("links.reorder",),
    "late": ("links.late",),
    "stall": ("links.stall",),
    "bandwidth": ("links.bytes_per_s",),
    "split": ("links.split",),
    "slow-readers": ("slow_readers",),
    "front-ends": ("front_ends",),
    "large": ("large_bytes",),
}
# What switched off means, where that is not 0.
_OFF: dict[str, Any] = {"leisure": 1, "disk_us": (100, 1_000)}
_OFF |= {"retention_ms": RETENTION_MS_DEFAULT, "dedup_ms": DEDUP_WINDOW_MS_DEFAULT}
_OFF |= dict.fromkeys(("drift", "tiny", "tight", "one_by_one", "park_groups", "pauses", "early_work", "pairs"), False)


@dataclass
class Faults:
    """Rates are per tick of TICK_US."""

    crash_rate: float
    power_share: float  # of the crashes
    power_failure_rate: float  # all nodes at once
    restart_rate: float
    pause_rate: float
    cut_rate: float
    heal_rate: float
    rot_rate: float  # per crash
    eio_rate: float  # per fsync
    disk_us: tuple[int, int]
    drift: bool
    tiny: bool
    bounds: LogBounds
    links: LinkFaults = field(default_factory=LinkFaults)
    leisure: int = 1  # how many times longer clients pause: more time goes by in as many steps
    fifo: bool = False  # the queue keeps order in groups, and senders name their messages
    managers: int = 0  # clients that create and delete partitions
    receives_max: int = 0  # what was received so often becomes a dead letter; 0 = there are none
    consumers: int = 0  # members of the groups of a stream
    movers: int = 0  # clients that move replicas and empty nodes
    wipe_rate: float = 0.0  # a node comes back with an empty disk
    pairs: bool = False  # two disks of five may lose something at a time (lost_disks.py)
    back_rate: float = 0.0  # a node comes back with an older copy of its directory
    stop_rate: float = 0.0  # a node is told to stop
    full_rate: float = 0.0  # a disk has no room left, for a while
    segment_rot_rate: float = 0.0  # a byte in a segment changes
    one_by_one: bool = False
    retry_kind: int = 0  # a `RetryKind`: the pause before a message is received again
    park_groups: bool = False  # FIFO: a group is held once a message of it became a dead letter, until it is unparked
    pauses: bool = False  # somebody pauses the queue now and then
    isolate_rate: float = 0.0  # a leader loses sight of the other nodes, while its clients still see it
    jump_rate: float = 0.0  # NTP steps a node's wall clock; a minority's also to a wrong time, and at a start
    mended: bool = False  # all clocks are right once faults are over
    suspend_rate: float = 0.0  # a machine sleeps
    sleep_rate: float = 0.0  # all machines do, for up to eight hours
    retention_ms: int = RETENTION_MS_DEFAULT  # of the queue
    dedup_ms: int = DEDUP_WINDOW_MS_DEFAULT  # window of the queue
    slow_readers: float = 0.0  # share of the clients that do not read what they are answered, for seconds
    tight: bool = False  # buffers and budgets are small
    large_bytes: int = 0  # bodies of up to so many bytes, now and then; 0 = all are small
    front_ends: int = 0  # processes with a client of the product's own
    front_end_restart_rate: float = 0.0
    early_work: bool = False  # the disk does the work of threads at once, and the loop hears of it late
    poison_rate: float = 0.0  # an entry that one node, or none, can fold
    violation_rate: float = 0.0  # to a replica it seems that its group broke a promise of Raft
    spoil_rate: float = 0.0  # a file of a node that is down is damaged: a manifest, both, the mark, a checkpoint
    unreadable: float = 0.0  # share of the damage that is sectors which cannot be read
    mixed: int = 0  # nodes of two releases: they are upgraded, or go back as well (mixed_levels.py)
    keyed: bool = False  # messages of a standard queue have groups and tags, and some receivers ask for tags

    @property
    def tight_uncommitted_bytes(self) -> int:
        return TIGHT_BYTES if self.tight else 0

    @property
    def node_memory_bytes(self) -> int:
        """The least that the largest frames of this world pass through."""
        return 400_000 + 100 * self.large_bytes

    def switch_off(self, kinds: Iterable[str]) -> None:
        """Leave out these kinds of faults (KINDS)."""
        for kind in kinds:
            for name in KINDS[kind]:
                if name.startswith("links."):
                    setattr(self.links, name.removeprefix("links."), 0)
                else:
                    setattr(self, name, _OFF.get(name, 0))

    def harden(self) -> None:
        """What was drawn, and besides every bound tiny and disks often lost: edges that few seeds draw together."""
        self.tiny = True
        self.one_by_one = not self.large_bytes
        self.wipe_rate, self.cut_rate = max(self.wipe_rate, 0.01), max(self.cut_rate, 0.02)
        self.heal_rate = 0.1

    def heal(self) -> None:
        self.crash_rate = self.power_failure_rate = self.pause_rate = self.cut_rate = self.rot_rate = 0.0
        self.eio_rate = self.isolate_rate = self.wipe_rate = self.stop_rate = self.full_rate = 0.0
        self.poison_rate = self.violation_rate = self.spoil_rate = 0.0
        self.back_rate = 0.0
        self.segment_rot_rate = self.jump_rate = self.suspend_rate = self.sleep_rate = 0.0
        self.disk_us = (100, 1_000)
        self.leisure = 1
        self.links.heal()


def draw_times(faults: Faults, chance: random.Random) -> None:
    """Clocks that jump, and spans that are short enough for their ends to be met; from a source of their own."""
    if chance.random() < 0.55:
        faults.jump_rate = chance.choice([0.0005, 0.004, 0.02])
    if chance.random() < 0.25:
        faults.suspend_rate = chance.choice([0.0005, 0.003])
    if chance.random() < 0.35:
        faults.sleep_rate = chance.choice([0.002, 0.01])
    faults.retention_ms = chance.choice([RETENTION_MS_DEFAULT, RETENTION_MS_DEFAULT, 4_000, 10_000, 60_000])
    faults.dedup_ms = chance.choice([DEDUP_WINDOW_MS_DEFAULT, 2_500, 6_000, 60_000])


def draw_transport(faults: Faults, chance: random.Random) -> None:
    """Narrow links, small sockets, large messages, slow readers; from a source of their own."""
    links = faults.links
    if chance.random() < 0.35:
        links.bytes_per_s = chance.choice([200_000, 1_000_000, 10_000_000])
    links.socket_bytes = chance.choice([2_000, 20_000, 200_000, 4_000_000])
    links.piece_bytes = chance.choice([1_500, 16_384, 65_536, 262_144])
    links.split = chance.choice([0.0, 0.0, 0.02, 0.2])
    if chance.random() < 0.25:
        faults.slow_readers = chance.choice([0.2, 0.6])
    faults.tight = chance.random() < 0.5
    faults.front_ends = chance.choice([0, 0, 0, 1, 2])
    faults.front_end_restart_rate = chance.choice([0.0, 0.01, 0.05])
    if chance.random() < 0.06:
        faults.large_bytes = chance.choice([30_000, 262_144, 1_000_000])
        faults.one_by_one = False  # at that pace a replica is fed for minutes
        links.piece_bytes = max(links.piece_bytes, faults.large_bytes // 20)
        links.bytes_per_s = max(links.bytes_per_s, 4 * faults.large_bytes) if links.bytes_per_s else 0
    faults.early_work = chance.random() < 0.5


def draw_accidents(faults: Faults, chance: random.Random) -> None:
    """What stops single replicas, and damage to all kinds of files; from a source of their own."""
    if chance.random() < 0.3:
        faults.poison_rate = chance.choice([0.003, 0.02])
    if chance.random() < 0.3:
        faults.violation_rate = chance.choice([0.003, 0.02])
    if chance.random() < 0.4:
        faults.spoil_rate = chance.choice([0.05, 0.3])
    faults.unreadable = chance.choice([0.0, 0.5, 1.0])


def draw_faults(chance: random.Random) -> Faults:
    def rate(most: float) -> float:
        return chance.random() * most if chance.random() < 0.5 else 0.0

    links = LinkFaults(
        loss=rate(0.2), duplicate=rate(0.2), reorder=rate(0.3), client_loss=rate(0.1), late=rate(0.05),
        delay_us=chance.choice([(50, 400), (100, 2_000), (1_000, 40_000)]), stall=chance.random() < 0.5,
    )  # fmt: skip
    wal_file_bytes = chance.choice([700, 2_000, 6_000, 20_000])
    bounds = LogBounds(
        wal_file_bytes=wal_file_bytes,
        wal_grow_bytes=chance.choice([256, min(2_048, wal_file_bytes)]),
        wal_spare_files_max=chance.choice([0, 1, 2]),
        memtable_bytes_max=chance.choice([300, 3_000, 30_000]),
        segment_bytes_max=chance.choice([400, 3_000, 20_000]),
        segment_index_interval_bytes=chance.choice([64, 1_000]),
        open_segment_files_max=chance.choice([1, 4]),
        checkpoint_inline_bytes_max=chance.choice([64, 512]),
        flush_run_bytes=chance.choice([100, 1_000, 10_000]),
        flush_revisits_max=(flush_partitions := chance.choice([1, 16])),
        flush_slice_partitions=flush_partitions,
    )
    return Faults(
        crash_rate=rate(0.03), power_share=chance.choice([0.0, 0.5, 1.0]), power_failure_rate=rate(0.004),
        restart_rate=chance.choice([0.02, 0.1, 0.5]), pause_rate=rate(0.01), cut_rate=rate(0.04),
        heal_rate=chance.choice([0.002, 0.02, 0.1]), rot_rate=rate(0.2), eio_rate=rate(0.002),
        disk_us=chance.choice([(50, 300), (200, 3_000), (1_000, 30_000), (1_000, 300_000)]),
        drift=chance.random() < 0.5, tiny=chance.random() < 0.5, bounds=bounds, links=links,
        leisure=chance.choice([1, 1, 1, 30]), isolate_rate=rate(0.02),
        managers=chance.choice([0, 0, 1, 2]), fifo=chance.random() < 0.25,
        wipe_rate=rate(0.01), stop_rate=rate(0.02), full_rate=rate(0.005),
        segment_rot_rate=rate(0.01), movers=chance.choice([0, 0, 1, 2]), receives_max=chance.choice([0, 0, 1, 3]),
        consumers=chance.choice([0, 0, 0, 2, 4]), one_by_one=chance.random() < 0.5, keyed=chance.random() < 0.4,
        retry_kind=chance.choice([0, 0, 0, 1, 2, 3]), park_groups=chance.random() < 0.5, pauses=chance.random() < 0.25,
    )  # fmt: skip


@contextmanager
def tiny_bounds(faults: Faults) -> Iterator[None]:
    with ExitStack() as stack:
        chosen = (TINY if faults.tiny else {}) | (ONE_BY_ONE if faults.one_by_one else {}) | SHORT
        if faults.tight:
            chosen |= TIGHT | TIGHT_SENDS
        for name, value in chosen.items():
            stack.enter_context(mock.patch(name, value))
        yield


class FaultInjector:
    """Draws what happens at each tick of the phase with faults."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}-faults")
        self._spoil_chance = random.Random(f"{world.seed}-spoil")

    def tick(self) -> None:
        world, chance, faults = self._world, self._chance, self._world.faults
        if world.draining:
            return
        world.clock_faults.tick()
        world.accidents.tick(self._may_lose_alone)
        world.levels.tick()
        for process in world.processes.values():
            untold = world.older.untold()
            if not process.is_up:
                if untold is process:
                    process.start()
                    continue
                if self._is_wiped(process) or self._is_spoiled(process):
                    continue
                may_go_back = faults.back_rate and process.lives and self._may_lose_alone(process)
                if may_go_back and world.older.put_back(process):
                    continue
                if chance.random() < faults.restart_rate:
                    process.start()
            elif untold is not None:
                continue  # the others must tell it, before it ends again (docs/decisions/0054)
            elif chance.random() < faults.stop_rate:
                process.stop()
            elif chance.random() < faults.crash_rate:
                self._crash(process)
            elif chance.random() < faults.pause_rate:
                process.pause(chance.randrange(10_000, 4_000_000))
            self._spoil_disk(process)
        for front_end in world.front_ends:
            if front_end.is_up and chance.random() < faults.front_end_restart_rate:
                front_end.restart()
        if chance.random() < faults.power_failure_rate and not world.older.untold():
            for process in world.processes.values():
                process.crash(power_lost=True)
        if chance.random() < faults.cut_rate:
            self._cut()
        if chance.random() < faults.isolate_rate:
            self._isolate_leader()
        if chance.random() < faults.heal_rate:
            world.network.heal()
        world.scheduler.after(TICK_US, self.tick)

    def _crash(self, process: SimProcess) -> None:
        chance = self._chance
        power_lost = chance.random() < self._world.faults.power_share
        process.crash(power_lost)
        if chance.random() < self._world.faults.rot_rate and self._may_lose(process):
            process.rot(chance, power_lost, self._spoil_chance.random() < self._world.faults.unreadable)

    def _may_lose(self, process: SimProcess) -> bool:
        """May this node's disk lose something?"""
        return not process.damaged and self._world.lost_disks.may_lose(process)

    def _may_lose_alone(self, process: SimProcess) -> bool:
        """Only while all others hold, beyond doubt, all that they ever acknowledged."""
        return not process.damaged and self._world.others_are_sound(process)

    def _is_spoiled(self, process: SimProcess) -> bool:
        """A node that is down finds one of its files damaged. Drawn where it can be, so that others draw as before."""
        rate, chance = self._world.faults.spoil_rate, self._spoil_chance
        if not rate or not process.lives or chance.random() > rate or not self._may_lose(process):
            return False
        process.spoil(chance, chance.random() < self._world.faults.unreadable)
        return False

    def _is_wiped(self, process: SimProcess) -> bool:
        """A node that is down gets an empty disk: by chance, or because somebody repairs it."""
        faults = self._world.faults
        if not faults.wipe_rate or not process.lives or self._chance.random() > faults.wipe_rate * 5:
            return False
        if not self._world.lost_disks.may_lose(process):
            return False
        process.wipe()
        self._world.wipes += 1
        return True

    def _spoil_disk(self, process: SimProcess) -> None:
        chance, faults = self._chance, self._world.faults
        if process.disk.full:
            process.disk.full = chance.random() > 0.1
        elif chance.random() < faults.full_rate:
            process.disk.full = True
        if chance.random() < faults.segment_rot_rate and self._may_lose(process):
            process.rot_segment(chance, self._spoil_chance.random() < faults.unreadable)

    def _cut(self) -> None:
        chance, world = self._chance, self._world
        nodes = world.node_ids
        everybody = [*nodes, *(client.process_id for client in (*world.clients, *world.front_ends))]
        cut = world.faults.links.cut
        shape = chance.randrange(3)
        if shape == 0:  # two sides; clients fall on either
            side = [a for a in everybody if chance.random() < 0.5]
            cut.update((a, b) for a in everybody for b in everybody if (a in side) != (b in side))
        elif shape == 1 and len(nodes) > 1:  # one link, one way
            cut.add(tuple(chance.sample(nodes, 2)))  # type: ignore[arg-type]
        else:  # one node cut from the other nodes, clients still reach it
            cut.update(self._links_of(chance.choice(nodes)))

    def _isolate_leader(self) -> None:
        """A leader that cannot know that it was replaced: its clients go on asking it."""
        world = self._world
        leaders = [node_id for node_id in world.node_ids if world.leads(node_id)]
        if leaders and len(world.node_ids) > 1:
            links = self._links_of(self._chance.choice(leaders))
            world.faults.links.cut.update(links)
            world.scheduler.after(self._chance.randrange(500_000, 12_000_000), world.network.heal, links)

    def _links_of(self, alone: int) -> set[tuple[int, int]]:
        """All links of a node to other nodes."""
        others = [node_id for node_id in self._world.node_ids if node_id != alone]
        return {(alone, other) for other in others} | {(other, alone) for other in others}


def describe(faults: Faults) -> dict[str, Any]:
    """For the trace."""
    return {name: getattr(faults, name) for name in Faults.__dataclass_fields__}
