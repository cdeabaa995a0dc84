"""Who reads all streams asks the manager which there are: another node may know of none yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage_nodes.client import streams_tagged
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import ClusterInfo, PartitionInfo

ROWS = [
    PartitionInfo(4, PartitionKind.STREAM, [1], "__usage:1"),
    PartitionInfo(3, PartitionKind.STREAM, [1], "__usage:0"),
    PartitionInfo(5, PartitionKind.STREAM, [1], "other"),
    PartitionInfo(6, PartitionKind.QUEUE, [1], "__usage:2"),
]


class Nodes:
    """`managers`: whom any node, and then that one itself, take for the manager, look by look."""

    def __init__(self, *managers: tuple[int, int]) -> None:
        self._managers = iter(managers)
        self._own = 0

    async def describe(self, partitions: list[int]) -> ClusterInfo:
        named, self._own = next(self._managers, (0, 0))
        return ClusterInfo("c", named, [], [], 0, 1)

    async def describe_node(self, node_id: int) -> ClusterInfo:
        return ClusterInfo("c", self._own, [], ROWS if self._own == node_id else [], 0, 1)


def tagged(nodes: Any, timeout_s: float = 5.0) -> list[int]:
    return asyncio.run(streams_tagged(nodes, "__usage:", timeout_s))


def test_streams_are_those_that_the_manager_knows() -> None:
    assert tagged(Nodes((2, 2))) == [3, 4]
    assert tagged(Nodes((0, 0), (2, 0), (2, 3), (3, 3))) == [3, 4], "until one says that it is the manager"


def test_no_stream_is_not_what_a_node_says_that_knows_no_manager() -> None:
    with pytest.raises(StorageError) as refused:
        tagged(Nodes(), 0.2)
    assert refused.value.code == ErrorCode.NO_QUORUM
