"""Scheduled messages on three real nodes: leaders are killed while messages become due; cancelled ones never come."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.limits import KIB, MIB, SCHEDULED_BATCH_BYTES_MAX
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.record_batch import read_header
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import AcquiredMessage, DeadSource, MessageState, QueueConfig
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_RELEASED,
    decode_body,
    encode_body,
    origin_offset,
)
from tests.storage_nodes.log.writing import read_all

DAY_MS = 86_400_000
FIFO = QueueConfig(fifo=True)


def run(work: object) -> None:
    asyncio.run(asyncio.wait_for(work, 90))  # type: ignore[arg-type]


def now_ms() -> int:
    return int(time.time() * 1000)


def due(value: bytes, at: bytes, group: bytes = b"") -> bytes:
    headers = [(HEADER_GROUP, group)] if group else []
    return encode_body(value, None, [*headers, (HEADER_DUE, at)])


async def create(cluster: StorageCluster, client: StorageClient, config: QueueConfig) -> int:
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")  # waits for the cluster
    info = await client.create_partition(PartitionKind.QUEUE, "scheduled", config)
    await client.stats(info.partition)
    return info.partition


async def drain(client: StorageClient, partition: int, count: int) -> list[AcquiredMessage]:
    """Receive and delete until so many came, and a little longer."""
    received: list[AcquiredMessage] = []
    while True:
        missing = len(received) < count
        reply = await client.acquire(partition, 100, 30_000, 5_000 if missing else 300)
        if not reply.messages and not missing:
            return received
        received += reply.messages
        if reply.messages:
            await client.delete(partition, [(one.offset, one.delivery) for one in reply.messages])


@pytest.mark.parametrize("config", [QueueConfig(), FIFO], ids=["standard", "fifo"])
def test_scheduled_messages_come_once_due_and_cancelled_ones_never_while_the_leader_is_killed(
    cluster: StorageCluster, config: QueueConfig
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await create(cluster, client, config)
        at_ms = now_ms() + 3_000
        count = 400
        bodies = [due(b"%d" % number, b"%d" % (at_ms + number), b"g%d" % (number % 7)) for number in range(count)]
        first = (await client.send(partition, bodies, plain=False)).first_offset
        cancelled = set(range(0, count, 5))
        codes = await client.reschedule(partition, [(first + number, 0) for number in sorted(cancelled)])
        assert codes == [ErrorCode.OK] * len(cancelled)
        later = first + 1
        assert await client.reschedule(partition, [(later, at_ms + DAY_MS)]) == [ErrorCode.OK]
        stats = await client.stats(partition)
        assert (stats.waiting, stats.delayed) == (0, count - len(cancelled))
        assert now_ms() < at_ms, "the machine is too slow for this test"

        async def kill_the_leader() -> int:
            await asyncio.sleep((at_ms - now_ms()) / 1000 + 0.1)
            killed = await leader_of(client, partition)
            cluster.kill(killed)
            return killed

        killing = asyncio.create_task(kill_the_leader())
        expected = [number for number in range(count) if number not in cancelled and number != 1]
        received = await drain(client, partition, len(expected))
        assert now_ms() >= at_ms
        values = [int(decode_body(one.body).value) for one in received]
        assert set(values) == set(expected)
        if config.fifo:
            assert len(values) == len(expected)
            for group in range(7):
                mine = [number for number in values if number % 7 == group]
                assert mine == sorted(mine), "by due time within a group"
        assert all(
            origin_offset(decode_body(one.body).headers, -1) == first + int(decode_body(one.body).value)
            for one in received
        )
        stats = await client.stats(partition)
        assert (stats.waiting, stats.in_flight, stats.delayed) == (0, 0, 1)
        assert await client.reschedule(partition, [(later, now_ms()), (first, 0)]) == [
            ErrorCode.OK,
            ErrorCode.NOT_SCHEDULED,
        ]
        (last,) = await drain(client, partition, 1)
        assert decode_body(last.body).value == b"1"
        cluster.start(await killing)
        await client.close()

    run(scenario())


def test_schedule_survives_a_restart_of_every_node_and_is_shown_page_by_page(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await create(cluster, client, QueueConfig())
        start_ms = now_ms() + DAY_MS
        for number in range(30):
            bodies = [due(b"%d" % number, b"%d" % (start_ms + number * 7 % 30), b"")] * 5
            await client.send(partition, bodies, plain=False)
        for node in list(cluster.processes):
            cluster.kill(node)
        cluster.start_all()
        seen: list[tuple[int, int]] = []
        after, more = (-1, -1), True
        while more:
            page = await client.scheduled(partition, 40, after)
            seen += [(one.due_ms, one.offset) for one in page.messages]
            after, more = (page.last_due_ms, page.last_offset), page.more
        assert len(set(seen)) == 150 and seen == sorted(seen)
        assert (await client.scheduled(partition, 9, until_ms=start_ms)).messages[-1].due_ms == start_ms
        (first, *_) = (await client.browse(partition, 0, 10)).messages
        assert (first.state, first.deadline_ms) == (MessageState.DELAYED, start_ms)
        assert await client.purge(partition) == 150
        assert (await client.scheduled(partition, 9)).messages == []
        await client.close()

    run(scenario())


def test_dead_letter_that_was_scheduled_is_not_lost_and_keeps_its_origin(shared_small_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_small_cluster.client()
        dead = await shared_small_cluster.create_partition(client, PartitionKind.QUEUE, "dead")
        config = QueueConfig(max_receives=1, dead_letter_partition=dead)
        partition = (await client.create_partition(PartitionKind.QUEUE, "scheduled", config)).partition
        await client.send(partition, [encode_body(b"before")])
        reply = await client.send(partition, [due(b"one", b"+50")], plain=False)
        received = 0
        while received < 2:
            received += len((await client.acquire(partition, 10, 1, 5_000)).messages)
        letters: dict[bytes, AcquiredMessage] = {}
        while len(letters) < 2:
            for message in (await client.acquire(dead, 10, 60_000, 5_000)).messages:
                letters[decode_body(message.body).value] = message
        headers = dict(decode_body(letters[b"one"].body).headers)
        assert HEADER_RELEASED not in headers and HEADER_DUE not in headers
        assert msgspec.msgpack.decode(headers[HEADER_DEAD_SOURCE], type=DeadSource).offset == reply.first_offset
        await client.close()

    run(scenario())


def test_node_refuses_senseless_due_times_and_releases_from_clients(shared_small_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_small_cluster.client()
        partition = await shared_small_cluster.create_partition(client, PartitionKind.QUEUE, "first")
        for headers in ([(HEADER_DUE, b"soon")], [(HEADER_DUE, b"")], [(HEADER_RELEASED, b"0/0")]):
            with pytest.raises(StorageError) as refused:
                await client.send(partition, [encode_body(b"x", None, headers)], plain=False)
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        for changes in ([], [(0, 0)] * 101, [(0, now_ms() + 400 * DAY_MS)]):
            with pytest.raises(StorageError) as refused:
                await client.reschedule(partition, changes)
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(StorageError):
            await client.scheduled(partition, 501)
        await client.close()

    run(scenario())


def test_scheduled_messages_stand_in_small_batches_since_each_is_read_alone(small_cluster: StorageCluster) -> None:
    count = 200

    async def scenario() -> int:
        client = await small_cluster.client()
        partition = await create(small_cluster, client, QueueConfig())
        await client.send(partition, [due(bytes(1_000), b"+%d" % DAY_MS)] * count, plain=False)
        await client.send(partition, [encode_body(bytes(1_000))] * count)
        page = await client.scheduled(partition, count)
        assert len(page.messages) == count
        await client.close()
        return partition

    partition = asyncio.run(asyncio.wait_for(scenario(), 30))
    small_cluster.stop()
    log = NodeLog.open(str(small_cluster.directory / "node-1"))
    batches = [batch for batch in read_all(log.partitions[partition], MIB) if not read_header(batch).is_control]
    log.close()
    scheduled = [batch for batch in batches if not read_header(batch).is_plain]
    assert sum(read_header(batch).record_count for batch in scheduled) == count
    assert max(map(len, scheduled)) < SCHEDULED_BATCH_BYTES_MAX + KIB
    assert max(map(len, batches)) > count * 1_000, "other messages are together as ever"
