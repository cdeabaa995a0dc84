"""What the kinds of replicas say: what a committed entry means to them, and what they do when they lead or follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from storage_nodes.log.record_batch import BatchHeader
from storage_nodes.node.replicas.partition_machine import FoldedMachine


class ReplicaSteps:
    """`Replica` calls these; each kind overrides what it needs."""

    __slots__ = ()
    machine: FoldedMachine

    def restoring(self, checkpoint: bytes) -> Callable[[], None]:
        """In any thread, where it changes nothing: what puts the machine into this state when it is called, and raises
        what went wrong."""
        return partial(self.machine.restore, checkpoint)

    def fold(self, header: BatchHeader, batch: bytes) -> None:
        raise NotImplementedError

    def propose(self) -> None:
        """Called while leading when a group gathers: append own batches with `append_own`."""

    def progressed(self) -> None:
        """Commit, durability or replication moved: answer who waited for it."""

    def on_lead(self) -> None:
        """The epoch-start entry is committed and folded: serve."""

    def on_follow(self) -> None:
        """No longer leading: nobody may be told that something succeeded any more."""

    def on_tick(self) -> None:
        """A timer of the machine rang."""

    def machine_tick_mono_ms(self) -> int:
        return 0

    def folded_ms(self) -> int:
        """The latest time in what was folded."""
        return 0

    def rest(self) -> None:
        """A flush is about to begin: let go of what nobody waits for."""
