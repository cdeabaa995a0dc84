"""What one process said to a node, said again by another one: it is refused as any stranger is, and nothing that was
said counts twice. Who is on the way between two hosts, and puts frames into a connection that is open, is another
matter (docs/inner_trust.md)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from prometheus_client import REGISTRY

from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.machines.raft.effects import Role
from storage_nodes.model import Acks, PartitionKind, parse_node_list
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.frames import Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import Hello, Opcode, SendRequest, encode_message
from storage_nodes.protocol.peer_messages import RaftFrame, VoteRequest
from storage_nodes.protocol.records import encode_body
from storage_nodes.trust.credentials import InnerTlsMode
from storage_nodes.trust.names import InnerRole
from tests.storage_nodes.node.visited_node import NodeVisit, Scene, called, heard_node
from tests.support.inner_certificates import CLUSTER, InnerAuthority
from tests.support.strangers import Caller, Logs, in_time, until

ONCE, WITHHELD = b"said once", b"said, and kept from the node"
# Records of TLS begin with one of these, frames with another byte.
TLS_RECORDS = (0x14, 0x15, 0x16, 0x17)
TLS_HEAD_BYTES = 5


class Recorder(asyncio.Protocol):
    """Stands between a caller and a node, and takes down what the caller says."""

    def __init__(self, port: int, all_of_them: list[Recorder]) -> None:
        self._node = socket.create_connection(("127.0.0.1", port))
        self._node.setblocking(False)
        self.said = bytearray()
        self.caller: object = None
        self._withheld: bytearray | None = None
        all_of_them.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.caller = transport.get_extra_info("peername")
        asyncio.get_running_loop().add_reader(self._node, self._back)

    def data_received(self, data: bytes) -> None:
        self.said += data
        if self._withheld is None:
            self._node.sendall(data)
        else:
            self._withheld += data

    def withhold(self) -> None:
        """From now on the node hears nothing of what is said."""
        self._withheld = bytearray()

    def pass_on(self) -> None:
        withheld, self._withheld = self._withheld, None
        self._node.sendall(withheld or b"")

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().remove_reader(self._node)
        self._node.close()

    def _back(self) -> None:
        try:
            heard = self._node.recv(65_536)
        except ConnectionError:
            heard = b""
        if heard:
            self._transport.write(heard)
        else:
            self._transport.close()


def frames_of(said: bytes) -> list[Frame]:
    """What follows the handshake, where frames are plain."""
    at = 0
    while said[at] in TLS_RECORDS:
        at += TLS_HEAD_BYTES + int.from_bytes(said[at + 3 : at + TLS_HEAD_BYTES], "big")
    return FrameDecoder().feed(said[at:])


class Replica(NamedTuple):
    epoch: int
    voted_for: int
    log_end: int


class PeersScene:
    """Two nodes. What the first one says to the second passes a recorder, and a part of it has not arrived."""

    def __init__(self, first: StorageNode, scene: Scene, recorder: Recorder, partition: int, bystander: int) -> None:
        self.first = first
        self.scene = scene
        self.recorder = recorder
        self.partition = partition
        self._bystander = bystander

    def state(self) -> tuple[int, dict[int, Replica]]:
        """The incarnation of the first node, as the second knows it, and all groups but that of the bystander."""
        node = self.scene.node
        replicas = {
            partition: Replica(replica.raft.epoch, replica.raft.voted_for, replica.log.log_end)
            for partition, replica in node.replicas.items()
            if partition != self._bystander
        }
        return node.links.incarnation_of(self.first.node_id), replicas

    def said(self) -> list[Frame]:
        """With a vote, for which there was no reason to say it."""
        frames = frames_of(bytes(self.recorder.said))
        epoch = self.first.replicas[self.partition].raft.epoch + 5
        vote = RaftFrame(self.first.links.incarnation, [VoteRequest(self.partition, epoch, epoch, 2**40)])
        return [*frames, Frame(Opcode.RAFT, 0, 0, encode_message(vote))]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return heard_node(monkeypatch)


@pytest.fixture(params=[InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])
async def peers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PeersScene]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = one.getsockname()[1], other.getsockname()[1]
    recorders: list[Recorder] = []
    loop = asyncio.get_running_loop()
    between = await loop.create_server(lambda: Recorder(ports[1], recorders), "127.0.0.1", 0)
    nodes = f"1=127.0.0.1:{ports[0]}@a,2=127.0.0.1:{between.sockets[0].getsockname()[1]}@b"
    authority = InnerAuthority(tmp_path / "authority", mode=request.param)
    started = []
    for node_id in (2, 1):
        config = NodeConfig(CLUSTER, node_id, str(tmp_path / str(node_id)), f"127.0.0.1:{ports[node_id - 1]}", nodes)
        node = StorageNode(config, authority.credentials(InnerRole.NODE, str(node_id)))
        await node.start()
        started.append(node)
    second, first = started
    operator = authority.credentials(InnerRole.OPERATOR)
    client = StorageClient(CLUSTER, parse_node_list(nodes), "operator", 10.0, credentials=operator)
    await client.start()
    await until(lambda: first.links.is_up(2) and second.links.is_up(1), 10.0)

    async def partition_that(suits: Callable[[int], bool], factor: int) -> int:
        """One of some: where they are, and who leads them, is up to the cluster."""
        made = []
        for number in range(4):
            info = await client.create_partition(PartitionKind.QUEUE, f"queue:{factor}:{number}", None, factor)
            await client.send(info.partition, [encode_body(ONCE)], acks=Acks.ALL)
            made.append(info.partition)
        return next(partition for partition in made if suits(partition))

    def is_led_by_first(partition: int) -> bool:
        return partition in first.replicas and first.replicas[partition].raft.role is Role.LEADER

    partition = await partition_that(is_led_by_first, 2)
    bystander = await partition_that(lambda partition: partition in second.replicas, 1)
    link: Any = first.links._links[2]
    recorder = next(one for one in recorders if one.caller == link._transport.get_extra_info("sockname"))
    recorder.withhold()
    sender = await called(first.config.own_address, authority.credentials(InnerRole.FRONT_END))
    sender.say(Opcode.HELLO, Hello(CLUSTER, "x"))
    before = first.replicas[partition].log.log_end
    said_bytes = len(recorder.said)
    sender.say(Opcode.SEND, SendRequest(partition, [encode_body(WITHHELD)]), 2)
    await until(lambda: first.replicas[partition].log.log_end > before)
    await until(lambda: len(recorder.said) > said_bytes + len(WITHHELD))
    # What the second node does by itself, now that it hears nothing: it has done it when it gives the first one up.
    await until(lambda: not second.links.is_up(1))
    await asyncio.sleep(0.1)
    address = second.config.own_address._replace(port=ports[1])
    scene = Scene(second, address, authority, client, bystander)
    yield PeersScene(first, scene, recorder, partition, bystander)
    sender.transport.close()
    await client.close()
    between.close()
    await first.close()
    await second.close()


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("penstock_inner_connections_refused_total", {"reason": reason}) or 0.0


# --- a client -------------------------------------------------------------------------------------------------


@pytest.fixture(params=[InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])
async def lone(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    authority = InnerAuthority(tmp_path / "authority", mode=request.param)
    nodes = f"1=127.0.0.1:{port}@a"
    config = NodeConfig(CLUSTER, 1, str(tmp_path / "node"), f"127.0.0.1:{port}", nodes)
    node = StorageNode(config, authority.credentials(InnerRole.NODE, "1"))
    await node.start()
    operator = authority.credentials(InnerRole.OPERATOR)
    client = StorageClient(CLUSTER, parse_node_list(nodes), "operator", 10.0, credentials=operator)
    await client.start()
    made = [
        (await client.create_partition(PartitionKind.QUEUE, f"queue:{number}:0", replication_factor=1)).partition
        for number in (1, 2)
    ]
    await client.send(made[0], [encode_body(b"first")])
    assert made[0] == 1
    yield Scene(node, config.own_address, authority, client, made[1])
    await client.close()
    await node.close()


async def test_what_a_front_end_said_is_refused_when_somebody_else_says_it_again(lone: Scene, told: Logs) -> None:
    """A whole connection, from its first byte on: certificate, greeting, and a send without numbers."""
    recorders: list[Recorder] = []
    loop = asyncio.get_running_loop()
    between = await loop.create_server(lambda: Recorder(lone.address.port, recorders), "127.0.0.1", 0)
    address = lone.address._replace(port=between.sockets[0].getsockname()[1])
    caller = await called(address, lone.authority.credentials(InnerRole.FRONT_END))
    caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
    caller.say(Opcode.SEND, SendRequest(1, [encode_body(ONCE)]), 2)
    await until(lambda: caller.answers == 2)
    caller.transport.close()
    between.close()
    (recorder,) = recorders
    end = lone.node.replicas[1].log.log_end
    await until(lambda: len(lone.node._connections._connections) == 1)

    async def case() -> NodeVisit:
        before = refused("handshake")
        async with lone.visit(told) as visit:
            again = await lone.comes(Caller)
            again.write(bytes(recorder.said))
            await visit.ends(again)
        visit.is_told("refusing a connection", again, reason="handshake", name="")
        assert refused("handshake") == before + 1
        assert not again.answers and lone.node.replicas[1].log.log_end == end, "sent once"
        return visit

    await in_time(case)


# --- a node ---------------------------------------------------------------------------------------------------


async def test_what_a_node_said_is_refused_without_its_certificate(peers: PeersScene, told: Logs) -> None:
    """From the first byte on: handshake, greeting, what leaders say. What had not arrived counts when the node itself
    says it."""
    before = peers.state()
    scene = peers.scene

    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            again = await scene.comes(Caller)
            again.write(bytes(peers.recorder.said))
            await visit.ends(again)
        visit.is_told("refusing a connection", again, reason="handshake", name="")
        assert peers.state() == before
        return visit

    await in_time(case)
    peers.recorder.pass_on()
    end = peers.first.replicas[peers.partition].log.log_end
    await until(lambda: scene.node.replicas[peers.partition].log.log_end >= end)
    assert peers.state() != before, "what was refused would have done something"


# Who could read it, because frames are plain: processes with certificates of their own, and one that has none.
READERS = (
    (InnerRole.NODE, "3"),
    (InnerRole.NODE, "2"),
    (InnerRole.FRONT_END, "1"),
    (InnerRole.OPERATOR, "1"),
    (None, ""),
)


@pytest.mark.parametrize("peers", [InnerTlsMode.AUTHENTICATE], indirect=True)
async def test_what_a_node_said_is_refused_under_another_name(peers: PeersScene, told: Logs) -> None:
    """With its greeting, and what followed that alone, behind the greeting of a client."""
    before, frames, scene = peers.state(), peers.said(), peers.scene
    assert frames[0].opcode == Opcode.PEER_HELLO
    assert any(frame.opcode == Opcode.RAFT and WITHHELD in frame.payload for frame in frames)
    hello = Frame(Opcode.HELLO, 0, 1, encode_message(Hello(CLUSTER, "x")))
    followed = [hello, *(frame for frame in frames if frame.opcode == Opcode.RAFT)]

    async def case(role: InnerRole | None, number: str, greets: bool) -> NodeVisit:
        async with scene.visit(told) as visit:
            again = await (scene.comes(Caller) if role is None else scene.caller(role, number))
            again.write(b"".join(encode_frame(*frame) for frame in (frames if greets else followed)))
            await visit.ends(again)
        name = "" if role is None else f"penstock://{CLUSTER}/{role}/{number}"
        if role is None:
            visit.is_told("refusing a connection", again, reason="not_tls", name=name)
        elif greets:
            visit.is_told("refusing a connection", again, reason="node", name=name, text="it greets as node 1")
            assert [error.code for error in again.errors] == [ErrorCode.INVALID_REQUEST]
        else:
            error = "RAFT from a client that has greeted"
            visit.is_told("closing a connection after a malformed frame", again, error=error, name=name)
        assert peers.state() == before
        return visit

    for role, number in READERS:
        for greets in (True, False):
            await in_time(partial(case, role, number, greets))
