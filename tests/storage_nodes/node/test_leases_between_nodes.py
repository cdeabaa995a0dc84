"""A leader whose followers stand still answers nothing from what it knows, and does again when they are back (R8)."""

from __future__ import annotations

import asyncio
import time

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client.connection import connect
from storage_nodes.limits import HEARTBEAT_INTERVAL_MS, LEADER_LEASE_MS
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    AcquireRequest,
    Opcode,
    QueueBrowseRequest,
    QueueStatsRequest,
    encode_message,
)
from tests.storage_nodes.node.test_acks_between_nodes import followers_of, run, standing_still


def test_leader_that_hears_no_majority_refuses_what_it_alone_knows(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        followers = await followers_of(client, partition)
        (leader,) = {1, 2, 3}.difference(followers)
        loop = asyncio.get_running_loop()
        address = cluster.addresses[leader - 1]
        connection = await connect(cluster.cluster_id, "t", address, 5.0)
        requests = [
            (Opcode.ACQUIRE, AcquireRequest(partition, 1, 1_000)),
            (Opcode.QUEUE_STATS, QueueStatsRequest(partition)),
            (Opcode.QUEUE_BROWSE, QueueBrowseRequest(partition, 0, 10)),
        ]

        async def asked(opcode: int, request: object) -> ErrorCode:
            answer: asyncio.Future[ErrorCode] = loop.create_future()

            def done(result: bytes | StorageError) -> None:
                answer.set_result(result.code if isinstance(result, StorageError) else ErrorCode.OK)

            connection.ask(opcode, encode_message(request), done)  # type: ignore[arg-type]
            return await answer

        assert [await asked(*request) for request in requests] == [ErrorCode.OK] * 3
        with standing_still(cluster, followers):
            stopped = time.monotonic()
            codes: set[ErrorCode] = set()
            while time.monotonic() < stopped + 3 * LEADER_LEASE_MS / 1000:
                for request in requests:
                    asked_s = time.monotonic()
                    code = await asked(*request)
                    # The last heartbeat that came back had left before they stopped.
                    if asked_s > stopped + (LEADER_LEASE_MS + HEARTBEAT_INTERVAL_MS) / 1000:
                        codes.add(code)
                await asyncio.sleep(0.02)
            assert codes and codes <= {ErrorCode.NO_QUORUM, ErrorCode.NOT_LEADER}
        await client.stats(partition)
        connection.close()
        await client.close()

    run(scenario())
