"""READ FIRST: the path of a message from a caller to storage. `receive.py` is the way back.

    way in          sqs/, rest/ or push/           reads and parses                -> what is asked
    authenticate    authn/authenticator.py         signature or token              -> principal
    throttle        limits/quota_tree.py           installation, account, key, queue
    authorise       messages/admission.py          may this key send there?
    resolve         queues/resolver.py             metadata cache                  -> the queue
    read            the way in                     its form of a message           -> OutgoingMessage
    draft           messages/drafts.py             the queue's rules               -> Draft
    route           messages/partition_batches.py  a partition for each message    -> PartitionBatch
    seal            crypto/envelope.py             AES-256-GCM per message         -> message id, envelope
    store           storage_nodes.client           to all partitions at the same time, in as many calls as the bytes
                                                   take; returns when a majority has fsynced, or as `Penstock.Acks` asks
    acknowledge     crypto/message_ids.py          deduplicated: id and sequence number from the offset
    answer, meter   the way in again

The one pipeline is `_deliver`: a single message is a batch of one, a queue of one partition has one PartitionBatch.
No answer leaves before `_store` returned: what is acknowledged is on disk on a majority of replicas, unless less was
asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from frontend.authn.principal import Principal
from frontend.crypto.envelope import Content, seal_all
from frontend.crypto.receipts import make_schedule_id
from frontend.errors import RequestError, invalid, throttled, unavailable
from frontend.limits import BATCH_BYTES_MAX, ROUTE_ATTEMPTS_MAX, ROUTE_PAUSE_MS
from frontend.messages.admission import authorise, count_request, find_authorised, pay, pay_later
from frontend.messages.auto_creation import create_by_send
from frontend.messages.drafts import Draft, MessageTooLong, draft_message
from frontend.messages.due_time import check_due_time
from frontend.messages.outgoing import OutgoingMessage
from frontend.messages.partition_batches import PartitionBatch, Sent, batches_by_group, batches_of, probe_body
from frontend.messages.storage_errors import explain_storage_error
from frontend.metering.request_counts import NO_QUEUE
from frontend.queues.fifo import FifoIdMissing
from frontend.queues.names import Address
from frontend.queues.priority import check_priority
from frontend.queues.resolver import ResolvedQueue, SendRules
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import NOT_TAKEN, SendReply
from storage_nodes.protocol.records import encode_body, encode_plain_bodies
from storage_nodes.protocol.usage import SIZE_AT, Origin, usage_key

if TYPE_CHECKING:
    from frontend.services import FrontendServices

# A message in the form of its wire.
T = TypeVar("T")
_CLIENT = int(Origin.CLIENT)
_ALL_SENT = {Sent}
# The queue, or its account, is stopped or held to a rate: the messages are not paid for.
_NO_ROOM = frozenset(("SendingStopped", "RequestThrottled"))
# Of each `Sent` of a batch, without a step of our own for each.
_sizes = attrgetter("draft.size_bytes")
_headers = attrgetter("draft.headers")
_refusals = attrgetter("refused")
ReadMessage = Callable[[T], OutgoingMessage]
MakeDrafts = Callable[[SendRules], list[Sent | RequestError]]


class PartitionClosed(Exception):
    """Of a FIFO queue: the queue has other partitions by now, and what is known of it here is of before."""


class NothingToStore(Exception):
    """Each of the messages is refused by the rules of the queue that would be made for them: none is made."""

    def __init__(self, refusals: Sequence[RequestError]) -> None:
        super().__init__()
        self.refusals = refusals


async def send_message(
    services: FrontendServices, caller: Principal, address: Address, given: T, read: ReadMessage[T], size_bytes: int
) -> Sent:
    """One message, which `read` makes of what was given in a body of this size. Raises RequestError."""
    pay(services, caller, address, 1, size_bytes, True)
    redraft = partial(_attempt_drafts, services, (given,), read)
    try:
        queue = await _queue_to_send_to(services, caller, address, redraft)
        count_request(services, caller, queue)
        sent = Sent(_draft(services, queue.send_rules, read(given)))
        outcome = (await _deliver(services, caller, queue, [sent], [sent], redraft))[0]
    except NothingToStore as nothing:
        raise nothing.refusals[0] from None
    except RequestError as error:
        raise _paid_back(services, caller, address, 1, size_bytes, error) from None
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome


async def send_messages(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    batch: Sequence[T],
    read: ReadMessage[T],
    size_bytes: int,
    bytes_max: int = BATCH_BYTES_MAX,
) -> Sequence[Sent | RequestError]:
    """Several messages, each with its own outcome; those that pass are stored together. RequestError: none of them."""
    pay(services, caller, address, len(batch), size_bytes, True)
    return await send_paid(services, caller, address, batch, read, size_bytes, bytes_max)


async def send_paid(
    services: FrontendServices,
    caller: Principal,
    address: Address,
    batch: Sequence[T],
    read: ReadMessage[T],
    size_bytes: int,
    bytes_max: int,
) -> Sequence[Sent | RequestError]:
    """The same of what is paid for; all messages together have at most `bytes_max`."""
    redraft = partial(_attempt_batch, services, batch, read, bytes_max)
    try:
        queue = await _queue_to_send_to(services, caller, address, redraft, len(batch))
        count_request(services, caller, queue)
        outcomes = redraft(queue.send_rules)
        outcomes = await _deliver(services, caller, queue, outcomes, _passed(outcomes), redraft)
    except NothingToStore as nothing:
        services.request_counts.count(caller.account_id, NO_QUEUE, caller.name)
        return nothing.refusals
    except RequestError as error:
        raise _paid_back(services, caller, address, len(batch), size_bytes, error) from None
    return _told_apart(services, caller, address, outcomes)


async def _deliver(
    services: FrontendServices,
    caller: Principal,
    queue: ResolvedQueue,
    outcomes: list[Sent | RequestError],
    sent: list[Sent],
    redraft: MakeDrafts,
) -> list[Sent | RequestError]:
    """Routes, seals, stores and acknowledges `sent`, which are those of the outcomes that passed. `redraft` makes all
    outcomes again, by the rules of another record of the queue."""
    for _ in range(ROUTE_ATTEMPTS_MAX):
        if not sent:
            return outcomes
        try:
            if queue.routes is not None and queue.routes.former:
                await _ask_former_partitions(services, queue, sent)
            batches = batches_of(queue, sent)
            for part in batches:
                _seal(services, caller, queue, part)
            if len(batches) == 1 and batches[0].is_one_piece():
                stored = [(batches[0], await _store(services, queue, batches[0]))]
            else:
                stored = await _store_pieces(services, queue, batches)
            for part, reply in stored:
                if queue.numbers_messages or part.has_scheduled:
                    acknowledge(services, queue, part.partition, part.messages, reply)
        except PartitionClosed:
            # Others take the messages of this FIFO queue now, or will in a moment: all is sent again, under the same
            # deduplication ids, by the queue's new record.
            await asyncio.sleep(ROUTE_PAUSE_MS / 1000)
            queue = await services.queues.refresh(queue.address)
            outcomes = redraft(queue.send_rules)
            sent = _passed(outcomes)
            continue
        services.meters.count("messages_sent", list(map(_refusals, sent)).count(None))
        return outcomes
    raise unavailable("The partitions of the queue change at the moment. Try again.")


# --- stages ---


async def _queue_to_send_to(
    services: FrontendServices, caller: Principal, address: Address, draft: MakeDrafts, messages: int = 1
) -> ResolvedQueue:
    """Raises RequestError; NothingToStore where a queue would be made for messages that are all refused."""
    try:
        queue = authorise(services, caller, "SendMessage", address)
        return queue or await find_authorised(services, caller, "SendMessage", address, messages=messages)
    except RequestError as error:
        if error.code in _NO_ROOM:
            pay_later(services, caller, address, -messages, 0)
        return await create_by_send(services, caller, address, error, partial(_require_sendable, draft))


def _require_sendable(draft: MakeDrafts, rules: SendRules) -> None:
    """Raises NothingToStore; RequestError where the messages are refused together."""
    outcomes = draft(rules)
    if not _passed(outcomes):
        raise NothingToStore([one for one in outcomes if isinstance(one, RequestError)])


def _paid_back(
    services: FrontendServices, caller: Principal, address: Address, messages: int, size_bytes: int, error: RequestError
) -> RequestError:
    """What the service failed to take is not paid for; the request is. Returns the error."""
    if error.kind.status >= 500:
        pay_later(services, caller, address, -messages, -size_bytes)
    return error


def _told_apart(
    services: FrontendServices, caller: Principal, address: Address, outcomes: list[Sent | RequestError]
) -> Sequence[Sent | RequestError]:
    """The outcomes, with the refusal of each message that was not stored. What the service failed to take is not paid
    for."""
    if not any(map(_refusals, _passed(outcomes))):
        return outcomes
    refused = [one for one in outcomes if isinstance(one, Sent) and one.refused is not None]
    failed = [one.draft.size_bytes for one in refused if one.refused is not None and one.refused.kind.status >= 500]
    pay_later(services, caller, address, -len(failed), -sum(failed))
    return [one.refused or one if isinstance(one, Sent) else one for one in outcomes]


def _draft(services: FrontendServices, rules: SendRules, message: OutgoingMessage) -> Draft:
    draft = draft_message(message, rules)
    if rules.levels:
        draft.level = check_priority(message.attributes, rules.levels)
    if message.due is not None:
        check_due_time(message.due, services.now_s())
    return draft


def _attempt_drafts(
    services: FrontendServices, batch: Sequence[T], read: ReadMessage[T], rules: SendRules
) -> list[Sent | RequestError]:
    """An outcome for each message. Raises FifoIdMissing, which fails all of them."""
    outcomes: list[Sent | RequestError] = []
    for given in batch:
        try:
            outcomes.append(Sent(_draft(services, rules, read(given))))
        except FifoIdMissing:
            raise
        except RequestError as error:
            outcomes.append(error)
    return outcomes


def _attempt_batch(
    services: FrontendServices, batch: Sequence[T], read: ReadMessage[T], bytes_max: int, rules: SendRules
) -> list[Sent | RequestError]:
    """The same of several messages. Raises RequestError where they fail together."""
    try:
        outcomes = _attempt_drafts(services, batch, read, rules)
    except FifoIdMissing as error:
        raise invalid(error.message) from None
    _check_batch_size(outcomes, bytes_max)
    return outcomes


def _check_batch_size(outcomes: Sequence[Sent | RequestError], bytes_max: int) -> None:
    """Raises RequestError if the messages of a batch are too large together."""
    size_bytes = sum(map(_sizes, _passed(outcomes)))
    size_bytes += sum(one.size_bytes for one in outcomes if isinstance(one, MessageTooLong))
    if size_bytes > bytes_max:
        raise RequestError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {bytes_max} bytes. You have sent {size_bytes} bytes.",
        )


def _passed(outcomes: Sequence[Sent | RequestError]) -> list[Sent]:
    if set(map(type, outcomes)) == _ALL_SENT:
        return list(cast(Sequence[Sent], outcomes))
    return [one for one in outcomes if isinstance(one, Sent)]


async def _ask_former_partitions(services: FrontendServices, queue: ResolvedQueue, sent: Sequence[Sent]) -> None:
    """FIFO: acknowledges the messages that a former partition of their group has taken before."""
    routes, fifo = queue.routes, queue.fifo
    assert routes is not None and fifo is not None
    for former in routes.former:
        probes = batches_by_group((one for one in sent if not one.message_id), former.partitions)
        for part in probes:
            part.bodies = [probe_body(fifo, former, one.draft) for one in part.messages]
            part.is_plain = False
            part.acks = max(one.draft.acks for one in part.messages)
        for part, reply in zip(probes, await _store_all(services, queue, probes), strict=True):
            known = {index: offset for index, offset in reply.duplicates if offset != NOT_TAKEN}
            assert len(reply.duplicates) == len(part.bodies), "a closed partition took a message"
            services.meters.count("messages_deduplicated", len(known))
            for index, offset in known.items():
                _identify(services, queue, part.partition, part.messages[index], offset)


def _seal(services: FrontendServices, caller: Principal, queue: ResolvedQueue, part: PartitionBatch) -> None:
    messages = part.messages
    keys: list[bytes] = []
    contents: list[tuple[Content, bytes]] = []
    for one in messages:
        draft = one.draft
        key = usage_key(_CLIENT, draft.size_bytes)
        keys.append(key)
        contents.append((draft.content, key[SIZE_AT:]))
        if draft.headers:
            part.is_plain = False
            part.has_scheduled |= draft.is_scheduled
        if draft.acks > part.acks:
            part.acks = draft.acks
    # The keys of another account are nothing that the owner of the queue is told of.
    sender = caller.name if caller.account_id == queue.record.account_id else caller.account_id
    ids, envelopes = seal_all(queue.sealing_key(services.now_s(), len(messages)), sender.encode(), contents)
    for one, message_id in zip(messages, ids, strict=True):
        one.message_id = message_id
    if part.is_plain:
        part.bodies = encode_plain_bodies(envelopes, keys)
    else:
        headers = map(_headers, messages)
        part.bodies = list(map(encode_body, envelopes, keys, headers))


async def _store_all(
    services: FrontendServices, queue: ResolvedQueue, batches: Sequence[PartitionBatch]
) -> Sequence[SendReply]:
    """All of them at the same time. Raises RequestError where one was not stored: its sender repeats the whole."""
    if len(batches) == 1:
        return (await _store(services, queue, batches[0]),)
    replies: list[SendReply] = []
    calls = [_store(services, queue, part) for part in batches]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        replies.append(outcome)
    return replies


async def _store_pieces(
    services: FrontendServices, queue: ResolvedQueue, batches: Sequence[PartitionBatch]
) -> list[tuple[PartitionBatch, SendReply]]:
    """What was stored; messages that were not are `refused`. Raises RequestError where that is all of them."""
    pieces = [part.pieces() for part in batches]
    # In a FIFO queue nothing of a partition is stored behind what was not.
    lines = pieces if queue.fifo is not None else [[piece] for part in pieces for piece in part]
    stored: list[tuple[PartitionBatch, SendReply]] = []
    calls = [_store_line(services, queue, line, stored) for line in lines]
    errors = [error for error in await asyncio.gather(*calls) if error is not None]
    if errors and not stored:
        raise errors[0]
    return stored


async def _store_line(
    services: FrontendServices,
    queue: ResolvedQueue,
    line: Sequence[PartitionBatch],
    stored: list[tuple[PartitionBatch, SendReply]],
) -> RequestError | None:
    """One after the other, up to the first that is not stored."""
    refusal: RequestError | None = None
    for piece in line:
        if refusal is None:
            try:
                stored.append((piece, await _store(services, queue, piece)))
                continue
            except RequestError as error:
                refusal = error
        for one in piece.messages:
            one.refused = refusal
    return refusal


def _store(services: FrontendServices, queue: ResolvedQueue, part: PartitionBatch) -> Coroutine[Any, Any, SendReply]:
    return (_store_piece if part.acks != Acks.ALL else _store_everywhere)(services, queue, part)


async def _store_everywhere(services: FrontendServices, queue: ResolvedQueue, part: PartitionBatch) -> SendReply:
    # While one replica is away each of these waits until its deadline.
    with services.sends_to_all.place(queue.address.account_id):
        return await _store_piece(services, queue, part)


async def _store_piece(services: FrontendServices, queue: ResolvedQueue, part: PartitionBatch) -> SendReply:
    services.storage_calls.enter()
    try:
        return await services.storage.send(part.partition, part.bodies, part.is_plain, part.acks)
    except StorageError as error:
        if error.code == ErrorCode.OVER_LIMIT:  # more deduplication ids within the window than are remembered
            services.meters.count("requests_throttled")
            raise throttled(1.0, error.message) from None
        raise await explain_storage_error(services, queue, error) from None
    finally:
        services.storage_calls.calls -= 1


def acknowledge(
    services: FrontendServices, queue: ResolvedQueue, partition: int, sent: Sequence[Sent], reply: SendReply
) -> None:
    """What storage says of messages: a duplicate is known as its original. Raises PartitionClosed where one was not
    taken."""
    originals = dict(reply.duplicates)
    if originals:
        if NOT_TAKEN in originals.values():
            raise PartitionClosed
        services.meters.count("messages_deduplicated", len(originals))
    for index, one in enumerate(sent):
        _identify(services, queue, partition, one, originals.get(index, reply.offset_of(index)))


def _identify(services: FrontendServices, queue: ResolvedQueue, partition: int, sent: Sent, offset: int) -> None:
    """Of a queue that drops duplicates: one has the message id (FIFO: and the sequence number) of its original. A
    message without a deduplication id keeps its own. A scheduled one has the id that cancels it."""
    draft = sent.draft
    if draft.content.dedup_id:
        sent.message_id = services.message_ids.of(partition, offset)
        # A scheduled message gets its place in the order, and so its number, when it is due.
        if queue.fifo is not None and not draft.is_scheduled:
            sent.sequence_number = queue.sequence_number(partition, offset)
    if draft.is_scheduled:
        sent.schedule_id = make_schedule_id(services.receipts, queue.owner, partition, offset)
