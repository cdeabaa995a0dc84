"""Feature levels of the nodes and of their cluster (protocol/levels.py, docs/upgrades.md).

Each node says in its greeting what it speaks, and how far its operator lets the cluster rise. The manager logs what has
changed of that, and raises the cluster's level once all members allow a higher one: all are up, have greeted in their
present process, and are not about to stop. So a node that is away, perhaps to come back with an older release, holds
the level until it is back or decommissioned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog
from prometheus_client import Gauge

from storage_nodes.ids import node_name
from storage_nodes.machines.cluster.commands import Command, SetFeatureLevel, SetNodeLevels
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.model import NodeId
from storage_nodes.protocol.levels import Speaks, fits_cluster

LEVEL = Gauge("penstock_node_feature_level", "Feature level of the cluster, as this node knows it")

_log = structlog.get_logger()


class GreetedNodes(Protocol):
    """What this needs of the links to the other nodes."""

    retiring: bool

    def speaks_of(self, peer: int) -> Speaks | None:
        """What its present process said; None: it has not greeted."""

    def stays(self, peer: int) -> bool:
        """Is it up, and not about to stop?"""


class FeatureLevels:
    """Of one node. `refuse`: called once, with why, when the cluster's level is beyond what this node speaks."""

    def __init__(self, node_id: NodeId, speaks: Speaks, links: GreetedNodes, refuse: Callable[[str], None]) -> None:
        self._node_id = node_id
        self._speaks = speaks
        self._links = links
        self._refuse = refuse
        self._told = 0
        self.refusing = ""

    def follow(self, machine: ClusterMachine) -> int:
        """The cluster log was folded: the level at which this node may write."""
        if machine.level != self._told:
            _log.info("the cluster is at this feature level", feature_level=machine.level, speaks=self._speaks.highest)
            self._told = machine.level
            LEVEL.set(machine.level)
        self.look_at(machine.level)
        return min(machine.level, self._speaks.highest)

    def look_at(self, cluster_level: int) -> None:
        """By the cluster log, or by a peer that does not let this node in."""
        if cluster_level > self._speaks.highest and not self.refusing:
            self.refusing = objection = fits_cluster(self._speaks, cluster_level, f"node {node_name(self._node_id)}")
            _log.critical("this node serves nobody: its release does not fit the cluster", reason=objection)
            self._refuse(objection)

    def commands(self, machine: ClusterMachine) -> list[Command]:
        """What the manager logs now."""
        commands: list[Command] = []
        lowest_allowed = self._speaks.allowed
        is_complete = not self._links.retiring
        for node_id in machine.members():
            is_own = node_id == self._node_id
            speaks = self._speaks if is_own else self._links.speaks_of(node_id)
            if speaks is None or not (is_own or self._links.stays(node_id)):
                is_complete = False
            if speaks is not None:
                lowest_allowed = min(lowest_allowed, speaks.allowed)
                if speaks != machine.levels_of(node_id):
                    commands.append(SetNodeLevels(node_id, *speaks))
        if is_complete and lowest_allowed > machine.level:
            commands.append(SetFeatureLevel(lowest_allowed))
        return commands
