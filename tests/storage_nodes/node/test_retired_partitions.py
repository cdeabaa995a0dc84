"""Queues that are deleted on three real nodes: their last window stands in the usage stream before they may go, whoever
is killed on the way, and nothing is taken once it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.limits import MIB
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import PartitionKind
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.retiring import retire
from storage_nodes.node.transport.inter_partition_client import USAGE_TAG
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import QueueConfig, RetireRequest, encode_message
from storage_nodes.protocol.records import decode_body, encode_body
from storage_nodes.protocol.usage import Origin, usage_key
from tests.storage_nodes.node.test_stopped_replicas_of_nodes import Sender, node_with_queue

ACCOUNT = "100000000001"
TAG = f"queue:{'ab' * 16}:0"
BODY = encode_body(b"sealed", usage_key(Origin.CLIENT, 1_000))
WAIT_S = 60.0
TRIES_MAX = 10


async def records(client: StorageClient, partition: int) -> list[list[object]]:
    """What the usage stream says of the partition."""
    stream = (await client.create_partition(PartitionKind.STREAM, USAGE_TAG)).partition
    found: list[list[object]] = []
    offset = 0
    while True:
        page = await client.stream_read(stream, offset, MIB)
        for batch in page.batches:
            rows = (msgspec.msgpack.decode(decode_body(body).value[2:]) for _, body in iterate_bodies(batch))
            found += [row for row in rows if row[1] == partition]
        offset = page.next_offset
        if offset >= page.high_watermark:
            return found


async def used_queue(cluster: StorageCluster, client: StorageClient) -> int:
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")
    queue = (await client.create_partition(PartitionKind.QUEUE, TAG, QueueConfig(account_id=ACCOUNT))).partition
    await client.send(queue, [BODY] * 5)
    got = await client.acquire(queue, 2, 60_000)
    await client.delete(queue, [(message.offset, message.delivery) for message in got.messages])
    return queue


async def retired(client: StorageClient, queue: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                if await client.retire_partition(queue, TAG):
                    return
            except StorageError as error:
                assert error.traits.retriable or error.traits.outcome_unknown, error
            await asyncio.sleep(0.02)


def counted(rows: list[list[object]]) -> tuple[int, int, int]:
    """Sent, delivered, deleted: by hour, the record that goes furthest."""
    latest: dict[object, list[object]] = {}
    for row in sorted(rows, key=lambda row: row[5]):  # type: ignore[arg-type, return-value]
        latest[row[4]] = row
    origins = [origin for row in latest.values() for origin in row[9]]  # type: ignore[attr-defined]
    sent, delivered, deleted = (sum(origin[at] for origin in origins) for at in (1, 2, 3))
    return sent, delivered, deleted


async def kill_while_retiring(cluster: StorageCluster, polls: int) -> None:
    client = await cluster.client()
    queue = await used_queue(cluster, client)
    for _ in range(polls):
        await client.retire_partition(queue, TAG)
    leader = await leader_of(client, queue)
    cluster.kill(leader)
    await retired(client, queue)
    rows = await records(client, queue)
    assert counted(rows) == (5, 2, 2)
    last = max(rows, key=lambda row: row[5])  # type: ignore[arg-type, return-value]
    assert last[6] is True and last[8] == 3_000, "final, and as much was stored until then"
    await client.delete_partition(queue, TAG)
    assert await client.retire_partition(queue, TAG), "it is gone: whoever forgot that asks again"
    await client.close()


@pytest.mark.parametrize("polls", [1, 2, 4])
def test_last_window_is_exported_through_the_kill_of_the_leader(cluster: StorageCluster, polls: int) -> None:
    asyncio.run(asyncio.wait_for(kill_while_retiring(cluster, polls), 120))


async def refused_as_unknown(call: Callable[[], Awaitable[object]]) -> None:
    """The client repeats the call until its deadline, at other nodes, too. If a try is under way then, its outcome is
    unknown, and if the last one was a follower's, the partition is led elsewhere: ask again."""
    for _ in range(TRIES_MAX):
        with pytest.raises(StorageError) as refused:
            await call()
        if refused.value.code not in (ErrorCode.OUTCOME_UNKNOWN, ErrorCode.NOT_LEADER):
            break
    assert refused.value.code == ErrorCode.UNKNOWN_PARTITION


async def refusals(cluster: StorageCluster) -> None:
    client = await cluster.client()
    queue = await used_queue(cluster, client)
    poll = asyncio.create_task(client.acquire(queue, 10, 60_000))
    await poll
    hasty = StorageClient(cluster.cluster_id, cluster.addresses, "hasty", 1.0)
    await hasty.start()
    parked = asyncio.create_task(hasty.acquire(queue, 1, 60_000, 3_000))
    await asyncio.sleep(0.3)
    assert not parked.done()
    await retired(client, queue)
    before = await records(client, queue)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: hasty.send(queue, [BODY]),
        lambda: hasty.acquire(queue, 1, 60_000),
        lambda: hasty.delete(queue, [(2, 1)]),
        lambda: hasty.change_visibility(queue, [(2, 1, 0)]),
        lambda: hasty.purge(queue),
        lambda: hasty.configure(queue, QueueConfig()),
    ]
    await asyncio.gather(*(refused_as_unknown(call) for call in calls))
    with pytest.raises(StorageError):
        await parked
    with pytest.raises(StorageError) as refused:
        await hasty.retire_partition(queue, "queue:other:0")
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert await hasty.retire_partition(queue, TAG)
    assert await records(client, queue) == before, "nothing was used since"
    assert counted(before) == (5, 5, 2)
    await hasty.close()
    await client.close()


def test_retired_partition_takes_no_requests(cluster: StorageCluster) -> None:
    asyncio.run(asyncio.wait_for(refusals(cluster), 120))


async def restart(cluster: StorageCluster) -> None:
    client = await cluster.client()
    queue = await used_queue(cluster, client)
    await client.retire_partition(queue, TAG)
    nodes = list(cluster.processes)
    for node in nodes:
        cluster.kill(node)
    for node in nodes:
        cluster.start(node)
    await retired(client, queue)
    assert counted(await records(client, queue)) == (5, 2, 2)
    hasty = StorageClient(cluster.cluster_id, cluster.addresses, "hasty", 1.0)
    await hasty.start()
    with pytest.raises(StorageError):
        await hasty.send(queue, [BODY])
    await hasty.close()
    await client.close()


def test_partition_stays_retired_when_all_nodes_are_killed(cluster: StorageCluster) -> None:
    asyncio.run(asyncio.wait_for(restart(cluster), 120))


async def not_metered(cluster: StorageCluster) -> None:
    client = await cluster.client()
    queue = await cluster.create_partition(client, PartitionKind.QUEUE, TAG)
    await client.send(queue, [BODY])
    assert await client.retire_partition(queue, TAG), "nobody is billed for it"
    assert await records(client, queue) == []
    await client.close()


def test_partition_without_an_account_may_go_at_once(cluster: StorageCluster) -> None:
    asyncio.run(asyncio.wait_for(not_metered(cluster), 120))


def test_leader_without_a_lease_does_not_answer_retire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have missed the account that another leader was told: it would say that nobody is billed."""

    async def scenario() -> None:
        node, partition = await node_with_queue(tmp_path)
        replica = node.replicas[partition]
        assert isinstance(replica, QueueReplica)
        sender = Sender()
        token: Any = SimpleNamespace(connection=sender, request_id=1)
        request = encode_message(RetireRequest(partition, replica.tag))
        with monkeypatch.context() as without_lease:
            without_lease.setattr(QueueReplica, "holds_lease", lambda _: False)
            with pytest.raises(StorageError) as refused:
                retire(replica, token, request)
        assert refused.value.code == ErrorCode.NO_QUORUM
        assert not sender.answers
        retire(replica, token, request)
        assert isinstance(sender.answers[1], bytes)
        await node.close()

    asyncio.run(scenario())
