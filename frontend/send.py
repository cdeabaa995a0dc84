"""READ FIRST: the path of a message from a caller to storage. `receive.py` is the way back.

    way in          sqs/, rest/ or push/          read, parse                     -> what is asked
    authenticate    authn/authenticator.py        signature or token              -> principal
    authorise       authz/ownership.py            may this key send there?
    route           routing/queues.py             metadata cache                  -> view of the queue
    throttle        limits/gcra.py                account, key, queue
    validate        sqs/validation.py             size, characters, attributes    -> drafts
    encrypt         crypto/envelope.py            AES-256-GCM per message         -> message id, envelope
    store           storage_nodes.client          to one partition; returns when a majority has fsynced, or as
                                                  `Penstock.Acks` asks
    number          crypto/message_ids.py         FIFO: id and sequence number from the offset
    answer, meter   the way in again

No answer leaves before `store` returned: what is acknowledged is on disk on a majority of replicas, unless less was
asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.authz.ownership import is_allowed
from frontend.auto_creation import create_by_send
from frontend.crypto.envelope import seal
from frontend.crypto.receipts import make_schedule_id
from frontend.errors import Refusal, invalid, queue_does_not_exist, unavailable
from frontend.routing.partitioner import choose_partition
from frontend.routing.queues import Address, QueueView
from frontend.sqs.asks import MessageFields
from frontend.sqs.fifo import sequence_number
from frontend.sqs.scheduling import check_due
from frontend.sqs.validation import Draft, check_batch_size, draft_message
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply
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
    message_id, body = encrypt(caller, queue, draft)
    partition, reply = await store(plane, queue, [body], not draft.headers, draft.acks)
    plane.meters.count("messages_sent")
    sent = Sent(message_id, draft)
    if draft.due:
        sent = name_scheduled(plane, queue, [sent], partition, reply)[0]
    return number(plane, queue, [sent], reply)[0] if queue.numbers_messages else sent


async def send_messages(
    plane: Plane, caller: Principal, address: Address, batch: Sequence[MessageFields]
) -> list[Sent | Refusal]:
    """Several messages, each with its own outcome; those that pass are stored together. Refusal: none of them."""
    queue = await queue_to_send_to(plane, caller, address)
    throttle(plane, caller, queue)
    drafts = [_attempt_draft(plane, queue, fields) for fields in batch]
    check_batch_size(drafts)
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
        partition, reply = await store(plane, queue, bodies, plain, acks)
        plane.meters.count("messages_sent", len(bodies))
        if any(isinstance(draft, Draft) and draft.due for draft in drafts):
            named = iter(
                name_scheduled(plane, queue, [one for one in outcomes if isinstance(one, Sent)], partition, reply)
            )
            outcomes = [one if isinstance(one, Refusal) else next(named) for one in outcomes]
        if queue.numbers_messages:
            numbered = iter(number(plane, queue, [one for one in outcomes if isinstance(one, Sent)], reply))
            outcomes = [one if isinstance(one, Refusal) else next(numbered) for one in outcomes]
    return outcomes


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
    plane: Plane, queue: QueueView, bodies: list[bytes], plain: bool, acks: Acks
) -> tuple[int, SendReply]:
    """(partition that has them, its answer)."""
    # A FIFO queue has one partition: its order and its deduplication are that partition's.
    partition = choose_partition(queue.partitions) if queue.fifo is None else queue.partitions[0]
    with plane.storage_calls:
        try:
            return partition, await plane.storage.send(partition, bodies, plain, acks)
        except StorageError as error:
            if error.code == ErrorCode.OVER_LIMIT:  # more deduplication ids within the window than are remembered
                plane.meters.count("requests_throttled")
                raise throttled(1.0) from None
            raise await storage_refusal(plane, queue, error) from None


def number(plane: Plane, queue: QueueView, sent: Sequence[Sent], reply: SendReply) -> list[Sent]:
    """The answers of a queue that drops duplicates: one has the message id (FIFO: and the sequence number) of its
    original. A message without a deduplication id keeps its own."""
    partition = queue.partitions[0]
    originals = dict(reply.duplicates)
    if originals:
        plane.meters.count("messages_deduplicated", len(originals))
    answers = []
    for index, one in enumerate(sent):
        if one.draft.content.dedup_id:
            offset = originals.get(index, reply.first_offset + index)
            # A scheduled message gets its place in the order, and so its number, when it is due.
            sequence = None if queue.fifo is None or one.draft.due else sequence_number(offset)
            one = one._replace(message_id=plane.message_ids.of(partition, offset), sequence_number=sequence)
        answers.append(one)
    return answers


def name_scheduled(
    plane: Plane, queue: QueueView, sent: Sequence[Sent], partition: int, reply: SendReply
) -> list[Sent]:
    """The answers to scheduled messages have the id that cancels them; a duplicate has that of its original."""
    originals = dict(reply.duplicates)
    return [
        one._replace(
            schedule_id=make_schedule_id(
                plane.receipts, queue.owner, partition, originals.get(index, reply.first_offset + index)
            )
        )
        if one.draft.due
        else one
        for index, one in enumerate(sent)
    ]


async def storage_refusal(plane: Plane, queue: QueueView, error: StorageError) -> Refusal:
    """What a storage error means to the caller. The client has retried by then."""
    if error.code == ErrorCode.UNKNOWN_PARTITION:
        # Either the queue is gone and the cache had not heard, or a node is behind: the database knows.
        try:
            await plane.queues.refresh(queue.address)
        except Refusal as refusal:
            return refusal
    plane.meters.count("storage_errors")
    return code_refusal(error.code, queue.record.name)


def code_refusal(code: ErrorCode, queue_name: str) -> Refusal:
    if code == ErrorCode.NOT_IN_FLIGHT:
        return Refusal("MessageNotInflight", "The message referred to is not in flight.")
    if code == ErrorCode.RECEIPT_STALE:
        return invalid("Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
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
    if code == ErrorCode.READ_ONLY:
        return unavailable("The disks of the message store are nearly full: it takes no messages until there is room.")
    return unavailable("The message store cannot do this at the moment. Try again.")


def throttled(wait_s: float) -> Refusal:
    return Refusal("RequestThrottled", "The rate of requests is over the limit.", max(1, round(wait_s + 0.5)))


def _draft(plane: Plane, queue: QueueView, fields: MessageFields) -> Draft:
    draft = draft_message(fields, queue.send_rules)
    if draft.due:
        check_due(draft.due, plane.now_s())
    return draft


def _attempt_draft(plane: Plane, queue: QueueView, fields: MessageFields) -> Draft | Refusal:
    try:
        return _draft(plane, queue, fields)
    except Refusal as refusal:
        return refusal
