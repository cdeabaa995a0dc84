"""When a send is answered, on three real nodes some of which stand still: the four acks, and what is left of each."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import pytest

from benchmarks.storage_cluster import StorageCluster, leader_of
from storage_nodes.client import StorageClient
from storage_nodes.client.connection import connect
from storage_nodes.model import Acks, PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import Opcode, SendRequest, encode_message
from storage_nodes.protocol.records import encode_body

TRIES = 5


def run(work: object) -> None:
    asyncio.run(asyncio.wait_for(work, 90))  # type: ignore[arg-type]


@contextlib.contextmanager
def standing_still(cluster: StorageCluster, nodes: list[int]) -> Iterator[None]:
    """Neither dead nor answering: nothing of what is sent to them is lost, nothing comes back."""
    for node in nodes:
        cluster.processes[node].send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            cluster.processes[node].send_signal(signal.SIGCONT)


async def followers_of(client: StorageClient, partition: int) -> list[int]:
    await client.stats(partition)  # somebody leads
    leader = await leader_of(client, partition)
    return [node for node in (1, 2, 3) if node != leader]


async def drain(client: StorageClient, partition: int) -> list[bytes]:
    bodies: list[bytes] = []
    while reply := (await client.acquire(partition, 100, 60_000, 1_000)).messages:
        bodies += [message.body for message in reply]
    return bodies


def body(acks: Acks) -> bytes:
    return encode_body(acks.name.encode())


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
def test_send_that_asks_for_the_leader_at_most_is_answered_without_a_majority(
    cluster: StorageCluster, acks: Acks
) -> None:
    """A leader that hears of nobody steps down soon: what takes too long is tried once more."""

    async def answered_alone(client: StorageClient, partition: int) -> bool:
        followers = await followers_of(client, partition)
        with standing_still(cluster, followers):
            careful = asyncio.create_task(client.send(partition, [body(Acks.QUORUM)]))
            await asyncio.sleep(0)
            try:
                await asyncio.wait_for(client.send(partition, [body(acks)], acks=acks), 0.6)
                alone = not careful.done()
            except (StorageError, TimeoutError):
                alone = False
        await careful
        return alone

    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        for _ in range(TRIES):
            if await answered_alone(client, partition):
                break
        else:
            raise AssertionError("never answered before a majority had it")
        assert body(Acks.QUORUM) in await drain(client, partition)
        await client.close()

    run(scenario())


def test_send_that_asks_for_a_majority_is_answered_while_one_node_stands_still_and_one_for_all_is_not(
    cluster: StorageCluster,
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        follower = (await followers_of(client, partition))[0]
        with standing_still(cluster, [follower]):
            everybody = asyncio.create_task(client.send(partition, [body(Acks.ALL)], acks=Acks.ALL))
            for _ in range(20):
                await client.send(partition, [body(Acks.QUORUM)])
            await asyncio.sleep(2.5)  # longer than the client waits for other answers before it sends again
            assert not everybody.done()
        await everybody
        assert sorted(await drain(client, partition)) == [body(Acks.ALL)] + [body(Acks.QUORUM)] * 20
        await client.close()

    run(scenario())


def test_send_for_all_that_is_given_up_is_told_so_and_stays_in_the_log(cluster: StorageCluster) -> None:
    async def given_up(client: StorageClient, kind: PartitionKind, opcode: Opcode) -> None:
        partition = await cluster.create_partition(client, kind, kind.name)
        send = client.send if kind is PartitionKind.QUEUE else client.stream_append
        first = await send(partition, [body(Acks.QUORUM)])
        leader = await leader_of(client, partition)
        address = cluster.addresses[leader - 1]
        connection = await connect(cluster.cluster_id, "t", address, 5)
        with standing_still(cluster, [leader % 3 + 1]):
            answer: asyncio.Future[bytes | StorageError] = asyncio.get_running_loop().create_future()
            payload = encode_message(SendRequest(partition, [body(Acks.ALL)], True, Acks.ALL))
            asked = connection.ask(opcode, payload, answer.set_result)
            await asyncio.sleep(0.2)
            assert not answer.done()
            connection.ask_to_cancel(asked)
            error = await asyncio.wait_for(answer, 5)
        connection.close()
        assert isinstance(error, StorageError) and error.code is ErrorCode.OUTCOME_UNKNOWN
        last = await send(partition, [body(Acks.ALL)], acks=Acks.ALL)
        assert last.first_offset == first.first_offset + 2

    async def scenario() -> None:
        client = await cluster.client()
        await given_up(client, PartitionKind.STREAM, Opcode.STREAM_APPEND)
        await given_up(client, PartitionKind.QUEUE, Opcode.SEND)
        await client.close()

    run(scenario())


def test_what_a_majority_or_all_acknowledged_survives_the_death_of_its_leader(cluster: StorageCluster) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partition = await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        for acks in (Acks.ALL, Acks.QUORUM):
            await client.send(partition, [body(acks)], acks=acks)
        followers = await followers_of(client, partition)
        (leader,) = {1, 2, 3} - set(followers)
        cluster.kill(leader)
        assert sorted(await drain(client, partition)) == [body(Acks.ALL), body(Acks.QUORUM)]
        await client.close()

    run(scenario())
