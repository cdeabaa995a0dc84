"""The rules of message attributes: how many, their names, types and values. Pure.

A wire decodes one attribute at a time and checks it by these rules; `check_attributes` goes through all of a message.

Surface: other planes may import this module.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeVar

from frontend.crypto.envelope import Attributes
from frontend.errors import RequestError, invalid
from frontend.limits import ATTRIBUTE_NAME_CHARS_MAX, ATTRIBUTE_TYPE_CHARS_MAX, MESSAGE_ATTRIBUTES_MAX
from frontend.parameters import FORBIDDEN, FORBIDDEN_FOUND, check_text

# Letters and digits of any alphabet.
_NAME = re.compile(r"[\w.-]+")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_PLAIN_TYPES = ("String", "Number", "Binary")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
# What an attribute of type Number may be.
_NUMBER_MIN, _NUMBER_MAX = Decimal("-1E128"), Decimal("1E126")

T = TypeVar("T")
# From the name of an attribute and the form that it has on a wire: its data type and its value. Raises RequestError.
ReadAttribute = Callable[[str, T], tuple[str, bytes]]


def check_attributes(given: Mapping[str, T], read: ReadAttribute[T], added: Attributes) -> tuple[Attributes, int]:
    """Returns the attributes and their size in bytes. `added` are not checked, and replace those of the same name.
    Raises RequestError."""
    count = len(given.keys() | added.keys()) if added else len(given)
    if count > MESSAGE_ATTRIBUTES_MAX:
        raise invalid(f"Number of message attributes [{count}] exceeds the allowed maximum [{MESSAGE_ATTRIBUTES_MAX}].")
    attributes: Attributes = {}
    size_bytes = 0
    for name, one in given.items():
        if name in added:
            continue
        _check_name(name)
        data_type, value = read(name, one)
        attributes[name] = (data_type, value)
        size_bytes += len(name.encode()) + len(data_type.encode()) + len(value)
    for name, (data_type, value) in added.items():
        attributes[name] = (data_type, value)
        size_bytes += len(name) + len(data_type) + len(value)
    return attributes, size_bytes


def read_attribute(name: str, data_type: str, text: str) -> tuple[str, bytes]:
    """Of a wire that has one member for every value. Raises RequestError."""
    data_type = check_data_type(name, data_type)
    if data_type.startswith("Binary"):
        return data_type, read_binary(name, text)
    return data_type, read_text(name, data_type, text)


def check_data_type(name: str, data_type: str | None) -> str:
    if data_type in _PLAIN_TYPES:
        return data_type
    if not data_type:
        raise invalid(f"The message attribute '{name}' must contain non-empty message attribute type.")
    if len(data_type) > ATTRIBUTE_TYPE_CHARS_MAX or _DATA_TYPE.fullmatch(data_type) is None:
        raise invalid(
            f"The message attribute '{name}' has an invalid message attribute type, "
            "the set of supported type prefixes is Binary, Number, and String."
        )
    check_text(data_type)
    return data_type


def read_binary(name: str, text: str) -> bytes:
    """Returns the value of a Binary attribute, which JSON holds as base64."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError("SerializationException", f"The value of '{name}' is not base64.") from None
    if not raw:
        raise _empty_value(name, "Binary")
    return raw


def read_text(name: str, data_type: str, text: str) -> bytes:
    """Returns the value of a String or Number attribute."""
    if not text:
        raise _empty_value(name, "String")
    if FORBIDDEN.search(text) is not None:
        raise invalid(FORBIDDEN_FOUND)
    raw = text.encode()
    if data_type.startswith("Number") and not _is_number(text):
        raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return raw


def attribute_text(data_type: str, value: bytes) -> str:
    """Returns the value as JSON shows it."""
    return base64.b64encode(value).decode() if data_type.startswith("Binary") else value.decode()


def _check_name(name: str) -> None:
    if len(name) > ATTRIBUTE_NAME_CHARS_MAX:
        raise invalid(f"Message (user) attribute names must be shorter than {ATTRIBUTE_NAME_CHARS_MAX} Bytes")
    if _NAME.fullmatch(name) is None or ".." in name:
        raise invalid(
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods, "
            "hyphens and underscores."
        )
    if name[0] == "." or name[-1] == "." or name.lower().startswith(("aws.", "amazon.")):
        raise invalid(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use. Additionally, they cannot start or end with '.'."
        )


def _empty_value(name: str, kind: str) -> RequestError:
    return invalid(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")


def _is_number(value: str) -> bool:
    if _NUMBER.fullmatch(value) is None:
        return False
    return _NUMBER_MIN <= Decimal(value) <= _NUMBER_MAX
