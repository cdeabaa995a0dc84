"""Messages about metering: who asks nodes to say what their queues metered."""

from __future__ import annotations

from storage_nodes.protocol.messages import Message


class CloseUsageRequest(Message, frozen=True):
    """Close and export what the queue partitions led by this node metered up to now. `begin`: of all of them, from now
    on; without it the call asks how far the node is."""

    begin: bool


class CloseUsageReply(Message, frozen=True):
    """So many of the partitions are not exported yet."""

    partitions: int
