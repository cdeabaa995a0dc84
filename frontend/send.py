"""READ FIRST: the path of a message from a caller to storage. `receive.py` is the way back.

    way in          sqs/, rest/ or push/          read, parse                     -> what is asked
    authenticate    authn/authenticator.py        signature or token              -> principal
    authorise       authz/ownership.py            may this key send there?
    route           routing/queues.py             metadata cache                  -> view of the queue
    throttle        limits/gcra.py                account, key, queue
    validate        sqs/validation.py             size, characters, attributes    -> drafts
    encrypt         crypto/envelope.py            AES-256-GCM per message         -> message id, envelope
    store           storage_nodes.client          to one partition, or each message to its own (routing/partitioner.py);
                                                  returns when a majority has fsynced, or as `Penstock.Acks` asks
    number          crypto/message_ids.py         FIFO: id and sequence number from the offset
    answer, meter   the way in again

No answer leaves before `store` returned: what is acknowledged is on disk on a majority of replicas, unless less was
asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.authz.ownership import is_allowed
from frontend.auto_creation import create_by_send
from frontend.crypto.envelope import seal
from frontend.crypto.receipts import make_schedule_id
from frontend.errors import Refusal, invalid, queue_does_not_exist, retry_after_s, unavailable
from frontend.limits import ROUTE_ATTEMPTS_MAX, ROUTE_PAUSE_MS
from frontend.routing.parts import Part, PartitionClosed, parts_by_group, probe_body
from frontend.routing.queues import Address, QueueView
from frontend.sqs.asks import MessageFields
from frontend.sqs.fifo import FifoIdMissing
from frontend.sqs.priority import check_priority
from frontend.sqs.scheduling import check_due
from frontend.sqs.validation import Draft, check_batch_size, draft_message
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import NOT_TAKEN, SendReply
from storage_nodes.protocol.records import encode_body

if TYPE_CHECKING:
    from frontend.plane import Plane


class Sent(NamedTuple):
    """The acknowledgement of one message."""

    message_id: str
    draft: Draft
    sequence_number: str | None = None
    schedule_id: str | None = None  # of one that is delivered later: what cancels it


async def send_message(plane: Plane, caller: Principal, address: Address, fields: MessageFields) -> Sent:
    """One message. Raises Refusal."""
    queue = await queue_to_send_to(plane, caller, address)
    throttle(plane, caller, queue)
    draft = _draft(plane, queue, fields)
    if queue.numbers_messages or queue.routes is not None:
        outcome = (await _send_routed(plane, caller, queue, [fields], [draft]))[0]
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome
    message_id, body = encrypt(caller, queue, draft)
    partition = queue.partitions[0]
    reply = await store(plane, queue, partition, [body], not draft.headers, draft.acks)
    plane.meters.count("messages_sent")
    sent = Sent(message_id, draft)
    return name_scheduled(plane, queue, partition, [sent], reply)[0] if draft.due else sent


async def send_messages(
    plane: Plane, caller: Principal, address: Address, batch: Sequence[MessageFields]
) -> list[Sent | Refusal]:
    """Several messages, each with its own outcome; those that pass are stored together. Refusal: none of them."""
    queue = await queue_to_send_to(plane, caller, address)
    throttle(plane, caller, queue)
    drafts = [_attempt_draft(plane, queue, fields) for fields in batch]
    check_batch_size(drafts)
    if queue.numbers_messages or queue.routes is not None:
        return await _send_routed(plane, caller, queue, batch, drafts)
    outcomes: list[Sent | Refusal] = []
    bodies: list[bytes] = []
    plain = True
    acks = Acks.NONE  # what is stored together is answered as the most careful of its messages asks
    for draft in drafts:
        if isinstance(draft, Refusal):
            outcomes.append(draft)
            continue
        message_id, body = encrypt(caller, queue, draft)
        bodies.append(body)
        outcomes.append(Sent(message_id, draft))
        plain = plain and not draft.headers
        acks = max(acks, draft.acks)
    if bodies:
        partition = queue.partitions[0]
        reply = await store(plane, queue, partition, bodies, plain, acks)
        plane.meters.count("messages_sent", len(bodies))
        sent = [one for one in outcomes if isinstance(one, Sent)]
        if any(one.draft.due for one in sent):
            named = iter(name_scheduled(plane, queue, partition, sent, reply))
            return [one if isinstance(one, Refusal) else next(named) for one in outcomes]
    return outcomes


# --- FIFO queues, and queues of several partitions ---


async def _send_routed(
    plane: Plane,
    caller: Principal,
    queue: QueueView,
    batch: Sequence[MessageFields],
    drafts: Sequence[Draft | Refusal],
) -> list[Sent | Refusal]:
    for _ in range(ROUTE_ATTEMPTS_MAX):
        passed = [one for one in drafts if isinstance(one, Draft)]
        try:
            if queue.fifo is None:
                sent = iter(await _send_around(plane, caller, queue, passed))
            else:
                sent = iter(await _send_by_group(plane, caller, queue, passed))
        except PartitionClosed:
            # Others take the messages of this FIFO queue now, or will in a moment: all is sent again, under the same
            # deduplication ids, by the queue's new record.
            await asyncio.sleep(ROUTE_PAUSE_MS / 1000)
            queue = await plane.queues.refresh(queue.address)
            drafts = [_attempt_draft(plane, queue, fields) for fields in batch]
            continue
        return [one if isinstance(one, Refusal) else next(sent) for one in drafts]
    raise unavailable("The partitions of the queue change at the moment. Try again.")


async def _send_around(plane: Plane, caller: Principal, queue: QueueView, drafts: Sequence[Draft]) -> list[Sent]:
    """Standard: the messages of one level go to one partition, another one every time; those with a deduplication id
    to where it would be known."""
    routes, levels = queue.routes, queue.priority_levels
    parts: dict[int, Part] = {}
    turns: dict[int, int] = {}
    sent: list[Sent] = []
    for place, draft in enumerate(drafts):
        level = check_priority(draft, levels) if levels else 0
        if routes is None:
            partition = queue.partitions[0]
        elif draft.content.dedup_id:
            partition = routes.for_id(level, draft.content.dedup_id.encode())
        else:
            partition = turns.get(level) or turns.setdefault(level, routes.for_level(level))
        part = parts.get(partition)
        if part is None:
            part = parts[partition] = Part(partition)
        message_id, body = encrypt(caller, queue, draft)
        part.add(place, draft, body)
        sent.append(Sent(message_id, draft))
    replies = await _store_parts(plane, queue, list(parts.values()))
    plane.meters.count("messages_sent", len(sent))
    for part, reply in zip(parts.values(), replies, strict=True):
        answers = [sent[place] for place in part.places]
        if queue.numbers_messages:
            answers = number(plane, queue, part.partition, answers, reply)
        answers = name_scheduled(plane, queue, part.partition, answers, reply)
        for place, one in zip(part.places, answers, strict=True):
            sent[place] = one
    return sent


async def _send_by_group(plane: Plane, caller: Principal, queue: QueueView, drafts: Sequence[Draft]) -> list[Sent]:
    """FIFO: each message to the partition of its group, unless a former one of it had that message before."""
    routes, fifo = queue.routes, queue.fifo
    assert fifo is not None
    sent: dict[int, Sent] = {}
    for former in routes.former if routes is not None else ():
        probes = parts_by_group(drafts, former.partitions, sent)
        for part in probes:
            part.bodies = [probe_body(fifo, former, draft) for draft in part.drafts]
        for part, reply in zip(probes, await _store_parts(plane, queue, probes), strict=True):
            known = {index: offset for index, offset in reply.duplicates if offset != NOT_TAKEN}
            assert len(reply.duplicates) == len(part.bodies), "a closed partition took a message"
            plane.meters.count("messages_deduplicated", len(known))
            for index, offset in known.items():
                one = _numbered(plane, queue, part.partition, Sent("", part.drafts[index]), offset)
                sent[part.places[index]] = _named(plane, queue, part.partition, one, offset)
    partitions = queue.partitions if routes is None else routes.open[0].partitions
    parts = parts_by_group(drafts, partitions, sent)
    for part in parts:
        part.bodies = [encrypt(caller, queue, draft)[1] for draft in part.drafts]
    for part, reply in zip(parts, await _store_parts(plane, queue, parts), strict=True):
        numbered = number(plane, queue, part.partition, [Sent("", draft) for draft in part.drafts], reply)
        sent.update(zip(part.places, name_scheduled(plane, queue, part.partition, numbered, reply), strict=True))
    plane.meters.count("messages_sent", len(drafts))
    return [sent[place] for place in range(len(drafts))]


async def _store_parts(plane: Plane, queue: QueueView, parts: Sequence[Part]) -> list[SendReply]:
    """All of them at the same time. Raises Refusal where one was not stored: its sender repeats the whole."""
    if len(parts) == 1:
        return [await store(plane, queue, parts[0].partition, parts[0].bodies, parts[0].is_plain, parts[0].acks)]
    calls = [store(plane, queue, part.partition, part.bodies, part.is_plain, part.acks) for part in parts]
    replies: list[SendReply] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        replies.append(outcome)
    return replies


# --- stages, shared with receive.py ---


async def queue_to_send_to(plane: Plane, caller: Principal, address: Address) -> QueueView:
    try:
        return authorise(plane, caller, "SendMessage", address) or await plane.queues.find(address)
    except Refusal as refusal:
        throttle_account(plane, caller)
        return await create_by_send(plane, caller, address, refusal)


def authorise(plane: Plane, caller: Principal, action: str, address: Address) -> QueueView | None:
    """The view of a queue the caller may use, None if it must be looked up. Another account's queue does not exist."""
    if not is_allowed(caller, action, address.account_id):
        raise queue_does_not_exist()
    return plane.queues.cached(address)


def throttle(plane: Plane, caller: Principal, queue: QueueView) -> None:
    wait_s = plane.rates.admit((caller.account_id, caller.access_key_id, queue.rate_name), plane.now_s())
    if wait_s:
        plane.meters.count("requests_throttled")
        raise throttled(wait_s)


def throttle_account(plane: Plane, caller: Principal) -> None:
    """For a request that names no queue, or one that need not exist."""
    wait_s = plane.rates.admit((caller.account_id, caller.access_key_id), plane.now_s())
    if wait_s:
        plane.meters.count("requests_throttled")
        raise throttled(wait_s)


def encrypt(caller: Principal, queue: QueueView, draft: Draft) -> tuple[str, bytes]:
    """(message id, record body) of a draft."""
    message_id, envelope = seal(queue.sealing_key, caller.access_key_id.encode(), draft.content)
    return message_id, encode_body(envelope, None, draft.headers)


async def store(
    plane: Plane, queue: QueueView, partition: int, bodies: list[bytes], plain: bool, acks: Acks
) -> SendReply:
    with plane.storage_calls:
        try:
            return await plane.storage.send(partition, bodies, plain, acks)
        except StorageError as error:
            if error.code == ErrorCode.OVER_LIMIT:  # more deduplication ids within the window than are remembered
                plane.meters.count("requests_throttled")
                raise throttled(1.0, error.message) from None
            raise await storage_refusal(plane, queue, error) from None


def number(plane: Plane, queue: QueueView, partition: int, sent: Sequence[Sent], reply: SendReply) -> list[Sent]:
    """The answers of a queue that drops duplicates: one has the message id (FIFO: and the sequence number) of its
    original. A message without a deduplication id keeps its own.

    Raises PartitionClosed where a message was not taken.
    """
    originals = dict(reply.duplicates)
    if originals:
        if NOT_TAKEN in originals.values():
            raise PartitionClosed
        plane.meters.count("messages_deduplicated", len(originals))
    return [
        _numbered(plane, queue, partition, one, originals.get(index, reply.offset_of(index)))
        if one.draft.content.dedup_id
        else one
        for index, one in enumerate(sent)
    ]


def _numbered(plane: Plane, queue: QueueView, partition: int, sent: Sent, offset: int) -> Sent:
    # A scheduled message gets its place in the order, and so its number, when it is due.
    sequence = None if queue.fifo is None or sent.draft.due else queue.sequence_number(partition, offset)
    return sent._replace(message_id=plane.message_ids.of(partition, offset), sequence_number=sequence)


def name_scheduled(plane: Plane, queue: QueueView, partition: int, sent: list[Sent], reply: SendReply) -> list[Sent]:
    """The answers to scheduled messages have the id that cancels them; a duplicate has that of its original."""
    if not any(one.draft.due for one in sent):
        return sent
    originals = dict(reply.duplicates)
    return [
        _named(plane, queue, partition, one, originals.get(index, reply.offset_of(index)))
        for index, one in enumerate(sent)
    ]


def _named(plane: Plane, queue: QueueView, partition: int, sent: Sent, offset: int) -> Sent:
    if not sent.draft.due:
        return sent
    return sent._replace(schedule_id=make_schedule_id(plane.receipts, queue.owner, partition, offset))


async def storage_refusal(plane: Plane, queue: QueueView, error: StorageError) -> Refusal:
    """What a storage error means to the caller. The client has retried by then."""
    if error.code == ErrorCode.UNKNOWN_PARTITION:
        # Either the queue is gone and the cache had not heard, or a node is behind: the database knows.
        try:
            await plane.queues.refresh(queue.address)
        except Refusal as refusal:
            return refusal
    plane.meters.count("storage_errors")
    meant = code_refusal(error.code, queue.record.name)
    if error.code == ErrorCode.OVER_LIMIT and error.message:
        return Refusal(meant.code, f"A limit of the queue is reached: {error.message}.")
    if error.retry_after_ms and meant.code == "ServiceUnavailable":
        return unavailable(meant.message, retry_after_s(error.retry_after_ms))
    return meant


def code_refusal(code: ErrorCode, queue_name: str, handle: str = "") -> Refusal:
    if code == ErrorCode.NOT_IN_FLIGHT:
        return Refusal("MessageNotInflight", "The message referred to is not in flight.")
    if code == ErrorCode.RECEIPT_STALE:
        return invalid(
            f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
        )
    if code == ErrorCode.OVER_LIMIT:
        return Refusal("OverLimit", "The maximum number of in flight messages is reached.")
    if code == ErrorCode.NOT_SCHEDULED:
        return Refusal("NotScheduled", "The message is not scheduled: it is due, was cancelled, or never was.")
    if code == ErrorCode.SCHEDULE_FULL:
        return Refusal("ScheduleFull", f"{queue_name} holds as many scheduled messages as it can.")
    if code == ErrorCode.PURGE_IN_PROGRESS:
        return Refusal(
            "PurgeQueueInProgress", f"Only one PurgeQueue operation on {queue_name} is allowed every 60 seconds."
        )
    if code == ErrorCode.TOO_LARGE:
        return invalid("One or more parameters are invalid. Reason: Message is too long.")
    if code == ErrorCode.OVERLOADED:
        return unavailable("The message store has more to do than it can take at the moment. Try again later.")
    if code == ErrorCode.READ_ONLY:
        return unavailable("The disks of the message store are nearly full: it takes no messages until there is room.")
    return unavailable("The message store cannot do this at the moment. Try again.")


def throttled(wait_s: float, reason: str = "") -> Refusal:
    text = f"The rate of requests is over the limit: {reason}." if reason else "The rate of requests is over the limit."
    return Refusal("RequestThrottled", text, max(1, round(wait_s + 0.5)))


def _draft(plane: Plane, queue: QueueView, fields: MessageFields) -> Draft:
    draft = draft_message(fields, queue.send_rules)
    if queue.priority_levels:
        check_priority(draft, queue.priority_levels)
    if draft.due:
        check_due(draft.due, plane.now_s())
    return draft


def _attempt_draft(plane: Plane, queue: QueueView, fields: MessageFields) -> Draft | Refusal:
    """Raises Refusal where this entry fails its whole batch."""
    try:
        return _draft(plane, queue, fields)
    except FifoIdMissing as refusal:
        raise invalid(refusal.message) from None
    except Refusal as refusal:
        return refusal
