"""Whether a process serves is asked in its own protocol: that the kernel accepts a connection says nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from deploy import limits, probes
from storage_nodes.model import NodeAddress

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[probes.Address]:
    """A server that answers the first bytes so; None: it hangs."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


def asked(kind: str, address: probes.Address) -> probes.Probe:
    return {
        "postgres": lambda: probes.answers_postgres(address),
        "storage node": lambda: probes.answers_greeting(NodeAddress(1, *address, ""), "pk-test"),
        "http": lambda: probes.answers_http(address, "/healthz", also=address),
        "valkey": lambda: probes.answers_ping(address, "secret"),
    }[kind]


@pytest.mark.parametrize("kind", ["postgres", "storage node", "http", "valkey"])
async def test_process_that_takes_connections_and_hangs_does_not_serve(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READY_PROBE_TIMEOUT_S", 0.2)
    async with listening(None) as address:
        assert not await probes.serves(address, None, asked(kind, address))
        assert await probes.serves(address, None), "a bare connection is accepted all the same"


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("postgres", b"N", True),
        ("postgres", b"S", True),
        ("postgres", b"E", False),
        ("http", b"HTTP/1.1 503 Service Unavailable\r\n\r\n", True),
        ("http", b"garbage", False),
        ("valkey", b"+OK\r\n+PONG\r\n", True),
        ("valkey", b"+OK\r\n-LOADING\r\n", False),
    ],
)
async def test_answer_decides(kind: str, answer: bytes, expected: bool) -> None:
    async with listening(answer) as address:
        assert await probes.serves(address, None, asked(kind, address)) is expected


async def test_page_must_be_answered_with_200_where_a_page_is_asked_for() -> None:
    async with listening(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as address:
        assert not await probes.serves(address, "/healthz")
    async with listening(b"HTTP/1.1 200 OK\r\n\r\n") as address:
        assert await probes.serves(address, "/healthz")
