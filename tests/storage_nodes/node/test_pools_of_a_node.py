"""What a node does for itself, held up for as long as it likes, keeps no reader waiting: receives and stream reads that
go to disk are answered beside a flush, a rewrite of a segment and an install of a snapshot."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.client import StorageClient
from storage_nodes.log.node_log import NodeLog
from storage_nodes.log.partition_log import PartitionLog
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.log.rewrite import Rewriter
from storage_nodes.machines.raft.effects import TakeSnapshot
from storage_nodes.model import PartitionKind
from storage_nodes.node.disk import blocking_work
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.peer_messages import SnapshotReply
from storage_nodes.protocol.records import decode_body, encode_body
from tests.storage_nodes.node.test_many_partitions import WAIT_S_MAX, lone_node, until
from tests.storage_nodes.node.test_snapshot_chunks import FOLLOWER, LEADER, PARTITION, Leader

READ_WITHIN_S = 5.0

IsSo = Callable[[], bool]
Begin = Callable[[StorageNode, int, IsSo], Awaitable[None]]


class HeldUp:
    """A function that blocks, which goes on when the test says so."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.ended = threading.Event()

    def hold(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        real = getattr(owner, name)

        def held(own: Any, plan: Any) -> None:
            self.reached.set()
            assert self.go_on.wait(4 * WAIT_S_MAX)
            real(own, plan)
            self.ended.set()

        monkeypatch.setattr(owner, name, held)


async def begin_flush(node: StorageNode, partition: int, has_begun: IsSo) -> None:
    """Files of the write-ahead log are full."""

    def is_so() -> bool:
        node.log.roll()
        node.committer.wake()
        return has_begun()

    await until(is_so)


async def begin_rewrite(node: StorageNode, partition: int, has_begun: IsSo) -> None:
    """As the node does by itself once enough of a segment is dead."""
    node.log.rewriter._bounds = dataclasses.replace(node.log.bounds, rewrite_live_share_max=1.0)
    tasks = node._tasks

    def is_so() -> bool:
        if not has_begun() and tasks[-1].done():  # a flush may be in its way
            number = node.log.partitions[partition].segments[0].number
            tasks.append(node.loop.create_task(node.maintenance._rewrite(partition, number)))
        return has_begun()

    tasks.append(node.loop.create_task(asyncio.sleep(0)))
    await until(is_so)


async def begin_install(node: StorageNode, partition: int, has_begun: IsSo) -> None:
    """Of a partition that has no replica here: nobody else is in the way."""
    node.log.create(PARTITION, PartitionKind.QUEUE, "")
    node.committer.wake()
    replies: list[SnapshotReply] = []
    host = SimpleNamespace(
        loop=node.loop, log=node.log, run_maintenance=node.run_maintenance,
        send=lambda peer, reply: replies.append(reply),
    )  # fmt: skip
    replica: Any = SimpleNamespace(
        partition=PARTITION, host=host, closed=False, installed=lambda end, restore: None,
        restoring=lambda state: lambda: None,
        raft=SimpleNamespace(may_install=lambda end: True, installing=lambda: None),
    )  # fmt: skip
    leader = Leader()
    leader.begin()
    while True:
        chunk = leader.sent[-1]
        node.snapshots.take(replica, TakeSnapshot(LEADER, chunk))
        if chunk.done:
            break
        await until(lambda: bool(replies))
        leader.snapshots.replied(FOLLOWER, replies.pop())
        leader.turn()
    await until(has_begun)


HOLDS: dict[str, tuple[type, str, Begin]] = {
    "flush": (NodeLog, "run_flush", begin_flush),
    "rewrite": (Rewriter, "run", begin_rewrite),
    "install": (NodeLog, "run_install", begin_install),
}


@pytest.mark.parametrize("work", HOLDS)
def test_what_must_be_read_from_disk_is_read_while_work_of_the_node_is_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    owner, name, begin = HOLDS[work]
    # Were one thread of the readers taken, none would be left.
    monkeypatch.setattr(blocking_work, "COLD_READERS", 1)
    held = HeldUp()
    read: list[int] = []
    read_cold = PartitionLog.read_cold

    def noted(log: PartitionLog, offset: int, bytes_max: int) -> list[bytes]:
        read.append(log.partition)
        return read_cold(log, offset, bytes_max)

    async def scenario() -> None:
        node = await lone_node(tmp_path)
        client = StorageClient("c", node.config.nodes, "t")
        await client.start()
        queue = (await client.create_partition(PartitionKind.QUEUE, "q", None, 1)).partition
        stream = (await client.create_partition(PartitionKind.STREAM, "s", None, 1)).partition
        await client.send(queue, [encode_body(b"message")])
        await client.stream_append(stream, [encode_body(b"record")])
        logs = [node.log.partitions[partition] for partition in (queue, stream)]
        await begin_flush(node, queue, lambda: all(log.segments for log in logs))
        await until(lambda: not node._is_busy())
        held.hold(monkeypatch, owner, name)
        monkeypatch.setattr(PartitionLog, "read_cold", noted)
        await begin(node, queue, held.reached.is_set)
        async with asyncio.timeout(READ_WITHIN_S):
            (message,) = (await client.acquire(queue, 1, 30_000)).messages
            (batch,) = (await client.stream_read(stream, 0, 1_000)).batches
        assert decode_body(message.body).value == b"message"
        assert [decode_body(body).value for _, body in iterate_bodies(batch)] == [b"record"]
        assert {queue, stream} <= set(read), "both were read from disk"
        assert not held.ended.is_set(), "it is held up still"
        held.go_on.set()
        await until(held.ended.is_set)
        await until(lambda: not node._is_busy())
        await client.close()
        await node.close()

    try:
        asyncio.run(scenario())
    finally:
        held.go_on.set()
