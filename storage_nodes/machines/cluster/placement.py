"""Where replicas go: to the nodes that hold fewest, one a zone while zones last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from storage_nodes.model import NodeAddress, NodeId

Held = Mapping[NodeId, Collection[int]]


def place(
    nodes: Sequence[NodeAddress], count: int, held: Held, leader_counts: Mapping[NodeId, int]
) -> tuple[NodeId, ...]:
    """Nodes for a new partition. The first is the preferred leader, so that those are spread evenly too."""
    by_load = sorted(nodes, key=lambda node: (len(held.get(node.node_id, ())), node.node_id))
    chosen: list[NodeAddress] = []
    zones: set[str] = set()
    for node in by_load:
        if len(chosen) < count and node.zone not in zones:
            chosen.append(node)
            zones.add(node.zone)
    for node in by_load:
        if len(chosen) < count and node not in chosen:
            chosen.append(node)
    chosen.sort(key=lambda node: (leader_counts.get(node.node_id, 0), node.node_id))
    return tuple(node.node_id for node in chosen)


def place_one(
    candidates: Sequence[NodeAddress], zones_taken: Collection[str], load_of: Callable[[NodeId], int]
) -> NodeId | None:
    """The node for one more replica of a partition whose other replicas stand in `zones_taken`."""
    ranked = sorted(candidates, key=lambda node: (node.zone in zones_taken, load_of(node.node_id), node.node_id))
    return ranked[0].node_id if ranked else None
