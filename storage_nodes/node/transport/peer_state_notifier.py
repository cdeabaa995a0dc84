"""That a peer went down, or came up, is told to every replica of the node: a slice of them in a turn of the event loop.

Each step is small, and there may be 20,000: told in one go they would keep this node from beating for so long that its
peers take it for dead in turn, and each of these flaps is news again.

**Nothing of a peer's next incarnation overtakes that it went down** (the driver's duty, `machines/raft/machine.py`).
So what has not had its turn when a message comes for it, whoever sent that, hears the news first. Then others of its
group, who may have heard already, also find it knowing what they know.

**Down before up.** A replica that still takes the peer for up hears that it went down, and only then that it is up
again. One that has not even heard that it came up hears nothing when it goes down again.

Those that the peer led come first: they need another leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from storage_nodes.limits import PEER_NEWS_SLICE_PARTITIONS


class NotifiedReplica(Protocol):
    """What this needs of a replica."""

    @property
    def raft(self) -> Any: ...

    def peer_changed(self, peer: int, up: bool) -> None: ...


class PeerStateNotifier:
    """One per node; by partition, what a replica has not heard of each peer yet. The last of a dict is told first."""

    __slots__ = ("_loop", "_pending_up", "_replicas", "_turning", "pending_down")

    def __init__(self, loop: asyncio.AbstractEventLoop, replicas: Callable[[], Mapping[int, NotifiedReplica]]) -> None:
        self._loop = loop
        self._replicas = replicas
        self.pending_down: dict[int, dict[int, NotifiedReplica]] = {}
        self._pending_up: dict[int, dict[int, NotifiedReplica]] = {}
        # Peers of which a turn is booked.
        self._turning: set[int] = set()

    def changed(self, peer: int, up: bool) -> None:
        rising = self._pending_up.pop(peer, {})
        backwards = list(self._replicas().items())[::-1]
        if up:
            self._pending_up[peer] = dict(backwards)
        else:
            aware = [item for item in backwards if rising.get(item[0]) is not item[1]]
            # It is those that it leads that wait for this.
            led = [item for item in aware if item[1].raft.leader == peer]
            others = [item for item in aware if item[1].raft.leader != peer]
            self.pending_down[peer] = {**self.pending_down.get(peer, {}), **dict(others), **dict(led)}
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
        for _ in range(PEER_NEWS_SLICE_PARTITIONS):
            if not self._tell_next(peer):
                self._turning.discard(peer)
                return
        self._loop.call_soon(self._turn, peer)

    def _tell_next(self, peer: int) -> bool:
        """False: there is nobody left to tell."""
        for untold, up in ((self.pending_down, False), (self._pending_up, True)):
            waiting = untold.get(peer)
            if waiting:
                _, replica = waiting.popitem()
                replica.peer_changed(peer, up)
                return True
            untold.pop(peer, None)
        return False
