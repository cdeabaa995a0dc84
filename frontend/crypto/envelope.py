"""The envelope of a message: what a storage node holds of it. Big-endian, unsigned.

Layout 1, under the data key of a queue itself:

    offset size
       0     1  layout version, 1
       1    16  message id (a random UUID)
      17     4  data key version
      21     1  length n of the sender
      22     n  sender, ASCII: access key id; of another account than the queue's: its account id
    22+n    12  nonce, random
    34+n        AES-256-GCM ciphertext and 16-byte tag of the content

Layout 2, under a key that is derived from the data key and an encryption key of the customer (`derived_key` in
keyring.py), begins so, and goes on with the length of the sender as layout 1 does:

       0     1  layout version, 2
       1    16  message id
      17     4  data key version
      21     4  version of the encryption key; no two keys of an installation have the same
      25     4  when the period began that the key is derived for, seconds since 1970
      29     1  length n of the sender

The content is msgpack: [body, attributes, trace header, deduplication id, history]. Associated data: account id, queue
uuid, all of the envelope before the nonce, that is message id, key versions and sender, and the billed size as the
record key has it (storage_nodes/protocol/usage.py), where it has one. So nothing can be moved to another message, queue
or account, nor claim another sender, size or key.

Surface: other planes may import this module.
"""

from __future__ import annotations

import os
import struct
from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LAYOUT = 1
DERIVED_LAYOUT = 2
NONCE_BYTES = 12
MESSAGE_ID_BYTES = 16
SENDER_CHARS_MAX = 255
# What the two layouts have behind the message id, up to the length of the sender.
_NAMES = struct.Struct(">IB")
_DERIVED_NAMES = struct.Struct(">IIIB")
_START, _DERIVED_START = bytes((LAYOUT,)), bytes((DERIVED_LAYOUT,))
_NAMES_AT = 1 + MESSAGE_ID_BYTES
_HEAD_BYTES = _NAMES_AT + _NAMES.size
_DERIVED_HEAD_BYTES = _NAMES_AT + _DERIVED_NAMES.size
_RANDOM_BYTES = MESSAGE_ID_BYTES + NONCE_BYTES

# The bits that are random in a UUID of version 4, and those that are set.
_UUID_RANDOM = bytes.fromhex("ffffffffffff0fff3fffffffffffffff")
_UUID_SET = bytes.fromhex("00000000000040008000000000000000")
_UUID_MASKS_KEPT_MAX = 64
_KEY_NAMES_KEPT_MAX = 4_096
# The hex digits of an id, in its five parts.
_ID_PARTS = struct.Struct("8s4s4s4s12s")

assert _HEAD_BYTES == 22 and _DERIVED_HEAD_BYTES == 30

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


class KeyNames(NamedTuple):
    """Which key opens an envelope. In layout 1, without a key of the customer, the last two are 0."""

    version: int
    encryption_version: int = 0
    since_s: int = 0


class DataKey(NamedTuple):
    """A key that is ready for use, and its names. `owner` is the constant part of the associated data."""

    version: int
    cipher: AESGCM
    owner: bytes
    encryption_version: int = 0
    since_s: int = 0


class Opened(msgspec.Struct, frozen=True, gc=False):
    message_id: str
    sender: str
    content: Content


class EnvelopeError(Exception):
    """Bytes that this key, queue and account did not seal, or that were changed. Says nothing about which."""


_encode_content = msgspec.msgpack.Encoder().encode
_decode_content = msgspec.msgpack.Decoder(Content).decode


def data_key(version: int, key: bytes, account_id: str, queue_uuid: bytes) -> DataKey:
    return DataKey(version, AESGCM(key), account_id.encode() + b"/" + queue_uuid)


def derived_data_key(names: KeyNames, key: bytes, account_id: str, queue_uuid: bytes) -> DataKey:
    """`key` is what `derived_key` made for these names."""
    assert names.encryption_version > 0
    version, encryption_version, since_s = names
    return DataKey(version, AESGCM(key), account_id.encode() + b"/" + queue_uuid, encryption_version, since_s)


def seal(key: DataKey, sender: bytes, content: Content, size: bytes = b"") -> tuple[str, bytes]:
    """(message id, envelope) of a new message. `size` is what its record key says of its billed size."""
    (message_id,), (envelope,) = seal_all(key, sender, ((content, size),))
    return message_id, envelope


def seal_all(key: DataKey, sender: bytes, messages: Sequence[tuple[Content, bytes]]) -> tuple[list[str], list[bytes]]:
    """The ids of several, each with its size, and their envelopes. What is random of all of them is asked for at
    once."""
    count = len(messages)
    random = os.urandom(_RANDOM_BYTES * count)
    ids = as_uuids(random[NONCE_BYTES * count :])
    digits = hexlify(ids)
    if count == 1:
        texts = [(b"%b-%b-%b-%b-%b" % _ID_PARTS.unpack(digits)).decode()]
    else:
        texts = [(b"%b-%b-%b-%b-%b" % parts).decode() for parts in _ID_PARTS.iter_unpack(digits)]
    return texts, _seal(key, ids, sender, messages, random)


def seal_as(key: DataKey, message_id: bytes, sender: bytes, content: Content, size: bytes = b"") -> bytes:
    """The envelope of a message whose id is decided by who calls. The nonce is random all the same."""
    assert len(message_id) == MESSAGE_ID_BYTES
    return _seal(key, message_id, sender, ((content, size),), os.urandom(NONCE_BYTES))[0]


def as_uuids(raw: bytes) -> bytes:
    """Random bytes, sixteen for each, with the bits that make them UUIDs of version 4."""
    random_bits, set_bits = _uuid_masks(len(raw) // MESSAGE_ID_BYTES)
    return (int.from_bytes(raw, "big") & random_bits | set_bits).to_bytes(len(raw), "big")


def key_names(envelope: bytes) -> KeyNames:
    """Which key opens this. Raises EnvelopeError."""
    if len(envelope) >= _HEAD_BYTES and envelope[0] == LAYOUT:
        return _plain_names(envelope[17:21])
    if len(envelope) >= _DERIVED_HEAD_BYTES and envelope[0] == DERIVED_LAYOUT:
        return KeyNames(*_DERIVED_NAMES.unpack_from(envelope, _NAMES_AT)[:3])
    raise EnvelopeError("not an envelope of a known layout")


def open_envelope(key: DataKey, envelope: bytes, size: bytes = b"") -> Opened:
    """Raises EnvelopeError. `key` is the one `key_names` names, `size` as in `seal`."""
    return open_named(key, key_names(envelope), envelope, size)


def open_named(key: DataKey, names: KeyNames, envelope: bytes, size: bytes) -> Opened:
    """The same of an envelope whose `key_names` are at hand."""
    version, cipher, owner, encryption_version, since_s = key
    if names != (version, encryption_version, since_s):
        raise EnvelopeError("an envelope does not open")
    fixed_bytes = _HEAD_BYTES if envelope[0] == LAYOUT else _DERIVED_HEAD_BYTES
    head_end = fixed_bytes + envelope[fixed_bytes - 1]
    nonce_end = head_end + NONCE_BYTES
    associated = b"%b%b%b" % (owner, envelope[:head_end], size)
    try:
        content = _decode_content(cipher.decrypt(envelope[head_end:nonce_end], envelope[nonce_end:], associated))
    except (InvalidTag, ValueError):
        raise EnvelopeError("an envelope does not open") from None
    return Opened(format_message_id(envelope[1:17]), envelope[fixed_bytes:head_end].decode("ascii"), content)


def _seal(
    key: DataKey, ids: bytes, sender: bytes, messages: Sequence[tuple[Content, bytes]], nonces: bytes
) -> list[bytes]:
    """The envelopes of messages with these ids. Of the nonces each takes one, from the beginning."""
    version, cipher, owner, encryption_version, since_s = key
    if encryption_version:
        start, end = _DERIVED_START, _DERIVED_NAMES.pack(version, encryption_version, since_s, len(sender)) + sender
    else:
        start, end = _START, _NAMES.pack(version, len(sender)) + sender
    encrypt = cipher.encrypt
    envelopes = []
    id_at = nonce_at = 0
    for content, size in messages:
        head = b"%b%b%b" % (start, ids[id_at : id_at + MESSAGE_ID_BYTES], end)
        nonce = nonces[nonce_at : nonce_at + NONCE_BYTES]
        sealed = encrypt(nonce, _encode_content(content), b"%b%b%b" % (owner, head, size))
        envelopes.append(b"%b%b%b" % (head, nonce, sealed))
        id_at += MESSAGE_ID_BYTES
        nonce_at += NONCE_BYTES
    return envelopes


def format_message_id(raw: bytes) -> str:
    return (b"%b-%b-%b-%b-%b" % _ID_PARTS.unpack(hexlify(raw))).decode()


@lru_cache(_KEY_NAMES_KEPT_MAX)
def _plain_names(version: bytes) -> KeyNames:
    return KeyNames(int.from_bytes(version, "big"))


@lru_cache(_UUID_MASKS_KEPT_MAX)
def _uuid_masks(count: int) -> tuple[int, int]:
    """(bits that stay as they are, bits that are set) of so many UUIDs side by side."""
    return int.from_bytes(_UUID_RANDOM * count, "big"), int.from_bytes(_UUID_SET * count, "big")
