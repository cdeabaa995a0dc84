"""A node that serves a client of its own while a stranger is at its port (`tests/support/strangers.py`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from unittest.mock import patch

import pytest

from storage_nodes.client import StorageClient
from storage_nodes.model import NodeAddress
from storage_nodes.node.memory.memory_budget import Kind, MemoryBudget
from storage_nodes.node.node import StorageNode
from storage_nodes.node.transport import connections as connections_module
from storage_nodes.node.transport import peer_link as peer_link_module
from storage_nodes.node.transport import peers as peers_module
from storage_nodes.protocol.messages import Hello, Opcode
from storage_nodes.protocol.records import encode_body
from storage_nodes.trust.connection import connect_named, is_node
from storage_nodes.trust.credentials import Credentials
from storage_nodes.trust.names import InnerRole
from tests.support.inner_certificates import CLUSTER, InnerAuthority
from tests.support.strangers import Caller, Logs, V, Visit, comes, heard_logs, until

# What the node may count of frames that are not whole: no more than was sent.
FRAMES_BYTES_MAX = 64 * 1024


def heard_node(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return heard_logs(monkeypatch, connections_module, peer_link_module, peers_module)


class NodeVisit(Visit):
    """The node takes no memory for frames at any moment, and has given all of it back afterwards; nor does it keep a
    connection."""

    def __init__(self, node: StorageNode, bystander: Callable[[], Awaitable[object]], told: Logs) -> None:
        super().__init__(bystander, told)
        self.node = node
        self._most_bytes = 0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        budget, take = self.node.room.budget, MemoryBudget.take
        connections = len(self.node._connections._connections)

        def counted(taken: MemoryBudget, kind: Kind, size_bytes: int) -> None:
            take(taken, kind, size_bytes)
            if taken is budget:
                self._most_bytes = max(self._most_bytes, budget.used(Kind.FRAMES))

        with patch.object(MemoryBudget, "take", counted):
            async with super().watched():
                yield
        assert self._most_bytes <= FRAMES_BYTES_MAX
        await until(lambda: len(self.node._connections._connections) <= connections)
        assert len(self.node._connections._connections) == connections
        assert budget.used(Kind.FRAMES) == 0


class Scene:
    """A node, its client, and those that come beside it."""

    def __init__(
        self, node: StorageNode, address: NodeAddress, authority: InnerAuthority, client: StorageClient, partition: int
    ) -> None:
        self.node = node
        self.address = address
        self.authority = authority
        self._client = client
        self._partition = partition

    @contextlib.asynccontextmanager
    async def visit(self, told: Logs) -> AsyncIterator[NodeVisit]:
        visit = NodeVisit(self.node, self.serves_another, told)
        async with visit.watched():
            yield visit

    async def serves_another(self) -> None:
        assert await self._client.send(self._partition, [encode_body(b"still there")])

    async def comes(self, make: Callable[[], V]) -> V:
        return await comes(make, self.address.host, self.address.port)

    async def caller(self, role: InnerRole, number: str = "1") -> Caller:
        return await called(self.address, self.authority.credentials(role, number), self.node.node_id)

    async def greeted(self, role: InnerRole, number: str = "1") -> Caller:
        caller = await self.caller(role, number)
        caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
        await until(lambda: bool(caller.answers))
        return caller


async def called(address: NodeAddress, credentials: Credentials | None, node_id: int = 1) -> Caller:
    async with asyncio.timeout(5):
        return await connect_named(credentials, Caller, address.host, address.port, is_node(node_id))
