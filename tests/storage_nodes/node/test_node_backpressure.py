"""Real nodes under more than they take: a disk that hangs under a hundred busy partitions, a client that reads nothing,
a peer that is sent to faster than it writes. They hold what their budgets allow, say so, and go on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from storage_nodes.config import NodeConfig
from storage_nodes.limits import KIB, NODE_MEMORY_BYTES_MIN, WAL_GROUP_BYTES_MAX
from storage_nodes.log.record_batch import build_batch
from storage_nodes.machines.raft.effects import SendEntries
from storage_nodes.model import PartitionKind
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.node import StorageNode
from storage_nodes.node.replicas.append_sending import send_entries
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.leases import LeaderLeases
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import (
    AcquireReply,
    AcquireRequest,
    CreatePartitionRequest,
    ErrorReply,
    Hello,
    Opcode,
    PartitionInfo,
    QueueConfig,
    SendRequest,
    encode_message,
)
from storage_nodes.protocol.peer_messages import AppendEntries, RaftFrame, VoteRequest
from storage_nodes.protocol.records import encode_body
from tests.storage_nodes.node.slow_pipe import SlowPipe

PARTITIONS = 100
MESSAGE = encode_body(b"m" * 256 * KIB)


class Caller(asyncio.Protocol):
    """Sends requests without waiting, and keeps what is answered: id -> payload or ErrorReply."""

    def __init__(self) -> None:
        self.answers: dict[int, bytes | ErrorReply] = {}
        self._decoder = FrameDecoder()
        self._last_id = 0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            is_error = bool(frame.flags & FLAG_ERROR)
            self.answers[frame.correlation_id] = (
                msgspec.msgpack.decode(frame.payload, type=ErrorReply) if is_error else frame.payload
            )

    def ask(self, opcode: int, message: msgspec.Struct) -> int:
        self._last_id += 1
        self._transport.write(encode_frame(opcode, 0, self._last_id, encode_message(message)))
        return self._last_id

    async def answer(self, request_id: int) -> bytes | ErrorReply:
        async with asyncio.timeout(20):
            while request_id not in self.answers:
                await asyncio.sleep(0.005)
        return self.answers[request_id]

    async def ask_until_done(self, opcode: int, message: msgspec.Struct) -> bytes:
        """Again while it is refused for now."""
        async with asyncio.timeout(20):
            while isinstance(answer := await self.answer(self.ask(opcode, message)), ErrorReply):
                await asyncio.sleep(0.02)
        return answer


class Disk:
    """Holds the groups of a node back while `held`."""

    def __init__(self, node: StorageNode) -> None:
        self._write = node.log.write_group
        self._free = threading.Event()
        self._free.set()
        self.group_bytes: list[int] = []
        node.log.write_group = self._write_group  # type: ignore[method-assign]

    def _write_group(self, group: Any) -> None:
        self._free.wait(20)
        self.group_bytes.append(group.length_bytes)
        self._write(group)

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageNode]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
    config = NodeConfig("c", 1, str(tmp_path), listen, f"1={listen}@z", node_memory_bytes=NODE_MEMORY_BYTES_MIN)
    node = StorageNode(config)
    await node.start()
    yield node
    await node.close()


async def connect(node: StorageNode) -> Caller:
    host, _, port = node.config.node_listen.rpartition(":")
    _, caller = await node.loop.create_connection(Caller, host, int(port))
    assert isinstance(await caller.answer(caller.ask(Opcode.HELLO, Hello("c", "test"))), bytes)
    return caller


async def make_partition(caller: Caller, number: int) -> int:
    """With a leader that serves."""
    request = CreatePartitionRequest(PartitionKind.QUEUE, f"q{number}", QueueConfig(), 1)
    created = await caller.ask_until_done(Opcode.CREATE_PARTITION, request)
    partition = msgspec.msgpack.decode(created, type=PartitionInfo).partition
    await caller.ask_until_done(Opcode.SEND, SendRequest(partition, [b"\x00"]))
    return partition


async def test_hundred_partitions_at_a_disk_that_hangs_hold_no_more_than_the_budget_and_go_on(
    node: StorageNode,
) -> None:
    caller = await connect(node)
    disk = Disk(node)
    partitions = await asyncio.gather(*(make_partition(caller, number) for number in range(PARTITIONS)))

    disk.hold()
    budget = node.room.budget
    asked = {caller.ask(Opcode.SEND, SendRequest(one, [MESSAGE])): one for _ in range(2) for one in partitions}
    most_bytes = 0
    ping = caller.ask(Opcode.PING, Hello("c", "test"))
    async with asyncio.timeout(20):
        while ping not in caller.answers:  # behind all of them
            most_bytes = max(most_bytes, budget.total)
            await asyncio.sleep(0.001)
    refused = {one: answer for one in asked if isinstance(answer := caller.answers.get(one), ErrorReply)}
    assert len(asked) * len(MESSAGE) > 3 * budget.shares_bytes[Kind.SENDS] // 2, "far more than it may hold"
    assert most_bytes < budget.shares_bytes[Kind.SENDS] + budget.shares_bytes[Kind.STAGED]
    assert budget.used(Kind.SENDS) <= budget.shares_bytes[Kind.SENDS] + len(MESSAGE)
    assert refused and {answer.code for answer in refused.values()} == {ErrorCode.OVERLOADED}
    assert min(answer.retry_after_ms for answer in refused.values()) > 0
    assert len(set(asked.values()) - {asked[one] for one in asked if one not in refused}) < PARTITIONS // 10

    disk.release()
    for request_id, partition in asked.items():
        answer = await caller.answer(request_id)
        if isinstance(answer, ErrorReply):
            await caller.ask_until_done(Opcode.SEND, SendRequest(partition, [MESSAGE]))
    assert max(disk.group_bytes) <= WAL_GROUP_BYTES_MAX + 2 * len(MESSAGE)
    async with asyncio.timeout(5):
        while budget.total:
            await asyncio.sleep(0.01)


async def test_leases_that_a_client_never_read_are_free_again_when_its_connection_is_lost(node: StorageNode) -> None:
    caller = await connect(node)
    partition = await make_partition(caller, 1)
    acquire = AcquireRequest(partition, 1, 3_600_000)
    await caller.ask_until_done(Opcode.ACQUIRE, acquire)  # the one that it was made with
    for _ in range(8):
        await caller.ask_until_done(Opcode.SEND, SendRequest(partition, [MESSAGE]))
    connection = node._connections.accept()
    pipe = SlowPipe(connection, reads=False)
    connection.data_received(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "slow"))))
    asks = [encode_frame(Opcode.ACQUIRE, 0, 2 + number, encode_message(acquire)) for number in range(8)]
    connection.data_received(b"".join(asks))
    await asyncio.sleep(0)
    assert await leased(caller, acquire) == 0
    left = len(pipe.buffer) // len(MESSAGE)  # handed to the transport
    connection.connection_lost(None)
    assert 0 < left < 8, "what the transport has cannot be known"
    found = 0
    async with asyncio.timeout(5):
        while found < 8 - left:
            found += await leased(caller, acquire)
    assert await leased(caller, acquire) == 0


async def test_client_with_too_many_answers_is_refused_messages_which_stay_with_the_queue(node: StorageNode) -> None:
    caller = await connect(node)
    partition = await make_partition(caller, 1)
    connection = node._connections.accept()
    pipe = SlowPipe(connection, reads=False)
    connection.data_received(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "slow"))))
    acquire = AcquireRequest(partition, 1, 3_600_000)
    node.room.budget.take(Kind.ANSWERS, node.room.budget.free(Kind.ANSWERS))
    connection.pause_writing()
    connection.data_received(encode_frame(Opcode.ACQUIRE, 0, 2, encode_message(acquire)))
    await asyncio.sleep(0)
    connection.resume_writing()
    pipe.drain_all()
    refused = msgspec.msgpack.decode(pipe.frames[-1].payload, type=ErrorReply)
    assert (refused.code, refused.retry_after_ms > 0) == (ErrorCode.OVERLOADED, True)
    async with asyncio.timeout(5):
        while not await leased(caller, acquire):
            pass
    node.room.budget.give(Kind.ANSWERS, node.room.budget.used(Kind.ANSWERS))


async def leased(caller: Caller, acquire: AcquireRequest) -> int:
    payload = await caller.ask_until_done(Opcode.ACQUIRE, acquire)
    return len(msgspec.msgpack.decode(payload, type=AcquireReply).messages)


def test_follower_without_room_drops_appends_and_takes_the_rest() -> None:
    vote, append = VoteRequest(1, 1, 1, 1), AppendEntries(1, 1, 1, 0, 0, [b"x"])
    taken: list[Any] = []
    full = True
    follower: Any = SimpleNamespace(
        links=SimpleNamespace(is_newest=lambda sender, incarnation: True),
        maintenance=SimpleNamespace(closed=False),
        room=SimpleNamespace(takes_appends=lambda: not full, without_appends=lambda them: [them[0]]),
        _inbox=SimpleNamespace(take=lambda sender, incarnation, messages: taken.extend(messages)),
    )
    StorageNode.raft_frame(follower, 2, RaftFrame(3, [vote, append]))
    assert taken == [vote]
    full = False
    StorageNode.raft_frame(follower, 2, RaftFrame(3, [vote, append]))
    assert taken == [vote, vote, append]


class Leader(Replica):
    """Its log holds thirty entries. Whether there is room on the way to its follower the test says."""

    def __init__(self) -> None:
        entries = [build_batch(offset, 1, 1_000, [b"x"]) for offset in range(30)]
        self.has_room = False
        self.is_current = True
        self.waiting: list[Callable[[], None]] = []
        self.sent: list[AppendEntries] = []
        self.told: list[int] = []
        log: Any = SimpleNamespace(read_hot=lambda at, _: entries[at:], log_end=30, whole_from=0)
        host: Any = SimpleNamespace(
            has_room=lambda peer: self.has_room,
            when_room=lambda peer, resume: self.waiting.append(resume),
            send=lambda peer, message: self.sent.append(message),
            loop=SimpleNamespace(call_soon=lambda *_: None),
            leases=LeaderLeases(),
        )
        raft: Any = SimpleNamespace(
            is_current=lambda effect: self.is_current, sent=lambda peer, end, size: self.told.append(end)
        )
        self.host, self.log, self.raft = host, log, raft
        self.partition, self.closed, self.last_append, self.reading_cold = 1, False, None, ()

    def schedule(self) -> None:
        pass


def entries_from(offset: int) -> SendEntries:
    return SendEntries(2, offset, 1, 30, 1, 0, False)


def test_leader_feeds_a_follower_when_there_is_room_and_is_not_told_before_that_it_did() -> None:
    leader = Leader()
    send_entries(leader, entries_from(10))
    assert not leader.sent and not leader.told
    leader.has_room = True
    leader.waiting.pop()()
    assert len(leader.sent[0].entries) == 20 and leader.told == [30]


def test_commit_notice_needs_no_room() -> None:
    leader = Leader()
    send_entries(leader, entries_from(30))
    assert leader.sent[0].entries == [] and not leader.waiting


def test_leader_that_was_deposed_while_it_waited_for_room_sends_nothing() -> None:
    leader = Leader()
    send_entries(leader, entries_from(10))
    leader.has_room, leader.is_current = True, False
    leader.waiting.pop()()
    assert not leader.sent and not leader.told
