"""READ FIRST: the path of a message from storage to a caller. `settle.py` is what callers then do with it.

    way in, authenticate, throttle, authorise, resolve       as in send.py
    lease        routing/poll.py             partitions of the queue, parked at the leaders for a long poll
    decrypt      messages/opening.py         a message that does not open is counted and left to its lease
    receipt      crypto/receipts.py          where the message lies, MACed for this queue
    answer, meter

A receipt comes back with a delete (ack) or a change of visibility (extend, nack). It is proof enough that the message
was delivered from this queue; whether the lease still holds is for the partition to say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from frontend.authn.principal import Principal
from frontend.crypto.envelope import Content, EnvelopeError
from frontend.errors import RequestError
from frontend.http import Disconnected
from frontend.messages.admission import admit_at_hand, admit_found, also, count_request, pay_later, still_caller
from frontend.messages.opening import KeyNotGranted, dedup_id_of, message_id_of, open_record
from frontend.messages.receive_options import ReceiveOptions
from frontend.messages.storage_errors import explain_storage_error
from frontend.messages.tags import check_filter, filter_finds_nothing
from frontend.metering.request_counts import EMPTY_RECEIVES
from frontend.queues.encryption import KeyUnusable
from frontend.queues.fifo import check_attempt
from frontend.queues.names import Address, format_arn
from frontend.queues.resolver import ResolvedQueue
from frontend.routing.poll import Lease, PollRequest, has_left, poll_partitions, poll_while_connected, release
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import DeadSource, VisibilityMode
from storage_nodes.protocol.records import RecordError, read_headers, section_of

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_body = attrgetter("message.body")  # of a lease
_log = structlog.get_logger("frontend.messages.receive")


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message as a caller sees it. Times are ms since the epoch. No receipt: its lease is kept for the caller."""

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

    @property
    def dedup_id(self) -> str:
        """The one to show: that of the content is what its sender gave."""
        return dedup_id_of(self.content, self.message_id, self.sequence_number is not None, self.death)


async def receive_messages(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    options: ReceiveOptions,
    receive: Callable[[], Awaitable[Any]],
) -> list[Received]:
    """`receive` is the ASGI channel of the request, watched for a client that leaves.

    Raises RequestError, Disconnected.
    """
    queue = admit_at_hand(services, caller, "ReceiveMessage", address)
    if queue is None:
        queue = await admit_found(services, caller, "ReceiveMessage", address)
    leases = await lease(services, caller, queue, options, receive)
    if not leases:
        count_request(services, caller, queue, EMPTY_RECEIVES)
        return []
    if await has_left(receive):
        await release(services.storage, leases, VisibilityMode.UNSEEN)
        raise Disconnected
    if queue.wait_ms if options.wait_s is None else options.wait_s:
        queue = await _confirm(services, caller, address, leases)
    # A receive that is repeated gives the same handles: they cannot say when.
    received_s = 0 if options.attempt else int(services.now_s())
    opened = await open_leases(services, caller, queue, leases, received_s)
    messages = [message for message in opened if message is not None]
    pay_later(services, caller, address, len(leases), sum(map(len, map(_body, leases))))
    services.meters.count("messages_received", len(messages))
    return messages


# --- stages ---


async def _confirm(
    services: FrontendServices, caller: Principal, address: Address, leases: Sequence[Lease]
) -> ResolvedQueue:
    """May the caller still have them? A poll waits for long, and a key may be revoked or restricted in that time, or
    the encryption key be disabled: then the messages go back, uncounted. Known without waiting, unless something has
    changed. The queue as it is now. Raises RequestError."""
    try:
        return await also(services, await still_caller(services, caller), "ReceiveMessage", address)
    except Exception:  # a bug of ours too: no one holds the leases
        await release(services.storage, leases, VisibilityMode.UNSEEN)
        raise


async def lease(
    services: FrontendServices,
    caller: Principal,
    queue: ResolvedQueue,
    options: ReceiveOptions,
    receive: Callable[[], Awaitable[Any]],
) -> list[Lease]:
    visibility_ms = queue.visibility_ms if options.visibility_s is None else options.visibility_s * 1000
    wait_ms = queue.wait_ms if options.wait_s is None else options.wait_s * 1000
    if services.stopping.is_set():
        wait_ms = 0
    attempt = check_attempt(options.attempt, queue.fifo is not None)
    tags = check_filter(options.tags, queue.fifo is not None) if options.tags else ()
    poll = PollRequest(options.messages_max, visibility_ms, wait_ms, attempt, tags)
    try:
        if not wait_ms:
            services.storage_calls.enter()
            try:
                return await poll_partitions(services.storage, queue.partitions, poll, queue.routes)
            finally:
                services.storage_calls.calls -= 1
        check_overdue = partial(_require_queue, services, queue)
        polls_max = services.quotas.limits(caller.account_id, caller.name).polls
        with services.polls.place(caller.account_id, polls_max):
            return await poll_while_connected(
                services.storage, queue.partitions, poll, receive, services.parked, check_overdue, queue.routes
            )
    except StorageError as error:
        if error.code == ErrorCode.OVER_LIMIT and tags:
            raise filter_finds_nothing(error.message) from None
        if error.code == ErrorCode.OVER_LIMIT and (wait_ms or queue.fifo is not None) and not attempt:
            return []  # a long poll does not tell, nor does a FIFO queue, but for what it cannot remember of an attempt
        raise await explain_storage_error(services, queue, error) from None


async def _require_queue(services: FrontendServices, queue: ResolvedQueue) -> None:
    """Raises RequestError where it does not exist any more; nobody being able to tell is no reason to stop."""
    try:
        await services.queues.find(queue.address)
    except RequestError as error:
        if error.code == "QueueDoesNotExist":
            raise


async def open_leases(
    services: FrontendServices,
    caller: Principal,
    queue: ResolvedQueue,
    leases: Sequence[Lease],
    received_s: int = 0,
    with_receipts: bool = True,
) -> Sequence[Received | None]:
    """The message of each lease, None where it does not open: it stays where it is, and everything else is served.
    Those under an encryption key that may not be used now go back, uncounted, and with them the messages behind one in
    its message group. `received_s` is told by the receipts; who keeps the leases needs none.

    Raises RequestError where that is all of them.
    """
    messages: list[Received | None] = []
    is_fresh = False
    try:
        for found in leases:
            messages.append(open_lease(services, caller, queue, found, received_s, with_receipts))
        return messages
    except KeyNotGranted:
        # A redrive policy or a rotation of this very moment: the keys were there before the first message was.
        with contextlib.suppress(RequestError):
            queue = await services.queues.refresh(queue.address)
            is_fresh = True
    except (EnvelopeError, RecordError):
        pass
    unusable: list[Lease] = []
    held_back: set[bytes] = set()
    for found in leases[len(messages) :]:
        group = _group_of(queue, found)
        message = None
        try:
            if group not in held_back:
                message = open_lease(services, caller, queue, found, received_s, with_receipts)
            else:
                unusable.append(found)
        except KeyUnusable as error:
            unusable.append(found)
            refusal = error.refusal_for(caller.account_id)
            if group is not None:
                held_back.add(group)
        except (EnvelopeError, RecordError) as error:
            if is_fresh and isinstance(error, KeyNotGranted):
                queue.note_lost_key(error.names)
            _note_unopened(services, found, error)
        messages.append(message)
    if unusable:
        await release(services.storage, unusable, VisibilityMode.UNSEEN)
        if len(unusable) == len(leases):
            raise refusal
    return messages


def _group_of(queue: ResolvedQueue, found: Lease) -> bytes | None:
    """The message group; None in a standard queue, whose messages wait for no other."""
    if queue.fifo is None:
        return None
    with contextlib.suppress(RecordError):
        return read_headers(section_of(found.message.body))[1]
    return None


def _note_unopened(services: FrontendServices, found: Lease, error: Exception) -> None:
    services.meters.count("envelopes_unopened")
    place = {"partition": found.partition, "offset": found.message.offset}
    _log.error("envelope_unopened", **place, reason=str(error))


def open_lease(
    services: FrontendServices,
    caller: Principal,
    queue: ResolvedQueue,
    found: Lease,
    received_s: int,
    with_receipts: bool,
) -> Received:
    """Raises EnvelopeError, RecordError."""
    message = found.message
    record = open_record(queue, message.body)
    opened, dead = record.opened, record.dead
    receipt = ""
    if with_receipts:
        place = (found.partition, message.offset, message.delivery, found.epoch)
        receipt = services.receipts.make(queue.owner, *place, received_s)
    sender = opened.sender
    owner_id = queue.record.account_id
    # Keys and people of the owner are nothing that a receiver of another account is told of.
    if caller.account_id != owner_id and not sender.isdecimal():
        sender = owner_id
    sequence = source = None
    sent_ms, first_received_ms, delivery = message.sent_ms, message.first_received_ms, receives_of(message.delivery)
    if dead is not None:
        # Its life goes on: what was counted where it failed is not forgotten.
        first_received_ms, delivery = dead.first_received_ms or message.first_received_ms, dead.receives + delivery
        name = queue.record.name if record.granted_by is None else record.granted_by
        source = format_arn(services.region, owner_id, name)
        if queue.fifo is None:
            sent_ms = dead.sent_ms
    if queue.fifo is not None:
        sequence = queue.sequence_number(found.partition, message.offset)
    return Received(
        message_id_of(services.message_ids, queue, found.partition, message.offset, record),
        receipt,
        opened.content,
        sender,
        sent_ms,
        first_received_ms,
        delivery,
        record.group,
        sequence,
        source,
        dead,
    )
