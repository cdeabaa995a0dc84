"""Up to where a flush need not keep dead entries for members that are behind."""

from __future__ import annotations

from storage_nodes.limits import LAGGARD_BYTES_MAX, LAGGARD_MS_MAX
from storage_nodes.log.node_log import PartitionLog
from storage_nodes.machines.raft.machine import RaftMachine

# (the `replicated` position last seen by a flush, since when it stands there)
Standing = tuple[int, int]
NEVER: Standing = (0, 0)


def disposable_end(raft: RaftMachine, log: PartitionLog, standing: Standing, now_ms: int) -> tuple[int, Standing]:
    """Dead entries below need not be kept: every member holds them, or those that do not are so far behind that they
    get a snapshot. And what stands in the place of `standing`."""
    replicated = raft.needed_from()
    if replicated >= raft.commit:
        return replicated, NEVER
    if replicated != standing[0]:
        standing = (replicated, now_ms)
    waited_ms = now_ms - standing[1]
    if waited_ms > LAGGARD_MS_MAX or log.bytes_from(replicated) > LAGGARD_BYTES_MAX:
        return max(replicated, raft.level()), standing
    return replicated, standing
