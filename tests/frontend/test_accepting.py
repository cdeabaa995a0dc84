"""Connections that wait are accepted many in a turn of the event loop, and none after the server has stopped."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
import uvloop

from frontend.accepting import Acceptor
from frontend.http import answer
from frontend.limits import ACCEPTED_PER_TURN_MAX
from frontend.ports import public_config
from frontend.server import Server

CLIENTS = 3 * ACCEPTED_PER_TURN_MAX
TURNS_MAX = 20  # a connection takes a few turns until its protocol knows of it
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def say_hello(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, (), b"hello")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, int]]:
    server = Server(public_config(uvicorn.Config, say_hello, "127.0.0.1", 0))
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def turns_until_all_are_accepted() -> int:
    async with serving() as (server, port):
        with contextlib.ExitStack() as clients:
            for _ in range(CLIENTS):  # the kernel connects them: nothing runs here meanwhile
                clients.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            turns = 0
            while len(server.server_state.connections) < CLIENTS and turns < 2 * CLIENTS:
                await asyncio.sleep(0)
                time.sleep(0.001)  # a turn that others have work in
                turns += 1
            assert len(server.server_state.connections) == CLIENTS
    return turns


def test_many_waiting_connections_are_accepted_in_a_few_turns() -> None:
    assert uvloop.run(turns_until_all_are_accepted()) <= TURNS_MAX


async def answers_of_all() -> list[bytes]:
    async with serving() as (_, port):

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            found = await asyncio.wait_for(reader.readuntil(b"hello"), 10)
            writer.close()
            return found

        return await asyncio.gather(*(ask() for _ in range(CLIENTS)))


def test_each_connection_is_answered_once() -> None:
    found = uvloop.run(answers_of_all())
    assert len(found) == CLIENTS and all(one.count(b"HTTP/1.1 200") == 1 for one in found)


async def connect_after_the_stop() -> int:
    async with serving() as (_, port):
        pass
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port))


def test_nobody_listens_after_the_stop() -> None:
    assert uvloop.run(connect_after_the_stop()) == errno.ECONNREFUSED


class NoFiles:
    """A listening socket, as it is while no descriptor is free."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.asked = 0

    def accept(self) -> Any:
        self.asked += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def fileno(self) -> int:
        return self.listening.fileno()

    def close(self) -> None:
        self.listening.close()


def test_where_no_descriptor_is_free_it_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend.accepting.ACCEPT_PAUSE_S", 0.05)

    async def run() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            acceptor = Acceptor(listening.fileno(), asyncio.Protocol)
            without = NoFiles(acceptor._listening)
            monkeypatch.setattr(acceptor, "_listening", without)
            with socket.create_connection(listening.getsockname()):
                await asyncio.sleep(0.3)
            acceptor.close()
        return without.asked

    assert 2 <= uvloop.run(run()) <= 8
