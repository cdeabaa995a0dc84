"""The messages of one call, by the partition that each goes to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from frontend.errors import RequestError
from frontend.limits import STORAGE_SEND_BYTES_MAX
from frontend.messages.drafts import Draft
from frontend.queues.fifo import FifoRules, dedup_key
from frontend.queues.resolver import ResolvedQueue
from frontend.routing.partitioner import FormerSet, Routes
from storage_nodes.model import Acks
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, encode_body
from storage_nodes.protocol.spreading import partition_of_group


class Sent(msgspec.Struct, gc=False):
    """The acknowledgement of one message. It has no message id before it is sealed or numbered.

    schedule_id  of one that is delivered later: what cancels it
    refused      it was not stored although others of its call were
    """

    draft: Draft
    message_id: str = ""
    sequence_number: str | None = None
    schedule_id: str | None = None
    refused: RequestError | None = None


class PartitionBatch(msgspec.Struct, gc=False):
    """What goes to one partition, in the order of the call; `bodies` is what is stored.

    is_plain  no message has headers
    acks      what is stored together is answered as the most careful of its messages asks
    """

    partition: int
    messages: list[Sent]
    bodies: list[bytes] = []
    is_plain: bool = True
    has_scheduled: bool = False
    acks: Acks = Acks.NONE

    def is_one_piece(self) -> bool:
        """Does one storage call carry it?"""
        return sum(map(len, self.bodies)) <= STORAGE_SEND_BYTES_MAX

    def pieces(self) -> list[PartitionBatch]:
        """What one storage call carries each, in order; the batch itself where that is all of it."""
        if self.is_one_piece():
            return [self]
        pieces: list[PartitionBatch] = []
        size_bytes = 0
        for one, body in zip(self.messages, self.bodies, strict=True):
            size_bytes += len(body)
            if not pieces or size_bytes > STORAGE_SEND_BYTES_MAX:
                piece = PartitionBatch(self.partition, [], [], self.is_plain, self.has_scheduled, self.acks)
                pieces.append(piece)
                size_bytes = len(body)
            piece.messages.append(one)
            piece.bodies.append(body)
        return pieces


def batches_of(queue: ResolvedQueue, messages: list[Sent]) -> list[PartitionBatch]:
    """Where each message goes. Those of a FIFO queue that have an id are stored already, and left out."""
    routes = queue.routes
    if queue.fifo is not None:
        partitions = queue.partitions if routes is None else routes.open[0].partitions
        return batches_by_group((one for one in messages if not one.message_id), partitions)
    if routes is None:
        return [PartitionBatch(queue.partitions[0], messages)]
    return _batches_in_turn(routes, messages)


def batches_by_group(messages: Iterable[Sent], partitions: Sequence[int]) -> list[PartitionBatch]:
    """FIFO: the message group says which partition."""
    batches: dict[int, PartitionBatch] = {}
    for one in messages:
        partition = partition_of_group(one.draft.group, partitions)
        batch = batches.get(partition)
        if batch is None:
            batch = batches[partition] = PartitionBatch(partition, [])
        batch.messages.append(one)
    return list(batches.values())


def _batches_in_turn(routes: Routes, messages: Iterable[Sent]) -> list[PartitionBatch]:
    """Standard: the messages of one level go to one partition, another one every time; those with a deduplication id
    to where it would be known."""
    batches: dict[int, PartitionBatch] = {}
    turns: dict[int, int] = {}
    for one in messages:
        draft = one.draft
        if draft.content.dedup_id:
            partition = routes.for_id(draft.level, draft.content.dedup_id.encode())
        else:
            partition = turns.get(draft.level) or turns.setdefault(draft.level, routes.for_level(draft.level))
        batch = batches.get(partition)
        if batch is None:
            batch = batches[partition] = PartitionBatch(partition, [])
        batch.messages.append(one)
    return list(batches.values())


def probe_body(rules: FifoRules, former: FormerSet, draft: Draft) -> bytes:
    """Asks a closed partition whether it has taken this message: its id as it was formed there, and no content."""
    key = dedup_key(rules._replace(per_group=former.per_group), draft.group, draft.content.dedup_id)
    return encode_body(b"", None, ((HEADER_GROUP, draft.group), (HEADER_DEDUP, key)))
