"""What waits for one connection is counted, whether it waits here or in the transport."""

from __future__ import annotations

from typing import Any

from storage_nodes.limits import MIB, TRANSPORT_BYTES_MAX
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.transport.outflow import Outflow


class Transport:
    """The other end reads when told to."""

    def __init__(self) -> None:
        self.held_bytes = self.high_bytes = self.low_bytes = 0
        self.out: Outflow | None = None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.high_bytes, self.low_bytes = high, low

    def get_write_buffer_size(self) -> int:
        return self.held_bytes

    def write(self, data: bytes) -> None:
        self.held_bytes += len(data)
        assert self.out is not None
        if self.held_bytes > self.high_bytes:
            self.out.pause()

    def read(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        assert self.out is not None
        if self.out.is_paused and self.held_bytes <= self.low_bytes:
            self.out.resume()


def outflow(budget: MemoryBudget) -> tuple[Outflow, Transport]:
    transport = Transport()
    given: Any = transport
    transport.out = out = Outflow(given, budget, Kind.ANSWERS)
    return out, transport


def test_frame_that_a_transport_took_whole_counts_until_it_has_drained() -> None:
    budget = MemoryBudget()
    out, transport = outflow(budget)
    out.put(b"x" * 2 * MIB)
    out.flush()
    assert out.bytes == 0 and budget.used(Kind.ANSWERS) == 2 * MIB
    out.put(b"y" * MIB)
    out.flush()
    assert out.bytes == MIB and budget.used(Kind.ANSWERS) == 3 * MIB
    transport.read(2 * MIB)
    assert out.bytes == 0 and budget.used(Kind.ANSWERS) == transport.held_bytes == MIB
    transport.read(MIB)
    assert budget.used(Kind.ANSWERS) == 0


def test_what_is_left_in_a_transport_counts_from_look_to_look() -> None:
    budget = MemoryBudget()
    out, transport = outflow(budget)
    out.put(b"x" * TRANSPORT_BYTES_MAX)
    out.flush()
    out.is_stuck(1_000)
    assert not out.is_paused and budget.used(Kind.ANSWERS) == TRANSPORT_BYTES_MAX
    transport.read(TRANSPORT_BYTES_MAX)
    out.is_stuck(2_000)
    assert budget.used(Kind.ANSWERS) == 0


def test_lost_connection_gives_back_what_its_transport_held() -> None:
    budget = MemoryBudget()
    for _ in range(20):
        out, _ = outflow(budget)
        out.put(b"x" * 2 * MIB)
        out.put(b"x" * MIB)
        out.flush()
        out.close()
    assert budget.used(Kind.ANSWERS) == 0
