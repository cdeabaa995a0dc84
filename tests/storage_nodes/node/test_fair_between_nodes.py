"""Fair delivery and tag filters on three real nodes, whose leader is killed in the middle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.limits import TAG_BYTES_MAX, TAGS_PER_ACQUIRE_MAX
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_GROUP, HEADER_TAG, decode_body, encode_body


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 90))


def message(value: bytes, group: bytes = b"", tag: bytes = b"") -> bytes:
    headers = [(HEADER_GROUP, group)] if group else []
    headers += [(HEADER_TAG, tag)] if tag else []
    return encode_body(value, None, headers)


async def create(cluster: StorageCluster, client: StorageClient, config: QueueConfig | None = None) -> int:
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")  # waits for the cluster
    tag = f"fair {uuid.uuid4()}"  # a partition of its own where tests share a cluster
    info = await client.create_partition(PartitionKind.QUEUE, tag, config or QueueConfig())
    await client.stats(info.partition)
    return info.partition


def test_quiet_groups_behind_a_flood_come_soon_and_nothing_is_lost_when_the_leader_is_killed(
    cluster: StorageCluster,
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await create(cluster, client)
        sent: set[bytes] = set()

        async def send(*messages: tuple[bytes, bytes]) -> None:
            await client.send(partition, [message(*each) for each in messages], plain=False)
            sent.update(value for value, _ in messages)

        for block in range(20):
            await send(*[(b"flood %d/%d" % (block, number), b"flood") for number in range(1_000)])
        await send(*[(b"quiet %d" % number, b"quiet %d" % number) for number in range(20)])
        quiet_at: list[int] = []
        got: set[bytes] = set()
        held: list[tuple[int, int]] = []
        for receive in range(8):
            for each in (await client.acquire(partition, 10, 120_000)).messages:
                value = decode_body(each.body).value
                got.add(value)
                held.append((each.offset, each.delivery))
                if value.startswith(b"quiet"):
                    quiet_at.append(receive)
        assert len(quiet_at) == 20 and max(quiet_at) <= 4, f"quiet messages came in receives {quiet_at}"
        stats = await client.stats(partition)
        assert (stats.noisy_groups, stats.in_flight) == (1, 80)

        await client.change_visibility(partition, [(*held[-1], 120_000)])  # committed, so all leases before it are
        killed = await leader_of(client, partition)
        cluster.kill(killed)
        late = [(b"late %d" % number, b"late") for number in range(5)]
        await send(*late)
        after: set[bytes] = set()
        for _ in range(4):  # the new leader reads its way through the flood, and nobody waits for that
            after.update(decode_body(m.body).value for m in (await client.acquire(partition, 5, 120_000)).messages)
        assert after >= {value for value, _ in late}, "who leads now knows who is noisy"
        assert not got & after, "delivered while its lease holds"
        got.update(after)
        assert await client.delete(partition, held) == [ErrorCode.OK] * len(held)
        while messages := (await client.acquire(partition, 1_000, 120_000, 500)).messages:
            assert not got & {decode_body(each.body).value for each in messages}, "delivered while its lease holds"
            got.update(decode_body(each.body).value for each in messages)
            await client.delete(partition, [(each.offset, each.delivery) for each in messages])
        assert got == sent
        cluster.start(killed)
        await client.close()

    run(scenario())


def test_filtered_consumers_take_their_tags_apart_while_the_leader_is_killed(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await create(cluster, client)
        tags, count = (b"red", b"green", b"blue"), 400
        got: dict[bytes, set[bytes]] = {tag: set() for tag in tags}

        async def produce() -> None:
            for number in range(count):
                bodies = [message(b"%b %d" % (tag, number), b"g%d" % (number % 7), tag) for tag in tags]
                await client.send(partition, bodies, plain=False)

        async def consume(tag: bytes) -> None:
            while len(got[tag]) < count:
                reply = await client.acquire(partition, 20, 3_000, 1_000, tags=[tag])
                for each in reply.messages:
                    record = decode_body(each.body)
                    assert dict(record.headers)[HEADER_TAG] == tag
                    got[tag].add(record.value)
                if reply.messages:
                    await client.delete(partition, [(each.offset, each.delivery) for each in reply.messages])

        consumers = [asyncio.create_task(consume(tag)) for tag in tags[:2]]  # nobody wants the third yet
        producer = asyncio.create_task(produce())
        while sum(map(len, got.values())) < 100:
            await asyncio.sleep(0.005)
        killed = await leader_of(client, partition)
        cluster.kill(killed)
        await asyncio.gather(producer, *consumers)
        assert (await client.stats(partition)).waiting >= count, "the third tag was left alone"
        await consume(tags[2])
        expected = {tag: {b"%b %d" % (tag, number) for number in range(count)} for tag in tags}
        assert got == expected
        cluster.start(killed)
        await client.close()

    run(scenario())


def test_long_poll_for_a_tag_is_woken_by_it(shared_small_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_small_cluster.client()
        partition = await create(shared_small_cluster, client)
        poll = asyncio.create_task(client.acquire(partition, 10, 30_000, 10_000, tags=[b"red", b"blue"]))
        await client.send(partition, [message(b"plain")])
        await client.send(partition, [message(b"no", tag=b"green"), message(b"yes", tag=b"blue")], plain=False)
        reply = await poll
        assert [decode_body(each.body).value for each in reply.messages] == [b"yes"]
        await client.close()

    run(scenario())


@pytest.mark.parametrize(
    "tags",
    [[b""], [b"x" * (TAG_BYTES_MAX + 1)], [b"%d" % number for number in range(TAGS_PER_ACQUIRE_MAX + 1)]],
)
def test_filter_out_of_bounds_is_refused(shared_small_cluster: StorageCluster, tags: list[bytes]) -> None:
    async def scenario() -> None:
        client = await shared_small_cluster.client()
        partition = await create(shared_small_cluster, client)
        with pytest.raises(StorageError) as raised:
            await client.acquire(partition, 1, 30_000, tags=tags)
        assert raised.value.code == ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())


def test_message_with_a_tag_out_of_bounds_is_refused(shared_small_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_small_cluster.client()
        partition = await create(shared_small_cluster, client)
        with pytest.raises(StorageError) as raised:
            await client.send(partition, [message(b"x", tag=b"t" * (TAG_BYTES_MAX + 1))], plain=False)
        assert raised.value.code == ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())


def test_filter_on_a_fifo_partition_is_refused(shared_small_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_small_cluster.client()
        partition = await create(shared_small_cluster, client, QueueConfig(fifo=True))
        with pytest.raises(StorageError) as raised:
            await client.acquire(partition, 1, 30_000, tags=[b"red"])
        assert raised.value.code == ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())
