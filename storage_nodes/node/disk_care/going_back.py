"""A peer says that this node had come further than its directory: an older copy of it was put back, or its end is gone
without a trace (docs/decisions/0054-directories-that-went-back.md).

All replicas are suspect from that moment on, durably: each may have forgotten votes and entries that count. They are
fed again by their groups, like those of a directory that was lost, and trusted when they hold what was committed.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from prometheus_client import Counter

from storage_nodes.log.node_log import NodeLog
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.node.transport.directory_age import OwnAge

WENT_BACK = Counter("penstock_node_directory_went_back", "Starts with an older directory than a peer knew of")

_log = structlog.get_logger()


class GoingBack:
    """Of one node. On the event loop."""

    def __init__(self, log: NodeLog, replicas: LocalReplicas, age: OwnAge, wake: Callable[[], None]) -> None:
        self._log = log
        self._replicas = replicas
        self._age = age
        self._wake = wake
        # What is told to be lost, and the group that makes all replicas suspect for it; 0 = nothing is.
        self._told = 0
        self._marked_by = 0
        age.accounted = log.recovered_sequence
        age.synced = lambda: log.synced_sequence

    def told(self, peer: int, sequence: int) -> None:
        """The peer knows that an earlier process of this node had synced this group; said again until that is so."""
        if sequence <= self._told:
            return
        WENT_BACK.inc()
        _log.critical(
            "the directory of this node is an older one: all its replicas are suspect, and are fed again",
            told_by=peer, synced=sequence, found=self._log.recovered_sequence,
        )  # fmt: skip
        self._told = sequence
        for partition in self._log.partitions:
            self._log.set_suspect(partition, True)
        self._marked_by = self._log.gathering_sequence
        self._wake()
        for replica in list(self._replicas.values()):
            replica.became_suspect()

    def after_group(self) -> None:
        """A group was synced."""
        if self._marked_by and self._log.synced_sequence >= self._marked_by:
            self._marked_by = 0
            self._age.accounted = self._told
