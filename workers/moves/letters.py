"""One message on its way from a dead-letter queue to another queue.

It is opened with the source's keys (its own, or one granted to it) and sealed with the target's: the target may
belong to nobody who could read the source. What it becomes there is a new message:

    both       a deduplication key that says where it lay: a send that is repeated after a crash is dropped by the
               target's partition, while it remembers (five minutes)
    standard   a message id made from where it lay, so that a message that had to be sent again later shows it
    FIFO       the same group; its deduplication id is the message id that it had

A task of REST makes a copy that keeps its id and its history (`copy_of`), in both kinds of queues.
"""

from __future__ import annotations

import struct
import time
import uuid
from contextlib import suppress
from typing import NamedTuple

import msgspec

from api.limits import MOVE_BATCH_MESSAGES_MAX
from frontend.crypto.envelope import Content, billed_bytes, seal, seal_as
from frontend.crypto.message_ids import MessageIds
from frontend.errors import RequestError
from frontend.message_browser.view import BrowsedView, history_of
from frontend.messages.opening import OpenedRecord, message_id_of, open_record
from frontend.messages.tags import tag_headers
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.messages import AcquiredMessage
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, encode_body
from storage_nodes.protocol.usage import Origin, size_field, usage_key

_PLACE = struct.Struct(">QQ")
# No key of a sender begins so and has this length; nor does one of a storage node, which says where a letter died.
_KEY_START = b"\0move"


def copy_of(target: ResolvedQueue, source: ResolvedQueue, seen: BrowsedView, task: str) -> bytes:
    """The record of a message that keeps its id, and remembers its life up to now."""
    assert seen.record is not None
    content, group = seen.record.opened.content, seen.group
    headers: tuple[tuple[bytes, bytes], ...] = ((HEADER_DEDUP, _KEY_START + _PLACE.pack(seen.partition, seen.offset)),)
    if group is not None:
        headers += ((HEADER_GROUP, group.encode()),)
    headers += _tag_of(target, content)
    dedup_id = "" if target.fifo is None else seen.message_id
    history = history_of(source, seen, task, keeps_id=True)
    content = msgspec.structs.replace(content, dedup_id=dedup_id, history=history)
    sender = seen.record.opened.sender.encode()
    message_id = uuid.UUID(seen.message_id).bytes
    record_key = _key_of(content)
    envelope = seal_as(target.sealing_key(time.time()), message_id, sender, content, size_field(record_key))
    return encode_body(envelope, record_key, headers)


def partition_for(target: ResolvedQueue, seen: BrowsedView) -> int:
    """The same one whenever it is asked, so that a copy that is sent twice meets its first."""
    group = None if seen.record is None else seen.record.group
    return target.partition_for_copy(group, seen.content, seen.offset)


class Leased(NamedTuple):
    """A message of the source, opened."""

    partition: int
    message: AcquiredMessage
    letter: OpenedRecord


def open_message(source: ResolvedQueue, partition: int, message: AcquiredMessage) -> Leased:
    """Raises EnvelopeError, RecordError."""
    return Leased(partition, message, open_record(source, message.body))


def place_of(target: ResolvedQueue, leased: Leased) -> int:
    """The partition that it goes to: the same one when it has to be sent again, so that it is known there."""
    letter = leased.letter
    # Batches stay together.
    turn = leased.message.offset // MOVE_BATCH_MESSAGES_MAX
    return target.partition_for_copy(letter.group, letter.opened.content, turn)


def body_for(target: ResolvedQueue, leased: Leased, ids: MessageIds) -> bytes:
    """The record that the target stores."""
    letter, offset = leased.letter, leased.message.offset
    sender = letter.opened.sender.encode()
    headers: tuple[tuple[bytes, bytes], ...] = ((HEADER_DEDUP, _KEY_START + _PLACE.pack(leased.partition, offset)),)
    headers += _tag_of(target, letter.opened.content)
    if letter.group is not None:
        headers += ((HEADER_GROUP, letter.group.encode()),)
    if target.fifo is None:
        message_id = ids.moved_from(leased.partition, offset)
        # Without the deduplication id it was sent with, if any: that would have its id made from where it lies.
        content = msgspec.structs.replace(letter.opened.content, dedup_id="")
        record_key = _key_of(content)
        envelope = seal_as(target.sealing_key(time.time()), message_id, sender, content, size_field(record_key))
        return encode_body(envelope, record_key, headers)
    # The target is a queue of the source's kind.
    old_id = message_id_of(ids, target, leased.partition, offset, letter)
    content = msgspec.structs.replace(letter.opened.content, dedup_id=old_id)
    record_key = _key_of(content)
    return encode_body(
        seal(target.sealing_key(time.time()), sender, content, size_field(record_key))[1], record_key, headers
    )


def _key_of(content: Content) -> bytes:
    """The record key of a copy."""
    return usage_key(Origin.REDRIVE, billed_bytes(content))


def _tag_of(target: ResolvedQueue, content: Content) -> tuple[tuple[bytes, bytes], ...]:
    if target.fifo is None:
        with suppress(RequestError):  # what was no tag where it came from stays an attribute
            return tag_headers(content.attributes)
    return ()
