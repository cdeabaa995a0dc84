"""A leader whose followers stand still answers nothing from what it knows, and does again when they are back (R8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.client.connection import ClientConnection, connect
from storage_nodes.limits import HEARTBEAT_INTERVAL_MS, LEADER_LEASE_MS
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    AcquireRequest,
    GroupCommittedRequest,
    GroupReadRequest,
    Message,
    Opcode,
    QueueBrowseRequest,
    QueueStatsRequest,
    StreamReadRequest,
    encode_message,
)
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.conftest import cluster_of
from tests.storage_nodes.node.node_programs import STUBBORN_NODE
from tests.storage_nodes.node.test_acks_between_nodes import run, standing_still
from tests.storage_nodes.node.warm_nodes import Incubator

# The last heartbeat that came back had left before the followers stopped.
LEASE_ENDS_MS = LEADER_LEASE_MS + HEARTBEAT_INTERVAL_MS
GRANT = (b"readers", 1, 1)
OK = ErrorCode.OK

Question = tuple[Opcode, Message, ErrorCode]  # with what is answered under a lease


@pytest.fixture
def stubborn_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    """Its leaders do not step down when their lease is over: only the lease keeps them from answering."""
    yield from cluster_of(3, incubator, STUBBORN_NODE)


async def ask(connection: ClientConnection, opcode: Opcode, request: Message) -> ErrorCode:
    answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(result: bytes | StorageError) -> None:
        answer.set_result(result.code if isinstance(result, StorageError) else OK)

    connection.ask(opcode, encode_message(request), done)
    return await answer


async def ask_one_cut_off(
    cluster: StorageCluster, client: StorageClient, partition: int, at_once: list[Question], waiting: list[Question]
) -> None:
    """The leader answers under its lease, and refuses all of it afterwards. Those of `waiting` are taken under the
    lease, and answered after it."""
    leader = await leader_of(client, partition)
    connection = await connect(cluster.cluster_id, "t", cluster.addresses[leader - 1], 5.0)
    for opcode, request, code in at_once:
        assert await ask(connection, opcode, request) is code, opcode
    refused: list[tuple[Opcode, ErrorCode]] = []
    with standing_still(cluster, [node for node in (1, 2, 3) if node != leader]):
        stopped_s = time.monotonic()
        waits = [asyncio.create_task(ask(connection, opcode, request)) for opcode, request, _ in waiting]
        while time.monotonic() < stopped_s + 3 * LEADER_LEASE_MS / 1_000:
            for opcode, request, _ in at_once:
                asked_s = time.monotonic()
                code = await ask(connection, opcode, request)
                if asked_s > stopped_s + LEASE_ENDS_MS / 1_000:
                    refused.append((opcode, code))
            await asyncio.sleep(0.02)
        refused += zip([opcode for opcode, _, _ in waiting], await asyncio.gather(*waits), strict=True)
    told = {opcode: {code for of, code in refused if of is opcode} for opcode in {opcode for opcode, _ in refused}}
    assert set(told) == {opcode for opcode, _, _ in at_once}
    assert all(codes <= {ErrorCode.NO_QUORUM, ErrorCode.NOT_LEADER} for codes in told.values()), told
    assert all(ErrorCode.NO_QUORUM in codes for codes in told.values()), ("it led on, without a lease", told)
    connection.close()


def test_leader_that_hears_no_majority_refuses_what_it_alone_knows(stubborn_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await stubborn_cluster.client()
        partition = await stubborn_cluster.create_partition(client, PartitionKind.QUEUE, "t")
        at_once: list[Question] = [
            (Opcode.ACQUIRE, AcquireRequest(partition, 1, 1_000), OK),
            (Opcode.QUEUE_STATS, QueueStatsRequest(partition), OK),
            (Opcode.QUEUE_BROWSE, QueueBrowseRequest(partition, 0, 10), OK),
        ]
        await ask_one_cut_off(stubborn_cluster, client, partition, at_once, [])
        await client.stats(partition)
        await client.close()

    run(scenario())


def test_leader_of_a_stream_that_hears_no_majority_answers_no_read_and_tells_nothing_of_log_and_groups(
    stubborn_cluster: StorageCluster,
) -> None:
    async def scenario() -> None:
        client = await stubborn_cluster.client()
        stream = await stubborn_cluster.create_partition(client, PartitionKind.STREAM, "s")
        await client.stream_append(stream, [encode_body(b"record")])
        await client.group_fence(stream, *GRANT)
        end = (await client.stream_read(stream, 0, 1_000)).high_watermark
        at_once: list[Question] = [
            (Opcode.STREAM_READ, StreamReadRequest(stream, 0, 1_000), OK),
            (Opcode.GROUP_READ, GroupReadRequest(stream, 0, 1_000, 0, *GRANT), OK),
            (Opcode.GROUP_COMMITTED, GroupCommittedRequest(stream, *GRANT), OK),
            # What is refused rests on what the leader knows, too.
            (Opcode.STREAM_READ, StreamReadRequest(stream, end + 1, 1_000), ErrorCode.OFFSET_OUT_OF_RANGE),
            (Opcode.GROUP_READ, GroupReadRequest(stream, 0, 1_000, 0, b"others", 1, 1), ErrorCode.GRANT_UNKNOWN),
        ]
        waiting: list[Question] = [
            (Opcode.STREAM_READ, StreamReadRequest(stream, end, 1_000, LEASE_ENDS_MS), OK),
            (Opcode.GROUP_READ, GroupReadRequest(stream, end, 1_000, LEASE_ENDS_MS, *GRANT), OK),
        ]
        await ask_one_cut_off(stubborn_cluster, client, stream, at_once, waiting)
        assert len((await client.group_read(stream, 0, 1_000, GRANT)).batches) == 1
        await client.close()

    run(scenario())
