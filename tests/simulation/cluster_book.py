"""Which partitions the committed log of the cluster names; written apart from the product's fold."""

from __future__ import annotations

from typing import Any

import msgspec

from storage_nodes.log.record_batch import CONTROL_CLUSTER, control_kind, iterate_bodies
from storage_nodes.machines.cluster.commands import MoveEnded, PartitionCreated
from storage_nodes.machines.cluster.machine import ClusterMachine
from storage_nodes.model import CLUSTER_PARTITION
from storage_nodes.protocol.records import decode_body

_CREATE, _DELETE = 2, 3  # commands of the cluster's log


class ClusterBook:
    """Which partitions exist, by the committed log of the cluster; written apart from the product's fold.

    Where they are, and what becomes of moves, is what the product's own machine makes of the same log.
    """

    def __init__(self) -> None:
        self.live: dict[int, tuple[int, str]] = {}  # partition -> (kind, tag)
        self.deleted: set[int] = set()
        self.machine = ClusterMachine()
        self.boots: dict[int, tuple[int, ...]] = {}  # partition -> its first replicas
        self.ended: list[MoveEnded] = []  # and not looked at yet
        self.released: dict[tuple[int, int], int] = {}  # (partition, node) -> move by whose end the replica may go
        self.moves_done = 0
        self._next = CLUSTER_PARTITION + 1

    def fold(self, batch: bytes, _epoch: int) -> None:
        for _, body in iterate_bodies(batch):
            record = decode_body(body)
            if control_kind(record.key) == CONTROL_CLUSTER:
                self._fold(msgspec.msgpack.decode(record.value))
                for effect in self.machine.apply(record.value)[1]:
                    self._changed(effect)

    def _changed(self, effect: object) -> None:
        if isinstance(effect, PartitionCreated):
            self.boots[effect.plan.partition] = effect.plan.replicas
        elif isinstance(effect, MoveEnded):
            self.ended.append(effect)
            self.released[effect.plan.partition, effect.dropped] = effect.number
            self.moves_done += effect.dropped not in effect.plan.replicas

    def _fold(self, command: list[Any]) -> None:
        kind, *fields = command
        if kind == _CREATE:
            name = (fields[0], fields[1])
            if name not in self.live.values() and len(self.machine.active()) >= fields[4]:
                self.live[self._next] = name
                self._next += 1
        elif kind == _DELETE and self.live.get(fields[0], (0, ""))[1] == fields[1]:
            del self.live[fields[0]]
            self.deleted.add(fields[0])
