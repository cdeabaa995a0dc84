"""Text of a policy that may hold wildcards and variables, as tokens. Pure.

    arn:aws:sqs:*:*:${aws:username}-?      "arn:aws:sqs:", RUN, ":", RUN, ":", Variable, "-", ONE

A value that takes the place of a variable is plain text: a `*` in it is no wildcard. `${*}`, `${?}` and `${$}` are the
characters themselves. What begins like a variable and never ends is plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from frontend.authz.policy_error import PolicyError


class Wild(Enum):
    RUN = "*"  # any characters, also none
    ONE = "?"  # one character


class Variable(NamedTuple):
    """`default` stands where the request has no value."""

    key: str
    default: str | None


Token = str | Wild | Variable
_OPEN, _CLOSE = "${", "}"
_DEFAULT_FOLLOWS = ", '"
_ESCAPED = frozenset("*?$")
_WILD = {wild.value: wild for wild in Wild}


def parse_template(path: str, text: str, *, wildcards: bool, variables: bool) -> tuple[Token, ...]:
    """Raises PolicyError for a variable without a name or with a default that is not in quotes."""
    tokens: list[Token] = []
    position = 0
    while variables and (start := text.find(_OPEN, position)) >= 0:
        end = text.find(_CLOSE, start)
        if end < 0:
            break
        tokens += _plain(text[position:start], wildcards)
        inside = text[start + len(_OPEN) : end]
        tokens.append(inside if inside in _ESCAPED else _parse_variable(path, inside))
        position = end + len(_CLOSE)
    tokens += _plain(text[position:], wildcards)
    return merge(tokens)


def merge(tokens: Iterable[Token]) -> tuple[Token, ...]:
    """Neighbouring texts become one, empty ones go, a run after a run says nothing more."""
    merged: list[Token] = []
    for token in tokens:
        last = merged[-1] if merged else None
        if isinstance(token, str) and isinstance(last, str):
            merged[-1] = last + token
        elif token != "" and not (token is Wild.RUN and last is Wild.RUN):
            merged.append(token)
    return tuple(merged)


def variables_in(tokens: Iterable[Token]) -> list[Variable]:
    return [token for token in tokens if isinstance(token, Variable)]


def resolve(tokens: Sequence[Token], value_of: Callable[[str], str | None]) -> tuple[Token, ...] | None:
    """The tokens with values in place of variables. None if one has neither a value nor a default."""
    resolved: list[Token] = []
    for token in tokens:
        if isinstance(token, Variable):
            value = value_of(token.key)
            if value is None:
                value = token.default
            if value is None:
                return None
            resolved.append(value)
        else:
            resolved.append(token)
    return merge(resolved)


def split_at_colons(tokens: Iterable[Token], parts_max: int) -> list[tuple[Token, ...]]:
    """Splits at the first colons that are text, as `str.split` does with a bound."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if not isinstance(token, str):
            parts[-1].append(token)
            continue
        first, *others = token.split(":", parts_max - len(parts))
        parts[-1].append(first)
        parts += [[other] for other in others]
    return [merge(part) for part in parts]


def _plain(text: str, wildcards: bool) -> list[Token]:
    if not wildcards:
        return [text]
    tokens: list[Token] = []
    start = 0
    for at, character in enumerate(text):
        wild = _WILD.get(character)
        if wild is not None:
            tokens += [text[start:at], wild]
            start = at + 1
    return [*tokens, text[start:]]


def _parse_variable(path: str, inside: str) -> Variable:
    key, follows, rest = inside.partition(_DEFAULT_FOLLOWS)
    default = None
    if follows:
        if not rest.endswith("'") or "'" in rest[:-1]:
            raise PolicyError(path, f"the default of ${{{inside}}} must be written ${{key, 'default'}}")
        default = rest[:-1]
    if not key or any(character in " ,'" for character in key.partition("/")[0]):
        raise PolicyError(path, f"${{{inside}}} names no key of a request")
    return Variable(key, default)
