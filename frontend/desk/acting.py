"""What the desk does to one message that was found: delete it, move it to the dead-letter queue, send it anew.

    find    the message still stands at its place
    note    in the audit trail, by the control plane: what cannot be noted is not done
    store   the copy, if there is to be one; it is acknowledged, then
    remove  the message itself, whoever has leased it

A crash between the last two leaves both; the same request again makes no second copy while the target remembers
deduplication ids. What fails after it was noted is noted too, if it can be.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from frontend.authn.principal import Principal
from frontend.crypto.envelope import as_uuid, format_message_id, seal_as
from frontend.crypto.places import Place, WordError
from frontend.desk.looking import see_now
from frontend.desk.noting import note, note_failure
from frontend.desk.seeing import Seen, history_of
from frontend.errors import Refusal, invalid, queue_does_not_exist, unavailable
from frontend.limits import DESK_DEDUP_PREFIX, DESK_REASON_CHARS_MAX, QUEUE_NAME_CHARS_MAX
from frontend.routing.parts import check_taken
from frontend.routing.queues import Address, QueueView
from frontend.send import Sent, authorise, number, storage_refusal, throttle
from frontend.sqs.asks import AttributeIn, MessageFields
from frontend.sqs.validation import TRACE_HEADER, Draft, check_text, draft_message
from storage_nodes.protocol.dead_letters import copy_of_dead
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import BrowsedMessage, DeadSource, DeathReason, SendReply
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, decode_body, encode_body

if TYPE_CHECKING:
    from frontend.plane import Plane

# No sender's id begins with a zero byte.
_KEY_START = b"\0desk"


class Desk(NamedTuple):
    """Who acts, on which queue, by which request."""

    plane: Plane
    caller: Principal
    address: Address
    request_id: str


class _Held(NamedTuple):
    queue: QueueView
    message: BrowsedMessage
    seen: Seen


async def delete_one(desk: Desk, word: str, reason: str) -> Seen:
    """Raises Refusal."""
    held = await _find(desk, "DeleteMessage", word)
    await _note(desk, "message.delete", held, reason=check_reason(reason))
    await _remove(desk, "message.delete", held, moved=False)
    return held.seen


async def dead_letter_one(desk: Desk, word: str, reason: str) -> tuple[Seen, str]:
    """The message and the name of the queue it went to. Raises Refusal."""
    if not reason:
        raise invalid("A reason must be given.")
    reason = check_reason(reason)
    held = await _find(desk, "DeleteMessage", word)
    target = await _dead_letter_queue(desk, held.queue)
    await _note(desk, "message.dead_letter", held, reason=reason, target=target.record.name)
    message, partition = held.message, held.seen.partition
    died_ms = int(desk.plane.now_s() * 1000)
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
    await _store(desk, "message.dead_letter", held, target, body, message.offset)
    await _remove(desk, "message.dead_letter", held, moved=True)
    return held.seen, target.record.name


async def resend_one(desk: Desk, word: str, fields: MessageFields, destination: str | None) -> tuple[Seen, Sent]:
    """`fields` has what is to be different. Raises Refusal."""
    held = await _find(desk, "SendMessage", word)
    if held.seen.content is None:
        raise Refusal("UnsupportedOperation", "The message cannot be read, so it cannot be sent anew.")
    target = held.queue
    if destination is not None:
        if len(destination) > QUEUE_NAME_CHARS_MAX:
            raise queue_does_not_exist()
        target = await desk.plane.queues.find(Address(desk.caller.account_id, destination))
    draft, change = _draft_anew(desk.plane, held, target, fields)
    await _note(desk, "message.resend", held, target=target.record.name)
    # The id is made of the change: who asks for the same again hears of the same message.
    message_id = as_uuid(change)
    sender = desk.caller.access_key_id.encode()
    body = encode_body(seal_as(target.sealing_key, message_id, sender, draft.content), None, draft.headers)
    partition, reply = await _store(desk, "message.resend", held, target, body, held.seen.offset)
    sent = Sent(format_message_id(message_id), draft)
    if target.numbers_messages:
        sent = number(desk.plane, target, partition, [sent], reply)[0]
    await _remove(desk, "message.resend", held, moved=False)
    return held.seen, sent


def check_reason(reason: str) -> str:
    if len(reason) > DESK_REASON_CHARS_MAX:
        raise invalid(f"A reason has at most {DESK_REASON_CHARS_MAX} characters.")
    check_text(reason, "reason")
    return reason


# --- stages ---


async def _find(desk: Desk, action: str, word: str) -> _Held:
    plane = desk.plane
    queue = authorise(plane, desk.caller, action, desk.address) or await plane.queues.find(desk.address)
    throttle(plane, desk.caller, queue)
    try:
        place = plane.places.read_place(queue.owner, word)
    except WordError:
        raise invalid("The message is not one that this queue showed.") from None
    if place.partition not in queue.partitions:
        raise _gone()
    with plane.storage_calls:
        try:
            reply = await plane.storage.browse(place.partition, place.offset, 1)
        except StorageError as error:
            raise await storage_refusal(plane, queue, error) from None
    if not reply.messages or reply.messages[0].offset != place.offset:
        raise _gone()
    queue, seen = await see_now(plane, queue, place.partition, reply.messages[0])
    return _Held(queue, reply.messages[0], seen)


def _entry(action: str, held: _Held) -> dict[str, object]:
    seen = held.seen
    return {
        "action": action,
        "queue": held.queue.record.name,
        "message_id": seen.message_id,
        "partition": seen.partition,
        "offset": seen.offset,
    }


async def _note(desk: Desk, action: str, held: _Held, **details: str) -> None:
    """Raises Refusal where the trail cannot be written: then nothing may happen."""
    given = {name: value for name, value in details.items() if value}
    await note(desk.plane, desk.caller, desk.request_id, {**_entry(action, held), **given})


async def _failed(desk: Desk, action: str, held: _Held, refusal: Refusal) -> Refusal:
    return await note_failure(desk.plane, desk.caller, desk.request_id, _entry(action, held), refusal)


async def _store(
    desk: Desk, action: str, held: _Held, target: QueueView, body: bytes, turn: int
) -> tuple[int, SendReply]:
    """`turn` says which partition of a standard queue, so that the same request again comes to the same."""
    group = dict(decode_body(body).headers).get(HEADER_GROUP)
    partition = target.partition_for_copy(None if group is None else group.decode(), held.seen.content, turn)
    with desk.plane.storage_calls:
        try:
            reply = await desk.plane.storage.send(partition, [body], False)
            check_taken(reply)
            return partition, reply
        except StorageError as error:
            refusal = await storage_refusal(desk.plane, target, error)
            raise await _failed(desk, action, held, refusal) from None


async def _remove(desk: Desk, action: str, held: _Held, moved: bool) -> None:
    seen, plane = held.seen, desk.plane
    with plane.storage_calls:
        try:
            # It stood there a moment ago: if it is gone by now, somebody else or an earlier try of ours removed it.
            await plane.storage.remove(seen.partition, [seen.offset], moved)
        except StorageError:
            text = "The message could not be removed."
            if action != "message.delete":
                text = "The copy is stored, but " + text.lower() + " The same request again makes no second copy."
            raise await _failed(desk, action, held, unavailable(text)) from None


async def _dead_letter_queue(desk: Desk, queue: QueueView) -> QueueView:
    policy = queue.record.attributes.get("RedrivePolicy")
    if not policy:
        raise Refusal("UnsupportedOperation", "The queue has no dead-letter queue.")
    name = str(json.loads(policy)["deadLetterTargetArn"]).rpartition(":")[2]
    return await desk.plane.queues.find(Address(queue.record.account_id, name))


# --- a message sent anew ---


def _draft_anew(plane: Plane, held: _Held, target: QueueView, fields: MessageFields) -> tuple[Draft, bytes]:
    """The message with its changes, checked as any that is sent, which remembers what it was; and a digest of it."""
    seen = held.seen
    content = seen.content
    assert content is not None and seen.letter is not None
    asked = MessageFields(
        message_body=content.body if fields.message_body is None else fields.message_body,
        message_attributes=_attributes_of(seen) if fields.message_attributes is None else fields.message_attributes,
        delay_seconds=fields.delay_seconds,
        message_group_id=seen.group if fields.message_group_id is None else fields.message_group_id,
        message_deduplication_id=fields.message_deduplication_id,
    )
    if content.trace_header:
        trace = AttributeIn(data_type="String", string_value=content.trace_header)
        asked.message_system_attributes = {TRACE_HEADER: trace}
    place = Place(seen.partition, seen.offset)
    change = plane.places.digest(held.queue.owner, place, msgspec.msgpack.encode(msgspec.to_builtins(asked)))
    if target.fifo is not None and asked.message_deduplication_id is None:
        asked.message_deduplication_id = DESK_DEDUP_PREFIX + change.hex()
    draft = draft_message(asked, target.send_rules)
    headers: Sequence[tuple[bytes, bytes]] = draft.headers
    if not any(name == HEADER_DEDUP for name, _ in headers):
        headers = (*headers, (HEADER_DEDUP, _KEY_START + change))
    history = history_of(held.queue, seen)
    content = msgspec.structs.replace(draft.content, history=history)
    return draft._replace(content=content, headers=tuple(headers)), change


def _attributes_of(seen: Seen) -> dict[str, AttributeIn] | None:
    assert seen.content is not None
    if not seen.content.attributes:
        return None
    given = {}
    for name, (data_type, value) in seen.content.attributes.items():
        if data_type.startswith("Binary"):
            given[name] = AttributeIn(data_type=data_type, binary_value=base64.b64encode(value).decode())
        else:
            given[name] = AttributeIn(data_type=data_type, string_value=value.decode())
    return given


def _gone() -> Refusal:
    return Refusal("MessageDoesNotExist", "The message does not stand there any more.")
