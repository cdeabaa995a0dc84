"""msgpack that is what it claims to be. Pure.

Typed decoders make room for as many elements as an array claims to have, and keep the last of two members. So this
walks over the bytes first: no container claims more elements than bytes are left, none is deeper than
MSGPACK_DEPTH_MAX, the names of a map are texts and each stands there once, and nothing follows the value. The values
themselves are for the decoder.
"""

from __future__ import annotations

from frontend.limits import MSGPACK_DEPTH_MAX, MSGPACK_VALUES_MAX
from frontend.strict_json import RepeatedMember

_FIXMAP, _FIXARRAY, _FIXSTR, _NIL, _NEGATIVE = 0x80, 0x90, 0xA0, 0xC0, 0xE0
# First byte -> bytes of the value behind it: nil, booleans, floats, integers, extensions of fixed sizes.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
# First byte -> bytes of the length behind it.
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, **_TEXTS}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


class MsgpackRefused(Exception):
    """Bytes that are no msgpack, or more than is taken. The text is for who sent them."""


class _Container:
    """An array, or a map: how many values are to come, and the names that a map had."""

    __slots__ = ("left", "names")

    def __init__(self, left: int, names: set[bytes] | None) -> None:
        self.left = left
        self.names = names


def check_msgpack(raw: bytes) -> None:
    """Takes one value. Raises MsgpackRefused, RepeatedMember."""
    end = len(raw)
    at = values = 0
    inner = _Container(1, None)
    outer: list[_Container] = []
    while True:
        while not inner.left:
            if not outer:
                if at != end:
                    raise MsgpackRefused("bytes follow the value" if at < end else "the value is cut")
                return
            inner = outer.pop()
        if at >= end:
            raise MsgpackRefused("the value is cut")
        values += 1
        if values > MSGPACK_VALUES_MAX:
            raise MsgpackRefused(f"there are more than {MSGPACK_VALUES_MAX} values")
        inner.left -= 1
        first = raw[at]
        if inner.names is not None and inner.left & 1:  # the value of this name is still to come
            at = _read_name(raw, at, first, inner.names)
        elif first < _FIXMAP or first >= _NEGATIVE:
            at += 1
        elif _FIXSTR <= first < _NIL:
            at += 1 + (first & 31)
        else:
            made, at = _read_value(raw, at, first)
            if made is not None:
                if made.left > end - at:
                    raise MsgpackRefused("a container claims more than there is")
                if len(outer) >= MSGPACK_DEPTH_MAX:
                    raise MsgpackRefused(f"it is deeper than {MSGPACK_DEPTH_MAX}")
                outer.append(inner)
                inner = made


def _read_name(raw: bytes, at: int, first: int, names: set[bytes]) -> int:
    """Returns where the value begins."""
    if _FIXSTR <= first < _NIL:
        begin, size_bytes = at + 1, first & 31
    elif first in _TEXTS:
        begin, size_bytes = _read_size(raw, at, _TEXTS[first])
    else:
        raise MsgpackRefused("the name of a member is not a text")
    name = raw[begin : begin + size_bytes]
    if len(name) < size_bytes:  # what is left of it may be another member's name
        raise MsgpackRefused("the value is cut")
    if name in names:
        raise RepeatedMember(name.decode(errors="replace"))
    names.add(name)
    return begin + size_bytes


def _read_value(raw: bytes, at: int, first: int) -> tuple[_Container | None, int]:
    """Returns the container that begins here, and where its content begins; or None, and where the value ends."""
    if first < _FIXARRAY:
        return _Container(2 * (first & 15), set()), at + 1
    if first < _FIXSTR:
        return _Container(first & 15, None), at + 1
    if first in _FIXED:
        return None, at + 1 + _FIXED[first]
    if first in _SIZED:
        begin, size_bytes = _read_size(raw, at, _SIZED[first])
        return None, begin + size_bytes
    if first in _ARRAYS:
        begin, count = _read_size(raw, at, _ARRAYS[first])
        return _Container(count, None), begin
    if first in _MAPS:
        begin, count = _read_size(raw, at, _MAPS[first])
        return _Container(2 * count, set()), begin
    if first in _EXTENSIONS:
        begin, size_bytes = _read_size(raw, at, _EXTENSIONS[first])
        return None, begin + 1 + size_bytes
    raise MsgpackRefused("a byte begins no value")


def _read_size(raw: bytes, at: int, size_bytes: int) -> tuple[int, int]:
    """Returns where the content begins, and its length."""
    begin = at + 1 + size_bytes
    return begin, int.from_bytes(raw[at + 1 : begin], "big")
