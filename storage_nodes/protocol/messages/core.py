"""Opcodes, the base of all messages, and the messages of every connection."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeVar

import msgspec

from storage_nodes.protocol.levels import LEVEL_FIRST


class Opcode(enum.IntEnum):
    HELLO = 1
    CANCEL = 2
    PING = 3  # is the node there? The connection itself answers, whatever else waits; both payloads are `Empty`
    SEND = 10
    ACQUIRE = 11
    DELETE = 12
    CHANGE_VISIBILITY = 13
    PURGE = 14
    QUEUE_STATS = 15
    CONFIGURE = 16
    QUEUE_BROWSE = 17
    QUEUE_REMOVE = 19
    STREAM_APPEND = 20
    STREAM_READ = 21
    GROUP_JOIN = 22
    GROUP_HEARTBEAT = 23
    GROUP_LEAVE = 24
    GROUP_FENCE = 25
    GROUP_READ = 26
    GROUP_COMMIT = 27
    GROUP_COMMITTED = 28
    GROUP_DELETE = 29
    CREATE_PARTITION = 30
    DELETE_PARTITION = 31
    DESCRIBE_CLUSTER = 32
    MOVE_REPLICA = 33
    CANCEL_MOVE = 34
    REGISTER_NODE = 35
    SET_NODE_STATE = 36
    PEER_HELLO = 40
    RAFT = 41
    HEARTBEAT = 42
    MANAGE = 43
    SCRUB = 50
    CLOSE_USAGE = 51
    # 60..79 belong to the metadata service (frontend/metadata), which speaks the same frames.
    PARKED_GROUPS = 80
    UNPARK = 81
    SCHEDULED = 82
    RESCHEDULE = 83
    RETIRE = 84


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all messages."""


class ErrorReply(Message, frozen=True):
    code: int
    message: str = ""
    leader: int = 0
    # A refusal for want of room: when the node expects to have some again; 0 = nothing is known.
    retry_after_ms: int = 0


class Hello(Message, frozen=True):
    """First frame of a client connection; the answer is a Hello too. A wrong cluster id is refused, and
    so is one whose feature levels, the lowest and the highest it speaks, do not meet the node's."""

    cluster_id: str
    name: str
    node_id: int = 0
    levels: tuple[int, int] = (LEVEL_FIRST, LEVEL_FIRST)


class Cancel(Message, frozen=True):
    """Give up a parked ACQUIRE, STREAM_READ or GROUP_READ; it is answered with CANCELLED if it was still parked. Or a
    send that waits for all voters: its wait ends with OUTCOME_UNKNOWN, what it sent stays in the log."""

    correlation_id: int


class Empty(Message, frozen=True):
    pass


_encoder = msgspec.msgpack.Encoder()
encode_message = _encoder.encode

T = TypeVar("T")
# What a decoder raises for bytes that are no such message: text may be no UTF-8, and arrays may be nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def message_reader(kind: type[T]) -> Callable[[bytes], T]:
    """Reads messages that came over a network. What it returns raises msgspec.DecodeError, and nothing else: an error
    that a connection does not expect ends the process of a storage node."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(payload: bytes) -> T:
        try:
            return decode(payload)
        except UNREADABLE as error:
            raise msgspec.DecodeError(str(error)) from None

    return read
