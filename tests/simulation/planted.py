"""Planted bugs: each breaks the product in one way that is known from other systems, and the simulation must notice.

Test-only switches: every one patches the product's code while a context is open, nothing of them is in the product.
Numbers are those of the list of known bugs in docs/simulation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

import msgspec

from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.recovery import WalWalk
from storage_nodes.machines.cluster.mover import Finish, next_step
from storage_nodes.machines.packed_later import array_header
from storage_nodes.machines.queue.effects import CommandAnswer
from storage_nodes.machines.queue.leader.leader import Leader
from storage_nodes.machines.queue.state.dedup import NOT_SEEN, DedupWindow
from storage_nodes.machines.queue.state.shared_empty import EMPTY_IDS
from storage_nodes.machines.queue.state.taken_letters import TakenLetters
from storage_nodes.machines.raft import machine as raft_machine
from storage_nodes.machines.raft.effects import BecameLeader, EpochStart, Role, Send, TakeSnapshot
from storage_nodes.machines.raft.following import AppendResult
from storage_nodes.machines.raft.leadership import Leadership
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.raft.membership import AddLearner, Membership, Promote, Remove
from storage_nodes.model import CLUSTER_PARTITION, Acks
from storage_nodes.node.disk.committer import Committer
from storage_nodes.node.membership.assigned_replicas import AssignedReplicas
from storage_nodes.node.membership.replica_moves import Moves
from storage_nodes.node.replicas import appends as appends_module
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.replicas.cluster_replica import ClusterReplica
from storage_nodes.node.transport.peers import PeerLinks
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.peer_messages import SnapshotChunk, VoteReply, VoteRequest
from storage_nodes.protocol.records import HEADER_DEDUP, decode_body
from tests.simulation.sim_disk import SimDisk, SimFile, SyncFailed
from tests.storage_nodes.log.faulty_disk import FaultyDisk


def _always(value: object) -> Callable[..., Any]:
    return lambda *_: value


@contextmanager
def truncates_on_stale_append() -> Iterator[None]:
    """B1: what a repeated, shorter append does not hold is cut away."""
    real = raft_machine.match_append

    def match_append(log: Any, commit: int, message: Any, headers: Any) -> AppendResult:
        verdict = real(log, commit, message, headers)
        if verdict.ok and verdict.cut < 0 and verdict.end < log.log_end and headers and verdict.last == verdict.first:
            return verdict._replace(cut=max(verdict.end, log.flushed_end))
        return verdict

    with mock.patch.object(raft_machine, "match_append", match_append):
        yield


def commits_older_epochs() -> AbstractContextManager[Any]:
    """B2: a majority is enough, whatever epoch the entry is of (figure 8 of the Raft paper)."""
    return mock.patch.object(Leadership, "_is_own", _always(True))


@contextmanager
def votes_before_durable() -> Iterator[None]:
    """B3: votes leave before the disk has them."""
    real = Committer.send_after_sync

    def send_after_sync(self: Committer, peer: int, message: Any) -> None:
        if isinstance(message, VoteReply | VoteRequest):
            self._send(peer, message)
        else:
            real(self, peer, message)

    with mock.patch.object(Committer, "send_after_sync", send_after_sync):
        yield


def votes_for_anyone() -> AbstractContextManager[Any]:
    """B4: the vote goes to less complete logs too."""
    return mock.patch.object(RaftMachine, "_is_complete", _always(True))


def no_fsync() -> AbstractContextManager[Any]:
    """B10: what was written counts as durable."""
    return mock.patch.object(SimFile, "sync", lambda self: None)


def no_directory_fsync() -> AbstractContextManager[Any]:
    """B11: new and renamed files are not made durable."""
    return mock.patch.object(SimDisk, "sync_directory", lambda self, path: FaultyDisk.change(self))


@contextmanager
def retries_fsync() -> Iterator[None]:
    """B12: fsync failed? Once more; it succeeds, and the pages are gone."""
    real = SimFile.sync

    def sync(self: SimFile) -> None:
        with suppress(SyncFailed):
            real(self)

    with mock.patch.object(SimFile, "sync", sync):
        yield


@contextmanager
def corruption_is_the_end() -> Iterator[None]:
    """B13: the log ends at the first block that is not valid."""
    with (
        mock.patch.object(WalWalk, "_found", _always(None)),
        mock.patch.object(WalWalk, "_block_behind", _always(None)),
        mock.patch.object(WalWalk, "_later_file", _always(0)),
    ):
        yield


@contextmanager
def obeys_old_leaders() -> Iterator[None]:
    """B15: appends of deposed leaders are taken."""
    real = RaftMachine._on_append

    def on_append(self: RaftMachine, sender: int, message: Any, now_ms: int, headers: Any) -> Any:
        if message.epoch < self.epoch and self._lead is None:
            kept = (self.epoch, self.leader)
            self.epoch, self.leader = message.epoch, sender
            try:
                return real(self, sender, message, now_ms, headers)
            finally:
                self.epoch, self.leader = kept
        return real(self, sender, message, now_ms, headers)

    with mock.patch.object(RaftMachine, "_on_append", on_append):
        yield


@contextmanager
def serves_when_elected() -> Iterator[None]:
    """B16: a new leader serves at once, by the commit position it happens to know."""
    real = RaftMachine._win

    def win(self: RaftMachine, now_ms: int) -> Any:
        effects = real(self, now_ms)
        assert self._lead is not None
        self._lead.serving = True
        return [*effects, BecameLeader()]

    with mock.patch.object(RaftMachine, "_win", win):
        yield


@contextmanager
def no_epoch_start() -> Iterator[None]:
    """B17: no entry of the own epoch is appended before serving."""
    real = RaftMachine._win

    def win(self: RaftMachine, now_ms: int) -> Any:
        effects = [effect for effect in real(self, now_ms) if not isinstance(effect, EpochStart)]
        assert self._lead is not None
        self._lead.serving = True
        return [*effects, BecameLeader()]

    with mock.patch.object(RaftMachine, "_win", win):
        yield


@contextmanager
def counts_late_votes() -> Iterator[None]:
    """B21: a late or repeated vote or pre-vote counts in the election that is under way when it comes."""
    real = RaftMachine._on_vote_reply

    def on_vote_reply(self: RaftMachine, sender: int, message: VoteReply, now_ms: int) -> Any:
        if message.granted and self.role is Role.CANDIDATE:
            message = VoteReply(message.partition, self.epoch, True, False, message.suspect)
        return real(self, sender, message, now_ms)

    with mock.patch.object(RaftMachine, "_on_vote_reply", on_vote_reply):
        yield


@contextmanager
def answers_sends_before_commit() -> Iterator[None]:
    """B26: a send with quorum is answered once the leader's own disk has it."""
    real = Appends.progressed

    def progressed(self: Appends, durable_end: int, commit: int, replicated: int) -> None:
        real(self, durable_end, durable_end, replicated)

    with mock.patch.object(Appends, "progressed", progressed):
        yield


@contextmanager
def answers_deletes_before_commit() -> Iterator[None]:
    """B27: a delete is answered when it is staged."""
    real = Leader.delete

    def delete(self: Leader, token: Any, receipts: Any) -> Any:
        return [CommandAnswer(token, [ErrorCode.OK] * len(receipts)), *real(self, None, receipts)]

    with mock.patch.object(Leader, "delete", delete):
        yield


@contextmanager
def flushes_what_is_not_committed() -> Iterator[None]:
    """B28: the flush takes everything durable for committed."""
    real = NodeLog.plan_flush

    def plan_flush(self: NodeLog, plan: Any, facts: Any) -> Any:
        logs = self.partitions
        return real(self, plan, lambda partition: facts(partition)._replace(commit=logs[partition].durable_end))

    with mock.patch.object(NodeLog, "plan_flush", plan_flush):
        yield


@contextmanager
def recycles_wal_too_early() -> Iterator[None]:
    """B29: WAL files go before the manifest that replaces them is durable."""
    real = NodeLog.run_flush

    def run_flush(self: NodeLog, plan: Any) -> None:
        self._wal.release_before(plan.first_file)
        real(self, plan)

    with mock.patch.object(NodeLog, "run_flush", run_flush):
        yield


@contextmanager
def trusts_an_empty_disk() -> Iterator[None]:
    """B6: a node that comes back with an empty disk under its old name is taken for what it was."""
    real = NodeLog.set_suspect

    def set_suspect(self: NodeLog, partition: int, suspect: bool) -> None:
        if not suspect:
            real(self, partition, suspect)

    with mock.patch.object(NodeLog, "set_suspect", set_suspect):
        yield


def takes_older_incarnations() -> AbstractContextManager[Any]:
    """B6a: what an older incarnation of a node sent, perhaps from another disk, counts after a newer one came."""
    return mock.patch.object(PeerLinks, "is_newest", _always(True))


@contextmanager
def counts_suspect_votes() -> Iterator[None]:
    """B9: the vote of a replica that lost its disk, or a part of it, counts like any other."""
    real = RaftMachine._on_vote_reply

    def on_vote_reply(self: RaftMachine, sender: int, message: VoteReply, now_ms: int) -> Any:
        self._suspect_votes = ()
        return real(self, sender, msgspec.structs.replace(message, suspect=False), now_ms)

    with mock.patch.object(RaftMachine, "_on_vote_reply", on_vote_reply):
        yield


@contextmanager
def counts_one_suspect_of_two() -> Iterator[None]:
    """B66: where two voters are suspect, the vote of one of them counts."""
    real = RaftMachine._has_votes

    def has_votes(self: RaftMachine) -> bool:
        votes, suspects = set(self._votes), set(self._suspect_votes)
        if len(suspects) == 2 and self.members.is_majority(votes.difference(list(self._suspect_votes)[:1])):
            return True
        return real(self)

    with mock.patch.object(RaftMachine, "_has_votes", has_votes):
        yield


@contextmanager
def drops_what_it_does_not_know() -> Iterator[None]:
    """B14: a partition that the node's cluster state does not name is taken for a deleted one."""
    real = AssignedReplicas.catch_up

    def catch_up(self: AssignedReplicas) -> None:
        real(self)
        known = self._replicas.cluster.machine.partitions
        for partition in [p for p in self._log.partitions if p != CLUSTER_PARTITION and p not in known]:
            self._drop(partition)

    with mock.patch.object(AssignedReplicas, "catch_up", catch_up):
        yield


@contextmanager
def snapshots_roll_back() -> Iterator[None]:
    """B24: a snapshot is installed whatever is known to be committed beyond it."""
    real = RaftMachine._on_snapshot

    def on_snapshot(self: RaftMachine, sender: int, chunk: SnapshotChunk, now_ms: int) -> Any:
        if chunk.epoch == self.epoch and self.leader == sender and not self._installing:
            return [TakeSnapshot(sender, chunk)]
        return real(self, sender, chunk, now_ms)

    def installed(self: RaftMachine, end_offset: int, now_ms: int) -> list[Any]:
        self._installing, self.commit = False, end_offset
        return []

    with (
        mock.patch.object(RaftMachine, "_on_snapshot", on_snapshot),
        mock.patch.object(RaftMachine, "may_install", lambda self, _: self._lead is None),
        mock.patch.object(RaftMachine, "installed", installed),
    ):
        yield


def answers_repeats_before_commit() -> AbstractContextManager[Any]:
    """B18: whoever sends a message with an id is answered before it is committed."""
    real = appends_module._kind_of

    def kind_of(request: Any, batch_bytes_max: int) -> Any:
        plain, _acks, *others = real(request, batch_bytes_max)
        return plain, Acks.LEADER, *others

    return mock.patch.object(appends_module, "_kind_of", kind_of)


def forgets_ids_in_checkpoints() -> AbstractContextManager[Any]:
    """B19: deduplication ids are not in checkpoints and snapshots."""
    return mock.patch.multiple(DedupWindow, pack=_always([]), pack_later=_always((array_header(0),)))


@contextmanager
def remembers_ids_before_commit() -> Iterator[None]:
    """B20: deduplication ids are remembered when they are staged, and outlive a log that is cut."""
    real_original, real_append = DedupWindow.original, Appends._append

    def original(self: DedupWindow, dedup_id: bytes, offset: int, time_ms: int) -> int:
        found = real_original(self, dedup_id, offset, time_ms)
        return NOT_SEEN if found == offset else found

    def append(
        self: Appends, replica: Any, bodies: Any, requests: Any, size: Any, kind: Any, sequence: Any, now_ms: int
    ) -> None:
        base = replica.log.log_end
        real_append(self, replica, bodies, requests, size, kind, sequence, now_ms)
        if any(HEADER_DEDUP in dict(decode_body(body).headers) for body in bodies):
            state = replica.machine.state
            if state.dedup is EMPTY_IDS:
                state.dedup = DedupWindow(state.config.dedup_window_ms)
            dedup = state.dedup
            dedup.begin(base, now_ms)
            for offset, body in enumerate(bodies, base):
                original(dedup, dict(decode_body(body).headers)[HEADER_DEDUP], offset, now_ms)

    with mock.patch.object(DedupWindow, "original", original), mock.patch.object(Appends, "_append", append):
        yield


@contextmanager
def dead_letters_twice() -> Iterator[None]:
    """B23: a dead letter that is moved again is another message for its new queue."""
    with mock.patch.object(TakenLetters, "take", lambda self, letter, offset: NOT_SEEN):
        yield


@contextmanager
def forgets_the_vote() -> Iterator[None]:
    """B30: who was voted for is not written down."""
    real = NodeLog.save_vote

    def save_vote(self: NodeLog, partition: int, epoch: int, voted_for: int) -> None:
        log = self.partitions[partition]
        real(self, partition, epoch, 0)
        log.voted_for = voted_for

    with mock.patch.object(NodeLog, "save_vote", save_vote):
        yield


@contextmanager
def makes_what_was_deleted() -> Iterator[None]:
    """B31: the fold that begins again at a start makes every partition that it comes by, deleted since or not."""
    real = ClusterReplica.__init__

    def begin(self: ClusterReplica, host: Any, log: Any, *more: Any) -> None:
        real(self, host, log, *more)
        self.refolding = False

    with mock.patch.object(ClusterReplica, "__init__", begin):
        yield


def counts_learners_for_commits() -> AbstractContextManager[Any]:
    """B5: acknowledgements of learners and of removed voters count."""
    return mock.patch.object(Leadership, "_counted", lambda self: list(self.peers))


@contextmanager
def counts_learners_for_votes() -> Iterator[None]:
    """B5v: votes of learners and of removed voters count. Also asks them: else there is nothing to count."""
    real = RaftMachine._request_all

    def request_all(self: RaftMachine, epoch: int, pre_vote: bool, transfer: bool = False) -> list[Any]:
        effects = real(self, epoch, pre_vote, transfer)
        members = {*self.configuration.learners, *self.members.before.members}.difference(self.voters, (self.node_id,))
        asked = [effect for effect in effects[:1] if isinstance(effect, Send)]
        return effects + [effect._replace(peer=node) for effect in asked for node in sorted(members)]

    with (
        mock.patch.object(Membership, "counts", _always(True)),
        mock.patch.object(RaftMachine, "_request_all", request_all),
    ):
        yield


@contextmanager
def changes_before_own_commit() -> Iterator[None]:
    """B7: a leader changes the group before it has committed an entry of its epoch (the bug of 2015).

    Its other guards go too: that it serves, and that it has folded its own TakeMove.
    """
    real = Moves._move

    def move(self: Moves, plan: Any) -> None:
        replica = self._replicas.get(plan.partition)
        if replica is None or replica.closed or replica.raft.role is not Role.LEADER or replica.serving:
            real(self, plan)
        elif plan.move.ready or plan.move.undo:
            step = next_step(plan.move, self.group(replica))
            if isinstance(step, AddLearner | Promote | Remove):
                replica.change_configuration(step)

    with (
        mock.patch.object(Leadership, "has_own_commit", _always(True)),
        mock.patch.object(Moves, "_move", move),
    ):
        yield


@contextmanager
def changes_two_at_once() -> Iterator[None]:
    """B25: the next change of a group begins before the last one is committed.

    Neither the group nor who carries out the move looks; but a move still ends only when all is committed.
    """
    real = Moves.group

    def group(self: Moves, replica: Any) -> Any:
        seen = real(self, replica)
        plan = self._cluster().machine.moving.get(replica.partition)
        restless = seen._replace(settled=True)
        ends = plan is not None and plan.move is not None and isinstance(next_step(plan.move, restless), Finish)
        return seen if ends else restless

    with (
        mock.patch.object(RaftMachine, "_change_under_way", _always(False)),
        mock.patch.object(Moves, "group", group),
    ):
        yield
