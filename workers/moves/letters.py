"""One message on its way from a dead-letter queue to another queue. Pure.

It is opened with the source's keys (its own, or one lent to it) and sealed anew with the target's: the target may
belong to nobody who could read the source. What it becomes there is a new message:

    both       a deduplication key that says where it lay: a send that is repeated after a crash is dropped by the
               target's partition, while it remembers (five minutes)
    standard   a message id made from where it lay, so that a message that had to be sent again later shows it
    FIFO       the same group; its deduplication id is the message id that it had
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from api.limits import MOVE_BATCH_MESSAGES_MAX
from frontend.crypto.envelope import seal, seal_as
from frontend.crypto.message_ids import MessageIds
from frontend.opening import Letter, open_record
from frontend.routing.queues import QueueView
from frontend.sqs.priority import PRIORITY, level_of
from storage_nodes.protocol.messages import AcquiredMessage
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, encode_body

_PLACE = struct.Struct(">IQ")
# No key of a sender begins so and has this length; nor does one of a storage node, which says where a letter died.
_KEY_START = b"\0move"


class Leased(NamedTuple):
    """A message of the source, opened."""

    partition: int
    message: AcquiredMessage
    letter: Letter


def open_message(source: QueueView, partition: int, message: AcquiredMessage) -> Leased:
    """Raises EnvelopeError, RecordError."""
    return Leased(partition, message, open_record(source, message.body))


def place_of(target: QueueView, leased: Leased) -> int:
    """The partition that it goes to: the same one when it has to be sent again, so that it is known there."""
    routes, letter = target.routes, leased.letter
    if routes is None:
        return target.partitions[0]
    if target.fifo is not None:
        assert letter.group is not None, "a message of a FIFO queue has a group"
        return routes.for_group(letter.group.encode())
    level = level_of(*letter.opened.content.attributes.get(PRIORITY, ("", b""))) or 0
    lane = routes.open[min(level, len(routes.open) - 1)].partitions
    return lane[leased.message.offset // MOVE_BATCH_MESSAGES_MAX % len(lane)]


def body_for(target: QueueView, leased: Leased, ids: MessageIds) -> bytes:
    """The record that the target stores."""
    letter, offset = leased.letter, leased.message.offset
    sender = letter.opened.sender.encode()
    headers: tuple[tuple[bytes, bytes], ...] = ((HEADER_DEDUP, _KEY_START + _PLACE.pack(leased.partition, offset)),)
    if letter.group is not None:
        headers += ((HEADER_GROUP, letter.group.encode()),)
    if target.fifo is None:
        message_id = ids.moved_from(leased.partition, offset)
        # Without the deduplication id it was sent with, if any: that would have its id made from where it lies.
        content = msgspec.structs.replace(letter.opened.content, dedup_id="")
        return encode_body(seal_as(target.sealing_key, message_id, sender, content), None, headers)
    dead = letter.dead
    old_id = ids.of(leased.partition, offset) if dead is None else ids.of(dead.partition, dead.offset)
    content = msgspec.structs.replace(letter.opened.content, dedup_id=old_id)
    return encode_body(seal(target.sealing_key, sender, content)[1], None, headers)
