"""Does a process serve? It answers a question of its own protocol, or an HTTP page with 200.

That a TCP connection is accepted says little: the kernel accepts for a process that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from deploy import limits
from storage_nodes.client.connection import connect
from storage_nodes.model import NodeAddress
from storage_nodes.protocol.errors import StorageError
from storage_nodes.trust.credentials import Credentials

Address = tuple[str, int]
# Another way to ask, for servers that take connections before they can serve.
Probe = Callable[[], Awaitable[bool]]
# Length and code of PostgreSQL's SSLRequest message.
_POSTGRES_TLS_REQUEST = struct.pack(">ii", 8, 80877103)


async def serves(address: Address | None, http_path: str | None, probe: Probe | None = None) -> bool:
    """Ask once. A process without an address serves by being alive, which the caller knows."""
    if address is None:
        return True
    try:
        asking = _ask(address, http_path) if probe is None else probe()
        return await asyncio.wait_for(asking, limits.READY_PROBE_TIMEOUT_S)
    except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
        return False


async def answers_ping(address: Address, password: str) -> bool:
    """Whether a Valkey has read its files: it takes connections (and logins) while it still reads them."""
    async with _open(address) as (reader, writer):
        writer.write(f"AUTH {password}\r\nPING\r\n".encode())
        return [await reader.readline(), await reader.readline()] == [b"+OK\r\n", b"+PONG\r\n"]


async def answers_postgres(address: Address) -> bool:
    """Whether a PostgreSQL answers the question for TLS, which needs no login: one byte, S or N."""
    async with _open(address) as (reader, writer):
        writer.write(_POSTGRES_TLS_REQUEST)
        return await reader.readexactly(1) in (b"S", b"N")


async def answers_greeting(node: NodeAddress, cluster_id: str, credentials: Credentials | None = None) -> bool:
    """Whether a storage node greets a client of its cluster."""
    try:
        connection = await connect(cluster_id, "supervisor", node, limits.READY_PROBE_TIMEOUT_S, credentials)
    except StorageError:
        return False
    connection.close()
    return True


async def answers_http(address: Address, path: str, *, also: Address, tls: ssl.SSLContext | None = None) -> bool:
    """Whether an HTTP request is answered, whatever the status: the process lives and has its turn, though what it
    depends on may be away. `also` takes connections."""
    async with _open(also):
        return await _status(address, path, tls) is not None


async def answers_well(address: Address, path: str) -> bool:
    """Whether an HTTP request is answered with 200, by a port that is not the one clients use."""
    return await _status(address, path) == b"200"


async def _ask(address: Address, http_path: str | None) -> bool:
    if http_path is not None:
        return await _status(address, http_path) == b"200"
    async with _open(address):
        return True


async def _status(address: Address, path: str, tls: ssl.SSLContext | None = None) -> bytes | None:
    async with _open(address, tls) as (reader, writer):
        host = f"{address[0]}:{address[1]}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        words = (await reader.readline()).split(b" ")
        return words[1] if len(words) > 1 else None


@contextlib.asynccontextmanager
async def _open(
    address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
