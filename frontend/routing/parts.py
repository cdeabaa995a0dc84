"""The messages of one call, by the partition that each goes to. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence

from frontend.routing.partitioner import FormerSet
from frontend.sqs.fifo import FifoRules, dedup_key
from frontend.sqs.validation import Draft
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import NOT_TAKEN, SendReply
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, encode_body
from storage_nodes.protocol.spreading import partition_of_group


class PartitionClosed(Exception):
    """Of a FIFO queue: the queue has other partitions by now, and its view here is of before."""


def check_taken(reply: SendReply) -> None:
    """Of a copy that is made again later. Raises StorageError where the partition was closed."""
    if any(original == NOT_TAKEN for _, original in reply.duplicates):
        raise StorageError(ErrorCode.UNAVAILABLE, "the partitions of the queue change at the moment")


class Part:
    """What goes to one partition: `places` are those in the call, `bodies` what is stored."""

    __slots__ = ("acks", "bodies", "drafts", "is_plain", "partition", "places")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.places: list[int] = []
        self.drafts: list[Draft] = []
        self.bodies: list[bytes] = []
        self.is_plain = True
        self.acks = Acks.NONE

    def place(self, place: int, draft: Draft) -> None:
        self.places.append(place)
        self.drafts.append(draft)
        self.is_plain = self.is_plain and not draft.headers
        self.acks = max(self.acks, draft.acks)

    def add(self, place: int, draft: Draft, body: bytes) -> None:
        self.place(place, draft)
        self.bodies.append(body)


def parts_by_group(drafts: Sequence[Draft], partitions: Sequence[int], settled: Container[int]) -> list[Part]:
    """Messages of a FIFO queue in their order, those left out that are settled; bodies are to be made."""
    parts: dict[int, Part] = {}
    for place, draft in enumerate(drafts):
        if place in settled:
            continue
        partition = partition_of_group(group_of(draft), partitions)
        part = parts.get(partition)
        if part is None:
            part = parts[partition] = Part(partition)
        part.place(place, draft)
    return list(parts.values())


def group_of(draft: Draft) -> bytes:
    return next(content for name, content in draft.headers if name == HEADER_GROUP)


def probe_body(rules: FifoRules, former: FormerSet, draft: Draft) -> bytes:
    """Asks a closed partition whether it has taken this message: its id as it was formed there, and no content."""
    group = group_of(draft)
    key = dedup_key(rules._replace(per_group=former.per_group), group, draft.content.dedup_id)
    return encode_body(b"", None, ((HEADER_GROUP, group), (HEADER_DEDUP, key)))
