"""Does a process serve? A TCP connection that is accepted, or an HTTP page that answers 200."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from deploy import limits

Address = tuple[str, int]
# Another way to ask, for servers that take connections before they can serve.
Probe = Callable[[], Awaitable[bool]]


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
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(f"AUTH {password}\r\nPING\r\n".encode())
        return [await reader.readline(), await reader.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _ask(address: Address, http_path: str | None) -> bool:
    reader, writer = await asyncio.open_connection(*address)
    try:
        if http_path is None:
            return True
        host = f"{address[0]}:{address[1]}"
        writer.write(f"GET {http_path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        status_line = await reader.readline()
        return status_line.split(b" ")[1:2] == [b"200"]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
