"""Leadership goes home: to a partition's preferred replica, once that can be trusted to keep it.

The cluster log places preferred leaders evenly over the nodes, but a failover moves leaders to whoever was quickest.
Every BALANCE_INTERVAL_MS a node looks at what it leads for others: a preferred replica that was found up, not about to
stop, and level with the log for BALANCE_LEVEL_MS_MIN gets the leadership. Only a few at a time, since each hand-over
refuses the clients of its partition for some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage_nodes.limits import BALANCE_LEVEL_MS_MIN, BALANCE_TRANSFERS_MAX, READ_BYTES_MAX
from storage_nodes.node.replicas.replica import Replica

# A follower this many records behind counts as level: the log grows while anybody looks.
LEVEL_RECORDS_MAX = READ_BYTES_MAX // 1024


class LeaderBalance:
    """Remembers since when preferred replicas are level. Moves nothing itself."""

    def __init__(self, node_id: int, preferred_leader: Callable[[int], int], may_lead: Callable[[int], bool]) -> None:
        self._node_id = node_id
        self._preferred_leader = preferred_leader
        self._may_lead = may_lead
        # partition -> (epoch of our leadership, when its preferred replica was first seen level in it)
        self._level_since: dict[int, tuple[int, int]] = {}

    def due(self, replicas: Mapping[int, Replica], now_ms: int) -> list[Replica]:
        """The replicas to hand over now, each to its preferred replica."""
        level_since: dict[int, tuple[int, int]] = {}
        due: list[Replica] = []
        for partition, replica in replicas.items():
            preferred = self._preferred_leader(partition) if replica.serving else 0
            if preferred in (0, self._node_id) or not self._may_lead(preferred) or not _is_level(replica, preferred):
                continue
            epoch, since_ms = self._level_since.get(partition, (0, now_ms))
            if epoch != replica.raft.epoch:
                since_ms = now_ms
            level_since[partition] = (replica.raft.epoch, since_ms)
            if now_ms - since_ms >= BALANCE_LEVEL_MS_MIN and len(due) < BALANCE_TRANSFERS_MAX:
                due.append(replica)
        self._level_since = level_since
        return due


def _is_level(replica: Replica, preferred: int) -> bool:
    return any(
        peer.node_id == preferred and peer.up and peer.behind <= LEVEL_RECORDS_MAX
        for peer in replica.raft.status().peers
    )
