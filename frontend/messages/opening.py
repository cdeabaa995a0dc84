"""A stored record made readable: decoded, its key found, its envelope opened.

A dead letter stays as it was sealed, under a data key of the queue it was sent to. The dead-letter queue has grants
of its keys (`key_grants` of the record), and they stay there when it is deleted. Versions of data keys are unique in an
installation (but for the first ones ever made), so the version in the envelope names the queue too. The version of a
customer's encryption key stands beside it, where one was used: it opens until that key is gone.

Surface: other planes may import this module.
"""

from __future__ import annotations

import contextlib

import msgspec

from frontend.crypto.envelope import Content, EnvelopeError, KeyNames, Opened, key_names, open_envelope, open_named
from frontend.crypto.message_ids import MessageIds
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.messages import DeadSource, DeathReason
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_GROUP,
    HEADER_RELEASED,
    LENGTHS,
    LENGTHS_MAX,
    RecordError,
    decode_body,
    origin_offset,
)
from storage_nodes.protocol.usage import Origin, size_field, usage_key

_NOWHERE = -1
# How a record begins that has a usage key, and what it has besides its value where that has a length of two bytes and
# no headers follow.
_KEY_BYTES = len(usage_key(Origin.CLIENT, 0))
_KEY_LENGTH = LENGTHS[_KEY_BYTES][0]
_KEY_END = 1 + _KEY_BYTES
_VALUE_AT = _KEY_END + 2
_AROUND_BYTES = _VALUE_AT + 1

_decode_source = msgspec.msgpack.Decoder(DeadSource).decode


class OpenedRecord(msgspec.Struct, frozen=True, gc=False):
    """`granted_by` is the queue whose key opened it, None where it was the queue's own."""

    opened: Opened
    group: str | None
    dead: DeadSource | None
    granted_by: str | None
    # Where a message lay that was scheduled and became due; None for others.
    origin: int | None = None


class KeyNotGranted(EnvelopeError):
    """A message that no key opens which this view of the queue knows: a newer one may. `names` of its key."""

    def __init__(self, names: KeyNames) -> None:
        super().__init__("no known key opens this message: it is gone, or newer than it is known here")
        self.names = names


def open_record(queue: ResolvedQueue, body: bytes) -> OpenedRecord:
    """Raises EnvelopeError (KeyUnusable of an encryption key that may not be used now), RecordError."""
    plain = _plain_parts(body)
    if plain is not None:
        key, value = plain
        return OpenedRecord(_open_own(queue, value, size_field(key)), None, None, None)
    decoded = decode_body(body)
    if not decoded.headers:
        return OpenedRecord(_open_own(queue, decoded.value, size_field(decoded.key)), None, None, None)
    headers = dict(decoded.headers)
    raw_group = headers.get(HEADER_GROUP)
    try:
        group = None if raw_group is None else raw_group.decode("ascii")
    except UnicodeDecodeError:
        raise RecordError("a group id that is not ASCII") from None
    raw_source = headers.get(HEADER_DEAD_SOURCE)
    if raw_source is None:
        origin = origin_offset(decoded.headers, _NOWHERE) if HEADER_RELEASED in headers else None
        return OpenedRecord(_open_own(queue, decoded.value, size_field(decoded.key)), group, None, None, origin)
    opened, granted_by = _open_dead(queue, decoded.value, size_field(decoded.key))
    try:
        return OpenedRecord(opened, group, _decode_source(raw_source), granted_by)
    except msgspec.DecodeError:
        raise RecordError("the source of a dead letter does not parse") from None


def death_json(death: DeadSource) -> dict[str, object]:
    """Why a message became a dead letter, as REST and push show it, and SQS to those who ask for it by name.

    Times are ms since the epoch; it died when its last lease ended.
    """
    try:
        reason = DeathReason(death.reason).name.lower()
    except ValueError:  # a node of a later version moved it
        reason = "other"
    answer: dict[str, object] = {
        "reason": reason,
        "receives": death.receives,
        "max_receives": death.receives_max,
        "first_received_ms": death.first_received_ms,
        "died_ms": death.died_ms,
    }
    if death.note:
        answer["note"] = death.note
    return answer


def message_id_of(ids: MessageIds, queue: ResolvedQueue, partition: int, offset: int, record: OpenedRecord) -> str:
    """The id that a message is known by: the envelope's, or one made from where it was sent to."""
    content = record.opened.content
    if content.history is not None and content.history.keeps_id:
        return content.history.message_id
    if queue.fifo is None and not content.dedup_id:
        return record.opened.message_id
    dead = record.dead
    if dead is not None:
        return ids.of(dead.partition, dead.offset)
    return ids.of(partition, offset if record.origin is None else record.origin)


def dedup_id_of(content: Content, message_id: str, is_fifo: bool, death: DeadSource | None) -> str:
    """The deduplication id that a message is shown with, "" for none. Of a dead letter in a FIFO queue it is the
    message id, as in SQS, and not what its sender gave."""
    return message_id if is_fifo and death is not None else content.dedup_id


def _plain_parts(body: bytes) -> tuple[bytes, bytes] | None:
    """(key, value) of a record with a usage key and without headers, as nearly all are; None of any other. A short cut
    to what `decode_body` says."""
    value_bytes = len(body) - _AROUND_BYTES
    if not 0 < value_bytes < LENGTHS_MAX or body[0] != _KEY_LENGTH or body[-1]:
        return None
    if body[_KEY_END:_VALUE_AT] != LENGTHS[value_bytes]:
        return None
    return body[1:_KEY_END], body[_VALUE_AT:-1]


def _open_own(queue: ResolvedQueue, envelope: bytes, size: bytes) -> Opened:
    names = key_names(envelope)
    key = queue.opening_key(names)
    if key is None:
        raise _without_key(queue, names)
    opened = open_named(key, names, envelope, size)
    return _opened(queue, names, opened) if queue.encryption is not None else opened


def _open_dead(queue: ResolvedQueue, envelope: bytes, size: bytes) -> tuple[Opened, str | None]:
    names = key_names(envelope)
    for granted in queue.key_grants(names):
        with contextlib.suppress(EnvelopeError):
            return _opened(queue, names, open_envelope(granted.key, envelope, size)), granted.owner_name
    # Back where it was sent: two queues may be each other's dead-letter queue.
    own = queue.opening_key(names)
    if own is not None:
        with contextlib.suppress(EnvelopeError):
            return _opened(queue, names, open_envelope(own, envelope, size)), None
    raise _without_key(queue, names)


def _without_key(queue: ResolvedQueue, names: KeyNames) -> EnvelopeError:
    return EnvelopeError("its key is gone") if queue.is_lost_key(names) else KeyNotGranted(names)


def _opened(queue: ResolvedQueue, names: KeyNames, opened: Opened) -> Opened:
    if names.encryption_version and queue.encryption is not None:
        queue.encryption.note(names, opened=1)
    return opened
