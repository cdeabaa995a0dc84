"""Usage of queues on three real nodes: closed on demand, exported to the usage stream, through the kill of a leader."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.limits import MIB
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import PartitionKind
from storage_nodes.node.transport.inter_partition_client import USAGE_TAG
from storage_nodes.protocol.deliveries import receives_of
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import QueueConfig, VisibilityMode
from storage_nodes.protocol.records import HEADER_DUE, HEADER_GROUP, decode_body, encode_body
from storage_nodes.protocol.usage import Origin, usage_key

ACCOUNT = "100000000001"
QUEUES = 20
WAIT_S = 40.0


async def told(client: StorageClient) -> None:
    """All nodes that answer exported what their queues metered up to now."""
    async with asyncio.timeout(WAIT_S):
        begin = True
        while True:
            nodes = [node.node_id for node in (await client.describe()).nodes]
            left = 0
            for node in nodes:
                try:
                    left += await client.close_usage(node, begin)
                except StorageError:
                    continue  # it was killed
            if not left and not begin:
                return
            begin = False
            await asyncio.sleep(0.2)


async def windows(client: StorageClient) -> dict[int, list[object]]:
    """The record of each partition that goes furthest."""
    stream = (await client.create_partition(PartitionKind.STREAM, USAGE_TAG)).partition
    latest: dict[int, list[object]] = {}
    offset = 0
    while True:
        page = await client.stream_read(stream, offset, MIB)
        for batch in page.batches:
            for _, body in iterate_bodies(batch):
                row = msgspec.msgpack.decode(decode_body(body).value[2:])
                earlier = latest.get(row[1])
                if earlier is None or row[4:6] > earlier[4:6]:
                    latest[row[1]] = row
        offset = page.next_offset
        if offset >= page.high_watermark:
            return latest


def sent_of(row: list[object]) -> int:
    return sum(origin[1] for origin in row[9])  # type: ignore[attr-defined]


async def scenario(cluster: StorageCluster) -> None:
    client = await cluster.client()
    config = QueueConfig(account_id=ACCOUNT)
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")
    uuids = [bytes([number]) * 16 for number in range(QUEUES)]
    queues = [
        (await client.create_partition(PartitionKind.QUEUE, f"queue:{uuid.hex()}:0", config)).partition
        for uuid in uuids
    ]
    body = encode_body(b"sealed", usage_key(Origin.CLIENT, 1_000))
    for queue in queues:
        await client.send(queue, [body] * 3)
    await told(client)
    first = await windows(client)
    assert sorted(first) == sorted(queues), "and nothing of the queue without an account"
    for queue, uuid in zip(queues, uuids, strict=True):
        assert first[queue][0] == cluster.cluster_id and first[queue][2:4] == [ACCOUNT, uuid]
        assert sent_of(first[queue]) == 3 and first[queue][8] == 3_000
    leader = await leader_of(client, queues[0])
    for queue in queues:
        await client.send(queue, [body])
    cluster.kill(leader)
    for queue in queues:
        await client.send(queue, [body])
    await told(client)
    total = sum(sent_of(row) for row in (await windows(client)).values())
    assert total >= 5 * QUEUES - 1, "each acknowledged message is billed; an hour may have begun"
    await client.close()


def test_usage_is_exported_on_demand_and_through_the_kill_of_a_leader(cluster: StorageCluster) -> None:
    asyncio.run(asyncio.wait_for(scenario(cluster), 120))


async def full_answers(cluster: StorageCluster, fifo: bool) -> None:
    client = await cluster.client()
    config = QueueConfig(account_id=ACCOUNT, fifo=fifo)
    queue = (
        await client.create_partition(PartitionKind.QUEUE, f"queue:{bytes(15).hex()}0{int(fifo)}:0", config)
    ).partition
    large, count, size = bytes(20_000), 240, 150_000
    bodies = [
        encode_body(large, usage_key(Origin.CLIENT, size), [(HEADER_GROUP, b"%d" % number)] if fifo else ())
        for number in range(count)
    ]
    for at in range(0, count, 40):
        await client.send(queue, bodies[at : at + 40], plain=not fifo)
    received: set[int] = set()
    answers = 0
    while len(received) < count:
        found = await client.acquire(queue, count, visibility_ms=600_000)
        answers += 1
        offsets = {message.offset for message in found.messages}
        assert not offsets & received, "each once, as the others went back"
        received |= offsets
    assert answers > 1, "one answer held all of them: nothing went back"
    await told(client)
    row = (await windows(client))[queue]
    (client_row,) = row[9]  # type: ignore[misc]
    assert client_row[2] == count and client_row[8] == count * size and client_row[10] == 3 * count
    await client.close()


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_what_an_answer_has_no_room_for_is_billed_when_it_is_delivered(cluster: StorageCluster, fifo: bool) -> None:
    asyncio.run(asyncio.wait_for(full_answers(cluster, fifo), 120))


async def ways_out(cluster: StorageCluster) -> None:
    client = await cluster.client()
    config = QueueConfig(account_id=ACCOUNT)
    queue = (await client.create_partition(PartitionKind.QUEUE, f"queue:{'ab' * 16}:0", config)).partition
    later = [(HEADER_DUE, b"+86400000")]
    tiny = encode_body(b"sealed", usage_key(Origin.CLIENT, 1), later)
    large = encode_body(b"sealed", usage_key(Origin.CLIENT, 900_000), later)
    scheduled = await client.send(queue, [tiny] * 20 + [large], plain=False)
    waiting = encode_body(b"sealed", usage_key(Origin.CLIENT, 50_000))
    first = await client.send(queue, [waiting, encode_body(b"sealed", usage_key(Origin.CLIENT, 7))])
    assert await client.reschedule(queue, [(scheduled.first_offset + 20, 0)]) == [ErrorCode.OK]
    assert await client.remove(queue, [first.first_offset]) == [ErrorCode.OK]
    await told(client)
    assert (await windows(client))[queue][8] == 27
    await client.close()


def test_cancelled_and_removed_messages_take_their_own_sizes(cluster: StorageCluster) -> None:
    asyncio.run(asyncio.wait_for(ways_out(cluster), 60))


async def give_back_unseen(cluster: StorageCluster) -> None:
    client = await cluster.client()
    config = QueueConfig(account_id=ACCOUNT)
    await cluster.create_partition(client, PartitionKind.QUEUE, "first")
    queue = (await client.create_partition(PartitionKind.QUEUE, f"queue:{'ab' * 16}:0", config)).partition
    await client.send(queue, [encode_body(b"sealed", usage_key(Origin.CLIENT, 262_144))])
    for _ in range(10):
        leased = await client.acquire(queue, 10, 30_000, 1_000)
        changes = [(message.offset, message.delivery, 0) for message in leased.messages]
        await client.change_visibility(queue, changes, VisibilityMode.UNSEEN, leased.epoch, leased.deadline_ms)
    leased = await client.acquire(queue, 10, 30_000, 1_000)
    assert receives_of(leased.messages[0].delivery) == 1
    await told(client)
    (row,) = (await windows(client))[queue][9]  # type: ignore[misc]
    assert (row[2], row[8], row[10]) == (1, 262_144, 4)
    await client.close()


def test_leases_that_nobody_saw_are_neither_counted_nor_billed(small_cluster: StorageCluster) -> None:
    asyncio.run(asyncio.wait_for(give_back_unseen(small_cluster), 100))
