"""Raft messages for a partition that this node has not created yet.

The preferred leader of a new partition may ask for votes before the commit of its creation has reached us. Kept for a
moment and replayed, these messages save the new group an election timeout. Bounded in count and age.
"""

from __future__ import annotations

from collections import deque

from storage_nodes.protocol.messages import RaftMessage

EARLY_MESSAGES_MAX = 1_000
EARLY_MESSAGE_AGE_MS_MAX = 2_000


class EarlyMessages:
    """First come, first replayed; the oldest go first when full."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, int, RaftMessage]] = deque(maxlen=EARLY_MESSAGES_MAX)

    def keep(self, sender: int, message: RaftMessage, now_ms: int) -> None:
        while self._kept and self._kept[0][0] < now_ms - EARLY_MESSAGE_AGE_MS_MAX:
            self._kept.popleft()
        self._kept.append((now_ms, sender, message))

    def take(self, partition: int) -> list[tuple[int, RaftMessage]]:
        taken = [(sender, message) for _, sender, message in self._kept if message.partition == partition]
        if taken:
            rest = [item for item in self._kept if item[2].partition != partition]
            self._kept = deque(rest, maxlen=EARLY_MESSAGES_MAX)
        return taken
