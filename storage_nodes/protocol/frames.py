"""Frames: how messages are delimited on a connection. Pure functions over bytes.

    offset size field            big-endian, unsigned
       0     1  magic            0xA7
       1     1  protocol version 1
       2     1  opcode           `storage_nodes/protocol/messages/core.py`
       3     1  flags            bit 0 answer, bit 1 error (payload is an ErrorReply)
       4     4  correlation id   chosen by the asker, echoed in the answer
       8     4  payload length   bytes, at most FRAME_BYTES_MAX
      12     4  CRC-32C          of bytes 0..11 followed by the payload
      16        payload          msgpack

A frame that breaks any of this closes the connection: nothing after it can be trusted. The decoder never takes
memory from a claimed length: it only keeps what really arrived, and refuses a claim over the limit at once.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

from storage_nodes.limits import FRAME_BYTES_MAX

MAGIC = 0xA7
PROTOCOL_VERSION = 1
HEADER_BYTES = 16
FLAG_ANSWER = 1
FLAG_ERROR = 2

_HEAD = struct.Struct(">BBBBII")
_HEADER = struct.Struct(">BBBBIII")
_unpack_header = _HEADER.unpack_from
_crc_of, _extend_crc = google_crc32c.value, google_crc32c.extend
_new_tuple = tuple.__new__


class FrameError(Exception):
    """Bytes that are not a frame of this protocol. The connection must be closed."""


class Frame(NamedTuple):
    opcode: int
    flags: int
    correlation_id: int
    payload: bytes


def encode_frame(opcode: int, flags: int, correlation_id: int, payload: bytes) -> bytes:
    head = _HEAD.pack(MAGIC, PROTOCOL_VERSION, opcode, flags, correlation_id, len(payload))
    return b"%b%b%b" % (head, _extend_crc(_crc_of(head), payload).to_bytes(4, "big"), payload)


def frame_pieces(opcode: int, flags: int, correlation_id: int, payload: bytes) -> tuple[bytes, bytes]:
    """The same frame in two pieces, of which the second is `payload`: it is not copied."""
    head = _HEAD.pack(MAGIC, PROTOCOL_VERSION, opcode, flags, correlation_id, len(payload))
    crc = google_crc32c.extend(google_crc32c.value(head), payload)
    return head + crc.to_bytes(4, "big"), payload


class FrameDecoder:
    """Turns the bytes of one connection into frames."""

    __slots__ = ("_bytes_max", "_chunks", "_need_bytes", "pending_bytes")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        # What arrived of a frame that is not whole yet, unjoined: a large frame is copied once, not once per chunk.
        self._chunks: list[bytes] = []
        self.pending_bytes = 0
        self._need_bytes = HEADER_BYTES

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are whole now. Raises FrameError; the decoder is then of no further use."""
        have = self.pending_bytes + len(data)
        if have < self._need_bytes:
            self._chunks.append(data)
            self.pending_bytes = have
            return []
        if self._chunks:
            chunks, self._chunks = self._chunks, []
            if self._need_bytes > HEADER_BYTES:
                return self._end_frame(chunks, data, have - self._need_bytes)
            chunks.append(data)
            data = b"".join(chunks)
        return self._cut(data)

    def _end_frame(self, chunks: list[bytes], data: bytes, beyond_bytes: int) -> list[Frame]:
        """A frame is whole whose head was read before: its payload is put together out of its pieces, copied once."""
        _, _, opcode, flags, correlation_id, _, crc = _HEADER.unpack_from(chunks[0])
        head = chunks[0][:12]
        own = len(data) - beyond_bytes
        pieces = [memoryview(chunks[0])[HEADER_BYTES:], *chunks[1:], memoryview(data)[:own]]
        payload = b"".join(pieces)
        if google_crc32c.extend(google_crc32c.value(head), payload) != crc:
            raise FrameError("checksum does not match")
        frame = Frame(opcode, flags, correlation_id, payload)
        if beyond_bytes:
            return [frame, *self._cut(data[own:])]
        self.pending_bytes = 0
        self._need_bytes = HEADER_BYTES
        return [frame]

    def _cut(self, buffer: bytes) -> list[Frame]:
        frames: list[Frame] = []
        need = HEADER_BYTES
        at = 0
        size = len(buffer)
        bytes_max = self._bytes_max
        while size - at >= HEADER_BYTES:
            magic, version, opcode, flags, correlation_id, length, crc = _unpack_header(buffer, at)
            if magic != MAGIC or version != PROTOCOL_VERSION or length > bytes_max:
                raise _refusal(magic, version, length, bytes_max)
            body_at = at + HEADER_BYTES
            end = body_at + length
            if end > size:
                need = HEADER_BYTES + length
                break
            payload = buffer[body_at:end]
            if _extend_crc(_crc_of(buffer[at : at + 12]), payload) != crc:
                raise FrameError("checksum does not match")
            # What `Frame(...)` does, without a step of our own.
            frames.append(_new_tuple(Frame, (opcode, flags, correlation_id, payload)))
            at = end
        if at < size:
            self._chunks.append(buffer[at:] if at else buffer)
        self.pending_bytes = size - at
        self._need_bytes = need
        return frames


def _refusal(magic: int, version: int, length: int, bytes_max: int) -> FrameError:
    """Why a head is none."""
    if magic != MAGIC:
        return FrameError(f"first byte {magic:#04x} is not a frame's")
    if version != PROTOCOL_VERSION:
        return FrameError(f"protocol version {version} is not spoken here, {PROTOCOL_VERSION} is")
    return FrameError(f"claims {length} bytes, at most {bytes_max} are taken")
