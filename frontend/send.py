"""READ FIRST: the path of a message from a caller to storage. `receive.py` is the way back.

    way in          sqs/, rest/ or push/          read, parse                     -> what is asked
    authenticate    authn/authenticator.py        signature or token              -> principal
    authorise       authz/ownership.py            may this key send there?
    route           routing/queues.py             metadata cache                  -> view of the queue
    throttle        limits/gcra.py                account, key, queue
    validate        sqs/validation.py             size, characters, attributes    -> drafts
    encrypt         crypto/envelope.py            AES-256-GCM per message         -> message id, envelope
    store           storage_nodes.client          to one partition; returns when a majority has fsynced
    answer, meter   the way in again

No answer leaves before `store` returned: what is acknowledged is on disk on a majority of replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.authz.ownership import is_allowed
from frontend.crypto.envelope import seal
from frontend.errors import Refusal, invalid, queue_does_not_exist, unavailable
from frontend.routing.partitioner import choose_partition
from frontend.routing.queues import Address, QueueView
from frontend.sqs.asks import MessageFields
from frontend.sqs.validation import FIFO_SUFFIX, Draft, check_batch_size, draft_message
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.records import encode_body

if TYPE_CHECKING:
    from frontend.plane import Plane


class Sent(NamedTuple):
    """The acknowledgement of one message."""

    message_id: str
    draft: Draft


async def send_message(plane: Plane, caller: Principal, address: Address, fields: MessageFields) -> Sent:
    """One message. Raises Refusal."""
    queue = authorise(plane, caller, "SendMessage", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    draft = draft_message(fields, queue.message_bytes_max, queue.delay_ms)
    message_id, body = encrypt(caller, queue, draft)
    await store(plane, queue, [body], not draft.headers)
    plane.meters.count("messages_sent")
    return Sent(message_id, draft)


async def send_messages(
    plane: Plane, caller: Principal, address: Address, batch: Sequence[MessageFields]
) -> list[Sent | Refusal]:
    """Several messages, each with its own outcome; those that pass are stored together. Refusal: none of them."""
    queue = authorise(plane, caller, "SendMessage", address) or await plane.queues.find(address)
    throttle(plane, caller, queue)
    drafts = [_draft(queue, fields) for fields in batch]
    check_batch_size(drafts)
    outcomes: list[Sent | Refusal] = []
    bodies: list[bytes] = []
    plain = True
    for draft in drafts:
        if isinstance(draft, Refusal):
            outcomes.append(draft)
            continue
        message_id, body = encrypt(caller, queue, draft)
        bodies.append(body)
        outcomes.append(Sent(message_id, draft))
        plain = plain and not draft.headers
    if bodies:
        await store(plane, queue, bodies, plain)
        plane.meters.count("messages_sent", len(bodies))
    return outcomes


# --- stages, shared with receive.py ---


def authorise(plane: Plane, caller: Principal, action: str, address: Address) -> QueueView | None:
    """The view of a queue the caller may use, None if it must be looked up. Another account's queue does not exist."""
    if not is_allowed(caller, action, address.account_id):
        raise queue_does_not_exist()
    if address.name.endswith(FIFO_SUFFIX):
        raise Refusal("UnsupportedOperation", "FIFO queues are not supported yet.")
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


async def store(plane: Plane, queue: QueueView, bodies: list[bytes], plain: bool) -> None:
    with plane.storage_calls:
        try:
            await plane.storage.send(choose_partition(queue.partitions), bodies, plain)
        except StorageError as error:
            raise await storage_refusal(plane, queue, error) from None


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
    if code == ErrorCode.OVER_LIMIT:
        return Refusal("OverLimit", "The maximum number of in flight messages is reached.")
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


def _draft(queue: QueueView, fields: MessageFields) -> Draft | Refusal:
    try:
        return draft_message(fields, queue.message_bytes_max, queue.delay_ms)
    except Refusal as refusal:
        return refusal
