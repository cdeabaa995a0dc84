"""How far the directories of nodes had come: what a node that is started with an older copy of its own cannot know, and
its peers do (docs/decisions/0054-directories-that-went-back.md).

Heartbeats carry the sequence number of the last WAL group that their sender synced, and what the sender knows of the
receiver: how far that one had come, in which of its processes. A process that began with less than that, in a later
life, has lost synced groups. It says how far it is accounted for: what it began with, or what it was told and has made
all its replicas suspect for, durably. Until that is enough, its peers go on knowing how far it had been.
"""

from __future__ import annotations

from collections.abc import Callable


class OwnAge:
    """Of this node."""

    __slots__ = ("accounted", "synced")

    def __init__(self) -> None:
        # The last group that this process began with, or a later one that it knows to be lost and has reckoned with.
        self.accounted = 0
        # The last group that was synced.
        self.synced: Callable[[], int] = lambda: 0


class PeerAge:
    """What this node knows of a peer, in memory: a process that starts knows nothing."""

    __slots__ = ("incarnation", "sequence")

    def __init__(self) -> None:
        self.incarnation = 0
        self.sequence = 0

    def heard(self, incarnation: int, sequence: int, accounted: int) -> None:
        if incarnation == self.incarnation:
            self.sequence = max(self.sequence, sequence)
        elif accounted >= self.sequence:
            self.incarnation, self.sequence = incarnation, max(sequence, accounted)
