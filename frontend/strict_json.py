"""JSON whose objects name each member once: which of two would count is what tricks live on. And at most so many values
as are taken: a decoder makes an object of each, whatever comes after it.

Typed decoders keep the last of two members and say nothing. Members are counted instead: outside of strings a colon
stands behind the name of a member and nowhere else. What is decoded and written again has lost those that came twice.

Surface: other planes may import this module.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from frontend.limits import JSON_VALUES_MAX

# A value takes two bytes, with what stands between it and the next: a text of so many has not too many.
FEW_VALUES_BYTES = 2 * JSON_VALUES_MAX
# One of these stands before or behind each value but one, and each name.
_BETWEEN = b",:[{"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def check_values(text: bytes) -> None:
    """Takes anything, before it is decoded. Raises TooManyValues for more than JSON_VALUES_MAX, names included."""
    if len(text) <= FEW_VALUES_BYTES:
        return
    # Where all of them are few, those outside of strings are, and nothing needs to be taken apart.
    if _count(text, _BETWEEN) < JSON_VALUES_MAX:
        return
    bare = _without_escapes(text)
    # Two quotes for each string. They are counted before the text is cut at each.
    if _count(bare, b'"') > 2 * JSON_VALUES_MAX or _count(_outside_strings(bare), _BETWEEN) >= JSON_VALUES_MAX:
        raise TooManyValues(f"there are more than {JSON_VALUES_MAX} values")


class TooManyValues(Exception):
    """The text is for who sent them."""


def check_members(text: bytes) -> None:
    """Takes an object that a typed decoder has accepted. Raises RepeatedMember, msgspec.DecodeError."""
    skeleton = _without_strings(text)
    members = skeleton.count(b":")
    if members < 2:
        return
    document = _decode(text)
    kept = len(document) if skeleton.count(b"{") == 1 else _without_strings(_encode(document)).count(b":")
    if kept != members:
        raise RepeatedMember(repeated_member(text) or "")


def _without_strings(text: bytes) -> bytes:
    """Searches of whole texts alone: an expression that steps through them would cost more than all the rest."""
    return _outside_strings(_without_escapes(text))


def _without_escapes(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    return text.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of an escape ends no string


def _count(text: bytes, characters: bytes) -> int:
    """One pass, which costs the same however many there are; `count` stops at each."""
    return len(text) - len(text.translate(None, characters))


def _outside_strings(bare: bytes) -> bytes:
    return b"".join(bare.split(b'"')[::2])


def repeated_member(text: bytes) -> str | None:
    """Returns the first name that an object has twice; looks at each object in turn. Raises ValueError for what is not
    JSON, RecursionError."""
    try:
        json.loads(text, object_pairs_hook=_check_pairs)
    except RepeatedMember as error:
        return error.name
    return None


class RepeatedMember(Exception):
    """An object names this member twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    names = set()
    for name, _ in pairs:
        if name in names:
            raise RepeatedMember(name)
        names.add(name)
