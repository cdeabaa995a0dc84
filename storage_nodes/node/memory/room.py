"""What a node does when its memory budget runs short: what it refuses, drops and does not read, and who is told.

clients   sends are refused with OVERLOADED and a hint when to come again (`require_room`)
peers     appends and snapshot chunks are dropped (`without_appends`); heartbeats say `crowded`, so that leaders
          elsewhere do not feed this node while it is crowded
all       while everything is used up no requests of clients are read; answers go on, which is what makes room
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import structlog
from prometheus_client import Counter, Gauge

from storage_nodes.limits import (
    CROWDED_FROM_PERCENT,
    CROWDED_UNTIL_PERCENT,
    READ_AGAIN_PERCENT,
    RETRY_AFTER_MS_MAX,
    RETRY_AFTER_MS_MIN,
)
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.peer_messages import AppendEntries, RaftMessage, SnapshotChunk

MEMORY = Gauge("penstock_node_memory_bytes", "Bytes held for clients and peers, by kind", ["kind"])
MEMORY_MAX = Gauge("penstock_node_memory_bytes_max", "The most that may be held, by kind", ["kind"])
REFUSED = Counter("penstock_node_requests_refused_for_room", "Requests refused because a memory budget was used up")
DROPPED = Counter("penstock_node_appends_dropped_for_room", "Appends of other leaders dropped for want of memory")
CROWDED = Gauge("penstock_node_crowded", "1 = peers are asked not to feed this node: its memory budget is short")

# What peers fill here. Plain members: they are looked up with every frame of a peer.
_STAGED, _INBOX = _FED = (Kind.STAGED, Kind.INBOX)

_log = structlog.get_logger()


class NodeRoom:
    """One per node. `writing_s()` says how long the disk has been at its present group, `tell_peers()` beats."""

    def __init__(self, budget: MemoryBudget, writing_s: Callable[[], float], tell_peers: Callable[[], None]) -> None:
        self.budget = budget
        # Are peers asked to feed this node no further?
        self.crowded = False
        # Is everything used up, so that no requests are read?
        self.exhausted = False
        self._writing_s = writing_s
        self._tell_peers = tell_peers
        # Of what waits for the disk and of what waits for its turn: from here on peers stop, below here they go on.
        self._crowded_from = [budget.percent_bytes(kind, CROWDED_FROM_PERCENT) for kind in _FED]
        self._crowded_until = [budget.percent_bytes(kind, CROWDED_UNTIL_PERCENT) for kind in _FED]
        self._full_from = [budget.percent_bytes(kind, 100) for kind in _FED]
        for kind in Kind:
            MEMORY.labels(kind.name.lower()).set_function(partial(budget.used, kind))
            MEMORY_MAX.labels(kind.name.lower()).set(budget.shares_bytes[kind])

    def refusal(self, what: str) -> StorageError:
        """OVERLOADED, with a hint: the longer the disk takes, the later to retry."""
        REFUSED.inc()
        after_ms = min(max(RETRY_AFTER_MS_MIN, int(2_000 * self._writing_s())), RETRY_AFTER_MS_MAX)
        return StorageError(ErrorCode.OVERLOADED, what, retry_after_ms=after_ms)

    def require_room(self, held_bytes: int) -> None:
        """For a send to a partition at which so much waits already. Raises StorageError."""
        if not self.budget.may_hold(Kind.SENDS, held_bytes):
            raise self.refusal("too many bytes of sends wait for the disk of this node")

    def takes_appends(self) -> bool:
        """Asked whenever peers sent something that takes memory, at each beat and, once they were stopped, when a group
        is written: are they to stop, or to go on?"""
        used = self.budget.used
        staged_bytes, inbox_bytes = used(_STAGED), used(_INBOX)
        staged_from, inbox_from = self._crowded_until if self.crowded else self._crowded_from
        crowded = staged_bytes >= staged_from or inbox_bytes >= inbox_from
        if crowded != self.crowded:
            self.crowded = crowded
            CROWDED.set(crowded)
            self._tell_peers()
        if not crowded:
            return True
        staged_full, inbox_full = self._full_from
        return staged_bytes < staged_full and inbox_bytes < inbox_full

    def without_appends(self, messages: Iterable[RaftMessage]) -> list[RaftMessage]:
        """What stays of them while there is no room: their leaders send the rest again (Raft, RETRANSMIT_MS)."""
        left = [message for message in messages if not _is_large(message)]
        DROPPED.inc(sum(map(_is_large, messages)))
        return left

    def look(self) -> bool:
        """To be called now and then. True: whether requests of clients are read has changed."""
        self.takes_appends()
        used, bytes_max = self.budget.total, self.budget.bytes_max
        exhausted = used >= bytes_max if not self.exhausted else used >= bytes_max * READ_AGAIN_PERCENT // 100
        if exhausted == self.exhausted:
            return False
        self.exhausted = exhausted
        _log.warning("memory budget is used up" if exhausted else "there is memory again", bytes=used, max=bytes_max)
        return True


def _is_large(message: RaftMessage) -> bool:
    return bool(message.entries) if type(message) is AppendEntries else type(message) is SnapshotChunk
