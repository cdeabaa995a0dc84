"""Removals by place that are on their way through the log, as the leader follows them.

Until the fold has decided, leased messages among them neither become available nor move as dead letters. What is
available, or becomes so after a delay, may still be handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from storage_nodes.machines.queue.checkpoint import Live
from storage_nodes.machines.queue.ready import Leases


class Removals:
    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        # In the order of their commands: messages held for them, groups of those that nobody had received.
        self._under_way: deque[tuple[list[int], Mapping[int, bytes]]] = deque()

    def begin(self, offsets: Sequence[int], groups: Mapping[int, bytes], leases: Leases, live: Live) -> None:
        before = {offset for held, _ in self._under_way for offset in held}
        delivered = [o for o in offsets if (entry := live.get(o)) is not None and entry[1]]
        held = [o for o in delivered if o not in before and not leases.is_ready(o)]
        for offset in held:
            leases.hold(offset)
        leases.dead.difference_update(held)
        self._under_way.append((held, groups))

    def end(self, offsets: Sequence[int], leases: Leases) -> Mapping[int, bytes]:
        """The first command is about to be folded; the groups that came with it."""
        held, groups = self._under_way.popleft()
        for offset in held:
            leases.release(offset)
        leases.expire(offsets)
        return groups
