"""What the browser does to one message that was found: deletes it, moves it to the dead-letter queue, sends it again.

    find    the message still stands at its place
    note    in the audit trail, by the control plane: what cannot be noted is not done
    store   the copy, if there is to be one; it is acknowledged, then
    remove  the message itself, leased or not; where it had left its place by then (deleted by a consumer, due,
            expired, or moved as a dead letter), the caller is told so and not that it was done

A crash between the last two leaves both; the same request again makes no second copy while the target remembers
deduplication ids. What fails after it was noted is noted too, if it can be. A purge is noted before it is done, too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from frontend.authn.principal import Principal
from frontend.crypto.envelope import Content, as_uuids, format_message_id, seal_as
from frontend.crypto.message_tokens import InvalidToken, MessageToken
from frontend.errors import RequestError, invalid, queue_does_not_exist, unavailable
from frontend.limits import BROWSER_DEDUP_PREFIX, BROWSER_REASON_CHARS_MAX, QUEUE_NAME_CHARS_MAX
from frontend.message_browser.audit import PURGE, entry_of, note, note_failure
from frontend.message_browser.search import see_now
from frontend.message_browser.view import BrowsedView, history_of
from frontend.messages.admission import admit, also, require_sending
from frontend.messages.drafts import Draft, check_delay_s, draft_message
from frontend.messages.due_time import check_due_time
from frontend.messages.outgoing import OutgoingMessage
from frontend.messages.partition_batches import Sent
from frontend.messages.send import acknowledge
from frontend.messages.storage_errors import check_taken, explain_storage_error
from frontend.parameters import check_text
from frontend.queues.names import Address
from frontend.queues.priority import check_priority
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import BrowsedMessage, DeadSource, DeathReason, SendReply
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, decode_body, encode_body
from storage_nodes.protocol.usage import Origin, size_field, usage_key

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_LEFT = (
    "The copy is stored, but the message had left its place before it was removed: it may have been received, or stand "
    "in its dead-letter queue, too."
)
_IN_USE = (
    "The queue remembers the deduplication id of another message, so nothing was sent, and the message stands where it "
    "was. Give another deduplication id, or none."
)
# No sender's id begins with a zero byte.
_KEY_START = b"\0desk"


class BrowserRequest(NamedTuple):
    """Who acts, on which queue, by which request."""

    services: FrontendServices
    caller: Principal
    address: Address
    request_id: str


class _Held(NamedTuple):
    queue: ResolvedQueue
    message: BrowsedMessage
    seen: BrowsedView


async def delete_one(request: BrowserRequest, token_text: str, reason: str) -> BrowsedView:
    """Raises RequestError."""
    held = await _find(request, "browser_delete", token_text)
    await _note(request, "message.delete", held, reason=check_reason(reason))
    await _remove(request, "message.delete", held, moved=False)
    return held.seen


async def dead_letter_one(request: BrowserRequest, token_text: str, reason: str) -> tuple[BrowsedView, str]:
    """The message and the name of the queue it went to. Raises RequestError."""
    if not reason:
        raise invalid("A reason must be given.")
    reason = check_reason(reason)
    held = await _find(request, "browser_dead_letter", token_text)
    require_sending(request.services, request.caller)
    target = await _dead_letter_queue(request, held.queue)
    await _note(request, "message.dead_letter", held, reason=reason, target=target.record.name)
    message, partition = held.message, held.seen.partition
    died_ms = int(request.services.now_s() * 1000)
    source = DeadSource(
        partition,
        message.offset,
        message.sent_ms,
        message.first_received_ms,
        message.delivery,
        DeathReason.MOVED,
        died_ms,
        note=reason,
    )
    body = copy_of_dead(source, message.body)
    await _store(request, "message.dead_letter", held, target, body, held.seen.content)
    await _remove(request, "message.dead_letter", held, moved=True)
    return held.seen, target.record.name


async def resend_one(
    request: BrowserRequest, token_text: str, edit: Callable[[BrowsedView], OutgoingMessage], destination: str | None
) -> tuple[BrowsedView, Sent]:
    """`edit` makes the message with its changes of what it is now. Raises RequestError."""
    held = await _find(request, "browser_resend", token_text)
    require_sending(request.services, request.caller)
    if held.seen.content is None:
        raise RequestError("UnsupportedOperation", "The message cannot be read, so it cannot be sent anew.")
    if destination is not None and len(destination) > QUEUE_NAME_CHARS_MAX:
        raise queue_does_not_exist()
    address = request.address if destination is None else Address(request.caller.account_id, destination)
    target = await also(request.services, request.caller, "SendMessage", address, 1)
    draft, change, is_named = _draft_again(request.services, held, target, edit)
    await _note(request, "message.resend", held, target=target.record.name)
    # The id is made of the change: who asks for the same again hears of the same message.
    message_id = as_uuids(change)
    sender = request.caller.name.encode()
    record_key = usage_key(Origin.DESK, draft.size_bytes)
    key = target.sealing_key(request.services.now_s())
    envelope = seal_as(key, message_id, sender, draft.content, size_field(record_key))
    body = encode_body(envelope, record_key, draft.headers)
    partition, reply = await _store(request, "message.resend", held, target, body, draft.content)
    sent = Sent(draft, format_message_id(message_id))
    for _, original in reply.duplicates if is_named else ():
        try:
            await _check_is_ours(request, target, partition, original, sent.message_id)
        except RequestError as error:
            raise await _failed(request, "message.resend", held, error) from None
    if target.numbers_messages:
        acknowledge(request.services, target, partition, (sent,), reply)
    await _remove(request, "message.resend", held, moved=False)
    return held.seen, sent


def check_reason(reason: str) -> str:
    if len(reason) > BROWSER_REASON_CHARS_MAX:
        raise invalid(f"A reason has at most {BROWSER_REASON_CHARS_MAX} characters.")
    check_text(reason)
    return reason


# --- stages ---


async def _find(request: BrowserRequest, operation: str, token_text: str) -> _Held:
    services = request.services
    queue = await admit(services, request.caller, operation, request.address)
    try:
        token = services.message_tokens.read(queue.owner, token_text)
    except InvalidToken:
        raise invalid("The message is not one that this queue showed.") from None
    if token.partition not in queue.partitions:
        raise _gone()
    with services.storage_calls:
        try:
            reply = await services.storage.browse(token.partition, token.offset, 1)
        except StorageError as error:
            raise await explain_storage_error(services, queue, error) from None
    if not reply.messages or reply.messages[0].offset != token.offset:
        raise _gone()
    queue, seen = await see_now(services, queue, token.partition, reply.messages[0])
    return _Held(queue, reply.messages[0], seen)


async def _note(request: BrowserRequest, action: str, held: _Held, **details: str) -> None:
    """Raises RequestError where the trail cannot be written: then nothing may happen."""
    given = {name: value for name, value in details.items() if value}
    await note(
        request.services, request.caller, request.request_id, {**entry_of(action, held.queue, held.seen), **given}
    )


async def _failed(request: BrowserRequest, action: str, held: _Held, error: RequestError) -> RequestError:
    return await note_failure(
        request.services, request.caller, request.request_id, entry_of(action, held.queue, held.seen), error
    )


async def _store(
    request: BrowserRequest,
    action: str,
    held: _Held,
    target: ResolvedQueue,
    body: bytes,
    content: Content | None,
) -> tuple[int, SendReply]:
    """The place of the message says which partition of a standard queue, of the level of `content`: the same request
    again comes to the same."""
    group = dict(decode_body(body).headers).get(HEADER_GROUP)
    partition = target.partition_for_copy(None if group is None else group.decode(), content, held.message.offset)
    with request.services.storage_calls:
        try:
            reply = await request.services.storage.send(partition, [body], False)
            check_taken(reply)
            return partition, reply
        except StorageError as error:
            meant = await explain_storage_error(request.services, target, error)
            raise await _failed(request, action, held, meant) from None


async def _remove(request: BrowserRequest, action: str, held: _Held, moved: bool) -> None:
    seen, services = held.seen, request.services
    with services.storage_calls:
        try:
            codes = await services.storage.remove(seen.partition, [seen.offset], moved)
        except StorageError:
            text = "The message could not be removed."
            if action != "message.delete":
                text = "The copy is stored, but " + text.lower() + " The same request again makes no second copy."
            raise await _failed(request, action, held, unavailable(text)) from None
    if codes[0] is not ErrorCode.OK:
        # An answer of ours that was lost can be the cause, too: the storage client asks again by itself.
        left = _gone() if action == "message.delete" else RequestError("MessageLeft", _LEFT)
        raise await _failed(request, action, held, left)


async def _dead_letter_queue(request: BrowserRequest, queue: ResolvedQueue) -> ResolvedQueue:
    policy = queue.record.attributes.get("RedrivePolicy")
    if not policy:
        raise RequestError("UnsupportedOperation", "The queue has no dead-letter queue.")
    name = str(json.loads(policy)["deadLetterTargetArn"]).rpartition(":")[2]
    address = Address(queue.record.account_id, name)
    return await also(request.services, request.caller, "SendMessage", address, 1)


# --- a message sent again ---


def _draft_again(
    services: FrontendServices, held: _Held, target: ResolvedQueue, edit: Callable[[BrowsedView], OutgoingMessage]
) -> tuple[Draft, bytes, bool]:
    """The message with its changes, checked as any that is sent, which remembers what it was; a digest of it; and does
    the caller name its deduplication id?"""
    seen = held.seen
    message = edit(seen)
    if message.delay_s is not None:
        check_delay_s(message.delay_s)
    asked = (message.body, message.attributes, message.trace_header, message.delay_s, message.group, message.dedup_id)
    token = MessageToken(seen.partition, seen.offset)
    change = services.message_tokens.digest(held.queue.owner, token, msgspec.msgpack.encode(asked))
    is_named = message.dedup_id is not None
    if target.fifo is not None and not is_named:
        message.dedup_id = BROWSER_DEDUP_PREFIX + change.hex()
    rules = target.send_rules
    draft = draft_message(message, rules)
    if rules.levels:
        check_priority(message.attributes, rules.levels)
    if message.due is not None:
        check_due_time(message.due, services.now_s())
    if not any(name == HEADER_DEDUP for name, _ in draft.headers):
        draft.headers = (*draft.headers, (HEADER_DEDUP, _KEY_START + change))
    draft.content = msgspec.structs.replace(draft.content, history=history_of(held.queue, seen))
    return draft, change, is_named


async def _check_is_ours(
    request: BrowserRequest, target: ResolvedQueue, partition: int, offset: int, message_id: str
) -> None:
    """Of a copy that was dropped, since the target remembers its deduplication id: the original is an earlier try of
    this request. Raises RequestError where it is another message, or is not there to be compared."""
    with request.services.storage_calls:
        try:
            reply = await request.services.storage.browse(partition, offset, 1)
        except StorageError as error:
            raise await explain_storage_error(request.services, target, error) from None
    original = next((one for one in reply.messages if one.offset == offset), None)
    if original is not None:
        _, seen = await see_now(request.services, target, partition, original)
        if seen.record is not None and seen.record.opened.message_id == message_id:
            return
    raise RequestError("DeduplicationIdInUse", _IN_USE)


def _gone() -> RequestError:
    return RequestError("MessageDoesNotExist", "The message does not stand there any more.")


async def purge(request: BrowserRequest) -> None:
    """Every message that the queue holds now is gone. Raises RequestError."""
    services, caller = request.services, request.caller
    queue = await admit(services, caller, "PurgeQueue", request.address)
    entry: dict[str, object] = {"action": PURGE, "queue": queue.record.name}
    await note(services, caller, request.request_id, entry)
    with services.storage_calls:
        try:
            await asyncio.gather(*(services.storage.purge(partition) for partition in queue.partitions))
        except StorageError as error:
            refusal: RequestError = await explain_storage_error(services, queue, error)
            raise await note_failure(services, caller, request.request_id, entry, refusal) from None
