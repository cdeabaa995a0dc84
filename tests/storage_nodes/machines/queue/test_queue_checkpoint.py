"""Checkpoints: of an earlier version, of every kind of state, and none at all."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.machines.driver_contract import CheckpointError
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.protocol.messages import QueueConfig

# Version 1: a message in flight at 7 and 8, one deleted ahead at 12 and 13, cursor 10, log end 20.
_SCALARS_1 = [10, 20, 8, 1_000, -60_000, 345_600_000, 500, 13, 2, 3, 0, 0]
_VERSION_1 = msgspec.msgpack.encode([1, *_SCALARS_1, [7, 2, 30_000, 1, 5, 900], [12, 1]])


def test_checkpoint_of_version_1_is_read() -> None:
    machine = QueueMachine()
    machine.restore(_VERSION_1)
    state = machine.state
    assert state.config == QueueConfig(in_flight_max=500) and not machine.is_fifo
    assert state.live == {7: (30_900, 1, 905, 900), 8: (30_900, 1, 905, 900)}
    assert (state.cursor, state.log_end, state.fresh_count, state.sent, state.deleted) == (10, 20, 8, 13, 3)
    assert list(state.removed_above_cursor) == [12, 13] and len(state.dedup) == 0
    again = QueueMachine()
    again.restore(machine.checkpoint())
    assert again.checkpoint() == machine.checkpoint()


def test_checkpoint_of_version_2_is_read() -> None:
    scalars = [10, 20, 8, 1_000, -60_000, 345_600_000, 500, 13, 2, 3, 0, 0, 1, 7_000, 4, 9, 5, 6]
    groups = msgspec.msgpack.decode(QueueMachine(QueueConfig(fifo=True)).checkpoint())[5]
    machine = QueueMachine()
    machine.restore(msgspec.msgpack.encode([2, scalars, [7, 2, 30_000, 1, 5, 900], [12, 1], [], groups]))
    state = machine.state
    assert state.config == QueueConfig(
        in_flight_max=500, fifo=True, dedup_window_ms=7_000, max_receives=4, dead_letter_partition=9
    )
    assert (state.sent, state.received, state.duplicates, state.dead_lettered) == (13, 2, 5, 6)


def test_fifo_checkpoint_makes_a_fifo_machine_whatever_it_was() -> None:
    checkpoint = QueueMachine(QueueConfig(fifo=True, max_receives=3, dead_letter_partition=4)).checkpoint()
    machine = QueueMachine()
    machine.restore(checkpoint)
    assert machine.is_fifo and machine.state.config.max_receives == 3


@pytest.mark.parametrize(
    "blob", [b"", b"\xc1", b"\x90", b"\x93\x02\x01\x01", _VERSION_1[:-3], b"\x96\x03" + b"\x90" * 5]
)
def test_bytes_that_are_no_checkpoint_are_refused(blob: bytes) -> None:
    with pytest.raises(CheckpointError):
        QueueMachine().restore(blob)
