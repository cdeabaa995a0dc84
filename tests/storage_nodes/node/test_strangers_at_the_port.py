"""What a storage node does with those who should not be at its port: each is hung up on within a second and told of in
the log, with who and why; no memory is taken for what they claim, and those who may be there are served during it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.limits import FRAME_BYTES_MAX
from storage_nodes.model import NodeAddress, NodeState, PartitionKind, parse_node_list
from storage_nodes.node.memory.memory_budget import Kind
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import HEADER_BYTES, encode_frame
from storage_nodes.protocol.levels import FEATURE_LEVEL, FEATURE_LEVEL_MIN, spoken
from storage_nodes.protocol.messages import (
    DeletePartitionRequest,
    Empty,
    Hello,
    Opcode,
    SendRequest,
    SetNodeStateRequest,
    encode_message,
)
from storage_nodes.protocol.messages.core import Message
from storage_nodes.protocol.peer_messages import Heartbeat, Manage, PeerHello, RaftFrame, VoteRequest
from storage_nodes.protocol.records import encode_body
from storage_nodes.trust.connection import PeerRefused
from storage_nodes.trust.credentials import InnerTlsMode
from storage_nodes.trust.names import InnerRole
from tests.storage_nodes.node.visited_node import NodeVisit, Scene, called, heard_node
from tests.support.inner_certificates import CLUSTER, InnerAuthority, context_that_shows
from tests.support.strangers import Caller, Handshaker, Logs, in_time, lines, until

OTHER_PEER = 2
MALFORMED = "closing a connection after a malformed frame"


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
    yield Scene(node, config.own_address, authority, client, partition)
    await client.close()
    await node.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return heard_node(monkeypatch)


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("penstock_inner_connections_refused_total", {"reason": reason}) or 0.0


# --- who cannot even greet --------------------------------------------------------------------------------------


async def test_without_a_certificate_there_is_no_word(scene: Scene, told: Logs) -> None:
    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            caller = await scene.comes(Caller)
            caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
            await visit.ends(caller)
        assert not caller.answers
        visit.is_told("refusing a connection", caller, reason="not_tls", text="it does not speak TLS", name="")
        return visit

    await in_time(case)


@pytest.mark.parametrize(
    ("shown", "text", "heard"),
    [
        ("nothing", "did not return a certificate", "certificate required"),
        ("theirs", "its certificate is not believed", "unknown ca"),
    ],
)
async def test_certificate_of_another_authority_is_refused(
    scene: Scene, told: Logs, tmp_path: Path, shown: str, text: str, heard: str
) -> None:
    """It believes us; the other way round it would hang up itself."""
    context = context_that_shows(shown, scene.authority, tmp_path)

    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            stranger = await scene.comes(lambda: Handshaker(context))
            await visit.ends(stranger)
        line = visit.is_told("refusing a connection", stranger, reason="handshake", name="")
        assert text in line["text"] and heard in stranger.heard
        return visit

    await in_time(case)


async def test_certificate_of_another_cluster_is_refused(scene: Scene, told: Logs) -> None:
    foreign = scene.authority.foreign(InnerRole.NODE, "2")

    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            stranger = await scene.comes(lambda: Handshaker(foreign.current.client))
            await visit.ends(stranger)
        text = f"it is of another cluster than {CLUSTER}"
        name = "penstock://pk-other/node/2"
        visit.is_told("refusing a connection", stranger, reason="cluster", text=text, name=name)
        assert text in stranger.heard
        return visit

    await in_time(case)
    foreign.cluster_id = CLUSTER  # it takes us for its own
    with pytest.raises(PeerRefused, match="another cluster"):
        await called(scene.address, foreign)


async def test_role_that_asks_storage_nodes_for_nothing_is_refused(scene: Scene, told: Logs) -> None:
    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            caller = await scene.caller(InnerRole.METADATA)
            caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
            await visit.ends(caller)
        assert [error.code for error in caller.errors] == [ErrorCode.FORBIDDEN]
        name, text = "penstock://pk-test/metadata/1", "it has nothing to ask of storage nodes"
        visit.is_told("refusing a connection", caller, reason="role", name=name, text=text)
        return visit

    await in_time(case)


# --- who says that it is a node ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "number"), [(InnerRole.NODE, "3"), (InnerRole.FRONT_END, "2"), (InnerRole.OPERATOR, "2")]
)
async def test_incarnation_forged_by_another_process_locks_no_node_out(
    scene: Scene, told: Logs, role: InnerRole, number: str
) -> None:
    async def case() -> NodeVisit:
        before = refused("node")
        async with scene.visit(told) as visit:
            caller = await scene.caller(role, number)
            caller.say(Opcode.PEER_HELLO, PeerHello(CLUSTER, OTHER_PEER, 2**62))
            caller.say(Opcode.RAFT, RaftFrame(2**62, [VoteRequest(0, 99, 99, 99)]))
            await visit.ends(caller)
        assert [error.code for error in caller.errors] == [ErrorCode.INVALID_REQUEST]
        assert scene.node.links.incarnation_of(OTHER_PEER) == 0, "the real one is let in whatever its incarnation"
        name, text = f"penstock://pk-test/{role}/{number}", "it greets as node 2"
        visit.is_told("refusing a connection", caller, reason="node", name=name, text=text)
        assert refused("node") == before + 1
        return visit

    await in_time(case)


async def greeted_as_peer(scene: Scene) -> Caller:
    """The one that may."""
    caller = await scene.caller(InnerRole.NODE, str(OTHER_PEER))
    caller.say(Opcode.PEER_HELLO, PeerHello(CLUSTER, OTHER_PEER, 7, levels=spoken()))
    caller.say(Opcode.HEARTBEAT, Heartbeat(OTHER_PEER, 7, 1, 0, 0))
    await until(lambda: scene.node._connections.has_peer(OTHER_PEER))
    assert scene.node.links.incarnation_of(OTHER_PEER) == 7
    return caller


async def test_node_is_let_in_under_its_own_id_and_beats_for_nobody_else(scene: Scene, told: Logs) -> None:
    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            caller = await greeted_as_peer(scene)
            caller.say(Opcode.HEARTBEAT, Heartbeat(3, 7, 1, 0, 0))
            await visit.ends(caller)
        visit.is_told(MALFORMED, caller, error="node 2 beats for node 3", name="penstock://pk-test/node/2")
        return visit

    await in_time(case)


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
    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            caller = await scene.greeted(role)
            caller.say(opcode, message)
            await visit.ends(caller)
        line = visit.is_told(MALFORMED, caller, name=f"penstock://pk-test/{role}/1")
        assert opcode.name in line["error"]
        return visit

    await in_time(case)


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

    async def case() -> NodeVisit:
        before = REGISTRY.get_sample_value("penstock_inner_operations_refused_total", labels) or 0
        async with scene.visit(told) as visit:
            caller = await scene.greeted(InnerRole.FRONT_END)
            caller.say(opcode, message, 2)
            caller.say(Opcode.PING, Empty(), 3)
            await visit.ends(caller)
        assert [error.code for error in caller.errors] == [ErrorCode.FORBIDDEN]
        assert caller.answers == 1, "but for its greeting it was answered nothing more"
        visit.is_told("refusing a call", caller, operation=opcode.name, name="penstock://pk-test/front-end/1")
        assert REGISTRY.get_sample_value("penstock_inner_operations_refused_total", labels) == before + 1
        assert 1 in scene.node.cluster.machine.partitions
        return visit

    await in_time(case)


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
    caller.write(encode_frame(200, 0, 2, b"\x90"))
    caller.say(Opcode.SEND, SendRequest(1, [encode_body(b"x")]), 3)
    await until(lambda: caller.answers == 2)
    assert [error.code for error in caller.errors] == [ErrorCode.UNKNOWN_OPCODE]
    caller.transport.close()


# --- who speaks a later release ---------------------------------------------------------------------------------

LATER = (FEATURE_LEVEL + 1, FEATURE_LEVEL + 2)
DO_NOT_MEET = f"speaks feature levels {LATER[0]} to {LATER[1]}, this process {FEATURE_LEVEL_MIN} to {FEATURE_LEVEL}"


async def test_greeting_of_a_later_protocol_ends_the_connection(scene: Scene, told: Logs) -> None:
    frame = bytearray(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello(CLUSTER, "x"))))
    frame[1] = 2

    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            caller = await scene.caller(InnerRole.FRONT_END)
            caller.write(bytes(frame))
            await visit.ends(caller)
        error = "protocol version 2 is not spoken here, 1 is"
        visit.is_told(MALFORMED, caller, error=error, name="penstock://pk-test/front-end/1")
        return visit

    await in_time(case)


async def test_client_of_a_later_level_is_refused(scene: Scene, told: Logs) -> None:
    async def case() -> NodeVisit:
        before = refused("level")
        async with scene.visit(told) as visit:
            caller = await scene.caller(InnerRole.FRONT_END)
            caller.say(Opcode.HELLO, Hello(CLUSTER, "later", levels=LATER))
            await visit.ends(caller)
        assert [error.code for error in caller.errors] == [ErrorCode.UNAVAILABLE] and not caller.answers
        line = visit.is_told("refusing a connection", caller, reason="level", name="penstock://pk-test/front-end/1")
        assert f"the client 'later' {DO_NOT_MEET}" in line["text"] and refused("level") == before + 1
        return visit

    await in_time(case)


async def test_node_of_a_later_level_is_refused(scene: Scene, told: Logs) -> None:
    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            caller = await scene.caller(InnerRole.NODE, str(OTHER_PEER))
            caller.say(Opcode.PEER_HELLO, PeerHello(CLUSTER, OTHER_PEER, 7, levels=(*LATER, LATER[1])))
            caller.say(Opcode.RAFT, RaftFrame(7, [VoteRequest(0, 99, 99, 99)]))
            await visit.ends(caller)
        line = visit.is_told("not letting a node in", caller, peer=OTHER_PEER)
        assert f"node 2 {DO_NOT_MEET}" in line["reason"]
        assert scene.node.cluster.raft.epoch < 99
        return visit

    await in_time(case)


# --- who claims what it does not send ---------------------------------------------------------------------------


def claims(length: int) -> bytes:
    frame = bytearray(encode_frame(Opcode.SEND, 0, 2, b""))
    frame[8:12] = length.to_bytes(4, "big")
    return bytes(frame)


@pytest.mark.parametrize("greeted_as", ["", "client", "node"])
async def test_frame_that_claims_two_gibibytes_ends_the_connection_and_takes_no_memory(
    scene: Scene, told: Logs, greeted_as: str
) -> None:
    """Neither as long as the claim is read and the head is not whole, nor afterwards."""
    head = claims(2**31)
    as_node = greeted_as == "node"
    name = "penstock://pk-test/node/2" if as_node else "penstock://pk-test/front-end/1"

    async def case() -> NodeVisit:
        async with scene.visit(told) as visit:
            if as_node:
                caller = await greeted_as_peer(scene)
            else:
                caller = await (scene.greeted if greeted_as else scene.caller)(InnerRole.FRONT_END)
            caller.write(head[:-1])
            await until(lambda: scene.node.room.budget.used(Kind.FRAMES) > 0)
            assert scene.node.room.budget.used(Kind.FRAMES) == len(head) - 1
            caller.write(head[-1:] + bytes(1000))
            await visit.ends(caller)
        visit.is_told(MALFORMED, caller, error=f"claims {2**31} bytes, at most {FRAME_BYTES_MAX} are taken", name=name)
        return visit

    await in_time(case)


async def test_longest_frame_takes_what_has_come_of_it(scene: Scene, told: Logs) -> None:
    """This claim is a good one: its connection stays open, and holds no more than was sent."""
    async with scene.visit(told) as visit:
        caller = await scene.greeted(InnerRole.FRONT_END)
        caller.write(claims(FRAME_BYTES_MAX) + bytes(1000))
        await until(lambda: scene.node.room.budget.used(Kind.FRAMES) > 0)
        await asyncio.sleep(0.2)
        assert scene.node.room.budget.used(Kind.FRAMES) == HEADER_BYTES + 1000 and not caller.lost.is_set()
        caller.transport.close()
        await visit.ends(caller)
    assert not told


# --- a node whose peers have certificates -------------------------------------------------------------------------


async def test_node_says_why_a_peer_does_not_let_it_in(scene: Scene, told: Logs) -> None:
    """A link that leads to somebody else is refused by the one that dials, too."""
    scene.node.admit(NodeAddress(OTHER_PEER, scene.address.host, scene.address.port, "b"))
    await until(lambda: bool(lines(told, "a peer does not let this node in")), 5.0)
    assert lines(told, "a peer does not let this node in")[0]["reason"] == "it is node 1, not node 2"
