"""Sends that are repeated at another leader or after a restart, on three real nodes: nothing has a copy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.client.connection import ClientConnection, connect
from storage_nodes.config import NodeConfig
from storage_nodes.model import PartitionKind, format_node_list
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.bodies import BodyReader
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import Opcode, QueueConfig, SendReply, SendRequest, encode_message
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_DELAY_MS, HEADER_DUE, HEADER_GROUP, encode_body

PRODUCER = 4_711
FAR_MS = b"4000000000000"

Headers = list[tuple[bytes, bytes]]


class Nodes:
    def __init__(self, directory: Path) -> None:
        self.cluster = StorageCluster(3, str(directory))
        nodes = format_node_list(self.cluster.addresses)
        self._configs = {
            each.node_id: NodeConfig(
                "c", each.node_id, str(directory / str(each.node_id)), f"{each.host}:{each.port}", nodes
            )
            for each in self.cluster.addresses
        }
        self.running: dict[int, StorageNode] = {}

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.running[node_id] = StorageNode(self._configs[node_id])
        await asyncio.gather(*(self.running[node_id].start() for node_id in node_ids))

    async def stop(self, *node_ids: int) -> None:
        await asyncio.gather(*(self.running.pop(node_id).close() for node_id in node_ids))

    async def leader(self, partition: int) -> Replica:
        async with asyncio.timeout(30):
            while True:
                for node in self.running.values():
                    replica = node.replicas.get(partition)
                    if replica is not None and replica.serving and not replica.handing_over:
                        return replica
                await asyncio.sleep(0.02)

    async def ask(self, partition: int, request: SendRequest, opcode: int) -> SendReply:
        """Put it to whoever leads, once. Raises StorageError."""
        node_id = (await self.leader(partition)).host.node_id
        address = self.cluster.addresses[node_id - 1]
        connection = await connect("c", "test", address, 5.0)
        try:
            return msgspec.msgpack.decode(await _answer(connection, opcode, encode_message(request)), type=SendReply)
        finally:
            connection.close()


async def _answer(connection: ClientConnection, opcode: int, payload: bytes) -> bytes:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def done(result: bytes | StorageError) -> None:
        if isinstance(result, StorageError):
            future.set_exception(result)
        else:
            future.set_result(result)

    connection.ask(opcode, payload, done)
    return await future


@asynccontextmanager
async def three_nodes(directory: Path) -> AsyncIterator[tuple[Nodes, StorageClient]]:
    nodes = Nodes(directory)
    await nodes.start(1, 2, 3)
    client = StorageClient("c", nodes.cluster.addresses, timeout_s=30.0, chance=random.Random(5))
    await client.start()
    try:
        yield nodes, client
    finally:
        await client.close()
        await nodes.stop(*nodes.running)


KINDS: dict[str, tuple[int, QueueConfig | None, Headers]] = {
    "plain": (PartitionKind.QUEUE, None, []),
    "delayed": (PartitionKind.QUEUE, None, [(HEADER_DELAY_MS, b"600000")]),
    "dedup": (PartitionKind.QUEUE, None, [(HEADER_DEDUP, b"id")]),
    "fifo": (PartitionKind.QUEUE, QueueConfig(fifo=True), [(HEADER_GROUP, b"g")]),
    "scheduled": (PartitionKind.QUEUE, None, [(HEADER_DUE, FAR_MS)]),
    "stream": (PartitionKind.STREAM, None, []),
}


def send_of(kind: str, partition: int, sequence: int = 0) -> SendRequest:
    headers = KINDS[kind][2]
    bodies = [encode_body(b"%d" % (sequence + at), None, headers) for at in range(3)]
    return SendRequest(partition, bodies, not headers, 2, PRODUCER, 0, sequence)


async def held(client: StorageClient, partition: int, kind: str) -> int:
    if kind == "stream":
        reply = await client.stream_read(partition, 0, 1_000_000)
        return sum(int.from_bytes(batch[57:61]) for batch in reply.batches)
    stats = await client.stats(partition)
    return stats.waiting + stats.delayed


def test_repeat_at_another_leader_and_after_a_restart_is_answered_as_the_first_attempt_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with three_nodes(tmp_path) as (nodes, client):
            partitions = {}
            for kind, (partition_kind, config, _) in KINDS.items():
                partitions[kind] = (await client.create_partition(partition_kind, kind, config)).partition

            async def send_all() -> dict[str, SendReply]:
                replies = {}
                for kind, partition in partitions.items():
                    opcode = Opcode.STREAM_APPEND if kind == "stream" else Opcode.SEND
                    replies[kind] = await nodes.ask(partition, send_of(kind, partition), opcode)
                return replies

            first = await send_all()
            assert first["dedup"].duplicates, "two of the three repeat the id of the first"
            assert await send_all() == first
            for partition in partitions.values():
                replica = await nodes.leader(partition)
                replica.hand_over(next(node_id for node_id in (1, 2, 3) if node_id != replica.host.node_id))
            assert await send_all() == first
            leader = (await nodes.leader(partitions["plain"])).host.node_id
            await nodes.stop(leader)
            assert await send_all() == first
            await nodes.start(leader)
            await nodes.stop(1, 2, 3)
            await nodes.start(1, 2, 3)
            assert await send_all() == first
            counts = {kind: await held(client, partition, kind) for kind, partition in partitions.items()}
            assert counts == {kind: 1 if kind == "dedup" else 3 for kind in KINDS}

    asyncio.run(asyncio.wait_for(scenario(), 90))


def test_append_whose_answer_was_lost_with_its_leader_is_not_repeated(tmp_path: Path) -> None:
    """The client itself: its leader appends, and goes before it answers, while sends are under way."""

    async def scenario() -> None:
        async with three_nodes(tmp_path) as (nodes, client):
            partition = (await client.create_partition(PartitionKind.QUEUE, "t")).partition
            await client.send(partition, [encode_body(b"first")])
            for _ in range(3):
                replica = await nodes.leader(partition)
                node_id = replica.host.node_id
                sends = [asyncio.create_task(client.send(partition, [encode_body(b"x")])) for _ in range(20)]
                end = replica.log.log_end
                while replica.log.log_end == end:
                    await asyncio.sleep(0)
                await nodes.stop(node_id)
                await asyncio.gather(*sends)
                await nodes.start(node_id)
            assert (await client.stats(partition)).waiting == 61

    asyncio.run(asyncio.wait_for(scenario(), 90))


def test_sequence_that_is_too_old_is_refused_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with three_nodes(tmp_path) as (nodes, client):
            partition = (await client.create_partition(PartitionKind.QUEUE, "t")).partition
            await nodes.ask(partition, send_of("plain", partition, 1_000_000), Opcode.SEND)
            try:
                await nodes.ask(partition, send_of("plain", partition, 0), Opcode.SEND)
            except StorageError as refused:
                assert refused.code is ErrorCode.SEQUENCE_TOO_OLD
                assert refused.traits.outcome_unknown and not refused.traits.retriable
            else:
                raise AssertionError("it was taken")

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_purge_that_is_repeated_hears_what_it_did(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with three_nodes(tmp_path) as (nodes, client):
            for config in (QueueConfig(), QueueConfig(fifo=True)):
                info = await client.create_partition(PartitionKind.QUEUE, f"fifo={config.fifo}", config)
                partition = info.partition
                body = encode_body(b"x", None, [(HEADER_GROUP, b"g")])
                await client.send(partition, [body] * 3, plain=False)
                client._attempts = 100
                assert await client.purge(partition) == 3
                await client.send(partition, [body], plain=False)
                for _ in range(2):
                    client._attempts = 100
                    assert await client.purge(partition) == 3
                    replica = await nodes.leader(partition)
                    replica.hand_over(next(node_id for node_id in (1, 2, 3) if node_id != replica.host.node_id))
                assert (await client.stats(partition)).waiting == 1, "a repeat purges nothing"
                assert len((await client.acquire(partition, 10, 1_000)).messages) == 1
                try:
                    await client.purge(partition)
                except StorageError as refused:
                    assert refused.code is ErrorCode.PURGE_IN_PROGRESS
                else:
                    raise AssertionError("another call purged within the minute")

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_leases_whose_bodies_were_being_read_when_the_leader_changed_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were never handed to anybody, and would be out of sight for twelve hours."""

    async def scenario() -> None:
        async with three_nodes(tmp_path) as (nodes, client):
            partition = (await client.create_partition(PartitionKind.QUEUE, "t")).partition
            await client.send(partition, [encode_body(b"x")] * 3)
            replica: Any = await nodes.leader(partition)
            reader = replica.bodies
            read, read_later = BodyReader.read, BodyReader.read_later
            monkeypatch.setattr(BodyReader, "read", lambda own, at: None if own is reader else read(own, at))

            def hang(own: Any, offsets: list[int], done: Any) -> None:
                if own is reader:
                    own._waiting.append((offsets, done))
                else:
                    read_later(own, offsets, done)

            monkeypatch.setattr(BodyReader, "read_later", hang)
            polling = asyncio.create_task(client.acquire(partition, 10, 43_200_000, 15_000))
            async with asyncio.timeout(20):
                while len(replica.machine.state.live) < 3:
                    await asyncio.sleep(0.01)
            replica.hand_over(next(node_id for node_id in (1, 2, 3) if node_id != replica.host.node_id))
            assert {message.offset for message in (await polling).messages} == set(replica.machine.state.live)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_did_not_fit_an_answer_from_disk_is_given_back_though_nothing_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with three_nodes(tmp_path) as (nodes, client):
            partition = (await client.create_partition(PartitionKind.QUEUE, "t")).partition
            for _ in range(4):
                await client.send(partition, [encode_body(bytes(1024 * 1024))])
            read_later, loop = BodyReader.read_later, asyncio.get_running_loop()
            monkeypatch.setattr(BodyReader, "read", lambda own, at: None)
            # A slow disk: the leases are committed, and all is quiet, when the bodies come.
            slow = lambda own, at, done: loop.call_later(0.3, read_later, own, at, done)  # noqa: E731
            monkeypatch.setattr(BodyReader, "read_later", slow)
            count = len((await client.acquire(partition, 10, 43_200_000)).messages)
            live = (await nodes.leader(partition)).machine.state.live  # type: ignore[attr-defined]
            async with asyncio.timeout(5):
                while len(live) < 4 or sum(entry[0] > entry[3] + 1_000_000 for entry in live.values()) > count:
                    await asyncio.sleep(0.01)
            assert 1 <= count < 4

    asyncio.run(asyncio.wait_for(scenario(), 60))
