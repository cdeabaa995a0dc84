"""Watches over connections of the product's own client: at the node's end for the referee, at its own for leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder
from storage_nodes.protocol.messages import (
    AcquireReply,
    AcquireRequest,
    ChangeVisibilityRequest,
    DeleteRequest,
    Opcode,
    SendRequest,
    StreamReadRequest,
)
from tests.simulation.clients import Operation, read_reply
from tests.simulation.transport import SimTransport

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

_REQUESTS: dict[int, type[Any]] = {
    Opcode.SEND: SendRequest,
    Opcode.STREAM_APPEND: SendRequest,
    Opcode.STREAM_READ: StreamReadRequest,
    Opcode.ACQUIRE: AcquireRequest,
    Opcode.DELETE: DeleteRequest,
    Opcode.CHANGE_VISIBILITY: ChangeVisibilityRequest,
}


def watch_node_end(world: World, there: SimTransport) -> None:
    """Show the referee what arrives at the node and what leaves it."""
    process: SimProcess = there.own  # type: ignore[assignment]
    operations: dict[int, Operation] = {}
    asked, answered = FrameDecoder(), FrameDecoder()
    world.lease_referee.watch(there, operations)

    def arrives(data: bytes) -> None:
        for frame in asked.feed(data):
            kind = _REQUESTS.get(frame.opcode)
            if kind is None:
                continue
            request = msgspec.msgpack.decode(frame.payload, type=kind)
            operation = Operation(frame.opcode, process.process_id, request, lambda _: None)
            operations[frame.correlation_id] = operation
            world.referee.arrived(process, operation)

    def leaves(data: bytes) -> None:
        for frame in answered.feed(data):
            operation = operations.pop(frame.correlation_id, None)
            if operation is not None:
                world.referee.answered(process, operation, read_reply(frame))

    there.on_arrival, there.on_write = arrives, leaves


def watch_own_end(here: SimTransport, leased: Callable[[int, AcquireReply], None]) -> None:
    """Hear of every lease that arrives, whether or not somebody still waits for it."""
    partitions: dict[int, int] = {}  # of the receives under way
    asked, answered = FrameDecoder(), FrameDecoder()

    def leaves(data: bytes) -> None:
        for frame in asked.feed(data):
            if frame.opcode == Opcode.ACQUIRE:
                request = msgspec.msgpack.decode(frame.payload, type=AcquireRequest)
                partitions[frame.correlation_id] = request.partition

    def arrives(data: bytes) -> None:
        for frame in answered.feed(data):
            partition = partitions.pop(frame.correlation_id, None)
            if partition is not None and not frame.flags & FLAG_ERROR:
                leased(partition, msgspec.msgpack.decode(frame.payload, type=AcquireReply))

    here.on_write, here.on_arrival = leaves, arrives
