"""What machines of every kind say to their drivers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

from storage_nodes.protocol.errors import ErrorCode


class LazyBytes(Protocol):
    """Made when they are asked for, the same each time."""

    @property
    def nbytes(self) -> int: ...
    def __bytes__(self) -> bytes: ...


Piece: TypeAlias = bytes | LazyBytes
"""Of a checkpoint."""


def piece_bytes(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


# Hashable. A machine does nothing with it but hand it back.
Token = Any


class CheckpointError(ValueError):
    """A checkpoint that this release does not read: damaged, or of another version."""


class Propose(NamedTuple):
    """Commands are staged: call `take_commands()` for the next group commit."""


class Refuse(NamedTuple):
    """Answer the request of this token with an error."""

    token: Token
    code: ErrorCode
    text: str
