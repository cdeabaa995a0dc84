"""Raft messages for a partition that this node has not created yet.

The preferred leader of a new partition may ask for votes before the commit of its creation has reached us. Kept for a
moment and replayed, these messages save the new group an election timeout. Bounded in count, bytes and age. Where
another incarnation of the sender greeted meanwhile they are dropped (R4): what an older one promised its disk may not
hold.
"""

from __future__ import annotations

from collections.abc import Callable

from storage_nodes.limits import EARLY_BYTES_MAX
from storage_nodes.protocol.peer_messages import RaftMessage, size_of

EARLY_MESSAGES_MAX = 4_096
EARLY_MESSAGE_AGE_MS_MAX = 2_000


class PendingRaftMessages:
    """First come, first replayed; the partition that has waited longest goes first when full.

    `incarnation_of(sender)` says whom a message may still be from."""

    def __init__(self, incarnation_of: Callable[[int], int]) -> None:
        self._incarnation_of = incarnation_of
        # Partition -> (since when it waits, its messages: sender, incarnation, message), in the order in which they
        # began to wait.
        self._kept: dict[int, tuple[int, list[tuple[int, int, RaftMessage]]]] = {}
        self._count = self._bytes = 0

    def keep(self, sender: int, message: RaftMessage, now_ms: int) -> None:
        """Just received: of the sender's newest incarnation."""
        size_bytes = size_of(message)
        self._make_room(size_bytes, now_ms)
        _, messages = self._kept.setdefault(message.partition, (now_ms, []))
        messages.append((sender, self._incarnation_of(sender), message))
        self._count += 1
        self._bytes += size_bytes

    def take(self, partition: int) -> list[tuple[int, RaftMessage]]:
        _, messages = self._kept.pop(partition, (0, []))
        self._count -= len(messages)
        self._bytes -= sum(size_of(message) for _, _, message in messages)
        return [(sender, message) for sender, sent_by, message in messages if sent_by == self._incarnation_of(sender)]

    def _make_room(self, size_bytes: int, now_ms: int) -> None:
        while self._kept:
            partition, (since_ms, _) = next(iter(self._kept.items()))
            has_room = self._count < EARLY_MESSAGES_MAX and self._bytes + size_bytes <= EARLY_BYTES_MAX
            if has_room and since_ms >= now_ms - EARLY_MESSAGE_AGE_MS_MAX:
                return
            self.take(partition)
