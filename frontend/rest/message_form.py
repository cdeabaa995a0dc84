"""The form of a message on the REST wire, and on the push wire: JSON read into an `OutgoingMessage`, and shown."""

from __future__ import annotations

import msgspec

from frontend.crypto.envelope import Attributes, History
from frontend.errors import RequestError
from frontend.messages.attributes import attribute_text, read_attribute
from frontend.messages.opening import death_json
from frontend.messages.outgoing import MessageOptions, OutgoingMessage, check_options, outgoing_message
from frontend.messages.receive import Received
from frontend.messages.tags import TAG_ATTRIBUTE


class AttributeJson(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """`value` is base64 for the type Binary."""

    value: str
    type: str = "String"


class MessageJson(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
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
    refuse_empty(given.body)
    outgoing = outgoing_message(given.body, given.attributes, read_json_attribute, message.options)
    outgoing.delay_s = given.delay_seconds
    outgoing.group = given.group
    outgoing.dedup_id = given.deduplication_id
    return outgoing


def refuse_empty(body: str | None) -> None:
    """SQS says of an empty body that the request must contain one. Raises RequestError."""
    if body == "":
        raise RequestError("MissingRequiredParameterException", "The body of a message must not be empty.")


def read_json_attribute(name: str, given: AttributeJson) -> tuple[str, bytes]:
    """Raises RequestError."""
    return read_attribute(name, given.type, given.value)


class MessageRow(msgspec.Struct, omit_defaults=True, gc=False):
    """A message as REST and push show it. What has its default is left out."""

    id: str
    body: str
    sender: str
    sent_ms: int
    first_received_ms: int
    delivery_count: int
    receipt: str = ""
    group: str | None = None
    sequence_number: str | None = None
    deduplication_id: str = ""
    dead_letter_source: str | None = None
    trace_header: str = ""
    tag: str | None = None
    attributes: dict[str, dict[str, str]] | None = None
    death: dict[str, object] | None = None
    history: dict[str, object] | None = None


def message_row(message: Received, kind: type[MessageRow] = MessageRow) -> MessageRow:
    content = message.content
    row = kind(
        message.message_id,
        content.body,
        message.sender,
        message.sent_ms,
        message.first_received_ms,
        message.delivery,
        message.receipt_handle,
        message.group,
        message.sequence_number,
        message.dedup_id,
        message.dead_letter_source,
        content.trace_header,
    )
    if content.attributes:
        tag = content.attributes.get(TAG_ATTRIBUTE)
        row.tag = None if tag is None else tag[1].decode(errors="replace")
        row.attributes = attributes_json(content.attributes)
    if message.death is not None and message.death.reason:
        row.death = death_json(message.death)
    if content.history is not None:
        row.history = history_json(content.history)
    return row


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
