"""Checks of single parameters, shared by queues, messages and wires: characters, ids, and what an error shows. Pure."""

from __future__ import annotations

import re

from frontend.errors import RequestError, invalid
from frontend.limits import GROUP_ID_CHARS_MAX, REFUSED_CHARS_SHOWN_MAX

# XML 1.0 characters; everything that is not one of them.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What SQS says of others, wherever they stand.
FORBIDDEN_FOUND = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
    "#x10000 to #x10FFFF"
)
_ASCII_ALLOWED = bytes((9, 10, 13, *range(0x20, 0x80)))
_ID = re.compile(rf"[!-~]{{1,{GROUP_ID_CHARS_MAX}}}", re.ASCII)
_SHOWN_CHARS = 80


def check_text(text: str) -> bytes:
    """Returns the UTF-8 of a text of allowed characters. Raises RequestError."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise _bad_characters() from None
    if raw.translate(None, _ASCII_ALLOWED) if len(raw) == len(text) else FORBIDDEN.search(text):
        raise _bad_characters()
    return raw


def is_text(text: str) -> bool:
    """Only of characters that an answer in XML can hold?"""
    if text.isascii():
        return not text.encode().translate(None, _ASCII_ALLOWED)
    return FORBIDDEN.search(text) is None


def check_id(text: str, parameter: str) -> bytes:
    """Returns the bytes of an id that a client chose: of a group, a message, a receive attempt. Raises RequestError."""
    if _ID.fullmatch(text) is None:
        shown = text if len(text) <= REFUSED_CHARS_SHOWN_MAX else text[:REFUSED_CHARS_SHOWN_MAX] + "..."
        raise invalid(
            f"Value {shown} for parameter {parameter} is invalid. Reason: {parameter} can only include alphanumeric "
            f"and punctuation characters. 1 to {GROUP_ID_CHARS_MAX} in length."
        )
    return text.encode()


def bad_value(value: object, parameter: str, reason: str) -> RequestError:
    return invalid(f"Value {shortened(str(value))} for parameter {parameter} is invalid. Reason: {reason}")


def shortened(text: str) -> str:
    """Returns enough of what a caller sent to recognise it: an answer must not grow with the question."""
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def _bad_characters() -> RequestError:
    return RequestError("InvalidMessageContents", FORBIDDEN_FOUND)
