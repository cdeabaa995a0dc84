"""READ FIRST: the path of a message from storage to a caller, and what callers do with what they were given.

    way in, authenticate, authorise, route, throttle         as in send.py
    lease        routing/poll.py             partitions of the queue, parked at the leaders for a long poll
    decrypt      opening.py                  a message that does not open is counted and left to its lease
    receipt      crypto/receipts.py          where the message lies, MACed for this queue
    answer, meter

A receipt comes back with a delete (ack) or a change of visibility (extend, nack). It is proof enough that the message
was delivered from this queue; whether the lease still holds is for the partition to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from frontend.authn.principal import Principal
from frontend.crypto.envelope import Content, EnvelopeError
from frontend.crypto.receipts import Receipt, ReceiptError
from frontend.errors import Refusal, invalid, receipt_is_invalid
from frontend.limits import VISIBILITY_S_MAX
from frontend.opening import KeyNotLent, message_id_of, open_record
from frontend.routing.poll import Lease, PollAsk, poll_partitions, poll_while_connected
from frontend.routing.queues import Address, QueueView
from frontend.send import authorise, code_refusal, storage_refusal, throttle
from frontend.sqs.arns import format_arn
from frontend.sqs.fifo import check_attempt
from frontend.sqs.tags import check_filter, filter_finds_nothing
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import DeadSource, VisibilityMode
from storage_nodes.protocol.records import RecordError

if TYPE_CHECKING:
    from frontend.plane import Plane

_log = structlog.get_logger("frontend.receive")


class Received(NamedTuple):
    """A message as a caller sees it. Times are ms since the epoch."""

    message_id: str
    receipt_handle: str
    content: Content
    sender: str
    sent_ms: int
    first_received_ms: int
    delivery: int
    group: str | None
    sequence_number: str | None
    # ARN of the queue that it was sent to, if it was moved here as a dead letter; and why, if somebody did it.
    dead_letter_source: str | None
    # How it died there.
    death: DeadSource | None


class ReceiveAsk(NamedTuple):
    """None = as the queue is configured."""

    messages_max: int
    visibility_s: int | None
    wait_s: int | None
    attempt: str | None = None
    tags: Sequence[str] | None = None


async def receive_messages(
    plane: Plane, caller: Principal, address: Address, ask: ReceiveAsk, receive: Callable[[], Awaitable[Any]]
) -> list[Received]:
    """`receive` is the ASGI channel of the request, watched for a client that leaves. Raises Refusal, Disconnected."""
    queue = authorise(plane, caller, "ReceiveMessage", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    leases = await lease(plane, queue, ask, receive)
    # A receive that is repeated gives the same handles: they cannot say when.
    received_s = 0 if ask.attempt else int(plane.now_s())
    messages = [message for message in await open_leases(plane, queue, leases, received_s) if message is not None]
    plane.meters.count("messages_received", len(messages))
    return messages


async def delete_messages(
    plane: Plane, caller: Principal, address: Address, handles: Sequence[str | None]
) -> list[Refusal | None]:
    """One outcome per handle. Deleting what is gone or was delivered again since is a success without effect."""
    queue = authorise(plane, caller, "DeleteMessage", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    receipts = [read_receipt(plane, queue, handle) for handle in handles]
    outcomes = await apply_receipts(plane, queue, receipts, None)
    settled = [None if _is_not_in_flight(outcome) else outcome for outcome in outcomes]
    plane.meters.count("messages_deleted", settled.count(None))
    return settled


async def change_visibility(
    plane: Plane, caller: Principal, address: Address, changes: Sequence[tuple[str | None, int | Refusal]]
) -> list[Refusal | None]:
    """(handle, seconds from now) each; a Refusal in the place of the seconds is passed through."""
    queue = authorise(plane, caller, "ChangeMessageVisibility", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    receipts: list[Receipt | Refusal] = []
    seconds: list[int] = []
    for handle, visibility_s in changes:
        if isinstance(visibility_s, Refusal):
            receipts.append(visibility_s)
            seconds.append(0)
        else:
            receipt = read_receipt(plane, queue, handle)
            receipts.append(_held_too_long(plane, receipt, visibility_s) or receipt)
            seconds.append(visibility_s)
    if queue.zero_releases and 0 in seconds:
        return await apply_by_mode(plane, queue, receipts, seconds)
    return await apply_receipts(plane, queue, receipts, [1000 * value for value in seconds])


async def give_back(
    plane: Plane, caller: Principal, address: Address, handles: Sequence[str], delay_s: int | None, counts: bool
) -> list[Refusal | None]:
    """Without a delay: a receive that counts is followed by the pause of the queue's retry policy."""
    queue = authorise(plane, caller, "ChangeMessageVisibility", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    receipts = [read_receipt(plane, queue, handle) for handle in handles]
    delays_ms = [1000 * (delay_s or 0)] * len(receipts)
    return await apply_receipts(plane, queue, receipts, delays_ms, give_back_mode(delay_s, counts))


def give_back_mode(delay_s: int | None, counts: bool) -> VisibilityMode:
    if not counts:
        return VisibilityMode.UNCOUNTED
    return VisibilityMode.NACK if delay_s is None else VisibilityMode.SET


# --- stages ---


async def lease(plane: Plane, queue: QueueView, ask: ReceiveAsk, receive: Callable[[], Awaitable[Any]]) -> list[Lease]:
    visibility_ms = queue.visibility_ms if ask.visibility_s is None else ask.visibility_s * 1000
    wait_ms = queue.wait_ms if ask.wait_s is None else ask.wait_s * 1000
    if plane.stopping.is_set():
        wait_ms = 0
    attempt = check_attempt(ask.attempt, queue.fifo is not None)
    tags = check_filter(ask.tags, queue.fifo is not None) if ask.tags else ()
    poll = PollAsk(ask.messages_max, visibility_ms, wait_ms, attempt, tags)
    try:
        if not wait_ms:
            with plane.storage_calls:
                return await poll_partitions(plane.storage, queue.partitions, poll, queue.routes)
        with plane.polls:
            return await poll_while_connected(
                plane.storage, queue.partitions, poll, receive, plane.parked, queue.routes
            )
    except StorageError as error:
        if error.code == ErrorCode.OVER_LIMIT and tags:
            raise filter_finds_nothing(error.message) from None
        if error.code == ErrorCode.OVER_LIMIT and (wait_ms or queue.fifo is not None):
            return []  # a long poll does not tell, nor does a FIFO queue
        raise await storage_refusal(plane, queue, error) from None


async def open_leases(
    plane: Plane, queue: QueueView, leases: Sequence[Lease], received_s: int = 0
) -> Sequence[Received | None]:
    """The message of each lease, None where it does not open: it stays where it is, and everything else is served.
    `received_s` is told by the receipts."""
    try:
        return [open_lease(plane, queue, found, received_s) for found in leases]
    except KeyNotLent:
        # A redrive policy of this very moment: the keys were lent before the first message was moved.
        with contextlib.suppress(Refusal):
            queue = await plane.queues.refresh(queue.address)
    except (EnvelopeError, RecordError):
        pass
    messages: list[Received | None] = []
    for found in leases:
        try:
            messages.append(open_lease(plane, queue, found, received_s))
        except (EnvelopeError, RecordError) as error:
            messages.append(None)
            plane.meters.count("envelopes_unopened")
            place = {"partition": found.partition, "offset": found.message.offset}
            _log.error("envelope_unopened", **place, reason=str(error))
    return messages


def open_lease(plane: Plane, queue: QueueView, found: Lease, received_s: int) -> Received:
    """Raises EnvelopeError, RecordError."""
    message = found.message
    letter = open_record(queue, message.body)
    opened, dead = letter.opened, letter.dead
    sequence, source = None, None
    sent_ms, first_received_ms, delivery = message.sent_ms, message.first_received_ms, receives_of(message.delivery)
    if dead is not None:
        # Its life goes on: what was counted where it failed is not forgotten.
        first_received_ms, delivery = dead.first_received_ms or message.first_received_ms, dead.receives + delivery
        record = queue.record
        source = format_arn(plane.region, record.account_id, record.name if letter.lender is None else letter.lender)
    if queue.fifo is not None:
        sequence = queue.sequence_number(found.partition, message.offset)
    if queue.fifo is None and dead is not None:
        sent_ms = dead.sent_ms
    return Received(
        message_id_of(plane.message_ids, queue, found.partition, message.offset, letter),
        plane.receipts.make(queue.owner, found.partition, message.offset, message.delivery, found.epoch, received_s),
        opened.content,
        opened.sender,
        sent_ms,
        first_received_ms,
        delivery,
        letter.group,
        sequence,
        source,
        dead,
    )


def read_receipt(plane: Plane, queue: QueueView, handle: str | None) -> Receipt | Refusal:
    if not handle:
        return receipt_is_invalid("")
    try:
        receipt = plane.receipts.read(queue.owner, handle)
    except ReceiptError:
        return receipt_is_invalid(handle)
    return receipt if receipt.partition in queue.partitions else receipt_is_invalid(handle)


def _held_too_long(plane: Plane, receipt: Receipt | Refusal, visibility_s: int) -> Refusal | None:
    """One delivery lasts VISIBILITY_S_MAX, however often it is made longer."""
    if isinstance(receipt, Refusal) or not receipt.received_s or not visibility_s:
        return None
    if int(plane.now_s()) - receipt.received_s + visibility_s <= VISIBILITY_S_MAX:
        return None
    return invalid(
        f"Value {visibility_s} for parameter VisibilityTimeout is invalid. "
        f"Reason: Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX} seconds]."
    )


async def apply_by_mode(
    plane: Plane, queue: QueueView, receipts: Sequence[Receipt | Refusal], seconds: Sequence[int]
) -> list[Refusal | None]:
    """Where the queue takes a visibility of 0 for a release that does not count."""
    outcomes: list[Refusal | None] = [None] * len(receipts)
    for mode in (VisibilityMode.SET, VisibilityMode.UNCOUNTED):
        places = [at for at, value in enumerate(seconds) if (value == 0) == (mode == VisibilityMode.UNCOUNTED)]
        chosen = [receipts[at] for at in places]
        found = await apply_receipts(plane, queue, chosen, [1000 * seconds[at] for at in places], mode)
        for at, outcome in zip(places, found, strict=True):
            outcomes[at] = outcome
    return outcomes


async def apply_receipts(
    plane: Plane,
    queue: QueueView,
    receipts: Sequence[Receipt | Refusal],
    visibility_ms: Sequence[int] | None,
    mode: VisibilityMode = VisibilityMode.SET,
) -> list[Refusal | None]:
    """Delete (visibility_ms None) or change visibility; one call per partition, one outcome per receipt."""
    outcomes: list[Refusal | None] = [None if isinstance(found, Receipt) else found for found in receipts]
    places: dict[int, list[int]] = {}
    for place, found in enumerate(receipts):
        if isinstance(found, Receipt):
            places.setdefault(found.partition, []).append(place)
    calls = [
        _apply_at(plane, queue, partition, where, receipts, visibility_ms, outcomes, mode)
        for partition, where in places.items()
    ]
    if len(calls) == 1:
        await calls[0]
    else:
        await asyncio.gather(*calls)
    return outcomes


async def _apply_at(
    plane: Plane,
    queue: QueueView,
    partition: int,
    places: Sequence[int],
    receipts: Sequence[Receipt | Refusal],
    visibility_ms: Sequence[int] | None,
    outcomes: list[Refusal | None],
    mode: VisibilityMode,
) -> None:
    found = [receipt for place in places if isinstance(receipt := receipts[place], Receipt)]
    with plane.storage_calls:
        try:
            if visibility_ms is None:
                codes = await plane.storage.delete(partition, [(one.offset, one.delivery) for one in found])
            else:
                changes = [
                    (one.offset, one.delivery, visibility_ms[place]) for one, place in zip(found, places, strict=True)
                ]
                codes = await plane.storage.change_visibility(partition, changes, mode)
                # Of FIFO queues storage tells a lease that ran out from none; SQS does so for deletes only.
                codes = [ErrorCode.NOT_IN_FLIGHT if code == ErrorCode.RECEIPT_STALE else code for code in codes]
        except StorageError as error:
            refusal = await storage_refusal(plane, queue, error)
            for place in places:
                outcomes[place] = refusal
            return
    for place, code in zip(places, codes, strict=True):
        if code != ErrorCode.OK:
            outcomes[place] = code_refusal(code, queue.record.name, _handle_of(plane, queue, receipts[place]))


def _handle_of(plane: Plane, queue: QueueView, found: Receipt | Refusal) -> str:
    """The text of a receipt that was read, made again."""
    return "" if isinstance(found, Refusal) else plane.receipts.make(queue.owner, *found)


def _is_not_in_flight(outcome: Refusal | None) -> bool:
    return outcome is not None and outcome.code == "MessageNotInflight"
