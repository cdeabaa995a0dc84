"""Planted bugs of mixed releases; what they are for says `planted.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from storage_nodes.machines.cluster.commands import LevelsChanged, Outcome, SetFeatureLevel
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.machines.queue.state.held_messages import HeldMessages
from storage_nodes.node.membership.feature_levels import FeatureLevels
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.levels import LEVEL_FIRST


def writes_what_it_speaks() -> AbstractContextManager[Any]:
    """B70: a leader writes what its own release speaks, before the cluster's level was raised."""
    own = property(lambda node: node.speaks.highest, lambda node, level: None)
    return mock.patch.object(StorageNode, "feature_level", own, create=True)


@contextmanager
def raises_the_level_alone() -> Iterator[None]:
    """B71: the manager raises the cluster's level as soon as its own node speaks a higher one."""

    def commands(self: FeatureLevels, machine: ClusterMachine) -> list[Any]:
        return [SetFeatureLevel(self._speaks.highest)] if self._speaks.highest > machine.level else []

    def fold(self: ClusterMachine, command: SetFeatureLevel) -> Any:
        self.level = max(self.level, command.level)
        return Outcome(ErrorCode.OK), [LevelsChanged()]

    with (
        mock.patch.object(FeatureLevels, "commands", commands),
        mock.patch.object(ClusterMachine, "_set_feature_level", fold),
    ):
        yield


@contextmanager
def forgets_the_level_in_checkpoints() -> Iterator[None]:
    """B72: the level of a partition is not in its checkpoints and snapshots."""
    real = HeldMessages.restore

    def restore(self: HeldMessages, checkpoint: Any) -> None:
        real(self, checkpoint._replace(level=LEVEL_FIRST))

    with mock.patch.object(HeldMessages, "restore", restore):
        yield
