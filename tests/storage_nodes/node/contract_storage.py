"""What the contract suite (`test_contract_*.py`) runs on: the storage of a real node, and `MemoryStorage`.

A test gets a `ContractStorage`. It makes partitions, makes the calls of `MessageStorage` and lets time pass; on a node
that takes as long as it says, in memory it takes nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

import pytest

from benchmarks.storage_cluster import StorageCluster
from frontend.routing.storage import MessageStorage
from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import AcquiredMessage, AcquireReply, QueueConfig, QueueStats
from storage_nodes.protocol.records import (
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_DUE,
    HEADER_GROUP,
    HEADER_TAG,
    decode_body,
    encode_body,
)
from tests.support.frontend_plane import Clock
from tests.support.memory_storage import MemoryStorage

FIFO = QueueConfig(fifo=True)
# A lease that does not end while a test runs.
LONG_MS = 30_000
# A time that a test lets pass; on a node it must be long enough for the calls before it.
SHORT_MS = 400
# By so much later a node has done what was due.
LATE_MS = 50
OK = ErrorCode.OK


class ContractStorage(Protocol):
    calls: MessageStorage

    def now_ms(self) -> int:
        """About the time of the partitions."""

    async def create(self, config: QueueConfig | None = None) -> int:
        """A new partition."""

    async def configure(self, partition: int, config: QueueConfig) -> int:
        """How many messages it holds."""

    async def pass_ms(self, ms: int) -> None:
        """Afterwards what was due within this time is done."""


class NodeStorage:
    def __init__(self, maker: StorageClient, client: StorageClient) -> None:
        self.calls = client
        self._maker = maker

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    async def create(self, config: QueueConfig | None = None) -> int:
        tag = f"contract {uuid.uuid4()}"
        info = await self._maker.create_partition(PartitionKind.QUEUE, tag, config or QueueConfig())
        await self._maker.stats(info.partition)  # from then on it has a leader
        return info.partition

    async def configure(self, partition: int, config: QueueConfig) -> int:
        return await self._maker.configure(partition, config)

    async def pass_ms(self, ms: int) -> None:
        await asyncio.sleep((ms + LATE_MS) / 1000)


class InMemory:
    def __init__(self) -> None:
        self.clock = Clock()
        self.calls = MemoryStorage(self.clock)
        self._made = 0

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    async def create(self, config: QueueConfig | None = None) -> int:
        self._made += 1
        self.calls.create(self._made, config)
        return self._made

    async def configure(self, partition: int, config: QueueConfig) -> int:
        return await self.calls.configure(partition, config)

    async def pass_ms(self, ms: int) -> None:
        self.clock.now_s += (ms + LATE_MS) / 1000
        await asyncio.sleep(0)


@pytest.fixture(params=["real", "memory"])
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[ContractStorage]:
    if request.param == "memory":
        yield InMemory()
        return
    cluster: StorageCluster = request.getfixturevalue("shared_small_cluster")
    maker = await cluster.client()
    await cluster.create_partition(maker, PartitionKind.QUEUE, "first")  # waits for the cluster
    # One attempt: what is refused is refused at once.
    client = StorageClient(
        cluster.cluster_id, cluster.addresses, "contract", 10.0, random.Random(), 1, cluster.credentials
    )
    await client.start()
    yield NodeStorage(maker, client)
    await client.close()
    await maker.close()


# --- in the words of the tests --------------------------------------------------------------------------------


def message(
    value: bytes = b"body",
    group: bytes = b"",
    dedup_id: bytes = b"",
    tag: bytes = b"",
    delay_ms: int = 0,
    due: bytes = b"",
) -> bytes:
    headers = {
        HEADER_GROUP: group,
        HEADER_DEDUP: dedup_id,
        HEADER_TAG: tag,
        HEADER_DELAY_MS: b"%d" % delay_ms if delay_ms else b"",
        HEADER_DUE: due,
    }
    return encode_body(value, None, [(name, content) for name, content in headers.items() if content])


async def send(storage: ContractStorage, partition: int, *bodies: bytes) -> list[int]:
    """The offsets."""
    plain = not any(decode_body(body).headers for body in bodies)
    reply = await storage.calls.send(partition, list(bodies), plain)
    return [reply.offset_of(index) for index in range(len(bodies))]


async def receive(
    storage: ContractStorage, partition: int, count: int = 10, visibility_ms: int = LONG_MS
) -> list[AcquiredMessage]:
    return (await storage.calls.acquire(partition, count, visibility_ms)).messages


async def receive_later(
    storage: ContractStorage, partition: int, visibility_ms: int = LONG_MS
) -> list[AcquiredMessage]:
    """What is there already, or comes soon: a node that is busy does a little later what is due."""
    return (await storage.calls.acquire(partition, 10, visibility_ms, 15_000)).messages


async def until(storage: ContractStorage, partition: int, condition: Callable[[QueueStats], bool]) -> QueueStats:
    for _ in range(100):
        stats = await storage.calls.stats(partition)
        if condition(stats):
            return stats
        await storage.pass_ms(0)
    raise AssertionError(f"it did not come true: {stats}")


async def counts(storage: ContractStorage, partition: int) -> tuple[int, int, int]:
    """(waiting, in flight, delayed)"""
    stats = await storage.calls.stats(partition)
    return stats.waiting, stats.in_flight, stats.delayed


def receipts(messages: Sequence[AcquiredMessage]) -> list[tuple[int, int]]:
    return [(one.offset, one.delivery) for one in messages]


def changes(messages: Sequence[AcquiredMessage], visibility_ms: int) -> list[tuple[int, int, int]]:
    return [(one.offset, one.delivery, visibility_ms) for one in messages]


def values(reply: AcquireReply | Sequence[AcquiredMessage]) -> list[bytes]:
    messages = reply.messages if isinstance(reply, AcquireReply) else reply
    return [decode_body(one.body).value for one in messages]


def headers_of(body: bytes) -> dict[bytes, bytes]:
    return dict(decode_body(body).headers)


async def refusal(call: Awaitable[object]) -> ErrorCode:
    """Why a call that must be refused is."""
    with pytest.raises(StorageError) as refused:
        await call
    return refused.value.code
