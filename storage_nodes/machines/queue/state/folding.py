"""How a committed entry changes the state of a replica that does not lead: commands by their kind, and producers."""

from __future__ import annotations

from storage_nodes.machines.producers import ProducerTable
from storage_nodes.machines.queue.commands import (
    ACQUIRED,
    CONFIGURED,
    DEAD_LETTERED,
    DELETED,
    EXPIRED,
    FIRST_FIELD,
    HANDED_OVER,
    KIND,
    LEASED,
    LEVELED,
    PURGED,
    REMOVED,
    RESCHEDULED,
    UNPARKED,
    USAGE_COMMANDS,
    VISIBILITY_CHANGED,
    Command,
)
from storage_nodes.machines.queue.effects import BatchFacts
from storage_nodes.machines.queue.state.fifo_state import FifoState
from storage_nodes.machines.queue.state.headers import FoldedHeaders
from storage_nodes.machines.queue.state.meter_entries import fold_handed_over, fold_usage
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.machines.unknown_entries import UnknownEntryError


def fold_command(state: QueueState, command: Command, offset: int) -> None:
    """Folds a command that no leader waits for. Raises UnknownEntryError."""
    kind = command[KIND]
    if kind == ACQUIRED:
        state.fold_acquired(command)
    elif kind == DELETED:
        state.fold_deleted(command)
    elif kind == HANDED_OVER:
        fold_handed_over(state, command)
    elif kind == VISIBILITY_CHANGED:
        state.fold_visibility(command)
    elif kind == EXPIRED:
        state.fold_expired(command)
    elif kind == PURGED:
        state.fold_purged(command, offset)
    elif kind == LEASED:
        assert isinstance(state, FifoState), "a lease by group in a standard queue"
        state.fold_leased(command)
    elif kind == DEAD_LETTERED:
        state.fold_dead_lettered(command)
    elif kind == RESCHEDULED:
        state.fold_rescheduled(command)
    elif kind == REMOVED:
        state.fold_removed(command)
    elif kind == UNPARKED:
        assert isinstance(state, FifoState), "groups of a standard queue"
        state.fold_unparked(command)
    elif kind in USAGE_COMMANDS:
        fold_usage(state, command)
    elif kind == CONFIGURED:
        state.fold_configured(command)
    elif kind == LEVELED:
        # Whether this process speaks it, the driver looks after the entry.
        state.level = max(state.level, command[FIRST_FIELD])
    else:
        raise UnknownEntryError(f"command kind {kind} of a queue")


def fold_producer(state: QueueState, batch: BatchFacts, noted: FoldedHeaders | None) -> None:
    """Notes what the producer of this batch has sent."""
    if state.producers is None:
        state.producers = ProducerTable()
    state.producers.fold(batch)
    if noted is not None and noted.duplicates:
        state.producers.note_duplicates(batch, noted.duplicates)
