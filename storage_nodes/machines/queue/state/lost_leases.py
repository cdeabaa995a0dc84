"""Deliveries whose leases the log does not have: they were lost with a leader that had answered before their commit.

A receipt proves such a delivery when the message is deleted by it while, by the log, it still waits. From level
DELETES_OF_LOST_LEASES_BILLED on it is billed then (docs/storage/metering.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from storage_nodes.machines.queue.commands import FIRST_FIELD, Command, sizes_of
from storage_nodes.machines.queue.state.held_messages import HeldMessages
from storage_nodes.protocol.usage import units_of_all


def bill_lost_leases(state: HeldMessages, command: Command, ahead: Sequence[int]) -> None:
    """`command`, a DELETED, took these messages out though they were never leased: each is a delivery, of its own size
    where the leader knows it, else of the mean size of what is held."""
    state.received += len(ahead)
    meter = state.metering
    if meter is None:
        return
    sizes = sizes_of(command, 1)
    size_of = dict(zip(command[FIRST_FIELD][::2], sizes, strict=True)) if sizes else {}
    mean_bytes = meter.held_bytes // (state.held_count + len(ahead))
    billed = [mean_bytes if size is None else size for size in map(size_of.get, ahead)]
    meter.handed_over(len(ahead), len(ahead), sum(billed), units_of_all(billed))
