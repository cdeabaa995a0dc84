"""The promises of Raft, checked from outside after each step of the simulation.

The oracle sees all disks at once, which no machine does. Each check names the rule it stands for.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from storage_nodes.machines.raft.effects import Role
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.raft.transitions import TRANSITIONS, Input
from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.peer_messages import (
    AppendEntries,
    AppendReply,
    RaftMessage,
    SnapshotChunk,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.storage_nodes.machines.raft.raft_disk import configurations_of, header_of

if TYPE_CHECKING:
    from tests.storage_nodes.machines.raft.raft_cluster import Cluster, Node

MATCHING_EVERY_STEPS = 64


class BrokenPromise(AssertionError):
    """The simulation found a state that the protocol promises never to reach."""


class Before(NamedTuple):
    role: Role
    commit: int
    epoch: int
    replicated: int
    input: Input


_PLAIN = {
    "proposed": Input.PROPOSED,
    "durable": Input.DURABLE,
    "sent": Input.SENT,
    "campaign": Input.CAMPAIGN,
    "tick": Input.TICK,
    "peer_up": Input.PEER_UP,
    "peer_down": Input.PEER_DOWN,
    "transfer": Input.TRANSFER,
    "snapshot_ended": Input.SNAPSHOT_ENDED,
    "on_stall": Input.STOOD_STILL,
    "installed": Input.INSTALLED,
    "configured": Input.CONFIGURED,
    "promised": Input.PROMISED,
    "confirm": Input.CONFIRM,
    "became_suspect": Input.BECAME_SUSPECT,
    "change_configuration": Input.CHANGE_CONFIGURATION,
}


_AGED = {
    AppendEntries: "APPEND",
    AppendReply: "APPEND_REPLY",
    VoteRequest: "VOTE_REQUEST",
    SnapshotChunk: "SNAPSHOT",
}


def classify(machine: RaftMachine, name: str, arguments: tuple[object, ...]) -> Input:
    """The row of the transition table that an input belongs to."""
    if name != "step":
        return _PLAIN[name]
    message = arguments[1]
    if isinstance(message, VoteRequest) and message.pre_vote:
        return Input.PRE_VOTE_REQUEST
    if isinstance(message, VoteReply):
        if message.granted:
            return Input.PRE_VOTE_GRANTED if message.pre_vote else Input.VOTE_GRANTED
        return Input.REFUSED_NEWER if message.epoch > machine.epoch else Input.REFUSED
    if isinstance(message, TimeoutNow):
        return Input.TIMEOUT_NOW
    assert isinstance(message, AppendEntries | AppendReply | VoteRequest | SnapshotChunk)
    kind = _AGED[type(message)]
    age = "STALE" if message.epoch < machine.epoch else "NEWER" if message.epoch > machine.epoch else "CURRENT"
    return Input[f"{kind}_{age}"]


class Oracle:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leader_of: dict[int, int] = {}
        # What is committed, as the first node to say so had it.
        self.committed_entries: list[bytes] = []
        # (epoch of the leader that committed it, number of entries, end offset): how it grew
        self._growth: list[tuple[int, int, int]] = []
        self._steps = 0

    def _fail(self, rule: str, text: str) -> None:
        raise BrokenPromise(f"{rule}: {text} (at {self._cluster.now_ms} ms, step {self._cluster.steps})")

    # --- around every input ---------------------------------------------------------------------------------

    def before(self, machine: RaftMachine, name: str, arguments: tuple[object, ...]) -> Before:
        row = classify(machine, name, arguments)
        return Before(machine.role, machine.commit, machine.epoch, machine.replicated, row)

    def after(self, node: Node, before: Before) -> None:
        machine = node.machine
        if machine.role not in TRANSITIONS[before.input][before.role]:
            self._fail("transition table", f"{before.role.name} + {before.input.value} -> {machine.role.name}")
        if machine.commit < before.commit:
            self._fail("commit never falls", f"{before.commit} -> {machine.commit} at node {node.node_id}")
        if machine.epoch < before.epoch:
            self._fail("epochs only grow", f"{before.epoch} -> {machine.epoch} at node {node.node_id}")
        # What a follower was told may be about the voters of a while ago.
        if machine.replicated > before.replicated and (machine.role is Role.LEADER or not self._has_changes()):
            self._check_replicated(node)

    def _check_replicated(self, node: Node) -> None:
        replicated = node.machine.replicated
        for voter in self._in_force(node.log.entries).voters:
            if voter in self._cluster.wiped:
                continue  # it did, on a disk that is no more
            if self._cluster.image(voter).end() < replicated:
                self._fail("replicated", f"node {voter} does not hold the log durably up to {replicated}")

    def check(self, node: Node) -> None:
        machine = node.machine
        if machine.commit > machine.log.log_end:
            self._fail("commit within the log", f"node {node.node_id}: {machine.commit} > {machine.log.log_end}")
        has_leader = machine.leader in node.heard_ms or machine.leader == node.node_id
        if not has_leader and machine.members.can_campaign() and not machine.next_tick_ms():
            self._fail("whoever has no leader campaigns", f"node {node.node_id} has no timer")
        self._steps += 1
        if self._steps % MATCHING_EVERY_STEPS == 0:
            self._check_log_matching()

    def _check_log_matching(self) -> None:
        """Two logs that hold an entry of one epoch at one offset hold the same up to there."""
        logs = [(node.node_id, node.log.entries) for node in self._cluster.nodes.values()]
        for index, (a, mine) in enumerate(logs):
            for b, theirs in logs[index + 1 :]:
                same = min(len(mine), len(theirs))
                differ = next((i for i in range(same) if mine[i] != theirs[i]), same)
                shared = {header_of(entry)[1:] for entry in mine[differ:]} & {
                    header_of(entry)[1:] for entry in theirs[differ:]
                }
                if shared:
                    self._fail("log matching", f"nodes {a} and {b} differ below shared entries {sorted(shared)}")

    # --- events ---------------------------------------------------------------------------------------------

    def crashed(self, node_id: int) -> None:
        when = f"after the crash of node {node_id}"
        self._check_enough_hold(len(self.committed_entries), self._in_force(self.committed_entries), when)

    def elected(self, node: Node) -> None:
        epoch = node.machine.epoch
        if self._leader_of.setdefault(epoch, node.node_id) != node.node_id:
            self._fail("one leader per epoch", f"nodes {self._leader_of[epoch]} and {node.node_id} in epoch {epoch}")
        count, _end = self._committed_before(epoch)
        if node.log.entries[:count] != self.committed_entries[:count]:
            self._fail("leader completeness", f"node {node.node_id} won epoch {epoch} without all that is committed")

    def serves(self, node: Node) -> None:
        _count, end = self._committed_before(node.machine.epoch)
        if node.machine.commit < end:
            self._fail("R13", f"node {node.node_id} serves at {node.machine.commit} of {end} committed before it")

    def _committed_before(self, epoch: int) -> tuple[int, int]:
        """(entries, end offset) committed in lower epochs. A leader that wins late, because its votes were slow to
        arrive, need not have what later epochs committed: it can commit nothing itself.
        """
        return next(((count, end) for by, count, end in reversed(self._growth) if by < epoch), (0, 0))

    def installs(self, node: Node, chunk: SnapshotChunk) -> None:
        """R18: what a snapshot brings is committed, and it takes nothing away that was."""
        if chunk.end_offset <= node.machine.commit:
            self._fail("R18", f"node {node.node_id} goes back from {node.machine.commit} to {chunk.end_offset}")
        if chunk.entries != self.committed_entries[: len(chunk.entries)]:
            self._fail("snapshot", f"node {node.node_id} installs what is not committed")

    def committed(self, node: Node, offset: int) -> None:
        entries = node.log.prefix(offset)
        known = self.committed_entries
        shorter = min(len(entries), len(known))
        if entries[:shorter] != known[:shorter]:
            self._fail("committed entries are never lost", f"node {node.node_id} committed another log up to {offset}")
        if len(entries) <= len(known):
            return
        if header_of(entries[-1]).epoch != node.machine.epoch:
            self._fail("R6", f"node {node.node_id} committed an entry of another epoch at {offset}")
        self.committed_entries = entries
        self._growth.append((node.machine.epoch, len(entries), offset))
        when = f"at the commit of {offset} by node {node.node_id}"
        configuration = self._in_force(node.log.entries)
        self._check_enough_hold(len(entries), configuration, when)
        if configuration.voters and len(self._holders(len(entries), configuration)) * 2 <= len(configuration.voters):
            self._fail("R6", f"less than a majority of {configuration.voters} holds what is committed {when}")
        self._check_steps(entries)

    def _in_force(self, entries: list[bytes]) -> Configuration:
        """The latest configuration in a log: worked out here, not asked from the machine."""
        found = configurations_of(entries)
        return found[-1].configuration if found else self._cluster.boot

    def _has_changes(self) -> bool:
        return len(self._cluster.ids) > len(self._cluster.boot.voters)

    def _holders(self, count: int, configuration: Configuration) -> list[int]:
        """Voters that hold the first `count` committed entries. Whoever lost its disk is let off: it holds nothing, but
        neither can it help to elect somebody who does not."""
        image = self._cluster.image
        entries = self.committed_entries[:count]
        return [i for i in configuration.voters if image(i).holds(entries) or image(i).suspect]

    def _check_enough_hold(self, count: int, configuration: Configuration, when: str) -> None:
        """Those that do not hold what is committed must not be enough to elect a leader without it."""
        voters = configuration.voters
        lacking = set(voters).difference(self._holders(count, configuration))
        if len(lacking) > len(voters) // 2:
            text = f"nodes {sorted(lacking)} of {voters} lack it {when}"
            self._fail("a majority holds durably what is committed", text)

    def _check_steps(self, entries: list[bytes]) -> None:
        """R15, R34: of two configurations, one after the other, any two majorities have a voter in common."""
        known = [self._cluster.boot, *(entry.configuration for entry in configurations_of(entries))]
        for before, after in itertools.pairwise(known):
            if len(set(before.voters) ^ set(after.voters)) > 1 or not after.voters:
                self._fail("one server at a time", f"{before} -> {after}")

    def changes(self, node: Node) -> None:
        """R15: a change begins when all changes before it, and an entry of the own epoch, are committed."""
        machine = node.machine
        committed = node.log.prefix(machine.commit)
        if not committed or header_of(committed[-1]).epoch != machine.epoch:
            self._fail("R15, own epoch", f"node {node.node_id} changes the configuration in epoch {machine.epoch}")
        if len(configurations_of(committed)) != len(configurations_of(node.log.entries)):
            self._fail("R15, one at a time", f"node {node.node_id} changes the configuration twice at once")

    def settled(self, node: Node, configuration: Configuration) -> None:
        """What a machine calls committed is the last configuration among the committed entries that it has."""
        known = configurations_of(node.log.prefix(node.machine.commit))
        if configuration not in [entry.configuration for entry in known]:
            self._fail("configuration committed", f"node {node.node_id} says {configuration}, committed are {known}")

    def leaves(self, node: Node, peer: int, message: RaftMessage) -> None:
        """R1, R5: an answer leaves after what it promises is durable."""
        image = node.log.image
        if isinstance(message, VoteReply) and message.granted and not message.pre_vote:
            durable = image.epoch > message.epoch or (image.epoch, image.voted_for) == (message.epoch, peer)
            if not durable:
                self._fail("R1", f"node {node.node_id} promised its vote in epoch {message.epoch}, it is not durable")
        if (
            isinstance(message, AppendReply)
            and message.ok
            and message.epoch == node.machine.epoch
            and image.end() < message.offset
        ):
            self._fail("R5", f"node {node.node_id} acknowledged {message.offset} before it was durable")
