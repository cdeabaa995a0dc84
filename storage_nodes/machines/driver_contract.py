"""What machines of every kind say to their drivers."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, TypeAlias

from storage_nodes.protocol.errors import ErrorCode

Buffer: TypeAlias = "bytes | array[int]"
"""A piece of a checkpoint."""

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
