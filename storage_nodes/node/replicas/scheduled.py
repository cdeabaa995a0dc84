"""Scheduled messages at the leader, and delayed ones beside them: releasing those that are due, and showing scheduled
ones.

Release:  the machine says which are due -> bodies read from the log -> appended once more with the next group commit,
          with HEADER_RELEASED in the place of what made them wait; the fold takes the first copy out of the schedule
Show:     the machine says which, in the order in which they are due -> bodies read from the log -> answered

While disks are full nothing is released: a copy needs room before it gives any back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import Counter

from storage_nodes.limits import (
    BROWSE_BYTES_MAX,
    RELEASES_AT_ONCE_BYTES_MAX,
    SCHEDULE_CHANGES_PER_CALL_MAX,
    SCHEDULE_PAGE_MESSAGES_MAX,
)
from storage_nodes.machines.queue.effects import Release
from storage_nodes.machines.queue.machine import QueueMachine
from storage_nodes.machines.queue.state.headers import delay_of, release_header
from storage_nodes.node.replicas.bodies import read_scattered
from storage_nodes.node.replicas.leader_context import LeaderContext
from storage_nodes.node.replicas.leased import no_lease
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    RescheduleRequest,
    ScheduledMessage,
    ScheduledReply,
    ScheduledRequest,
    encode_message,
)
from storage_nodes.protocol.records import (
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_RELEASED,
    decode_body,
    encode_body,
)

MESSAGES_RELEASED = Counter("penstock_node_messages_released", "Scheduled messages that became due at leaders here")

# What made the first copy wait, and what told it from others as it arrived.
_SPENT_HEADERS = (HEADER_DUE, HEADER_DELAY_MS, HEADER_DEDUP)

Pairs = Sequence[tuple[int, int]]


def release(
    context: LeaderContext, machine: QueueMachine, effect: Release, released: Callable[[list[bytes], list[int]], None]
) -> None:
    """Read what is due and have it appended: `released` takes the copies, and the offsets they are copies of."""
    replica = context.replica

    def found(bodies: dict[int, bytes]) -> None:
        copies: list[bytes] = []
        offsets: list[int] = []
        size = 0
        for due_ms, offset in _still_scheduled(machine, effect.messages, bodies):
            copy = released_copy(bodies[offset], offset, due_ms)
            size += len(copy)
            if copies and size > RELEASES_AT_ONCE_BYTES_MAX:
                break
            copies.append(copy)
            offsets.append(offset)
        MESSAGES_RELEASED.inc(len(copies))
        released(copies, offsets)

    if replica.host.nodes_without_room(replica.voters):
        released([], [])
    else:
        read_scattered(replica.log, context.run_cold, [offset for _, offset in effect.messages], found)


def show(context: LeaderContext, machine: QueueMachine, token: Token, request: ScheduledRequest) -> None:
    """Answers the token, at once or after a read from disk. Raises StorageError."""
    if not 1 <= request.messages_max <= SCHEDULE_PAGE_MESSAGES_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"messages_max must be 1 to {SCHEDULE_PAGE_MESSAGES_MAX}")
    after = (request.after_due_ms, request.after_offset)
    pairs = machine.scheduled_page(after, request.messages_max, request.until_ms)

    def found(bodies: dict[int, bytes]) -> None:
        if not context.replica.holds_lease():
            token.connection.refuse(token, no_lease())
            return
        messages: list[ScheduledMessage] = []
        size = 0
        last = pairs[-1] if pairs else after
        for due_ms, offset in _still_scheduled(machine, pairs, bodies):
            size += len(bodies[offset])
            if messages and size > BROWSE_BYTES_MAX:
                last = (messages[-1].due_ms, messages[-1].offset)
                break
            messages.append(ScheduledMessage(offset, due_ms, bodies[offset]))
        more = bool(machine.scheduled_page(last, 1, request.until_ms))
        token.connection.answer(token, encode_message(ScheduledReply(messages, *last, more)))

    run_cold = partial(context.run_cold, lost=lambda: context.refuse(token))
    read_scattered(context.replica.log, run_cold, [offset for _, offset in pairs], found)


def check_changes(request: RescheduleRequest) -> None:
    """Raises StorageError."""
    if not 1 <= len(request.changes) <= SCHEDULE_CHANGES_PER_CALL_MAX:
        text = f"a call changes 1 to {SCHEDULE_CHANGES_PER_CALL_MAX} scheduled messages"
        raise StorageError(ErrorCode.INVALID_REQUEST, text)


def released_copy(body: bytes, offset: int, due_ms: int) -> bytes:
    """The message as it joins the queue: all but what made it wait, and which it was."""
    record = decode_body(body)
    headers = [header for header in record.headers if header[0] not in _SPENT_HEADERS]
    spent = {name: content for name, content in record.headers if name in _SPENT_HEADERS}
    is_delayed = HEADER_DELAY_MS in spent and HEADER_DUE not in spent
    sent_ms = due_ms - delay_of(spent[HEADER_DELAY_MS]) if is_delayed else 0
    headers.append((HEADER_RELEASED, release_header(offset, due_ms, sent_ms)))
    return encode_body(record.value, record.key, headers)


def _still_scheduled(machine: QueueMachine, pairs: Pairs, bodies: dict[int, bytes]) -> Pairs:
    """What was cancelled, rescheduled or purged while it was being read is left out."""
    return [(due_ms, offset) for due_ms, offset in pairs if offset in bodies and machine.due_ms(offset) == due_ms]
