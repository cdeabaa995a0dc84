"""The form of a message on the REST wire, and on the push wire: JSON read into an `OutgoingMessage`, and shown."""

from __future__ import annotations

import msgspec

from frontend.crypto.envelope import Attributes, History
from frontend.messages.attributes import attribute_text, read_attribute
from frontend.messages.opening import death_json
from frontend.messages.outgoing import MessageOptions, OutgoingMessage, check_options, outgoing_message
from frontend.messages.receive import Received
from frontend.messages.tags import TAG_ATTRIBUTE


class AttributeJson(msgspec.Struct, forbid_unknown_fields=True):
    """`value` is base64 for the type Binary."""

    value: str
    type: str = "String"


class MessageJson(msgspec.Struct, forbid_unknown_fields=True):
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


class CheckedMessage(msgspec.Struct, frozen=True):
    """A message whose members do not contradict each other; `acks` of a batch counts where it has none itself."""

    given: MessageJson
    options: MessageOptions


def check_message(given: MessageJson, acks: str | None = None) -> CheckedMessage:
    """Before anything is looked up. Raises RequestError."""
    options = MessageOptions(given.deliver_at_ms, given.delay_ms, given.tag, given.priority, given.acks or acks)
    return CheckedMessage(given, check_options(options, given.attributes))


def read_message(message: CheckedMessage) -> OutgoingMessage:
    """Raises RequestError."""
    given = message.given
    outgoing = outgoing_message(given.body, given.attributes, read_json_attribute, message.options)
    outgoing.delay_s = given.delay_seconds
    outgoing.group = given.group
    outgoing.dedup_id = given.deduplication_id
    return outgoing


def read_json_attribute(name: str, given: AttributeJson) -> tuple[str, bytes]:
    """Raises RequestError."""
    return read_attribute(name, given.type, given.value)


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
