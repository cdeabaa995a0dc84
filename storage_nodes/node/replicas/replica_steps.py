"""What the kinds of replicas say: what a committed entry means to them, and what they do when they lead or follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from storage_nodes.log.partition_log import PartitionLog
from storage_nodes.log.record_batch import BatchHeader
from storage_nodes.node.replicas.partition_machine import FoldedMachine


class FoundState(NamedTuple):
    """What the checkpoint of a log says, or why it cannot be read; nothing of both where there is none."""

    state: Any = None
    error: Exception | None = None


class ReplicaSteps:
    """`Replica` calls these; each kind overrides what it needs."""

    __slots__ = ()
    machine: FoldedMachine

    @staticmethod
    def read_state(checkpoint: bytes) -> Any:
        """BLOCKING, in any thread: what `take_state` takes. Raises whatever the machine raises."""
        return checkpoint

    @classmethod
    def find_state(cls, log: PartitionLog) -> FoundState:
        """BLOCKING, in any thread."""
        try:
            checkpoint = log.checkpoint
            return FoundState(None if checkpoint is None else cls.read_state(checkpoint))
        except Exception as error:
            return FoundState(error=error)

    def take_state(self, state: Any) -> None:
        """The machine goes on from there."""
        self.machine.restore(state)

    def restoring(self, checkpoint: bytes) -> Callable[[], None]:
        """In any thread, where it changes nothing: what puts the machine into this state when it is called, and raises
        what went wrong."""
        try:
            return partial(self.take_state, self.read_state(checkpoint))
        except Exception as error:
            return partial(_raise, error)

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


def _raise(error: Exception) -> None:
    raise error
