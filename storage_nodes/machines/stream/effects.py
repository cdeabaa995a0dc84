"""What the stream machine wants done, and what travels with it."""

from __future__ import annotations

from typing import NamedTuple

from storage_nodes.machines.driver_contract import Propose, Refuse, Token
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import Message


class ReadNow(NamedTuple):
    """Read the log from `offset` up to the high watermark and answer (with nothing, if the wait ran out)."""

    token: Token
    offset: int


class StreamAnswer(NamedTuple):
    token: Token
    reply: Message


class Fence(NamedTuple):
    """Write into the log of `partition` that only this grant may commit there from now on; then call `fenced`."""

    group: bytes
    partition: int
    generation: int
    epoch: int


class Evict(NamedTuple):
    """The partition has another owner in this group: reads that wait with an earlier grant are refused (FENCED)."""

    group: bytes


Effect = ReadNow | StreamAnswer | Refuse | Propose | Fence | Evict


def not_leader(token: Token) -> Refuse:
    return Refuse(token, ErrorCode.NOT_LEADER, "this node does not lead the partition")
