"""What a search of the browser and a move task look for: conditions that must all hold. Pure.

    ids, groups, tags, sources   one of these, exactly; a source is the queue that a dead letter was sent to
    states                       one of waiting, in_flight, delayed
    attributes                   each has this value, exactly; null = any value. Binary values as base64
    body_contains, note_contains   holds this text, letter for letter: no pattern, so no search is slower than another
    age_seconds_min, _max        since it was sent (first, if it was moved since)
    sent_after_ms, sent_before_ms
    receives_min, receives_max   how often it was received, its life before it died included

Every list and text has a bound, so a condition costs at most a pass over the message.

Surface: other planes may import this module.
"""

from __future__ import annotations

import msgspec

from frontend.errors import RequestError, invalid
from frontend.limits import (
    ATTRIBUTE_NAME_CHARS_MAX,
    BROWSER_CONDITION_ITEMS_MAX,
    BROWSER_CONDITION_TEXT_CHARS_MAX,
    MESSAGE_ATTRIBUTES_MAX,
)
from frontend.message_browser.view import BrowsedView
from frontend.messages.attributes import attribute_text
from storage_nodes.protocol.messages import MessageState

STATE_WORDS = {
    "waiting": MessageState.WAITING,
    "in_flight": MessageState.IN_FLIGHT,
    "delayed": MessageState.DELAYED,
}
ALL_STATES = int(sum(MessageState))
_NUMBER_MAX = 2**53


class MessageFilter(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """As JSON has it. None = not asked for."""

    ids: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    attributes: dict[str, str | None] | None = None
    body_contains: str | None = None
    note_contains: str | None = None
    age_seconds_min: int | None = None
    age_seconds_max: int | None = None
    sent_after_ms: int | None = None
    sent_before_ms: int | None = None
    receives_min: int | None = None
    receives_max: int | None = None

    @property
    def state_bits(self) -> int:
        return ALL_STATES if self.states is None else sum(STATE_WORDS[word] for word in set(self.states))

    @property
    def wants_all(self) -> bool:
        """Of the states that it asks for."""
        return msgspec.structs.replace(self, states=None) == EVERYTHING

    @property
    def reads_content(self) -> bool:
        """Does it ask for what is sealed?"""
        return self.attributes is not None or self.body_contains is not None


EVERYTHING = MessageFilter()
_LISTS = ("ids", "groups", "tags", "sources", "states")
_TEXTS = ("body_contains", "note_contains")
_NUMBERS = (
    "age_seconds_min", "age_seconds_max", "sent_after_ms", "sent_before_ms", "receives_min", "receives_max",
)  # fmt: skip
_encode = msgspec.json.Encoder(order="deterministic").encode


def filter_of(given: object) -> MessageFilter:
    """From what JSON decoding gave. Raises RequestError."""
    try:
        return check_filter(msgspec.convert(given, MessageFilter))
    except msgspec.ValidationError as error:
        raise RequestError("SerializationException", f"The filter cannot be read: {error}") from None


def check_filter(asked: MessageFilter) -> MessageFilter:
    """Raises RequestError for a condition that is out of bounds."""
    for name in _LISTS:
        items = getattr(asked, name)
        if items is not None and not 1 <= len(items) <= BROWSER_CONDITION_ITEMS_MAX:
            raise invalid(f"The filter's {name} must be 1 to {BROWSER_CONDITION_ITEMS_MAX} values.")
        for item in items or ():
            _check_text(name, item)
    for name in _TEXTS:
        text = getattr(asked, name)
        if text is not None:
            _check_text(name, text)
    for name in _NUMBERS:
        number = getattr(asked, name)
        if number is not None and not 0 <= number <= _NUMBER_MAX:
            raise invalid(f"The filter's {name} must be between 0 and {_NUMBER_MAX}.")
    if asked.states is not None and not STATE_WORDS.keys() >= set(asked.states):
        raise invalid(f"The filter's states must be of {', '.join(STATE_WORDS)}.")
    if asked.attributes is not None:
        _check_attributes(asked.attributes)
    return asked


def filter_bytes(asked: MessageFilter) -> bytes:
    """The same for filters that ask the same."""
    return _encode(asked)


def filter_json(asked: MessageFilter) -> dict[str, object]:
    """What `filter_of` reads again."""
    content: dict[str, object] = msgspec.json.decode(_encode(asked))
    return content


def matches(asked: MessageFilter, seen: BrowsedView, now_ms: int) -> bool:
    """Do all conditions hold? The state was asked for when the message was looked at."""
    if asked.ids is not None and seen.message_id not in asked.ids:
        return False
    if asked.groups is not None and seen.group not in asked.groups:
        return False
    if asked.tags is not None and seen.tag not in asked.tags:
        return False
    if asked.sources is not None and seen.source not in asked.sources:
        return False
    if asked.note_contains is not None and (seen.death is None or asked.note_contains not in seen.death.note):
        return False
    if not _is_within(seen.receives, asked.receives_min, asked.receives_max):
        return False
    if not _is_within(seen.first_sent_ms, asked.sent_after_ms, asked.sent_before_ms):
        return False
    age_ms = now_ms - seen.first_sent_ms
    if not _is_within(age_ms, _as_ms(asked.age_seconds_min), _as_ms(asked.age_seconds_max)):
        return False
    return not asked.reads_content or _content_matches(asked, seen)


def _content_matches(asked: MessageFilter, seen: BrowsedView) -> bool:
    if seen.content is None:
        return False
    if asked.body_contains is not None and asked.body_contains not in seen.content.body:
        return False
    for name, wanted in (asked.attributes or {}).items():
        found = seen.content.attributes.get(name)
        if found is None:
            return False
        if wanted is not None and attribute_text(*found) != wanted:
            return False
    return True


def _check_attributes(attributes: dict[str, str | None]) -> None:
    if not 1 <= len(attributes) <= MESSAGE_ATTRIBUTES_MAX:
        raise invalid(f"The filter's attributes must be 1 to {MESSAGE_ATTRIBUTES_MAX} names.")
    for name, value in attributes.items():
        if not 1 <= len(name) <= ATTRIBUTE_NAME_CHARS_MAX:
            raise invalid(f"An attribute's name has 1 to {ATTRIBUTE_NAME_CHARS_MAX} characters.")
        if value is not None:
            _check_text("attributes", value)


def _check_text(name: str, text: str) -> None:
    if not 1 <= len(text) <= BROWSER_CONDITION_TEXT_CHARS_MAX:
        raise invalid(f"A text of the filter's {name} has 1 to {BROWSER_CONDITION_TEXT_CHARS_MAX} characters.")
    # A body holds none of these, and no database would store them.
    if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
        raise invalid(f"A text of the filter's {name} holds characters that no message can.")


def _is_within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _as_ms(seconds: int | None) -> int | None:
    return None if seconds is None else 1000 * seconds
