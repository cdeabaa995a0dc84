"""The inbound connections of a node, without the node: it answers each ACQUIRE with a megabyte."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from storage_nodes.limits import MIB, NODE_MEMORY_BYTES_MIN
from storage_nodes.node.memory.memory_budget import MemoryBudget
from storage_nodes.node.memory.room import NodeRoom
from storage_nodes.node.transport.connection_table import ConnectionTable
from storage_nodes.node.transport.connections import NodeConnection, Token
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.levels import spoken
from storage_nodes.protocol.messages import Hello, Opcode, encode_message
from storage_nodes.protocol.peer_messages import PeerHello
from tests.storage_nodes.node.slow_pipe import SlowPipe

HELLO = encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello("c", "client")))
ANSWER = b"x" * MIB


class Node:
    """Answers each ACQUIRE at once with a megabyte, and keeps all other requests."""

    cluster_id = "c"
    node_id = 1
    speaks = spoken()

    def __init__(self, bytes_max: int = NODE_MEMORY_BYTES_MIN) -> None:
        self.soon: list[Callable[[], None]] = []
        self.room = NodeRoom(MemoryBudget(bytes_max), lambda: 0.0, lambda: None)
        self.asked: list[Token] = []
        self.lost: list[int] = []
        self.cancelled_ids: list[int] = []
        loop: Any = SimpleNamespace(
            call_soon=lambda work, *items: self.soon.append(lambda: work(*items)),
            call_later=lambda _s, work: self.soon.append(work),
        )
        self.table = ConnectionTable(self, loop)  # type: ignore[arg-type]

    def turn(self) -> None:
        pass

    def request(self, token: Token, payload: bytes) -> None:
        self.asked.append(token)
        if token.opcode == Opcode.ACQUIRE:
            token.connection.answer(token, ANSWER, lambda: self.lost.append(token.request_id))

    def cancelled(self, token: Token, partition: int) -> None:
        self.cancelled_ids.append(token.request_id)

    def peer_greeted(self, hello: PeerHello) -> str:
        return ""

    def connect(self, reads: bool = True, greets: bool = True) -> tuple[NodeConnection, SlowPipe]:
        connection = self.table.accept()
        pipe = SlowPipe(connection, reads)
        if greets:
            connection.data_received(HELLO)
            self.run()
        return connection, pipe

    def run(self) -> None:
        """Turns of the loop, until nothing is left to do."""
        while self.soon:
            soon, self.soon = self.soon, []
            for work in soon:
                work()


def acquires(*ids: int) -> bytes:
    return b"".join(encode_frame(Opcode.ACQUIRE, 0, number, b"") for number in ids)


def look(node: Node, until_ms: int, from_ms: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
    for now_ms in range(from_ms + 500, until_ms + 1, 500):
        meanwhile()
        node.table.look(now_ms)
