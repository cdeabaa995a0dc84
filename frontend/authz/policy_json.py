"""JSON text of a policy, strictly. Pure.

`json.loads` keeps the last of two members of one name, and reads NaN and numbers of any length. Here an object
remembers that a name came twice, so that its reader can refuse it with its path, and a number stays the text it was.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from frontend.authz.policy_error import PolicyError, PolicyProblem
from frontend.authz.policy_limits import POLICY_DEPTH_MAX, POLICY_TEXT_BYTES_MAX

ROOT = "$"
_CONTROL_ALLOWED = "\t\n\r"


class JsonNumber(NamedTuple):
    text: str


class JsonObject(dict[str, Any]):
    """`repeated` is a name that came twice, if any did."""

    repeated: str | None = None


def parse_json(text: str) -> Any:
    """Raises PolicyError."""
    if not isinstance(text, str):
        raise PolicyError(ROOT, "a policy is a text")
    try:
        bytes_count = len(text.encode())
    except UnicodeEncodeError:
        raise PolicyError(ROOT, "the text is not Unicode: it holds half of a surrogate pair") from None
    if bytes_count > POLICY_TEXT_BYTES_MAX:
        said = f"the text has {bytes_count} bytes; at most {POLICY_TEXT_BYTES_MAX} are read"
        raise PolicyError(ROOT, said, PolicyProblem.TOO_LARGE)
    _check_depth(text)
    try:
        return json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_int=JsonNumber,
            parse_float=JsonNumber,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise PolicyError(ROOT, f"not JSON: {error.msg} at character {error.pos}") from None


def check_text(path: str, text: str, last_character: str = "\U0010ffff") -> None:
    """Refuses control characters, halves of surrogate pairs, and what is beyond `last_character`."""
    for character in text:
        if (character < " " and character not in _CONTROL_ALLOWED) or character == "\x7f":
            raise PolicyError(path, f"holds the control character U+{ord(character):04X}; only tab, LF, CR are allowed")
        if "\ud800" <= character <= "\udfff":
            raise PolicyError(path, f"holds U+{ord(character):04X}, half of a surrogate pair")
        if character > last_character:
            raise PolicyError(path, f"holds U+{ord(character):04X}; allowed are characters up to {last_character!a}")


def member_path(path: str, name: str) -> str:
    if name.isascii() and name.isalnum():
        return f"{path}.{name}"
    return f"{path}[{json.dumps(name)}]"


def _read_object(pairs: list[tuple[str, Any]]) -> JsonObject:
    read = JsonObject()
    for name, value in pairs:
        if name in read:
            read.repeated = name
        read[name] = value
    return read


def _refuse_constant(name: str) -> Any:
    raise PolicyError(ROOT, f"not JSON: {name} is no number of JSON")


def _check_depth(text: str) -> None:
    """Before the parser descends: its own bound is the interpreter's stack."""
    depth = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            if depth > POLICY_DEPTH_MAX:
                raise PolicyError(ROOT, f"objects and lists lie more than {POLICY_DEPTH_MAX} deep")
        elif character in "}]":
            depth -= 1
