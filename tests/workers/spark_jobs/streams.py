"""A storage node with the partitions of a usage stream."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.protocol.records import encode_body


class Streams(NamedTuple):
    """A storage node with the two partitions of a usage stream."""

    cluster: StorageCluster
    nodes: str
    partitions: list[int]

    def append(self, at: int, *values: bytes, key: bytes | None = None) -> None:
        async def send() -> None:
            client = await self.cluster.client()
            await client.stream_append(self.partitions[at], [encode_body(value, key) for value in values])
            await client.close()

        asyncio.run(send())

    @property
    def options(self) -> dict[str, str]:
        ids = ",".join(map(str, self.partitions))
        return {"cluster_id": self.cluster.cluster_id, "nodes": self.nodes, "partitions": ids}
