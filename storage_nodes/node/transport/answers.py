"""Frames in which a node says no."""

from __future__ import annotations

from storage_nodes.limits import OVERLOADED_RETRY_MS
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Opcode, encode_message
from storage_nodes.protocol.peer_messages import PeerRefusal


def peer_refusal(refusal: PeerRefusal) -> bytes:
    return encode_frame(Opcode.PEER_HELLO, FLAG_ANSWER | FLAG_ERROR, 0, encode_message(refusal))


def error_frame(opcode: int, request_id: int, error: StorageError) -> bytes:
    """OVERLOADED always says when to come again, also where the code that refused set no time."""
    retry_after_ms = error.retry_after_ms
    if error.code == ErrorCode.OVERLOADED:
        retry_after_ms = retry_after_ms or OVERLOADED_RETRY_MS
    payload = encode_message(ErrorReply(error.code, error.message, error.leader, retry_after_ms))
    return encode_frame(opcode, FLAG_ANSWER | FLAG_ERROR, request_id, payload)
