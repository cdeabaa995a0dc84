"""Three real storage node processes: what is acknowledged survives, whoever is killed."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from benchmarks.storage_cluster import StorageCluster, described, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.records import decode_body, encode_body


async def drain(client: StorageClient, partition: int) -> list[bytes]:
    """Receive and delete until nothing is waiting or in flight."""
    received: list[bytes] = []
    while True:
        reply = await client.acquire(partition, 100, 30_000, 100)
        if reply.messages:
            received += [decode_body(message.body).value for message in reply.messages]
            codes = await client.delete(partition, [(m.offset, m.delivery) for m in reply.messages])
            assert set(codes) == {ErrorCode.OK}
            continue
        stats = await client.stats(partition)
        if stats.waiting == 0 and stats.in_flight == 0:
            return received


def run(work: object) -> None:
    asyncio.run(asyncio.wait_for(work, 60))  # type: ignore[arg-type]


def test_messages_sent_are_received_once_in_order_and_gone_after_delete(shared_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await shared_cluster.create_partition(client, PartitionKind.QUEUE, "in order")
        values = [b"message %d" % n for n in range(2_000)]
        for start in range(0, len(values), 10):
            await client.send(partition, [encode_body(value) for value in values[start : start + 10]])
        assert (await client.stats(partition)).waiting == 2_000
        assert await drain(client, partition) == values
        await client.close()

    run(scenario())


def test_leader_killed_under_load_every_acknowledged_message_arrives(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        acknowledged: list[bytes] = []

        async def produce(sender: int) -> None:
            for number in range(150):
                value = b"%d-%d" % (sender, number)
                await client.send(partition, [encode_body(value)])
                acknowledged.append(value)

        senders = [asyncio.create_task(produce(sender)) for sender in range(20)]
        while len(acknowledged) < 500:
            await asyncio.sleep(0.005)
        info = await described(client, partition)
        cluster.kill(info.leader)
        await asyncio.gather(*senders)
        after = await described(client, partition)
        assert after.leader not in (0, info.leader) and after.epoch > info.epoch
        assert set(acknowledged) <= set(await drain(client, partition))
        cluster.start(info.leader)
        await client.close()

    run(scenario())


def test_all_nodes_killed_and_started_again_nothing_acknowledged_is_lost(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        values = [b"%d" % n for n in range(1_000)]
        await asyncio.gather(*(client.send(partition, [encode_body(value)]) for value in values))
        reply = await client.acquire(partition, 10, 60_000)
        await client.delete(partition, [(m.offset, m.delivery) for m in reply.messages[:5]])
        deleted = {decode_body(message.body).value for message in reply.messages[:5]}
        for node_id in (1, 2, 3):
            cluster.kill(node_id)
        cluster.start_all()
        # The five that are leased and not deleted come back when their lease is given up.
        leased = [(m.offset, m.delivery, 0) for m in reply.messages[5:]]
        await client.change_visibility(partition, leased)
        received = await drain(client, partition)
        assert set(values) - deleted <= set(received)
        assert not deleted & set(received), "an acknowledged delete stays deleted"
        await client.close()

    run(scenario())


def test_node_that_was_away_catches_up(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        leader = await leader_of(client, partition)
        follower = next(node for node in (1, 2, 3) if node != leader)
        cluster.kill(follower)
        values = [b"%d" % n for n in range(3_000)]
        for start in range(0, 3_000, 100):
            await client.send(partition, [encode_body(value) for value in values[start : start + 100]])
        cluster.start(follower)
        # With acks from every voter the send is only answered once the follower holds everything before it too.
        await client.send(partition, [encode_body(b"last")], acks=3)  # type: ignore[arg-type]
        third = next(node for node in (1, 2, 3) if node not in (leader, follower))
        cluster.kill(third)
        cluster.kill(leader)
        cluster.start(third)
        received = await drain(client, partition)
        assert received[: len(values)] == values
        # A slow machine makes the client send the last one again before everybody has it.
        assert set(received[len(values) :]) == {b"last"}
        await client.close()

    run(scenario())


def test_malformed_frames_close_their_connection_and_nobody_elses(shared_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await shared_cluster.create_partition(client, PartitionKind.QUEUE, "rubbish")
        address = shared_cluster.addresses[0]
        huge = struct.pack(">BBBBIII", 0xA7, 1, 10, 0, 1, 2**31, 0)
        for rubbish in (b"GET / HTTP/1.1\r\n\r\n", huge, b"\xa7\x01\x0a\x00" + bytes(12), b"\xa7\x02" + bytes(30)):
            with socket.create_connection((address.host, address.port), timeout=5) as connection:
                connection.sendall(rubbish)
                assert connection.recv(1) == b"", "the node closes"
        await client.send(partition, [encode_body(b"still here")])
        assert await drain(client, partition) == [b"still here"]
        assert shared_cluster.log_of(1).count("malformed") == 4
        await client.close()

    run(scenario())


def test_calls_that_make_no_sense_are_refused_and_the_connection_stays_usable(shared_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await shared_cluster.create_partition(client, PartitionKind.QUEUE, "senseless")
        for call, code in (
            (client.acquire(partition, 0, 1_000), ErrorCode.INVALID_REQUEST),
            (client.acquire(partition, 1, -1), ErrorCode.INVALID_REQUEST),
            (client.send(partition, []), ErrorCode.INVALID_REQUEST),
            (client.send(partition, [bytes(2**20 + 2**17)]), ErrorCode.TOO_LARGE),
            (client.delete_partition(partition, "another tag"), ErrorCode.INVALID_REQUEST),
            (client.create_partition(9, "x"), ErrorCode.INVALID_REQUEST),
        ):
            with pytest.raises(StorageError) as refused:
                await call  # type: ignore[misc]
            assert refused.value.code is code
        await client.send(partition, [encode_body(b"fine")])
        await client.close()

    run(scenario())


def test_stream_is_read_by_offset_as_often_as_wanted_and_waits_at_its_end(shared_cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await shared_cluster.client()
        partition = await shared_cluster.create_partition(client, PartitionKind.STREAM, "s")
        values = [b"record %d" % n for n in range(500)]
        for start in range(0, 500, 50):
            await client.stream_append(partition, [encode_body(value) for value in values[start : start + 50]])
        for _ in range(2):
            assert await read_stream(client, partition, 0, 500) == values
        end = (await client.stream_read(partition, 0, 1, 0)).high_watermark
        waiting = asyncio.create_task(client.stream_read(partition, end, 10_000, 5_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.stream_append(partition, [encode_body(b"late")])
        assert [decode_body(body).value for body in bodies_of((await waiting).batches)] == [b"late"]
        with pytest.raises(StorageError) as refused:
            await client.stream_read(partition, 10_000, 100, 0)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await client.close()

    run(scenario())


def bodies_of(batches: list[bytes]) -> list[bytes]:
    return [body for batch in batches for _, body in iterate_bodies(batch)]


async def read_stream(client: StorageClient, partition: int, offset: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        reply = await client.stream_read(partition, offset, 20_000, 1_000)
        found += [decode_body(body).value for body in bodies_of(reply.batches)]
        offset = reply.next_offset
    return found
