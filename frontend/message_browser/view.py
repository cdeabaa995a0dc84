"""A message as the browser and the move tasks see it: looked at where it stands, opened, and nothing changed by it.

Surface: other planes may import this module.
"""

from __future__ import annotations

from typing import NamedTuple

from frontend.crypto.envelope import Content, EnvelopeError, History
from frontend.crypto.message_ids import MessageIds
from frontend.messages.opening import KeyNotGranted, OpenedRecord, dedup_id_of, message_id_of, open_record
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.messages import BrowsedMessage, DeadSource, MessageState
from storage_nodes.protocol.records import RecordError, read_headers, section_of


class BrowsedView(NamedTuple):
    """Times are ms since the epoch, 0 where there is none.

    receives       in this queue and, of a dead letter, in the one it died in
    visible_ms     when a message that is in flight or delayed can be received
    first_sent_ms  before it was moved for the first time
    record         None: it does not open, which says nothing about where it stands
    dedup_id       "" where there is none to show
    source         name of the queue that a dead letter was sent to
    """

    partition: int
    offset: int
    state: MessageState
    receives: int
    visible_ms: int
    sent_ms: int
    first_sent_ms: int
    first_received_ms: int
    record: OpenedRecord | None
    message_id: str
    dedup_id: str
    sequence_number: str | None
    source: str | None
    tag: str | None

    @property
    def content(self) -> Content | None:
        return None if self.record is None else self.record.opened.content

    @property
    def death(self) -> DeadSource | None:
        return None if self.record is None else self.record.dead

    @property
    def group(self) -> str | None:
        return None if self.record is None else self.record.group


def see(ids: MessageIds, queue: ResolvedQueue, partition: int, message: BrowsedMessage) -> BrowsedView:
    """A message that does not open is seen all the same. Raises KeyNotGranted: a newer view may open it."""
    try:
        record = open_record(queue, message.body)
    except KeyNotGranted:
        raise
    except (EnvelopeError, RecordError):
        return unopened(partition, message)
    offset, dead = message.offset, record.dead
    history = record.opened.content.history
    sent_ms, first_received_ms, receives = message.sent_ms, message.first_received_ms, message.delivery
    source = None
    if dead is not None:
        sent_ms, first_received_ms = dead.sent_ms, dead.first_received_ms or first_received_ms
        receives += dead.receives
        source = queue.record.name if record.granted_by is None else record.granted_by
    message_id = message_id_of(ids, queue, partition, offset, record)
    return BrowsedView(
        partition,
        offset,
        MessageState(message.state),
        receives,
        message.deadline_ms,
        sent_ms,
        sent_ms if history is None else history.sent_ms,
        first_received_ms,
        record,
        message_id,
        dedup_id_of(record.opened.content, message_id, queue.fifo is not None, record.dead),
        queue.sequence_number(partition, offset) if queue.fifo is not None else None,
        source,
        _tag_of(message.body),
    )


def unopened(partition: int, message: BrowsedMessage) -> BrowsedView:
    """What can be said of a message that no key opens."""
    state, sent_ms = MessageState(message.state), message.sent_ms
    deadline_ms, received_ms = message.deadline_ms, message.first_received_ms
    return BrowsedView(
        partition, message.offset, state, message.delivery, deadline_ms, sent_ms, sent_ms, received_ms,
        None, "", "", None, None, None,
    )  # fmt: skip


def history_of(queue: ResolvedQueue, seen: BrowsedView, task: str = "", keeps_id: bool = False) -> History:
    """What a copy of the message says of its life up to now."""
    assert seen.content is not None
    before = seen.content.history
    if before is None:
        name = queue.record.name if seen.source is None else seen.source
        return History(seen.message_id, seen.sent_ms, seen.receives, name, 1, task, keeps_id)
    receives, moves = before.receives + seen.receives, before.moves + 1
    return History(before.message_id, before.sent_ms, receives, before.queue, moves, task, keeps_id)


def _tag_of(body: bytes) -> str | None:
    _, _, _, _, tag, _, _ = read_headers(section_of(body))
    return None if tag is None else tag.decode("utf-8", "replace")
