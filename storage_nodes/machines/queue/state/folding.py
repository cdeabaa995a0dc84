"""How a committed entry changes the state of a replica: commands, each by its kind, and producers."""

from __future__ import annotations

from storage_nodes.machines.producers import ProducerTable
from storage_nodes.machines.queue.commands import (
    AcquiredCommand,
    ConfiguredCommand,
    DeadLetteredCommand,
    DeletedCommand,
    ExpiredCommand,
    HandedOverCommand,
    LeasedCommand,
    LeveledCommand,
    PurgedCommand,
    RemovedCommand,
    RescheduledCommand,
    RetiredCommand,
    UnparkedCommand,
    UsageClosedCommand,
    UsageExportedCommand,
    VisibilityCommand,
)
from storage_nodes.machines.queue.effects import BatchFacts
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.metering import Metering
from storage_nodes.machines.queue.state.queue_state import QueueState


class StateFold:
    """Folds commands into a state, for nobody who waits for them. A leader, which has more to do, extends it
    (leader/following.py)."""

    __slots__ = ("_state",)

    def __init__(self, state: QueueState) -> None:
        self._state = state

    def fold_acquired(self, command: AcquiredCommand) -> None:
        self._state.fold_acquired(command)

    def fold_deleted(self, command: DeletedCommand) -> None:
        self._state.fold_deleted(command)

    def fold_visibility(self, command: VisibilityCommand) -> None:
        self._state.fold_visibility(command)

    def fold_expired(self, command: ExpiredCommand) -> None:
        self._state.fold_expired(command)

    def fold_purged(self, command: PurgedCommand, offset: int) -> None:
        self._state.fold_purged(command, offset)

    def fold_configured(self, command: ConfiguredCommand) -> None:
        self._state.fold_configured(command)

    def fold_leased(self, command: LeasedCommand) -> None:
        assert isinstance(self._state, FifoState), "a lease by group in a standard queue"
        self._state.fold_leased(command)

    def fold_dead_lettered(self, command: DeadLetteredCommand) -> None:
        self._state.fold_dead_lettered(command)

    def fold_rescheduled(self, command: RescheduledCommand) -> None:
        self._state.fold_rescheduled(command)

    def fold_removed(self, command: RemovedCommand) -> None:
        self._state.fold_removed(command)

    def fold_unparked(self, command: UnparkedCommand) -> None:
        assert isinstance(self._state, FifoState), "groups of a standard queue"
        self._state.fold_unparked(command)

    def fold_usage_closed(self, command: UsageClosedCommand) -> None:
        if self._state.metering is not None:
            self._state.metering.close(max(self._state.last_ms, command.time_ms))

    def fold_usage_exported(self, command: UsageExportedCommand) -> None:
        if self._state.metering is not None:
            self._state.metering.exported(command.hour_ms, command.until_ms)

    def fold_retired(self, command: RetiredCommand) -> None:
        state = self._state
        if state.metering is None:
            state.metering = Metering(max(state.last_ms, command.time_ms))
        state.metering.end()

    def fold_handed_over(self, command: HandedOverCommand) -> None:
        meter = self._state.metering
        if meter is not None:
            meter.handed_over(command.leases, command.messages, command.billed_bytes, command.units)

    def fold_leveled(self, command: LeveledCommand) -> None:
        # Whether this process speaks it, the driver looks after the entry.
        self._state.level = max(self._state.level, command.level)


def fold_producer(state: QueueState, batch: BatchFacts, noted: FoldedHeaders | None) -> None:
    """Notes what the producer of this batch has sent."""
    if state.producers is None:
        state.producers = ProducerTable()
    state.producers.fold(batch)
    if noted is not None and noted.duplicates:
        state.producers.note_duplicates(batch, noted.duplicates)
