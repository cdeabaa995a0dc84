"""Parts of checkpoints that are packed by who writes them, in a thread: the event loop copies what they are made of.

A thread that packs holds the interpreter's lock, and keeps the event loop from it for as long as one call takes. So
arrays of any length are packed in steps (`raw_array`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from storage_nodes.machines.driver_contract import Piece

_encode = msgspec.msgpack.Encoder().encode


class PackedLater:
    """A piece of a checkpoint that its writer's thread makes, of copies: its size is known only then."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        """`make` says what is to be packed."""
        self._make: Callable[[], Any] | None = make
        self._made = b""

    @property
    def nbytes(self) -> int:
        return len(bytes(self))

    def __bytes__(self) -> bytes:
        make = self._make
        if make is not None:
            self._made = _encode(make())
            self._make = None  # and with it the copies: a snapshot that is being sent keeps its pieces for long
        return self._made


PackedPieces: TypeAlias = tuple[Piece, ...]
"""A field that is in pieces: one behind the other they are what msgpack makes of it."""


def packed_array(fields: Sequence[Any]) -> list[Piece]:
    """What msgpack makes of the array, in pieces: those of its fields that are in pieces stay as they are."""
    return [array_header(len(fields)), *chain.from_iterable(map(packed_pieces, fields))]


def packed_pieces(field: Any) -> PackedPieces:
    return field if isinstance(field, tuple) else (_encode(field),)


def array_header(length: int) -> bytes:
    """What msgpack writes before the elements of an array."""
    if length < 1 << 4:
        return bytes((0x90 + length,))
    return struct.pack(">BH", 0xDC, length) if length < 1 << 16 else struct.pack(">BI", 0xDD, length)


def raw_array(length: int, steps: Iterable[list[Any]]) -> msgspec.Raw:
    """An array of so many elements, which come a few at a time, as msgpack: what packing all of it at once gives."""
    return msgspec.Raw(b"".join((array_header(length), *map(_elements, steps))))


def raw_elements(elements: list[Any]) -> msgspec.Raw:
    """What msgpack makes of them within an array, which may have more."""
    return msgspec.Raw(_elements(elements))


def _elements(elements: list[Any]) -> bytes:
    return _encode(elements)[len(array_header(len(elements))) :]
