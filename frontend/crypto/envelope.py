"""The envelope of a message: what a storage node holds of it. Big-endian, unsigned.

    offset size
       0     1  layout version, 1
       1    16  message id (a random UUID)
      17     4  data key version
      21     1  length n of the sender
      22     n  sender: access key id, ASCII
    22+n    12  nonce, random
    34+n        AES-256-GCM ciphertext and 16-byte tag of the content

The content is msgpack: [body, attributes, trace header, deduplication id, history]. Associated data: account id, queue
uuid, the envelope's first 22+n bytes, that is message id, key version and sender, and the billed size as the record
key has it (storage_nodes/protocol/usage.py), where it has one. So nothing can be moved to another message, queue or
account, nor claim another sender or size.

Surface: other planes may import this module.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LAYOUT = 1
NONCE_BYTES = 12
MESSAGE_ID_BYTES = 16
SENDER_CHARS_MAX = 255
_HEAD = struct.Struct(">B16sIB")
_HEAD_BYTES = _HEAD.size
_RANDOM_BYTES = MESSAGE_ID_BYTES + NONCE_BYTES

_UUID_MASK = ~(0xF << 76 | 0x3 << 62)
_UUID_VERSION_4 = 0x4 << 76 | 0x2 << 62

assert _HEAD_BYTES == 22

# name -> (data type, value); texts and numbers as UTF-8
Attributes = dict[str, tuple[str, bytes]]


class History(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The life of a message before somebody moved it or sent it anew: what it was when it was sent first.

    queue      that it was sent to
    receives   before this life, all together
    moves      how often it was moved or sent anew
    task       the move task that did it last
    keeps_id   it is still known by `message_id`
    """

    message_id: str
    sent_ms: int
    receives: int
    queue: str
    moves: int = 1
    task: str = ""
    keeps_id: bool = False


class Content(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is encrypted."""

    body: str
    attributes: Attributes = {}
    trace_header: str = ""
    dedup_id: str = ""
    history: History | None = None


def billed_bytes(content: Content) -> int:
    """What limits and bills count of a message: its body, and names, types and values of its attributes."""
    attributes = content.attributes.items()
    return len(content.body.encode()) + sum(
        len(name.encode()) + len(kind.encode()) + len(value) for name, (kind, value) in attributes
    )


class DataKey(NamedTuple):
    """One version of a queue's data key, ready for use. `owner` is the constant part of the associated data."""

    version: int
    cipher: AESGCM
    owner: bytes


class Opened(NamedTuple):
    message_id: str
    sender: str
    content: Content


class EnvelopeError(Exception):
    """Bytes that this key, queue and account did not seal, or that were changed. Says nothing about which."""


_encode_content = msgspec.msgpack.Encoder().encode
_decode_content = msgspec.msgpack.Decoder(Content).decode


def data_key(version: int, key: bytes, account_id: str, queue_uuid: bytes) -> DataKey:
    return DataKey(version, AESGCM(key), account_id.encode() + b"/" + queue_uuid)


def seal(key: DataKey, sender: bytes, content: Content, size: bytes = b"") -> tuple[str, bytes]:
    """(message id, envelope) of a new message. `size` is what its record key says of its billed size."""
    return seal_all(key, sender, ((content, size),))[0]


def seal_all(key: DataKey, sender: bytes, messages: Sequence[tuple[Content, bytes]]) -> list[tuple[str, bytes]]:
    """The same of several, each with its size. What is random of all of them is asked for at once."""
    random = os.urandom(_RANDOM_BYTES * len(messages))
    sealed = []
    at = 0
    for content, size in messages:
        nonce_at = at + MESSAGE_ID_BYTES
        message_id = as_uuid(random[at:nonce_at])
        at = nonce_at + NONCE_BYTES
        envelope = _seal(key, message_id, sender, content, size, random[nonce_at:at])
        sealed.append((format_message_id(message_id), envelope))
    return sealed


def seal_as(key: DataKey, message_id: bytes, sender: bytes, content: Content, size: bytes = b"") -> bytes:
    """The envelope of a message whose id is decided by who calls. The nonce is random all the same."""
    assert len(message_id) == MESSAGE_ID_BYTES
    return _seal(key, message_id, sender, content, size, os.urandom(NONCE_BYTES))


def as_uuid(raw: bytes) -> bytes:
    """Sixteen random bytes with the bits that make them a UUID of version 4."""
    number = int.from_bytes(raw, "big") & _UUID_MASK | _UUID_VERSION_4
    return number.to_bytes(MESSAGE_ID_BYTES, "big")


def key_version(envelope: bytes) -> int:
    """Which data key opens this. Raises EnvelopeError."""
    if len(envelope) < _HEAD_BYTES or envelope[0] != LAYOUT:
        raise EnvelopeError("not an envelope of a known layout")
    return int.from_bytes(envelope[17:21], "big")


def open_envelope(key: DataKey, envelope: bytes, size: bytes = b"") -> Opened:
    """Raises EnvelopeError. `key` is the one `key_version` names, `size` as in `seal`."""
    if len(envelope) < _HEAD_BYTES:
        raise EnvelopeError("not an envelope of a known layout")
    layout, message_id, version, sender_chars = _HEAD.unpack_from(envelope)
    if layout != LAYOUT or version != key.version:
        raise EnvelopeError("an envelope does not open")
    head_end = _HEAD_BYTES + sender_chars
    nonce_end = head_end + NONCE_BYTES
    head = envelope[:head_end]
    try:
        plain = key.cipher.decrypt(envelope[head_end:nonce_end], envelope[nonce_end:], key.owner + head + size)
        content = _decode_content(plain)
    except (InvalidTag, ValueError):
        raise EnvelopeError("an envelope does not open") from None
    return Opened(format_message_id(message_id), head[_HEAD_BYTES:].decode("ascii"), content)


def _seal(key: DataKey, message_id: bytes, sender: bytes, content: Content, size: bytes, nonce: bytes) -> bytes:
    head = _HEAD.pack(LAYOUT, message_id, key.version, len(sender)) + sender
    return b"%b%b%b" % (head, nonce, key.cipher.encrypt(nonce, _encode_content(content), key.owner + head + size))


def format_message_id(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
