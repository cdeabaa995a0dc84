"""The append a leader sent to a follower in this turn of the event loop, kept for followers that ask for the same."""

from __future__ import annotations

from typing import NamedTuple

from storage_nodes.machines.raft import effects as raft_effects
from storage_nodes.protocol.peer_messages import AppendEntries


class LastAppend(NamedTuple):
    """What a follower was sent in this turn. Others that keep pace get the same object: the links encode it once."""

    asked: raft_effects.SendEntries
    message: AppendEntries
    end: int
    size_bytes: int

    def answers(self, effect: raft_effects.SendEntries) -> bool:
        """Is the same asked for another follower?"""
        return self.asked[1:] == effect[1:]
