"""Let others lead what this node leads: it stops, is emptied, or its disk is full or slow.

Each caller says whom it would like to lead, best first; a later choice counts only where nobody of an earlier one can
take over. A few at a time: each hand-over refuses the clients of its partition for some milliseconds. What nobody can
take over stays, and is tried again by the caller's next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage_nodes.limits import HAND_OVERS_AT_ONCE_MAX
from storage_nodes.node.replicas.replica import Replica

Choice = Callable[[int], bool]


def hand_over_some(replicas: Iterable[Replica], *choices: Choice) -> int:
    """Begin to hand over what is led; how many hand-overs are under way now."""
    leading = [replica for replica in replicas if replica.serving]
    under_way = sum(replica.handing_over for replica in leading)
    for replica in leading:
        if under_way >= HAND_OVERS_AT_ONCE_MAX:
            break
        if not replica.handing_over:
            hand_over_to_any(replica, *choices)
            under_way += replica.handing_over
    return under_way


def hand_over_to_any(replica: Replica, *choices: Choice) -> None:
    """Let the follower lead that holds most of the log, of those that the first possible choice allows."""
    voters = [peer for peer in replica.raft.status().peers if peer.up and not peer.learner]
    for choice in choices:
        fit = [peer for peer in voters if choice(peer.node_id)]
        if fit:
            replica.hand_over(max(fit, key=lambda peer: peer.match).node_id)
            return
