"""A whole Raft group in one process: simulated clock, network and disks, driven by one seeded random source.

`Cluster` performs the effects of the machines exactly as a node does, and checks the promises after each step
(`Oracle`). Faults are switched by the fields of `Faults`; scenarios set them one by one, the simulation draws them
from its seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from storage_nodes.limits import HEARTBEAT_INTERVAL_MS, PEER_TIMEOUT_MS, VOTE_HOLD_MS
from storage_nodes.machines.raft.effects import (
    Append,
    AppendConfiguration,
    BecameLeader,
    Committed,
    ConfigurationCommitted,
    Effect,
    EpochStart,
    Role,
    SaveVote,
    Send,
    SendEntries,
    SendSnapshot,
    SteppedDown,
    TakeSnapshot,
    Truncate,
    Trusted,
    WithdrawPromise,
)
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.peer_messages import AppendEntries, RaftMessage, SnapshotChunk
from tests.storage_nodes.machines.raft.raft_disk import Image, SimLog, header_of, make_entry, name_of
from tests.storage_nodes.machines.raft.raft_oracle import Oracle

PARTITION = 7
APPEND_ENTRIES_MAX = 3
SNAPSHOT_MS_MAX = 1_500


@dataclass
class Faults:
    """Rates are per message or per step; delays in ms."""

    loss: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    delay_ms: tuple[int, int] = (1, 3)
    late_ms: tuple[int, int] = (50, 1_500)
    fsync_ms: tuple[int, int] = (1, 3)
    slow_read: float = 0.0
    # A heartbeat goes unanswered: one side thinks the other down, but not the other way round.
    deaf: float = 0.0
    # Directed links that carry nothing.
    cut: set[tuple[int, int]] = field(default_factory=set)


class Node:
    def __init__(self, node_id: int, incarnation: int, log: SimLog, machine: RaftMachine) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.log = log
        self.machine = machine
        self.serving = False
        self.paused_until_ms = 0
        # How long its fsyncs take; 0 = drawn from the faults.
        self.fsync_ms = 0
        # peer -> incarnation whose messages are taken, and when its heartbeat was last answered
        self.known: dict[int, int] = {}
        self.heard_ms: dict[int, int] = {}
        # (end offset, epoch, name) of proposals that wait for their commit
        self.pending: list[tuple[int, int, str]] = []
        self.tick_at_ms = 0


class Cluster:
    """Nodes 1..size found the group; `spares` more run without a replica, until one is made there."""

    def __init__(self, size: int, seed: int, faults: Faults | None = None, spares: int = 0) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.now_ms = 1_000
        self.ids = tuple(range(1, size + spares + 1))
        self.boot = Configuration(self.ids[:size])
        self.images = {node_id: Image(boot=self.boot) for node_id in self.boot.voters}
        # Nodes that run and hold no replica.
        self.vacant = set(self.ids[size:])
        self.incarnations = dict.fromkeys(self.ids, 0)
        self.nodes: dict[int, Node] = {}
        self.oracle = Oracle(self)
        self.steps = 0
        self.acked: list[str] = []
        self.proposals = 0
        self.wiped: set[int] = set()
        self.snapshots_sent = 0
        self.snapshots_installed = 0
        self.append_entries_max = APPEND_ENTRIES_MAX
        self.on_leave: Callable[[int, int, RaftMessage], bool] | None = None
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        for node_id in self.boot.voters:
            self.start(node_id)
        for a in self.ids:
            for b in self.ids:
                if a != b:
                    self.at(self.random.randrange(HEARTBEAT_INTERVAL_MS), partial(self._heartbeat, a, b))

    # --- time -----------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._heap and self._heap[0][0] <= end_ms:
            self.run_one()
        self.now_ms = end_ms

    def run_one(self) -> None:
        self.now_ms, _, action = heapq.heappop(self._heap)
        self.steps += 1
        action()

    # --- processes ------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        self.incarnations[node_id] += 1
        self._open(node_id)

    def make(self, node_id: int, boot: Configuration) -> None:
        """A replica is made at a node that runs: nobody sees it go down or come up for that."""
        self.vacant.remove(node_id)
        self.images[node_id] = Image(boot=boot)
        self._open(node_id)

    def drop(self, node_id: int) -> None:
        """Its replica is dropped for good, with all it ever promised; the node runs on."""
        del self.nodes[node_id], self.images[node_id]
        self.vacant.add(node_id)

    def _open(self, node_id: int) -> None:
        assert node_id not in self.nodes
        log = SimLog(self.images[node_id])
        spread = self.random
        machine = RaftMachine(
            PARTITION,
            node_id,
            log.image.boot,
            log,
            log.epoch,
            log.voted_for,
            log.whole_from,
            spread.randrange,
            log.suspect,
        )
        if log.epoch or log.suspect:
            machine.promised(0, self.now_ms + VOTE_HOLD_MS, self.now_ms)
        self.nodes[node_id] = Node(node_id, self.incarnations[node_id], log, machine)
        self._after_input(self.nodes[node_id])

    def crash(self, node_id: int) -> None:
        """What was not fsynced is lost; a group that was being written is there or not."""
        node = self.nodes.pop(node_id)
        log = node.log
        survives = log.writing is not None and self.random.random() < 0.5
        self.images[node_id] = log.writing if survives and log.writing is not None else log.image
        self.oracle.crashed(node_id)

    def wipe(self, node_id: int) -> None:
        """The node's disk is replaced by an empty one while it is down."""
        assert node_id not in self.nodes
        self.wiped.add(node_id)
        self.images[node_id] = Image(suspect=True, boot=self.boot)

    def image(self, node_id: int) -> Image:
        node = self.nodes.get(node_id)
        return self.images.get(node_id, Image()) if node is None else node.log.image

    def _is_same(self, node: Node) -> bool:
        return self.nodes.get(node.node_id) is node

    def _when_awake(self, node: Node, action: Callable[[], None]) -> None:
        """Run for this incarnation of the node, later if it is paused."""
        if not self._is_same(node):
            return
        if node.paused_until_ms > self.now_ms:
            self.at(node.paused_until_ms - self.now_ms, lambda: self._when_awake(node, action))
        else:
            action()

    # --- inputs ---------------------------------------------------------------------------------------------

    def input(self, node: Node, name: str, *arguments: object) -> None:
        machine = node.machine
        before = self.oracle.before(machine, name, arguments)
        effects: list[Effect] = getattr(machine, name)(*arguments)
        self.oracle.after(node, before)
        self._perform(node, effects)
        self._after_input(node)

    def _after_input(self, node: Node) -> None:
        due_ms = node.machine.next_tick_ms()
        if due_ms and due_ms != node.tick_at_ms:
            node.tick_at_ms = due_ms
            self.at(max(0, due_ms - self.now_ms), lambda: self._when_awake(node, lambda: self._tick(node)))
        log = node.log
        if log.writing is None and log.staged():
            log.begin_write()
            delay_ms = node.fsync_ms or self.random.randint(*self.faults.fsync_ms)
            self.at(delay_ms, lambda: self._when_awake(node, lambda: self._written(node)))
        self.oracle.check(node)

    def _tick(self, node: Node) -> None:
        node.tick_at_ms = 0
        self.input(node, "tick", self.now_ms)

    def _written(self, node: Node) -> None:
        for peer, message in node.log.end_write():
            self._leave(node, peer, message)
        self.input(node, "durable", node.log.durable_end, self.now_ms)

    def propose(self, node_id: int, name: str = "", count: int = 0) -> str:
        """A client's write at a serving leader; answers its name."""
        node = self.nodes[node_id]
        assert node.machine.role is Role.LEADER
        self.proposals += 1
        name = name or f"w{self.proposals}"
        end = self._stage(node, name, count or self.random.randint(1, 3))
        node.pending.append((end, node.machine.epoch, name))
        self.input(node, "proposed", end, self.now_ms)
        return name

    def _stage(self, node: Node, name: str, count: int) -> int:
        base = node.log.log_end
        node.log.append(make_entry(base, base + count, node.machine.epoch, name))
        return base + count

    # --- effects --------------------------------------------------------------------------------------------

    def _perform(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SaveVote(epoch, voted_for):
                    node.log.save_vote(epoch, voted_for)
                case Truncate(offset):
                    node.log.truncate(offset)
                    self._configured(node)
                case Append(entries):
                    for entry in entries:
                        node.log.append(entry)
                    self._configured(node)
                case AppendConfiguration(configuration):
                    self.oracle.changes(node)
                    end = self._stage(node, name_of(configuration), 1)
                    self._configured(node)
                    self.input(node, "proposed", end, self.now_ms)
                case ConfigurationCommitted(configuration):
                    self.oracle.settled(node, configuration)
                case Send(peer, message, after_sync):
                    if after_sync:
                        node.log.after_gathering.append((peer, message))
                    else:
                        self._leave(node, peer, message)
                case SendEntries():
                    self._send_entries(node, effect)
                case EpochStart():
                    self.oracle.elected(node)
                    self.input(node, "proposed", self._stage(node, f"start-{node.node_id}", 1), self.now_ms)
                case Committed(offset):
                    self._committed(node, offset)
                case BecameLeader():
                    node.serving = True
                    self.oracle.serves(node)
                case SendSnapshot(peer, epoch, learner):
                    self._send_snapshot(node, peer, epoch, learner)
                case TakeSnapshot(_, chunk):
                    self._take_snapshot(node, chunk)
                case Trusted():
                    node.log.trust()
                case WithdrawPromise(leader):
                    until_ms = node.heard_ms.get(leader, -VOTE_HOLD_MS) + VOTE_HOLD_MS
                    self.input(node, "promised", leader, until_ms, self.now_ms)
                case SteppedDown():
                    node.serving = False
                    node.pending.clear()

    def _configured(self, node: Node) -> None:
        """Amid other effects: what is promised holds again only when all are performed."""
        machine = node.machine
        if node.log.configurations is not machine.history:
            before = self.oracle.before(machine, "configured", ())
            effects = machine.configured(self.now_ms)
            self.oracle.after(node, before)
            self._perform(node, effects)

    def _send_snapshot(self, node: Node, peer: int, epoch: int, learner: bool) -> None:
        """One chunk; what becomes of it, the machine is told some time later."""
        self.snapshots_sent += 1
        end = node.machine.commit
        entries = node.log.prefix(end)
        last_epoch = node.log.epoch_at(end)
        chunk = SnapshotChunk(PARTITION, epoch, end, last_epoch, 0, b"", entries, True, learner=learner)
        self._leave(node, peer, chunk)

        def ended() -> None:
            if node.machine.role is Role.LEADER and node.machine.epoch == epoch:
                self.input(node, "snapshot_ended", peer, self.now_ms)

        self.at(self.random.randint(20, SNAPSHOT_MS_MAX), lambda: self._when_awake(node, ended))

    def _take_snapshot(self, node: Node, chunk: SnapshotChunk) -> None:
        node.machine.installing()

        def install() -> None:
            self.snapshots_installed += 1
            self.oracle.installs(node, chunk)
            node.log.install(chunk.entries)
            self.input(node, "installed", chunk.end_offset, self.now_ms)

        self.at(node.fsync_ms or self.random.randint(*self.faults.fsync_ms), lambda: self._when_awake(node, install))

    def _send_entries(self, node: Node, effect: SendEntries) -> None:
        if self.random.random() < self.faults.slow_read:
            delay_ms = self.random.randint(1, 400)
            self.at(delay_ms, lambda: self._when_awake(node, lambda: self._read_and_send(node, effect)))
        else:
            self._read_and_send(node, effect)

    def _read_and_send(self, node: Node, effect: SendEntries) -> None:
        if not node.machine.is_current(effect):
            return
        peer, prev_offset, prev_epoch, commit, epoch, replicated, learner = effect
        trimmed = prev_offset < node.log.whole_from  # since it was asked for
        entries = [] if trimmed else node.log.read(prev_offset, self.append_entries_max)
        end = header_of(entries[-1]).end_offset if entries else prev_offset
        message = AppendEntries(PARTITION, epoch, prev_epoch, prev_offset, commit, entries, replicated, learner)
        self._leave(node, peer, message)
        self.input(node, "sent", peer, end, sum(map(len, entries)))

    def _committed(self, node: Node, offset: int) -> None:
        self.oracle.committed(node, offset)
        if node.machine.role is Role.LEADER:
            for end, epoch, name in node.pending:
                if end <= offset and epoch == node.machine.epoch:
                    self.acked.append(name)
            node.pending = [entry for entry in node.pending if entry[0] > offset]

    # --- network --------------------------------------------------------------------------------------------

    def _leave(self, node: Node, peer: int, message: RaftMessage) -> None:
        self.oracle.leaves(node, peer, message)
        faults, spread = self.faults, self.random
        if self.on_leave is not None and not self.on_leave(node.node_id, peer, message):
            return
        sender, incarnation = node.node_id, node.incarnation

        def arrive() -> None:
            self._arrive(sender, incarnation, peer, message)

        copies = 2 if spread.random() < faults.duplicate else 1
        for _ in range(copies):
            if (node.node_id, peer) in faults.cut or spread.random() < faults.loss:
                continue
            span_ms = faults.late_ms if spread.random() < faults.late else faults.delay_ms
            self.at(spread.randint(*span_ms), arrive)

    def _arrive(self, sender: int, incarnation: int, peer: int, message: RaftMessage) -> None:
        node = self.nodes.get(peer)
        if node is not None and (sender, peer) not in self.faults.cut:
            self._when_awake(node, lambda: self._deliver(node, sender, incarnation, message))

    def _deliver(self, node: Node, sender: int, incarnation: int, message: RaftMessage) -> None:
        if incarnation < node.known.get(sender, 0):
            return
        self._meet(node, sender, incarnation)
        headers = [header_of(entry) for entry in message.entries] if isinstance(message, AppendEntries) else []
        self.input(node, "step", sender, message, self.now_ms, headers)

    def _meet(self, node: Node, peer: int, incarnation: int) -> None:
        if incarnation > node.known.get(peer, 0):
            node.known[peer] = incarnation
            if node.heard_ms.pop(peer, None) is not None:
                self.input(node, "peer_down", peer, self.now_ms)

    def _heartbeat(self, a: int, b: int) -> None:
        """Node a looks at node b: answered both ways = up; silent for PEER_TIMEOUT_MS = down."""
        self.at(HEARTBEAT_INTERVAL_MS, lambda: self._heartbeat(a, b))
        node, peer = self.nodes.get(a), self.nodes.get(b)
        if b in self.vacant and node is not None and not ({(a, b), (b, a)} & self.faults.cut):
            if b not in node.heard_ms:
                node.heard_ms[b] = self.now_ms
                self.input(node, "peer_up", b, self.now_ms)
            node.heard_ms[b] = self.now_ms
            return
        if node is None or node.paused_until_ms > self.now_ms:
            return
        cut = self.faults.cut
        answers = peer is not None and peer.paused_until_ms <= self.now_ms and not ({(a, b), (b, a)} & cut)
        answers = answers and self.random.random() >= self.faults.deaf
        if answers and peer is not None:
            self._meet(node, b, peer.incarnation)
            first = b not in node.heard_ms
            node.heard_ms[b] = self.now_ms
            if first:
                self.input(node, "peer_up", b, self.now_ms)
        elif b in node.heard_ms and self.now_ms - node.heard_ms[b] > PEER_TIMEOUT_MS:
            del node.heard_ms[b]
            self.input(node, "peer_down", b, self.now_ms)

    # --- looking --------------------------------------------------------------------------------------------

    def leaders(self) -> list[int]:
        """Those that lead the highest epoch that has a leader, and serve."""
        serving = [node for node in self.nodes.values() if node.machine.role is Role.LEADER and node.serving]
        highest = max((node.machine.epoch for node in serving), default=0)
        return [node.node_id for node in serving if node.machine.epoch == highest]
