"""What a storage node does with those who should not be at its port: each is hung up on within a second and told of in
the log, with who and why; no memory is taken for what they claim, and whoever may be there is served meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.limits import FRAME_BYTES_MAX
from storage_nodes.model import NodeAddress, NodeState, PartitionKind, parse_node_list
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.node import StorageNode
from storage_nodes.node.transport import connections as connections_module
from storage_nodes.node.transport import peer_link as peer_link_module
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, encode_frame
from storage_nodes.protocol.levels import spoken
from storage_nodes.protocol.messages import (
    DeletePartitionRequest,
    Empty,
    ErrorReply,
    Hello,
    Opcode,
    SendRequest,
    SetNodeStateRequest,
    encode_message,
)
from storage_nodes.protocol.messages.core import Message
from storage_nodes.protocol.peer_messages import Heartbeat, Manage, PeerHello, RaftFrame, VoteRequest
from storage_nodes.protocol.records import encode_body
from storage_nodes.trust import refusals as refusals_module
from storage_nodes.trust.connection import PeerRefused, connect_named, is_node
from storage_nodes.trust.credentials import Credentials, InnerTlsMode
from storage_nodes.trust.names import InnerRole
from tests.support.inner_certificates import CLUSTER, InnerAuthority

OTHER_PEER = 2
# A second, and what a machine with other work takes beside it: well before the deadline of a greeting (5 s).
WITHIN_S = 3.0
Logs = list[dict[str, Any]]


class Caller(asyncio.Protocol):
    """Says what it is told to, and takes down what it hears."""

    def __init__(self) -> None:
        self.errors: list[ErrorReply] = []
        self.answers = 0
        self.lost = asyncio.Event()
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        import msgspec

        for _, flags, _, payload in self._decoder.feed(data):
            if flags & FLAG_ERROR:
                self.errors.append(msgspec.msgpack.decode(payload, type=ErrorReply))
            else:
                self.answers += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def say(self, opcode: int, message: Message, number: int = 1) -> None:
        self.transport.write(encode_frame(opcode, 0, number, encode_message(message)))

    async def is_hung_up_on(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self.lost.wait()


class Scene:
    """A node that serves a client of its own, and whoever else comes."""

    def __init__(self, node: StorageNode, authority: InnerAuthority, client: StorageClient, partition: int) -> None:
        self.node = node
        self.authority = authority
        self._client = client
        self._partition = partition
        self.address = node.config.own_address

    async def caller(self, role: InnerRole, number: str = "1") -> Caller:
        return await self.caller_with(self.authority.credentials(role, number))

    async def caller_with(self, credentials: Credentials | None) -> Caller:
        async with asyncio.timeout(5):
            address = self.address
            return await connect_named(credentials, Caller, address.host, address.port, is_node(1))

    async def greeted(self, role: InnerRole) -> Caller:
        caller = await self.caller(role)
        caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
        async with asyncio.timeout(5):
            while not caller.answers:
                await asyncio.sleep(0.005)
        return caller

    async def is_unmoved(self) -> None:
        """Others are served, and nothing is kept of who was hung up on."""
        assert await self._client.send(self._partition, [encode_body(b"still there")])
        deadline_s = time.monotonic() + WITHIN_S
        while len(self.node._connections._connections) > 1 and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        assert len(self.node._connections._connections) == 1
        assert self.node.room.budget.used(Kind.FRAMES) == 0


@pytest.fixture(params=[InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """The peer of this node is in its node list, and never was started."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
    nodes = f"1=127.0.0.1:{ports[0]}@a"
    authority = InnerAuthority(tmp_path / "authority", mode=request.param)
    config = NodeConfig(CLUSTER, 1, str(tmp_path / "node"), f"127.0.0.1:{ports[0]}", nodes)
    node = StorageNode(config, authority.credentials(InnerRole.NODE, "1"))
    await node.start()
    node.admit(NodeAddress(OTHER_PEER, "127.0.0.1", ports[1], "b"))
    operator = authority.credentials(InnerRole.OPERATOR)
    client = StorageClient(CLUSTER, parse_node_list(nodes), "operator", 10.0, credentials=operator)
    await client.start()
    partition = (await client.create_partition(PartitionKind.QUEUE, "queue:1:0", replication_factor=1)).partition
    await client.send(partition, [encode_body(b"first")])
    yield Scene(node, authority, client, partition)
    await client.close()
    await node.close()


class Told:
    """Stands for the loggers: what is said to it is kept."""

    def __init__(self) -> None:
        self.lines: Logs = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append({"event": event, "level": level, **fields})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Logs:
    """Not `capture_logs`: loggers may have been used before, and keep what they were then."""
    logger = Told()
    for module in (refusals_module, connections_module, peer_link_module):
        monkeypatch.setattr(module, "_log", logger)
    return logger.lines


def lines(told: Logs, event: str) -> Logs:
    return [line for line in told if line["event"] == event]


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("penstock_inner_connections_refused_total", {"reason": reason}) or 0.0


# --- who cannot even greet --------------------------------------------------------------------------------------


async def test_without_a_certificate_there_is_no_word(scene: Scene, told: Logs) -> None:
    caller = await scene.caller_with(None)
    caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
    await caller.is_hung_up_on()
    (line,) = lines(told, "refusing a connection")
    assert line["reason"] == "not_tls" and "127.0.0.1" in line["source"]
    assert not caller.answers
    await scene.is_unmoved()


async def test_certificate_of_another_authority_is_refused(scene: Scene, told: Logs, tmp_path: Path) -> None:
    strangers = InnerAuthority(tmp_path / "strangers").files(InnerRole.NODE, "2")
    believing = scene.authority.credentials(InnerRole.NODE, "2")
    believing.current.client.load_cert_chain(strangers.certificate, strangers.key)
    with pytest.raises(PeerRefused, match="unknown ca"):
        await asyncio.wait_for(scene.caller_with(believing), WITHIN_S)
    line = lines(told, "refusing a connection")[-1]
    assert line["reason"] == "handshake" and "not believed" in line["text"]
    await scene.is_unmoved()


async def test_certificate_of_another_cluster_is_refused(scene: Scene, told: Logs) -> None:
    foreign = scene.authority.foreign(InnerRole.NODE, "2")
    foreign.cluster_id = CLUSTER  # it takes us for its own
    with pytest.raises(PeerRefused, match="another cluster"):
        await asyncio.wait_for(scene.caller_with(foreign), WITHIN_S)
    (line,) = lines(told, "refusing a connection")
    assert line["reason"] == "cluster" and line["name"] == "penstock://pk-other/node/2"
    await scene.is_unmoved()


async def test_role_that_asks_storage_nodes_for_nothing_is_refused(scene: Scene, told: Logs) -> None:
    caller = await scene.caller(InnerRole.METADATA)
    caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
    await caller.is_hung_up_on()
    assert [error.code for error in caller.errors] == [ErrorCode.FORBIDDEN]
    (line,) = lines(told, "refusing a connection")
    assert line["reason"] == "role" and line["name"] == "penstock://pk-test/metadata/1"
    await scene.is_unmoved()


class Recorder(asyncio.Protocol):
    """Stands between a caller and a node, and takes down what the caller says."""

    def __init__(self, address: NodeAddress, said: bytearray) -> None:
        self._node = socket.create_connection((address.host, address.port))
        self._node.setblocking(False)
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._caller = cast(asyncio.Transport, transport)
        asyncio.get_running_loop().add_reader(self._node, lambda: self._caller.write(self._node.recv(65_536)))

    def data_received(self, data: bytes) -> None:
        self._said += data
        self._node.sendall(data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().remove_reader(self._node)
        self._node.close()


async def test_what_a_front_end_said_is_refused_when_somebody_else_says_it_again(scene: Scene, told: Logs) -> None:
    """A whole connection, from its first byte on: certificate, greeting, and a send without numbers."""
    said = bytearray()
    loop = asyncio.get_running_loop()
    between = await loop.create_server(lambda: Recorder(scene.address, said), "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    credentials = scene.authority.credentials(InnerRole.FRONT_END)
    caller = await connect_named(credentials, Caller, "127.0.0.1", port, is_node(1))
    caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
    caller.say(Opcode.SEND, SendRequest(1, [encode_body(b"once")]), 2)
    async with asyncio.timeout(5):
        while caller.answers < 2:
            await asyncio.sleep(0.005)
    caller.transport.close()
    between.close()
    end = scene.node.replicas[1].log.log_end
    before = refused("handshake")
    _, again = await asyncio.wait_for(loop.create_connection(Caller, scene.address.host, scene.address.port), 5)
    again.transport.write(bytes(said))
    await again.is_hung_up_on()
    (line,) = lines(told, "refusing a connection")
    assert line["reason"] == "handshake" and "127.0.0.1" in line["source"] and refused("handshake") == before + 1
    assert not again.answers and scene.node.replicas[1].log.log_end == end, "sent once"
    await scene.is_unmoved()


# --- who says that it is a node ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "number"), [(InnerRole.NODE, "3"), (InnerRole.FRONT_END, "2"), (InnerRole.OPERATOR, "2")]
)
async def test_incarnation_forged_by_another_process_locks_no_node_out(
    scene: Scene, told: Logs, role: InnerRole, number: str
) -> None:
    before = refused("node")
    forged = PeerHello(CLUSTER, OTHER_PEER, 2**62)
    caller = await scene.caller(role, number)
    caller.say(Opcode.PEER_HELLO, forged)
    caller.say(Opcode.RAFT, RaftFrame(2**62, [VoteRequest(0, 99, 99, 99)]))
    await caller.is_hung_up_on()
    assert [error.code for error in caller.errors] == [ErrorCode.INVALID_REQUEST]
    assert scene.node.links.incarnation_of(OTHER_PEER) == 0, "the real one is let in whatever its incarnation"
    (line,) = lines(told, "refusing a connection")
    assert line["reason"] == "node" and line["name"] == f"penstock://pk-test/{role}/{number}"
    assert "greets as node 2" in line["text"] and refused("node") == before + 1
    await scene.is_unmoved()


async def test_node_is_let_in_under_its_own_id_and_beats_for_nobody_else(scene: Scene, told: Logs) -> None:
    caller = await scene.caller(InnerRole.NODE, str(OTHER_PEER))
    caller.say(Opcode.PEER_HELLO, PeerHello(CLUSTER, OTHER_PEER, 7, levels=spoken()))
    caller.say(Opcode.HEARTBEAT, Heartbeat(OTHER_PEER, 7, 1, 0, 0))
    async with asyncio.timeout(WITHIN_S):
        while scene.node.links.incarnation_of(OTHER_PEER) != 7:
            await asyncio.sleep(0.005)
    caller.say(Opcode.HEARTBEAT, Heartbeat(3, 7, 1, 0, 0))
    await caller.is_hung_up_on()
    (line,) = lines(told, "closing a connection after a malformed frame")
    assert line["error"] == "node 2 beats for node 3" and line["name"] == "penstock://pk-test/node/2"
    await scene.is_unmoved()


# --- who has greeted and goes on otherwise ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "message"),
    [
        (Opcode.HELLO, Hello(CLUSTER, "x")),
        (Opcode.PEER_HELLO, PeerHello(CLUSTER, OTHER_PEER, 2**62)),
        (Opcode.RAFT, RaftFrame(1, [VoteRequest(0, 99, 99, 99)])),
        (Opcode.HEARTBEAT, Heartbeat(OTHER_PEER, 7, 1, 0, 0)),
        (Opcode.MANAGE, Manage([b"x"])),
    ],
)
@pytest.mark.parametrize("role", [InnerRole.FRONT_END, InnerRole.NODE])
async def test_greeting_again_or_speaking_as_a_node_ends_the_connection(
    scene: Scene, told: Logs, role: InnerRole, opcode: Opcode, message: Message
) -> None:
    caller = await scene.greeted(role)
    caller.say(opcode, message)
    await caller.is_hung_up_on()
    (line,) = lines(told, "closing a connection after a malformed frame")
    assert opcode.name in line["error"] and line["name"] == f"penstock://pk-test/{role}/1"
    await scene.is_unmoved()


async def test_greeting_of_a_later_protocol_ends_the_connection(scene: Scene, told: Logs) -> None:
    caller = await scene.caller(InnerRole.FRONT_END)
    frame = bytearray(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello(CLUSTER, "x"))))
    frame[1] = 2
    caller.transport.write(bytes(frame))
    await caller.is_hung_up_on()
    (line,) = lines(told, "closing a connection after a malformed frame")
    assert "protocol version 2" in line["error"]
    await scene.is_unmoved()


@pytest.mark.parametrize("greets", [True, False])
async def test_frame_that_claims_two_gibibytes_ends_the_connection_and_takes_no_memory(
    scene: Scene, told: Logs, greets: bool
) -> None:
    caller = await (scene.greeted if greets else scene.caller)(InnerRole.FRONT_END)
    frame = bytearray(encode_frame(Opcode.SEND, 0, 2, b""))
    frame[8:12] = (2**31).to_bytes(4, "big")
    caller.transport.write(bytes(frame) + bytes(1000))
    await caller.is_hung_up_on()
    (line,) = lines(told, "closing a connection after a malformed frame")
    assert f"at most {FRAME_BYTES_MAX}" in line["error"]
    await scene.is_unmoved()


@pytest.mark.parametrize(
    ("opcode", "message"),
    [
        (Opcode.SET_NODE_STATE, SetNodeStateRequest(1, NodeState.LEAVING)),
        (Opcode.DELETE_PARTITION, DeletePartitionRequest(1, "queue:1:0")),
    ],
)
async def test_front_end_may_not_touch_nodes_and_partitions(
    scene: Scene, told: Logs, opcode: Opcode, message: Message
) -> None:
    labels = {"role": "front-end"}
    before = REGISTRY.get_sample_value("penstock_inner_operations_refused_total", labels) or 0
    caller = await scene.greeted(InnerRole.FRONT_END)
    caller.say(opcode, message, 2)
    caller.say(Opcode.PING, Empty(), 3)
    await caller.is_hung_up_on()
    assert [error.code for error in caller.errors] == [ErrorCode.FORBIDDEN]
    assert caller.answers == 1, "but for its greeting it was answered nothing more"
    (line,) = lines(told, "refusing a call")
    assert line["operation"] == opcode.name and line["name"] == "penstock://pk-test/front-end/1"
    assert REGISTRY.get_sample_value("penstock_inner_operations_refused_total", labels) == before + 1
    await scene.is_unmoved()
    assert 1 in scene.node.cluster.machine.partitions


async def test_role_is_told_by_the_client_that_it_may_not(scene: Scene) -> None:
    credentials = scene.authority.credentials(InnerRole.FRONT_END)
    client = StorageClient(CLUSTER, [scene.address], "frontend", 5.0, credentials=credentials)
    await client.start()
    with pytest.raises(StorageError) as caught:
        await client.create_partition(PartitionKind.QUEUE, "queue:2:0")
    assert caught.value.code is ErrorCode.FORBIDDEN and not caught.value.traits.retriable
    assert await client.send(1, [encode_body(b"what it may")])
    await client.close()


async def test_unknown_operation_is_answered_and_costs_no_connection(scene: Scene) -> None:
    """A process of a later version asks for what this one does not know."""
    caller = await scene.greeted(InnerRole.FRONT_END)
    caller.transport.write(encode_frame(200, 0, 2, b"\x90"))
    caller.say(Opcode.SEND, SendRequest(1, [encode_body(b"x")]), 3)
    async with asyncio.timeout(5):
        while caller.answers < 2:
            await asyncio.sleep(0.005)
    assert [error.code for error in caller.errors] == [ErrorCode.UNKNOWN_OPCODE]
    caller.transport.close()


# --- a node whose peers have certificates -------------------------------------------------------------------------


async def test_node_says_why_a_peer_does_not_let_it_in(scene: Scene, told: Logs) -> None:
    """A link that leads to somebody else is refused by the one that dials, too."""
    scene.node.admit(NodeAddress(OTHER_PEER, scene.address.host, scene.address.port, "b"))
    async with asyncio.timeout(5):
        while not (found := lines(told, "a peer does not let this node in")):
            await asyncio.sleep(0.02)
    assert found[0]["reason"] == "it is node 1, not node 2"
