"""A message on its way to storage, as its sender wants it, in types of this plane. Every wire fills it. Pure.

What is checked here holds for every queue: characters, attributes, options. What a queue asks of its messages is
checked against its rules, in `drafts.py`.

Some options are message attributes (`Penstock.DeliverAt`, `Penstock.DelaySeconds`, `Penstock.Tag`, `Penstock.Priority`,
`Penstock.Acks`), so that any SQS client can give them, and receivers see them. A wire with members of its own for them
gives `MessageOptions`, which become the same attributes, but for acks.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from frontend.crypto.envelope import Attributes
from frontend.errors import invalid, missing
from frontend.limits import PRIORITY_LEVELS_MAX
from frontend.messages.attributes import ReadAttribute, check_attributes, read_text
from frontend.messages.due_time import DueTime, due_time_of, read_due_time, time_attributes
from frontend.messages.tags import TAG_ATTRIBUTE, check_tag, tag_of
from frontend.parameters import bad_value, check_text
from frontend.queues.extensions import ACKS, ACKS_WORDS
from frontend.queues.priority import PRIORITY
from storage_nodes.model import Acks

T = TypeVar("T")
_NO_ATTRIBUTES: Attributes = {}


class OutgoingMessage(msgspec.Struct, gc=False):
    """None and empty: the sender did not say.

    raw_body          UTF-8 of the body
    attributes_bytes  what they add to the size of the message
    delay_s           SQS's DelaySeconds; `due` is our own, longer one
    """

    body: str
    raw_body: bytes
    attributes: Attributes
    attributes_bytes: int
    acks: Acks | None
    due: DueTime | None
    tag: bytes | None
    delay_s: int | None = None
    group: str | None = None
    dedup_id: str | None = None
    trace_header: str = ""


class MessageOptions(msgspec.Struct, frozen=True):
    """Options that a wire has members for. `acks` is one of `extensions.ACKS_WORDS`."""

    deliver_at_ms: int | None = None
    delay_ms: int | None = None
    tag: str | None = None
    priority: int | None = None
    acks: str | None = None

    def attributes(self) -> Attributes:
        """What receivers see of them."""
        attributes = time_attributes(self.deliver_at_ms, self.delay_ms)
        if self.tag is not None:
            attributes[TAG_ATTRIBUTE] = ("String", self.tag.encode(errors="replace"))
        if self.priority is not None:
            attributes[PRIORITY] = ("Number", b"%d" % self.priority)
        return attributes


NO_OPTIONS = MessageOptions()


def outgoing_message(
    body: str | None,
    given: Mapping[str, T] | None,
    read_attribute: ReadAttribute[T],
    options: MessageOptions = NO_OPTIONS,
) -> OutgoingMessage:
    """A message with this body and these attributes of the wire. Raises RequestError."""
    if not body:
        raise missing("MessageBody")
    raw_body = check_text(body)
    if options is NO_OPTIONS:
        if not given:
            return OutgoingMessage(body, raw_body, _NO_ATTRIBUTES, 0, None, None, None)
        attributes, size_bytes = check_attributes(given, read_attribute, _NO_ATTRIBUTES)
        acks, due = None, read_due_time(attributes)
    else:
        acks = None if options.acks is None else read_acks(options.acks, "acks")
        attributes, size_bytes = check_attributes(given or {}, read_attribute, options.attributes())
        if options.tag is not None:
            read_text(TAG_ATTRIBUTE, "String", options.tag)
        due = due_time_of(options.deliver_at_ms, options.delay_ms, attributes)
    if ACKS in attributes:
        acks = read_acks(attributes[ACKS][1].decode(errors="replace"), ACKS)
    tag = tag_of(attributes) if options.tag is None else check_tag(options.tag)
    return OutgoingMessage(body, raw_body, attributes, size_bytes, acks, due, tag)


def check_options(options: MessageOptions, given: Mapping[str, object] | None) -> MessageOptions:
    """Raises RequestError for an option that is out of range, or given as an attribute as well."""
    if options == NO_OPTIONS:
        return NO_OPTIONS
    if options.tag is not None and given is not None and TAG_ATTRIBUTE in given:
        raise invalid(f"Either tag or the attribute {TAG_ATTRIBUTE} may be given, not both.")
    if options.priority is None:
        return options
    if not 0 <= options.priority < PRIORITY_LEVELS_MAX:
        raise invalid(f"priority must be between 0 and {PRIORITY_LEVELS_MAX - 1}.")
    if given and PRIORITY in given:
        raise invalid(f"priority and the attribute {PRIORITY} exclude each other.")
    return options


def read_acks(word: str, parameter: str) -> Acks:
    acks = ACKS_WORDS.get(word)
    if acks is None:
        raise bad_value(word, parameter, f"Must be one of {', '.join(ACKS_WORDS)}.")
    return acks
