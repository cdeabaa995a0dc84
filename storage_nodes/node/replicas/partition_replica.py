"""A replica that serves clients of a partition: drives a `PartitionMachine` by the times of leading and following.

requests --> the machine --> effects --> `performers`: what performs each kind
sends    --> Appends     --> one batch per group commit, before the commands that the machine staged
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from storage_nodes.limits import PRODUCER_CALL_MS_MAX, PRODUCER_MEMORY_MS
from storage_nodes.log.checkpoint import Blob
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.node.replicas.appends import Appends
from storage_nodes.node.replicas.host import Host
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.partition_machine import PartitionMachine
from storage_nodes.node.replicas.partition_meta import PartitionMeta
from storage_nodes.node.replicas.replica import Performers, Replica
from storage_nodes.node.transport.connections import Token


class PartitionReplica(Replica):
    """Base of the replicas of queues and streams."""

    __slots__ = ("_appends",)
    machine: PartitionMachine
    performers: ClassVar[Performers]

    def __init__(self, host: Host, log: PartitionLog, meta: PartitionMeta, machine: PartitionMachine) -> None:
        # Made with the first append: an idle partition stays small.
        self._appends: Appends | None = None
        super().__init__(host, log, meta, machine)

    def leader_context(self) -> LeaderContext:
        """For what begins in this leadership and ends later."""
        return LeaderContext(self)

    def cancel(self, token: Token) -> None:
        """The caller gave up a request that is parked or waits for all voters, or its connection is gone."""
        if self._appends is not None and self._appends.give_up(token):
            return
        self._do(self.machine.cancel(token))

    @property
    def is_quiet(self) -> bool:
        """Is all that was accepted here committed and folded?"""
        return self.applied == self.log.log_end and (self._appends is None or not self._appends.gathered_records)

    # --- for `Appends` ----------------------------------------------------------------------------------------

    def used_since_ms(self) -> int:
        """A producer that was not heard of since then is not in use: nothing of it came for PRODUCER_MEMORY_MS, or in
        all of this leadership, once that is PRODUCER_CALL_MS_MAX old: what was under way was tried again, or given up.
        Only time of this leadership counts: the time before it may have jumped to where this one began."""
        led_ms = self.host.clock.mono_ms() - self.raft.leader_since_ms
        if self.time is None or led_ms <= PRODUCER_CALL_MS_MAX:
            return 0
        return self.now_ms() - min(led_ms, PRODUCER_MEMORY_MS)

    # --- Replica ----------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        time = self.time
        if time is None:
            return 0
        now_ms = time.now_ms()
        if time.ahead_ms != self.machine.ahead_ms:
            self.machine.clocks_say(time.ahead_ms)
        return now_ms

    def folded_ms(self) -> int:
        return self.machine.last_ms

    def propose(self) -> None:
        now_ms = self.now_ms()
        if self._appends is not None:
            self._appends.propose(self, now_ms)
        commands = self.machine.take_commands(now_ms, self.host.feature_level)
        if commands:
            self.append_own(commands, now_ms, control=True)

    def progressed(self) -> None:
        appends = self._appends
        if appends is not None:
            raft, applied = self.raft, self.applied
            commit = raft.commit
            appends.progressed(self.log.durable_end, applied if applied < commit else commit, raft.replicated)

    def take_state(self, state: Any) -> None:
        self.machine.adopt(state)

    def checkpoint_pieces(self) -> Blob:
        return self.machine.checkpoint_pieces()

    def on_lead(self) -> None:
        self._do(self.machine.lead(self.now_ms()))

    def on_follow(self) -> None:
        if self._appends is not None:
            self._appends.fail(self.raft.leader)
            self._appends = None
        self._do(self.machine.follow())

    def on_tick(self) -> None:
        self._do(self.machine.tick(self.now_ms()))

    def machine_tick_mono_ms(self) -> int:
        due_ms = self.machine.next_tick_ms()
        return self.time.mono_of(due_ms) if due_ms and self.time is not None else 0

    # --- the machine's effects --------------------------------------------------------------------------------

    def _do(self, effects: Iterable[object]) -> None:
        """Perform them in order."""
        performers = self.performers
        for effect in effects:
            performers[type(effect)](self, effect)
