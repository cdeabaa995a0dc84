"""Looks at the messages of a queue without touching them: in log order, from any offset on, page by page.

The leader answers, from its state of the moment in which the log was read; another moment, another answer.
"""

from __future__ import annotations

from storage_nodes.limits import BROWSE_BYTES_MAX, BROWSE_MESSAGES_MAX
from storage_nodes.log.record_batch import iterate_bodies, read_header
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    BrowsedMessage,
    QueueBrowseReply,
    QueueBrowseRequest,
    encode_message,
)


def browse(context: LeaderContext, machine: QueueMachine, token: Token, request: QueueBrowseRequest) -> None:
    """Answers the token, at once or after a read from disk. Raises StorageError."""
    if not 1 <= request.messages_max <= BROWSE_MESSAGES_MAX or request.from_offset < 0:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"messages_max must be 1 to {BROWSE_MESSAGES_MAX}")
    # What is below stands nowhere: no need to read it.
    offset = max(request.from_offset, machine.low_watermark())

    def done(batches: list[bytes]) -> None:
        token.connection.answer(token, encode_message(_page(context.replica, machine, request, offset, batches)))

    context.read_then(token, offset, BROWSE_BYTES_MAX, done)


def _page(
    replica: Replica, machine: QueueMachine, request: QueueBrowseRequest, offset: int, batches: list[bytes]
) -> QueueBrowseReply:
    """Messages of these batches, the first of which covers `offset` or follows it. Only what is folded counts (R9)."""
    applied = replica.applied
    messages: list[BrowsedMessage] = []
    if not batches:
        return QueueBrowseReply(messages, applied, applied)
    for batch in batches:
        header = read_header(batch)
        if header.end_offset > applied:
            return QueueBrowseReply(messages, applied, applied)
        if not header.is_control and not _look_into(machine, replica.now_ms(), request, offset, batch, messages):
            return QueueBrowseReply(messages, messages[-1].offset + 1, applied)
        offset = header.end_offset
    return QueueBrowseReply(messages, min(offset, applied), applied)


def _look_into(
    machine: QueueMachine,
    now_ms: int,
    request: QueueBrowseRequest,
    offset: int,
    batch: bytes,
    messages: list[BrowsedMessage],
) -> bool:
    """False once the page is full."""
    batch_ms = read_header(batch).timestamp_ms
    for at, body in iterate_bodies(batch):
        if at < offset:
            continue
        found = machine.look_at(at, now_ms)
        if found is None or not found[0] & request.states:
            continue
        state, delivery, deadline_ms, sent_ms = found
        received_ms = machine.first_received_ms(at)
        messages.append(
            BrowsedMessage(at, state, receives_of(delivery), deadline_ms, sent_ms or batch_ms, body, received_ms)
        )
        if len(messages) >= request.messages_max:
            return False
    return True
