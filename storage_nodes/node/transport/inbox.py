"""Raft messages that came in, handled in slices, so that the event loop never goes without a turn for heartbeats.

One read of a socket may bring thousands of small messages: the votes of every group that lost its leader with a node.
Handled in one go, they would keep this node from beating for longer than the others wait for it; they would take it for
dead, elect again, and send more. So not more than INBOX_SLICE_MESSAGES are handled in one turn of the loop, and of
those that waited no more than TURN_SLICE_MS_MAX has time for; the rest waits, in order. In the steady state, where a
turn brings a few messages, nothing ever waits.

What waits is counted in bytes against the node's memory budget; when its share is used up, appends are dropped before
they come here (`room.py`). Where more than INBOX_MESSAGES_MAX wait the oldest are dropped, as a network may drop them:
by then most of them are of elections that are over, and a replica that still needs an answer asks again.

What waits may have been sent by an earlier incarnation of its node by the time its turn comes: then it is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from prometheus_client import Counter

from storage_nodes.limits import INBOX_MESSAGES_MAX, INBOX_SLICE_MESSAGES, TURN_SLICE_MS_MAX
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.protocol.peer_messages import RaftMessage, size_of

DROPPED = Counter("penstock_node_raft_messages_dropped", "Raft messages dropped because too many waited for their turn")

# So few may count for the next turns too: the end of a turn is noted only when more came.
UNTURNED_MESSAGES_MAX = 16


class Inbox:
    """`handle(sender, message)` is called for each message; `incarnation_of(sender)` says whom it may still be from."""

    __slots__ = ("_budget", "_handle", "_handled", "_incarnation_of", "_loop", "_mono_ms", "_turning", "_waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handle: Callable[[int, RaftMessage], None],
        incarnation_of: Callable[[int], int],
        budget: MemoryBudget,
        mono_ms: Callable[[], int],
    ) -> None:
        self._mono_ms = mono_ms
        self._budget = budget
        self._loop = loop
        self._handle = handle
        self._incarnation_of = incarnation_of
        # Messages handled in this turn of the loop, with a few of earlier ones, and what waits for the next ones:
        # (sender, incarnation, message).
        self._handled = 0
        self._waiting: deque[tuple[int, int, RaftMessage]] = deque()
        self._turning = False

    def is_behind(self) -> bool:
        """Does more wait than the next turn handles?"""
        return len(self._waiting) > INBOX_SLICE_MESSAGES

    def take(self, sender: int, incarnation: int, messages: list[RaftMessage]) -> None:
        """A frame came in; its sender is, or was until just now, that incarnation."""
        waiting = self._waiting
        handled = self._handled + len(messages)
        has_to_wait = waiting or handled > INBOX_SLICE_MESSAGES
        if (has_to_wait or handled > UNTURNED_MESSAGES_MAX) and not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)
        if has_to_wait:
            waiting.extend((sender, incarnation, message) for message in messages)
            self._budget.take(Kind.INBOX, sum(map(size_of, messages)))
            while len(waiting) > INBOX_MESSAGES_MAX:
                self._budget.give(Kind.INBOX, size_of(waiting.popleft()[2]))
                DROPPED.inc()
            return
        self._handled = handled
        for message in messages:
            self._handle(sender, message)

    def _turn(self) -> None:
        """The next turn of the loop."""
        if not self._waiting:
            self._handled = 0
            self._turning = False
            return
        until_ms = self._mono_ms() + TURN_SLICE_MS_MAX
        self._handled = min(len(self._waiting), INBOX_SLICE_MESSAGES)
        for _ in range(self._handled):
            self._handle_first()
            if self._mono_ms() >= until_ms:
                break
        self._turning = bool(self._waiting)
        if self._turning:
            self._loop.call_soon(self._turn)
        else:
            self._handled = 0

    def _handle_first(self) -> None:
        sender, incarnation, message = self._waiting.popleft()
        self._budget.give(Kind.INBOX, size_of(message))
        if incarnation == self._incarnation_of(sender):
            self._handle(sender, message)
