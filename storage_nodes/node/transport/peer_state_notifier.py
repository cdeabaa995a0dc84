"""That a peer went down, or came up, is told to every replica of the node: a slice of them in a turn of the event loop.

Each step is small, and there may be 20,000: told in one go they would keep this node from beating for so long that its
peers take it for dead in turn, and each of these flaps is news again.

**Nothing of a peer's next incarnation overtakes that it went down** (the driver's duty, `machines/raft/machine.py`).
So what has not had its turn when a message comes for it, whoever sent that, hears the news first. Then others of its
group, who may have heard already, also find it knowing what they know.

**Down before up.** A replica that still takes the peer for up hears that it went down, and only then that it is up
again. One that has not even heard that it came up hears nothing when it goes down again.

Those that the peer led come first: they need another leader. They are picked out as the slices go: to look at all
replicas at once, each time that a peer changes, takes longer than many slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from storage_nodes.limits import PEER_NEWS_SLICE_PARTITIONS, TURN_SLICE_MS_MAX


class NotifiedReplica(Protocol):
    """What this needs of a replica."""

    @property
    def raft(self) -> Any: ...

    def peer_changed(self, peer: int, up: bool) -> None: ...


class PeerStateNotifier:
    """One per node; by partition, what a replica has not heard of each peer yet. The last of a dict is told first."""

    __slots__ = ("_loop", "_mono_ms", "_pending_up", "_replicas", "_turning", "_unasked", "pending_down")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replicas: Callable[[], Mapping[int, NotifiedReplica]],
        mono_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._replicas = replicas
        self._mono_ms = mono_ms
        self.pending_down: dict[int, dict[int, NotifiedReplica]] = {}
        self._pending_up: dict[int, dict[int, NotifiedReplica]] = {}
        # Of those pending_down, whom the peer led is looked for among these; the last of a list comes first.
        self._unasked: dict[int, list[int]] = {}
        # Peers of which a turn is booked.
        self._turning: set[int] = set()

    def changed(self, peer: int, up: bool) -> None:
        rising = self._pending_up.pop(peer, {})
        backwards = list(self._replicas().items())[::-1]
        if up:
            self._pending_up[peer] = dict(backwards)
        else:
            aware = dict(backwards)
            if rising:
                aware = {name: replica for name, replica in aware.items() if rising.get(name) is not replica}
            waiting = {**self.pending_down.get(peer, {}), **aware}
            self.pending_down[peer] = waiting
            self._unasked[peer] = list(waiting)
        if peer not in self._turning:
            self._turning.add(peer)
            self._turn(peer)

    def notify_before_message(self, partition: int) -> None:
        """A message for this replica is about to be handled."""
        for peer, pending_down in list(self.pending_down.items()):
            replica = pending_down.pop(partition, None)
            if replica is not None:
                replica.peer_changed(peer, False)

    def _turn(self, peer: int) -> None:
        until_ms = self._mono_ms() + TURN_SLICE_MS_MAX
        for _ in range(PEER_NEWS_SLICE_PARTITIONS):
            if not self._tell_next(peer):
                self._turning.discard(peer)
                return
            if self._mono_ms() >= until_ms:
                break
        self._loop.call_soon(self._turn, peer)

    def _tell_next(self, peer: int) -> bool:
        """False: there is nobody left to tell."""
        waiting = self.pending_down.get(peer)
        if waiting:
            self._take_down(peer, waiting).peer_changed(peer, False)
            return True
        self.pending_down.pop(peer, None)
        self._unasked.pop(peer, None)
        waiting = self._pending_up.get(peer)
        if waiting:
            _, replica = waiting.popitem()
            replica.peer_changed(peer, True)
            return True
        self._pending_up.pop(peer, None)
        return False

    def _take_down(self, peer: int, waiting: dict[int, NotifiedReplica]) -> NotifiedReplica:
        """The next of those waiting: one that the peer led, as long as there is one."""
        unasked = self._unasked[peer]
        while unasked:
            partition = unasked.pop()
            replica = waiting.get(partition)
            if replica is not None and replica.raft.leader == peer:
                del waiting[partition]
                return replica
        return waiting.popitem()[1]
