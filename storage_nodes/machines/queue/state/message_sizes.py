"""What the meter is told of the messages that a command names, by the sizes that it says (docs/storage/metering.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage_nodes.machines.queue.commands import (
    DeletedCommand,
    Sizes,
    VisibilityCommand,
    sizes_of,
    sum_of_sizes,
    unseen_of,
)
from storage_nodes.machines.queue.state.metering import Metering
from storage_nodes.protocol.usage import units_of_all


def fold_meter_fields(meter: Metering | None, left: Sequence[int], command: DeletedCommand) -> None:
    """What a command says for the meter that lets these leave the queue."""
    if meter is None:
        return
    sizes = command.sizes
    count, billed_bytes = sum_of_sizes(sizes) if isinstance(sizes, bytes) else (-1, 0)
    if count == len(left):
        meter.left(count, billed_bytes)
    else:
        take_out(meter, left, command.receipts[::2], sizes)
    if command.told is not None:
        meter.handed_over(*command.told)


def take_out(meter: Metering | None, left: Sequence[int], offsets: Sequence[int], said: Sizes) -> None:
    """Of the messages that a command names, with sizes or without any, these leave the queue."""
    if not said or meter is None:
        return
    sizes = sizes_of(said)
    if len(left) < len(sizes):  # some stay, or are named twice
        size_of = dict(zip(offsets, sizes, strict=True))
        sizes = [size_of[offset] for offset in left]
    known: Sequence[Any] = [size for size in sizes if size is not None] if None in sizes else sizes
    meter.left(len(known), sum(known))


def take_back(meter: Metering, unseen: Sequence[int], command: VisibilityCommand, held: int) -> None:
    """A command gives these back, which were billed as delivered and which no consumer saw."""
    sizes_bytes = _billed_bytes(meter, unseen, unseen_of(command.changes), sizes_of(command.sizes), held)
    meter.take_back(len(unseen), sum(sizes_bytes), units_of_all(sizes_bytes))


def bill_lost_leases(meter: Metering | None, ahead: Sequence[int], command: DeletedCommand, held: int) -> None:
    """A delete took these out though, by the log, they were never leased: their leases were lost with a leader that
    had answered before their commit. The receipt proves the delivery (docs/storage/metering.md)."""
    if meter is None:
        return
    sizes_bytes = _billed_bytes(meter, ahead, command.receipts[::2], sizes_of(command.sizes), held)
    meter.handed_over(len(ahead), len(ahead), sum(sizes_bytes), units_of_all(sizes_bytes))


def _billed_bytes(
    meter: Metering, billed: Sequence[int], offsets: Sequence[int], sizes: Sequence[int | None], held: int
) -> list[int]:
    """Of each of these messages, by the sizes that a command says of `offsets`. Without a size: the mean of the `held`
    messages in the queue."""
    size_of = dict(zip(offsets, sizes, strict=True)) if sizes else {}
    mean_bytes = meter.held_bytes // max(held, 1)
    return [mean_bytes if size is None else size for size in map(size_of.get, billed)]
