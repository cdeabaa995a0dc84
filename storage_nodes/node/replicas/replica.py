"""One replica of one partition: drives its Raft machine over the node's log, performs effects, decides nothing.

    messages of peers --> RaftMachine.step --> effects --> log, links, committer
    own proposals     --> stage() --> log + RaftMachine.proposed
    fsync done        --> durable() --> RaftMachine.durable
    committed         --> entries in order --> fold() of the subclass

`raft_performers` says for each effect of the Raft machine what performs it. Subclasses (`partition_replica.py`,
`cluster_replica.py`) say what a committed entry means and what a leader serves.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

import structlog

from storage_nodes.log.checkpoint import Blob
from storage_nodes.log.node_log import FlushFacts, PartitionLog
from storage_nodes.log.record_batch import (
    CONTROL_EPOCH_START,
    NO_PRODUCER,
    BatchError,
    BatchHeader,
    Producer,
    build_batch,
    configuration_body,
    control_key,
    verify_batch,
)
from storage_nodes.log.rewrite import RewriteFacts
from storage_nodes.machines.raft import effects as raft_effects
from storage_nodes.machines.raft.effects import Role
from storage_nodes.machines.raft.machine import RaftMachine
from storage_nodes.machines.raft.membership import Change, ConfigChangeError
from storage_nodes.node.replicas.append_sending import LastAppend, send_entries, send_message
from storage_nodes.node.replicas.disposable import NEVER, disposable_end
from storage_nodes.node.replicas.failover import ELECTIONS
from storage_nodes.node.replicas.folding import check_level, fold_committed
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.leader_time import LeaderTime
from storage_nodes.node.replicas.leased import LeaseHolder
from storage_nodes.node.replicas.partition_machine import FoldedMachine
from storage_nodes.node.replicas.partition_meta import PartitionMeta, shared_meta
from storage_nodes.node.replicas.replica_steps import FoundState, ReplicaSteps
from storage_nodes.node.replicas.snapshots import send_snapshot, take_snapshot
from storage_nodes.node.replicas.stopped_replicas import ReplicaError, StopKind
from storage_nodes.protocol.peer_messages import AppendEntries, RaftMessage, SnapshotReply, VoteRequest
from storage_nodes.protocol.records import encode_body

_log = structlog.get_logger()

# What performs an effect, by the type of the effect: a function of a replica and the effect.
Performers = dict[type, Callable[..., None]]


class Replica(ReplicaSteps, LeaseHolder):
    """Base of all replicas. A node has very many, most of them idle: they keep nothing that they can do without."""

    __slots__ = (
        "_lead_at", "_leader_told", "_replicated_since", "_staging", "_trust_at", "applied", "applying_later", "closed",
        "handing_over", "host", "last_append", "log", "machine", "partition", "raft", "reading_cold", "serving", "time",
    )  # fmt: skip

    def __init__(self, host: Host, log: PartitionLog, meta: PartitionMeta, machine: FoldedMachine) -> None:
        self.machine = machine
        self.host = host
        self.partition = log.partition
        self.log = log
        self.applied = log.checkpoint_offset
        self.serving = False
        # Leading, but about to lead no more: nothing new is accepted or proposed.
        self.handing_over = False
        self.closed = False
        # From its election on.
        self.time: LeaderTime | None = None
        self._staging = False
        self.applying_later = False
        # (follower, epoch) that wait for a read of older entries. One that an earlier leadership here asked for feeds
        # nobody any more: it must not stand in the way of what the present one asks for.
        self.reading_cold: tuple[tuple[int, int], ...] = ()
        self._lead_at = -1
        self._trust_at = -1
        self._leased_until_ms = 0
        self.last_append: LastAppend | None = None
        # Whom `failover` was told of.
        self._leader_told = 0
        # The `replicated` position last seen by a flush, and since when it stands there.
        self._replicated_since = NEVER
        self.raft = RaftMachine(
            log.partition,
            host.node_id,
            meta.boot(host.node_id),
            log,
            log.epoch,
            log.voted_for,
            self.applied,
            random.randrange,
            log.suspect,
        )
        if not meta.learner:
            self.raft.was_made_voter()

    def load(self, found: FoundState | None = None) -> None:
        """The state of the checkpoint, before anything else is asked of the replica; BLOCKING where it was not found
        before. Raises CorruptionError, and whatever the machine raises."""
        state, error = found or self.find_state(self.log)
        if error is not None:
            raise error
        if state is not None:
            self.take_state(state)
            check_level(self)

    @property
    def meta(self) -> PartitionMeta:
        """Read from the log's tag: that is asked for rarely."""
        return shared_meta(self.log.tag)

    @property
    def tag(self) -> str:
        return self.meta.tag

    # --- inputs -----------------------------------------------------------------------------------------------

    def receive(self, sender: int, message: RaftMessage) -> None:
        """A Raft message of a peer."""
        if self.closed:
            return
        now_ms = self.host.clock.mono_ms()
        headers: list[BatchHeader] = []
        if type(message) is AppendEntries:
            try:
                headers = list(map(verify_batch, message.entries))
            except BatchError as error:
                _log.error("dropping a damaged append", partition=self.partition, sender=sender, error=str(error))
                return
        elif type(message) is SnapshotReply:
            self.host.snapshots.replied(sender, message)
            return
        elif type(message) is VoteRequest and not self.host.was_heard(sender):
            return  # it may know that what this vote would rest on is gone; it asks again
        try:
            effects = self.raft.step(sender, message, now_ms, headers)
        except raft_effects.SafetyViolation as error:
            self.host.stopped.stop(self, StopKind.RAFT, self.raft.commit, error)
            return
        self.perform(effects)

    def stage(self) -> None:
        """The committer gathers a group."""
        self._staging = False
        self._propose_now()

    def _propose_now(self) -> None:
        if self.closed or not self.serving or self.handing_over:
            return
        before = self.log.log_end
        if not self._leads_on(self.propose):
            return
        if self.log.log_end != before:
            # Nothing to tell anybody yet: this is no progress.
            performers = self.raft_performers
            for effect in self.raft.proposed(self.log.log_end, self.host.clock.mono_ms()):
                performers[type(effect)](self, effect)
            self.schedule()

    def durable(self, end_offset: int) -> None:
        """Our own disk has the log up to here."""
        if not self.closed:
            self.perform(self.raft.durable(end_offset, self.host.clock.mono_ms()))

    def peer_changed(self, peer: int, up: bool) -> None:
        """Every replica hears of every peer: where that changes nothing but the machine, it is quick."""
        if self.closed:
            return  # it may have been closed while others heard of it
        raft = self.raft
        now_ms = self.host.clock.mono_ms()
        effects = raft.peer_up(peer, now_ms) if up else raft.peer_down(peer, now_ms)
        if effects or raft.leader != self._leader_told or raft.next_tick_ms():
            self.perform(effects)

    def tick(self) -> None:
        if self.closed:
            return
        # Where the log is empty, too: its first stamps bind all later leaders.
        self.perform(self.raft.tick(self.host.clock.mono_ms(), self.host.clocks.is_fit))
        if self.serving and not self.handing_over and self._leads_on(self.on_tick):
            self.schedule()

    def _leads_on(self, step: Callable[[], None]) -> bool:
        """Take a step of the machine. False: it raised, and the replica is stopped."""
        try:
            step()
        except Exception as error:
            self.host.stopped.stop(self, StopKind.LEADING, self.applied, error)
        return not self.closed

    def hand_over(self, target: int) -> None:
        """Let `target` lead. What was accepted so far is proposed, committed and answered first."""
        if self.closed or not self.serving or self.handing_over:
            return
        # Not `stage`: if we wait for the committer's call, we go on waiting for it. A hand-over that is tried again and
        # again while a group hangs in the disk would put us into the committer's list once more each time.
        self._propose_now()
        if self.closed:
            return
        self.host.committer.wake()
        effects = self.raft.transfer(target, self.host.clock.mono_ms())
        self.handing_over = self.raft.transferee == target
        self.drop_lease()
        self.perform(effects)

    def change_configuration(self, change: Change) -> ConfigChangeError | None:
        """Begin to change who belongs to the group; None: begun, or so already (`raft.configuration`).

        It is done when Host.configuration_committed says so; a leader that is deposed before may or may not have done
        it. A learner's progress is in `raft.status().peers`.
        """
        refusal = ConfigChangeError.NOT_LEADER if self.closed else self.raft.refusal_of(change)
        if refusal is None:
            self.perform(self.raft.change_configuration(change, self.host.clock.mono_ms()))
        return refusal

    def became_suspect(self) -> None:
        """The log says so already: what this node synced is gone."""
        self._trust_at = -1
        if not self.closed:
            self.perform(self.raft.became_suspect(self.host.clock.mono_ms()))

    def was_made_voter(self) -> None:
        """The cluster log says that the move which brought this replica is done."""
        self.raft.was_made_voter()

    @property
    def voters(self) -> tuple[int, ...]:
        """The present ones. Who is preferred as a leader the cluster log says, not their order."""
        return self.raft.voters

    def start(self, campaign: bool, after_ms: int = 0) -> None:
        """Begin to take part: learn who is up; `campaign` when we are the preferred leader of a new partition. The
        election timer begins to run `after_ms` from now."""
        if self.closed:
            return
        now_ms = self.host.clock.mono_ms()
        self.host.failover.changed(self)
        if self.raft.epoch or self.raft.suspect:
            # It may have followed a leader before it was made anew.
            self.perform(self.raft.promised(0, self.host.leases.withdraw_all(now_ms), now_ms))
        for peer in self.host.peers_up():
            self.perform(self.raft.peer_up(peer, now_ms))
        if campaign and self.host.clocks.is_fit:
            self.perform(self.raft.campaign(now_ms))
        if after_ms:
            self.host.timers.wake(self.partition, now_ms + after_ms)
        else:
            self.schedule()

    def close(self) -> None:
        if self.serving:
            self.serving = False
            self.on_follow()
        self.closed = True
        self.host.committer.forget(self.partition, self)
        self.host.snapshots.drop(self.partition)
        self.host.timers.forget(self.partition)
        self.host.failover.forget(self.partition)

    # --- snapshots --------------------------------------------------------------------------------------------

    def installed(self, end_offset: int, restore: Callable[[], None]) -> None:
        """A snapshot took the place of the log: go on from its state (`restoring`)."""
        try:
            restore()
            check_level(self)
        except Exception as error:
            self.host.stopped.stop(self, StopKind.CHECKPOINT, end_offset, error)
            return
        self.applied = end_offset
        self.perform(self.raft.installed(end_offset, self.host.clock.mono_ms()))

    def snapshot_ended(self, peer: int) -> None:
        """A snapshot for `peer` is installed there, or was given up."""
        self.perform(self.raft.snapshot_ended(peer, self.host.clock.mono_ms()))

    # --- for subclasses ---------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time of this partition, by which its machine decides and its entries are stamped; 0 while not leading."""
        return 0 if self.time is None else self.time.now_ms()

    def propose_soon(self) -> None:
        if not self._staging:
            self._staging = True
            self.host.committer.propose_soon(self)

    def append_own(
        self,
        bodies: list[bytes],
        timestamp_ms: int,
        *,
        control: bool = False,
        plain: bool = False,
        configuration: bool = False,
        producer: Producer = NO_PRODUCER,
        usage: int = -1,
    ) -> int:
        """Stage one batch of our own at the log's end; returns its end offset."""
        end = self.log.log_end
        assert timestamp_ms >= self.log.last_stamp_ms, "the stamps of a log never fall"
        batch = build_batch(
            end, self.raft.epoch, timestamp_ms, bodies, control=control, plain=plain, configuration=configuration,
            producer=producer, usage=usage,
        )  # fmt: skip
        self.host.log.append(self.partition, batch)
        self.host.catch_up_reads.rate.appended_bytes += len(batch)
        return end + len(bodies)

    def flush_facts(self) -> FlushFacts:
        self.rest()
        end = self._disposable_end()
        return FlushFacts(self.raft.commit, self.checkpoint_pieces(), self.applied, end, self.machine.is_live)

    def rewrite_facts(self) -> RewriteFacts:
        return RewriteFacts(self._disposable_end(), self.machine.is_live)

    def _disposable_end(self) -> int:
        now_ms = self.host.clock.mono_ms()
        end, self._replicated_since = disposable_end(self.raft, self.log, self._replicated_since, now_ms)
        return end

    def checkpoint_pieces(self) -> Blob:
        """The state of the machine, to be written by a thread: nothing of it changes any more."""
        return self.machine.checkpoint()

    def on_stall(self) -> None:
        """The node had no turn for longer than its peers wait for it."""
        if self.closed or self.raft.role is not Role.LEADER:
            return
        self.perform(self.raft.on_stall(self.host.clock.mono_ms()))
        self.schedule()

    def give_up_leading(self) -> None:
        """This replica is about to stop while its node goes on. Its followers take the node for the leader as long as
        that is up: asking for votes tells them that it leads no more (rule 2 of the Raft package)."""
        now_ms = self.host.clock.mono_ms()
        if self.raft.role is Role.LEADER:
            try:
                self.perform(self.raft.on_stall(now_ms))
            finally:
                self.perform(self.raft.campaign(now_ms))

    def schedule(self) -> None:
        """Book the next tick that the machines want; an idle partition books none."""
        due_ms = self.raft.timer_ms
        if self.serving and not self.handing_over:
            machine_due_ms = self.machine_tick_mono_ms()
            if machine_due_ms and (not due_ms or machine_due_ms < due_ms):
                due_ms = machine_due_ms
        if due_ms:
            self.host.timers.wake(self.partition, due_ms)

    # --- effects ----------------------------------------------------------------------------------------------

    def perform(self, effects: list[raft_effects.Effect]) -> None:
        """Do what the Raft machine asks, in order, and all that follows from its input."""
        performers = self.raft_performers
        try:
            for effect in effects:
                performers[type(effect)](self, effect)
        except ReplicaError as error:
            self.host.stopped.failed(self, error)
            return
        if self.serving:
            self.progressed()
        if self.raft.leader != self._leader_told:
            self._leader_told = self.raft.leader
            self.host.failover.changed(self)
        if effects:
            self.schedule()
        elif self.raft.timer_ms:  # the other machine saw nothing of it
            self.host.timers.wake(self.partition, self.raft.timer_ms)

    def _append_entries(self, effect: raft_effects.Append) -> None:
        for entry in effect.entries:
            self.host.log.append(self.partition, entry)
        self.host.committer.wake()
        if self.log.configurations is not self.raft.history:
            self.perform(self.raft.configured(self.host.clock.mono_ms()))

    def _save_vote(self, effect: raft_effects.SaveVote) -> None:
        if effect.voted_for == self.host.node_id:
            ELECTIONS.inc()
        self.host.log.save_vote(self.partition, effect.epoch, effect.voted_for)
        self.host.committer.wake()

    def _truncate(self, effect: raft_effects.Truncate) -> None:
        if effect.offset < self.log.flushed_end:
            # What was flushed is committed; after a restart the machine does not know all of that.
            error = raft_effects.SafetyViolation(f"asked to cut at {effect.offset}, flushed to {self.log.flushed_end}")
            raise ReplicaError(StopKind.RAFT, effect.offset) from error
        self.host.log.truncate(self.partition, effect.offset)
        self.host.committer.wake()
        self.perform(self.raft.configured(self.host.clock.mono_ms()))

    def _begin_epoch(self, _effect: raft_effects.EpochStart) -> None:
        last_stamp_ms = max(self.log.last_stamp_ms, self.folded_ms())
        self.time = LeaderTime(self.host.clock, self.host.clocks.agreement, last_stamp_ms)
        body = encode_body(b"", control_key(CONTROL_EPOCH_START))
        end = self.append_own([body], self.now_ms(), control=True)
        self.host.committer.wake()
        self.perform(self.raft.proposed(end, self.host.clock.mono_ms()))

    def _became_leader(self, _effect: raft_effects.BecameLeader) -> None:
        self._lead_at = self.raft.commit
        self.maybe_lead()

    def _stepped_down(self, effect: raft_effects.SteppedDown) -> None:
        self._lead_at = -1
        self.handing_over = False
        self.drop_lease()
        self.host.snapshots.stop_sending(self.partition)
        _log.debug("stepped down", partition=self.partition, leader=effect.leader, reason=effect.reason)
        if self.serving:
            self.serving = False
            try:
                self.on_follow()
            except Exception as error:
                raise ReplicaError(StopKind.LEADING, self.applied) from error
        self.time = None

    def _transfer_ended(self, effect: raft_effects.TransferEnded) -> None:
        _log.warning("hand-over was not taken up", partition=self.partition, target=effect.target)
        self.handing_over = False
        self.propose_soon()

    def _trusted(self, _effect: raft_effects.Trusted) -> None:
        self._trust_at = self.raft.commit
        self.maybe_trust()

    def _configuration_committed(self, effect: raft_effects.ConfigurationCommitted) -> None:
        self.handing_over = bool(self.raft.transferee)  # a leader that removed itself
        self.drop_lease()
        _log.info("configuration committed", partition=self.partition, **effect.configuration._asdict())
        self.host.configuration_committed(self.partition, effect.configuration)

    def _append_configuration(self, effect: raft_effects.AppendConfiguration) -> None:
        bodies = [configuration_body(effect.configuration)]
        end = self.append_own(bodies, self.now_ms(), control=True, configuration=True)
        self.host.committer.wake()
        now_ms = self.host.clock.mono_ms()
        self.perform(self.raft.configured(now_ms))
        self.drop_lease()
        self.perform(self.raft.proposed(end, now_ms))

    def _withdraw_promise(self, effect: raft_effects.WithdrawPromise) -> None:
        now_ms = self.host.clock.mono_ms()
        self.perform(self.raft.promised(effect.leader, self.host.leases.withdraw(effect.leader, now_ms), now_ms))

    def maybe_trust(self) -> None:
        """No longer suspect, once all that was committed when the machine said so is folded: what the fold makes in
        the meantime is suspect too (`AssignedReplicas._create`)."""
        if 0 <= self._trust_at <= self.applied:
            self._trust_at = -1
            _log.info("replica is trusted again", partition=self.partition)
            self.host.log.set_suspect(self.partition, False)
            self.host.committer.wake()

    def maybe_lead(self) -> None:
        if self._lead_at >= 0 and self.applied >= self._lead_at and not self.serving:
            self._lead_at = -1
            if self.time is not None:
                # After a restart the stamps of what was flushed since the checkpoint are known only now.
                self.time.not_before(self.folded_ms())
            self.serving = True
            self.host.failover.serves(self.raft)
            try:
                self.on_lead()
            except Exception as error:
                raise ReplicaError(StopKind.LEADING, self.applied) from error

    raft_performers: ClassVar[Performers] = {
        raft_effects.SaveVote: _save_vote,
        raft_effects.Truncate: _truncate,
        raft_effects.Append: _append_entries,
        raft_effects.Send: send_message,
        raft_effects.SendEntries: send_entries,
        raft_effects.EpochStart: _begin_epoch,
        raft_effects.Committed: fold_committed,
        raft_effects.BecameLeader: _became_leader,
        raft_effects.SteppedDown: _stepped_down,
        raft_effects.SendSnapshot: send_snapshot,
        raft_effects.TakeSnapshot: take_snapshot,
        raft_effects.Trusted: _trusted,
        raft_effects.TransferEnded: _transfer_ended,
        raft_effects.AppendConfiguration: _append_configuration,
        raft_effects.ConfigurationCommitted: _configuration_committed,
        raft_effects.WithdrawPromise: _withdraw_promise,
    }
