"""Consumer groups on three real nodes: members and leaders die, offsets stay, zombies are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.client import StorageClient
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import GroupMembership
from storage_nodes.protocol.records import decode_body, encode_body

GROUP = b"readers"
SESSION_MS = 2_000
RECORDS = 300
WITHIN_S = 40.0

Grant = tuple[bytes, int, int]


class Member:
    """Heartbeats in the background; reads, notes and commits what it owns."""

    def __init__(self, client: StorageClient, partitions: list[int], name: bytes, seen: set[bytes]) -> None:
        self._client = client
        self._partitions = partitions
        self._name = name
        self._seen = seen
        self._tasks: list[asyncio.Task[None]] = []
        self._at: dict[tuple[int, Grant], int] = {}
        self.membership: GroupMembership

    async def start(self) -> None:
        self.membership = await self._client.group_join(self._partitions, GROUP, self._name, SESSION_MS)
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._work())]

    async def die(self) -> None:
        """Says nothing to anybody."""
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended

    def grants(self) -> dict[int, Grant]:
        return {p: (GROUP, generation, self.membership.epoch) for p, generation in self.membership.owned}

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(SESSION_MS / 8_000)
            told = self.membership
            self.membership = await self._client.group_heartbeat(
                self._partitions[0], GROUP, told.epoch, told.generation, told.owned
            )

    async def _work(self) -> None:
        while True:
            for partition, grant in self.grants().items():
                try:
                    await self._read_on(partition, grant)
                except StorageError as error:
                    assert error.code is ErrorCode.FENCED, error  # it passed to another one meanwhile
            await asyncio.sleep(0.01)

    async def _read_on(self, partition: int, grant: Grant) -> None:
        offset = self._at.get((partition, grant))
        if offset is None:
            offset = max(0, (await self._client.group_committed(partition, *grant)).offset)
        reply = await self._client.group_read(partition, offset, 500, grant)
        for batch in reply.batches:
            self._seen.update(decode_body(body).value for _, body in iterate_bodies(batch))
        if reply.batches:
            await self._client.group_commit(partition, grant, reply.next_offset)
        self._at[partition, grant] = reply.next_offset


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "not within its time"
        await asyncio.sleep(0.05)


async def code_of(call: Awaitable[object]) -> ErrorCode:
    with pytest.raises(StorageError) as refused:
        await call
    return refused.value.code


async def make_stream(cluster: StorageCluster, client: StorageClient, count: int) -> list[int]:
    return [await cluster.create_partition(client, PartitionKind.STREAM, f"s:{n}") for n in range(count)]


async def append(client: StorageClient, partitions: list[int], name: str) -> set[bytes]:
    values = [f"{name} {n}".encode() for n in range(RECORDS)]
    for at in range(0, RECORDS, 10):
        partition = partitions[at // 10 % len(partitions)]
        await client.stream_append(partition, [encode_body(value) for value in values[at : at + 10]])
    return set(values)


def run(work: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


@pytest.mark.slow
def test_group_goes_on_when_members_and_the_coordinators_leader_die_and_zombies_are_fenced(
    cluster: StorageCluster,
) -> None:
    async def scenario() -> None:
        client = await cluster.client()
        partitions = await make_stream(cluster, client, 4)
        sent, seen = await append(client, partitions, "first"), set[bytes]()
        a, b = (Member(client, partitions, name, seen) for name in (b"a", b"b"))
        await a.start()
        await b.start()
        await until(lambda: len(a.membership.owned) == len(b.membership.owned) == 2 and seen == sent)
        assert {p for p, _ in a.membership.owned}.isdisjoint(p for p, _ in b.membership.owned)
        # One member dies: its partitions pass on, and whatever it still sends is refused.
        zombie = a.grants()
        await a.die()
        await until(lambda: len(b.membership.owned) == 4)
        for partition, grant in zombie.items():
            assert await code_of(client.group_commit(partition, grant, 0)) is ErrorCode.FENCED
            assert await code_of(client.group_read(partition, 0, 100, grant)) is ErrorCode.FENCED
        told = a.membership
        late = client.group_heartbeat(partitions[0], GROUP, told.epoch, told.generation, told.owned)
        assert await code_of(late) is ErrorCode.FENCED
        # The leader of the coordinator is killed: the member keeps its session, offsets are where they were.
        before = {p: (await client.group_committed(p, GROUP)).offset for p in partitions}
        epoch = b.membership.epoch
        info = await client.describe(partitions[:1])
        cluster.kill(info.partitions[0].leader)
        sent |= await append(client, partitions, "second")
        await until(lambda: seen == sent)
        assert b.membership.epoch == epoch and len(b.membership.owned) == 4
        for partition in partitions:
            assert (await client.group_committed(partition, GROUP)).offset > before[partition] >= 0
        # Who comes back gets its share again.
        await a.start()
        await until(lambda: len(a.membership.owned) == len(b.membership.owned) == 2)
        await a.die()
        await b.die()
        await client.group_leave(partitions[0], GROUP, a.membership.epoch)
        assert await code_of(client.group_delete(partitions, GROUP)) is ErrorCode.GROUP_NOT_EMPTY
        await client.group_leave(partitions[0], GROUP, epoch)
        await client.group_delete(partitions, GROUP)
        assert [(await client.group_committed(p, GROUP)).offset for p in partitions] == [-1] * 4
        await client.close()

    run(scenario())


@pytest.mark.slow
def test_read_that_waits_is_refused_when_its_partition_passes_on_and_plain_readers_wait_on(
    small_cluster: StorageCluster,
) -> None:
    async def scenario() -> None:
        client = await small_cluster.client()
        partitions = await make_stream(small_cluster, client, 1)
        told = await client.group_join(partitions, GROUP, b"a", 60_000)
        while not told.owned:
            told = await client.group_heartbeat(partitions[0], GROUP, told.epoch, told.generation, [])
        grant = (GROUP, told.owned[0][1], told.epoch)
        end = (await client.stream_read(partitions[0], 0, 100)).high_watermark
        waiting = asyncio.create_task(client.group_read(partitions[0], end, 100, grant, 15_000))
        plain = asyncio.create_task(client.stream_read(partitions[0], end, 10_000, 15_000))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await client.group_join(partitions, GROUP, b"a", 60_000)  # its next session
        async with asyncio.timeout(5):
            assert await code_of(waiting) is ErrorCode.FENCED
        assert not plain.done()
        await client.stream_append(partitions[0], [encode_body(b"x")])
        assert len((await plain).batches) == 1
        assert await code_of(client.group_join(partitions, b"", b"a", 60_000)) is ErrorCode.INVALID_REQUEST
        await client.close()

    run(scenario())
