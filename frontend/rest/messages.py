"""What the REST data API does: the same engine as SQS, in its own words.

    POST /v1/queues/{name}/messages           {"body", ...} or {"messages": [...]}       send
    POST /v1/queues/{name}/messages/receive   {"max_messages", "wait_seconds", ...}      receive
    POST /v1/queues/{name}/messages/ack       {"receipts": [...]}                        delete
    POST /v1/queues/{name}/messages/extend    {"receipts": [...], "visibility_seconds"}  extend; 0 gives back
    POST /v1/queues/{name}/messages/release   {"receipts": [...], "delay_seconds", "count"}
                                              give back; the receive does not count, unless "count" is true

The queue is one of the caller's account. In a batch each message or receipt has its own outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from frontend.authn.principal import Principal
from frontend.crypto.envelope import Attributes, History
from frontend.desk.filters import attribute_text
from frontend.errors import Refusal, invalid, missing
from frontend.http import Request
from frontend.limits import BATCH_ENTRIES_MAX
from frontend.receive import (
    ReceiveAsk,
    Received,
    change_visibility,
    delete_messages,
    give_back,
    receive_messages,
)
from frontend.rest.deaths import death_json
from frontend.rest.problems import problem_code
from frontend.routing.queues import Address
from frontend.send import Sent, send_message, send_messages
from frontend.sqs.asks import AttributeIn, MessageFields
from frontend.sqs.priority import with_priority
from frontend.sqs.scheduling import DELAY_SECONDS, DELIVER_AT
from frontend.sqs.tags import TAG_ATTRIBUTE
from frontend.sqs.validation import check_give_back_s, check_messages_max, check_visibility_s, check_wait_s

if TYPE_CHECKING:
    from frontend.plane import Plane

encode_answer = msgspec.json.Encoder().encode


class AttributeJson(msgspec.Struct):
    """`value` is base64 for the type Binary."""

    value: str
    type: str = "String"


class MessageJson(msgspec.Struct):
    body: str | None = None
    attributes: dict[str, AttributeJson] | None = None
    delay_seconds: int | None = None
    group: str | None = None
    deduplication_id: str | None = None
    priority: int | None = None
    deliver_at_ms: int | None = None
    delay_ms: int | None = None
    acks: str | None = None
    tag: str | None = None


class SendJson(MessageJson):
    messages: list[MessageJson] | None = None


class ReceiveJson(msgspec.Struct):
    max_messages: int | None = None
    wait_seconds: int | None = None
    visibility_seconds: int | None = None
    attempt: str | None = None
    tags: list[str] | None = None


class AckJson(msgspec.Struct):
    receipts: list[str] | None = None


class ExtendJson(AckJson):
    visibility_seconds: int | None = None


class ReleaseJson(AckJson):
    delay_seconds: int | None = None
    count: bool = False


class RestCall(NamedTuple):
    """One authenticated request of the REST data API."""

    plane: Plane
    request: Request
    caller: Principal
    address: Address


class Route(NamedTuple):
    action: str
    decode: Callable[[bytes], Any]
    run: Callable[[RestCall, Any], Awaitable[bytes]]
    method: str = "POST"


async def _send(call: RestCall, ask: SendJson) -> bytes:
    if ask.messages is None:
        sent = await send_message(call.plane, call.caller, call.address, message_fields(ask))
        return encode_answer(_sent_json(sent))
    if ask.body is not None:
        raise invalid("Either body or messages may be given, not both.")
    _check_count(ask.messages, "messages")
    batch = [message_fields(one, ask.acks) for one in ask.messages]
    outcomes = await send_messages(call.plane, call.caller, call.address, batch)
    return encode_answer(
        {"messages": [error_json(one) if isinstance(one, Refusal) else _sent_json(one) for one in outcomes]}
    )


async def _receive(call: RestCall, ask: ReceiveJson) -> bytes:
    bounds = ReceiveAsk(
        check_messages_max(ask.max_messages),
        check_visibility_s(ask.visibility_seconds),
        check_wait_s(ask.wait_seconds),
        ask.attempt,
        ask.tags,
    )
    messages = await receive_messages(call.plane, call.caller, call.address, bounds, call.request.receive)
    return encode_answer({"messages": [message_json(message) for message in messages]})


async def _ack(call: RestCall, ask: AckJson) -> bytes:
    receipts = _check_count(ask.receipts, "receipts")
    return _receipts_answer(receipts, await delete_messages(call.plane, call.caller, call.address, receipts))


async def _extend(call: RestCall, ask: ExtendJson) -> bytes:
    receipts = _check_count(ask.receipts, "receipts")
    seconds = check_visibility_s(ask.visibility_seconds)
    if seconds is None:
        raise missing("visibility_seconds")
    changes = [(receipt, seconds) for receipt in receipts]
    return _receipts_answer(receipts, await change_visibility(call.plane, call.caller, call.address, changes))


async def _release(call: RestCall, ask: ReleaseJson) -> bytes:
    receipts = _check_count(ask.receipts, "receipts")
    delay_s = check_give_back_s(ask.delay_seconds)
    return _receipts_answer(
        receipts, await give_back(call.plane, call.caller, call.address, receipts, delay_s, ask.count)
    )


ROUTES: dict[bytes | None, Route] = {
    None: Route("send", msgspec.json.Decoder(SendJson).decode, _send),
    b"receive": Route("receive", msgspec.json.Decoder(ReceiveJson).decode, _receive),
    b"ack": Route("ack", msgspec.json.Decoder(AckJson).decode, _ack),
    b"extend": Route("extend", msgspec.json.Decoder(ExtendJson).decode, _extend),
    b"release": Route("release", msgspec.json.Decoder(ReleaseJson).decode, _release),
}


def message_json(message: Received) -> dict[str, object]:
    """A message as REST and push show it."""
    answer: dict[str, object] = {
        "id": message.message_id,
        "receipt": message.receipt_handle,
        "body": message.content.body,
        "sender": message.sender,
        "sent_ms": message.sent_ms,
        "first_received_ms": message.first_received_ms,
        "delivery_count": message.delivery,
    }
    if message.group is not None:
        answer["group"] = message.group
    tag = message.content.attributes.get(TAG_ATTRIBUTE)
    if tag is not None:
        answer["tag"] = tag[1].decode(errors="replace")
    if message.sequence_number is not None:
        answer["sequence_number"] = message.sequence_number
    if message.content.dedup_id:
        answer["deduplication_id"] = message.content.dedup_id
    if message.dead_letter_source is not None:
        answer["dead_letter_source"] = message.dead_letter_source
    if message.death is not None and message.death.reason:
        answer["death"] = death_json(message.death)
    if message.content.history is not None:
        answer["history"] = history_json(message.content.history)
    if message.content.trace_header:
        answer["trace_header"] = message.content.trace_header
    if message.content.attributes:
        answer["attributes"] = attributes_json(message.content.attributes)
    return answer


def attributes_json(attributes: Attributes) -> dict[str, dict[str, str]]:
    return {
        name: {"type": data_type, "value": attribute_text(data_type, value)}
        for name, (data_type, value) in attributes.items()
    }


def history_json(history: History) -> dict[str, object]:
    """What a message was before it was moved or sent anew."""
    return {
        "id": history.message_id,
        "queue": history.queue,
        "sent_ms": history.sent_ms,
        "receive_count": history.receives,
        "moves": history.moves,
        "task": history.task or None,
    }


def message_fields(message: MessageJson, acks: str | None = None) -> MessageFields:
    attributes = None
    if message.attributes is not None:
        attributes = {name: _attribute(one) for name, one in message.attributes.items()}
    if message.deliver_at_ms is not None or message.delay_ms is not None:
        attributes = _with_time(message, attributes or {})
    if message.tag is not None:
        if attributes is not None and TAG_ATTRIBUTE in attributes:
            raise invalid(f"Either tag or the attribute {TAG_ATTRIBUTE} may be given, not both.")
        tag = AttributeIn(data_type="String", string_value=message.tag)
        attributes = {**(attributes or {}), TAG_ATTRIBUTE: tag}
    return MessageFields(
        message_body=message.body,
        message_attributes=with_priority(attributes, message.priority),
        delay_seconds=message.delay_seconds,
        message_group_id=message.group,
        message_deduplication_id=message.deduplication_id,
        penstock_acks=message.acks or acks,
    )


def _with_time(message: MessageJson, attributes: dict[str, AttributeIn]) -> dict[str, AttributeIn]:
    """The attributes that say when a message is due, whichever way it came in."""
    timed = dict(attributes)
    if message.deliver_at_ms is not None:
        timed[DELIVER_AT] = AttributeIn(data_type="Number", string_value=str(message.deliver_at_ms))
    if message.delay_ms is not None:
        seconds = f"{message.delay_ms // 1000}.{message.delay_ms % 1000:03}"
        timed[DELAY_SECONDS] = AttributeIn(data_type="Number", string_value=seconds)
    return timed


def _attribute(given: AttributeJson) -> AttributeIn:
    if given.type.startswith("Binary"):
        return AttributeIn(data_type=given.type, binary_value=given.value)
    return AttributeIn(data_type=given.type, string_value=given.value)


def _check_count(given: list[Any] | None, what: str) -> list[Any]:
    if not given:
        raise Refusal("EmptyBatchRequest", f"The request must contain at least one entry in {what}.")
    if len(given) > BATCH_ENTRIES_MAX:
        raise Refusal(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {len(given)}.",
        )
    return given


def _sent_json(sent: Sent) -> dict[str, object]:
    answer: dict[str, object] = {"id": sent.message_id, "md5": sent.draft.body_md5}
    if sent.sequence_number is not None:
        answer["sequence_number"] = sent.sequence_number
    if sent.schedule_id is not None:
        answer["schedule_id"] = sent.schedule_id
    return answer


def error_json(refusal: Refusal) -> dict[str, object]:
    return {"error": {"code": problem_code(refusal), "detail": refusal.message}}


def _receipts_answer(receipts: Sequence[str], outcomes: Sequence[Refusal | None]) -> bytes:
    refusals = [outcome for outcome in outcomes if outcome is not None]
    for refusal in refusals:
        if refusal.kind.status >= 500 or len(receipts) == 1:
            raise refusal
    failed = [
        {"receipt": receipt, **error_json(outcome)}
        for receipt, outcome in zip(receipts, outcomes, strict=True)
        if outcome is not None
    ]
    return encode_answer({"done": len(receipts) - len(failed), "failed": failed})
