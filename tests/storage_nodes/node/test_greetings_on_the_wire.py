"""What processes really say first: the protocol of their frames, and the feature levels that they speak, as the other
end of a bare connection reads them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from storage_nodes.client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.model import NodeAddress
from storage_nodes.node.node import StorageNode
from storage_nodes.protocol.frames import FrameDecoder, encode_frame
from storage_nodes.protocol.levels import FEATURE_LEVEL, FEATURE_LEVEL_MIN, Speaks, spoken
from storage_nodes.protocol.messages import Hello, Opcode, encode_message
from storage_nodes.protocol.records import encode_body
from tests.support.strangers import until

# As numbers, so that they change only together with this.
MAGIC, PROTOCOL, HELLO, PEER_HELLO = 0xA7, 1, 1, 40
HEAD_BYTES = 16
OWN = [FEATURE_LEVEL_MIN, FEATURE_LEVEL]


class Greeting(NamedTuple):
    magic: int
    protocol: int
    opcode: int
    flags: int
    fields: list[Any]


def read(said: bytes) -> Greeting:
    length = int.from_bytes(said[8:12], "big")
    assert FrameDecoder().feed(said[: HEAD_BYTES + length]), "with a checksum that matches"
    return Greeting(*said[:4], msgspec.msgpack.decode(said[HEAD_BYTES : HEAD_BYTES + length]))


class Listener(asyncio.Protocol):
    """Takes down what comes, and answers nothing."""

    def __init__(self, heard: list[bytearray]) -> None:
        self._said = bytearray()
        heard.append(self._said)

    def data_received(self, data: bytes) -> None:
        self._said += data


class Port:
    """A bare port where nodes and clients take a node for."""

    def __init__(self) -> None:
        self._heard: list[bytearray] = []

    async def open(self) -> NodeAddress:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Listener(self._heard), "127.0.0.1", 0)
        return NodeAddress(2, "127.0.0.1", self._server.sockets[0].getsockname()[1], "b")

    def close(self) -> None:
        self._server.close()

    def greetings(self, opcode: int) -> list[Greeting]:
        whole = [bytes(said) for said in self._heard if len(said) > HEAD_BYTES and said[2] == opcode]
        return [read(said) for said in whole if len(said) >= HEAD_BYTES + int.from_bytes(said[8:12], "big")]


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    port = Port()
    yield port
    port.close()


async def node_beside(address: NodeAddress, directory: Path, **settings: Any) -> StorageNode:
    with socket.create_server(("127.0.0.1", 0)) as held:
        own = held.getsockname()[1]
    nodes = f"1=127.0.0.1:{own}@a,2={address.host}:{address.port}@b"
    speaks = settings.pop("speaks", None)
    node = StorageNode(NodeConfig("c", 1, str(directory), f"127.0.0.1:{own}", nodes, **settings), None, speaks)
    await node.start()
    return node


async def test_storage_client_says_its_protocol_and_levels(port: Port) -> None:
    client = StorageClient("c", [await port.open()], "front end", 5.0)
    await client.start()
    call = asyncio.create_task(client.send(1, [encode_body(b"x")]))
    await until(lambda: bool(port.greetings(HELLO)))
    assert port.greetings(HELLO)[0] == (MAGIC, PROTOCOL, HELLO, 0, ["c", "front end", 0, OWN])
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await client.close()


async def test_node_says_as_a_client_its_protocol_and_levels(port: Port, tmp_path: Path) -> None:
    node = await node_beside(await port.open(), tmp_path)
    node.other_partitions.send(7, [encode_body(b"a dead letter")], lambda error: None)
    await until(lambda: bool(port.greetings(HELLO)))
    assert port.greetings(HELLO)[0] == (MAGIC, PROTOCOL, HELLO, 0, ["c", "node-1", 0, OWN])
    await node.close()


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({}, [*OWN, FEATURE_LEVEL]),
        ({"feature_level_max": 1}, [*OWN, 1]),
        ({"speaks": Speaks(1, 1, 1)}, [1, 1, 1]),
        ({"speaks": Speaks(2, 5, 4)}, [2, 5, 4]),
    ],
    ids=["release", "held by an operator", "release before", "release to come"],
)
async def test_node_says_to_a_peer_its_protocol_and_levels(
    port: Port, tmp_path: Path, settings: dict[str, Any], levels: list[int]
) -> None:
    node = await node_beside(await port.open(), tmp_path, **settings)
    await until(lambda: bool(port.greetings(PEER_HELLO)))
    said = port.greetings(PEER_HELLO)[0]
    assert said[:4] == (MAGIC, PROTOCOL, PEER_HELLO, 0)
    own = node.config.own_address
    assert said.fields[:7] == ["c", 1, node.log.incarnation, 2, own.host, own.port, own.zone]
    assert said.fields[-1] == levels
    await node.close()


@pytest.mark.parametrize("speaks", [spoken(), Speaks(1, 1, 1)])
async def test_node_answers_a_client_with_its_protocol_and_levels(port: Port, tmp_path: Path, speaks: Speaks) -> None:
    node = await node_beside(await port.open(), tmp_path, speaks=speaks)
    own = node.config.own_address
    loop = asyncio.get_running_loop()
    heard: list[bytearray] = []
    made, _ = await loop.create_connection(lambda: Listener(heard), own.host, own.port)
    transport = cast(asyncio.Transport, made)
    transport.write(encode_frame(Opcode.HELLO, 0, 9, encode_message(Hello("c", "x"))))
    await until(lambda: len(heard[0]) > HEAD_BYTES)
    assert read(bytes(heard[0])) == (MAGIC, PROTOCOL, HELLO, 1, ["c", "node", 1, list(speaks[:2])])
    transport.close()
    await node.close()
