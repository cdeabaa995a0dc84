"""Connections between processes: both sides know the other's name before the first frame, or there is none."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop
from prometheus_client import REGISTRY

from storage_nodes.trust import connection as connection_module
from storage_nodes.trust import handshakes as handshakes_module
from storage_nodes.trust.connection import PeerRefused, ServerEnd, connect_named, is_node
from storage_nodes.trust.credentials import Credentials, InnerTlsMode
from storage_nodes.trust.handshakes import OpenHandshakes
from storage_nodes.trust.names import InnerName, InnerRole
from storage_nodes.trust.port import NamedPort
from tests.support.inner_certificates import InnerAuthority

MIB = 1024 * 1024
# Well before the deadline of a handshake (5 s).
WITHIN_S = 3.0
Run = Callable[[Awaitable[None]], None]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
MODES = pytest.mark.parametrize("mode", [InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def __init__(self) -> None:
        self.names: list[InnerName] = []

    def named(self, name: InnerName) -> Echo:
        self.names.append(name)
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Caller(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = bytearray()
        self.lost = asyncio.Event()
        self._more = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self._more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def hear(self, length: int) -> bytes:
        async with asyncio.timeout(10):
            while len(self.heard) < length:
                self._more.clear()
                await self._more.wait()
        return bytes(self.heard)


class Server:
    """A port whose connections echo."""

    def __init__(self, credentials: Credentials, objection: Callable[[InnerName], str] = lambda name: "") -> None:
        self.credentials = credentials
        self.objection = objection
        self.handshakes = OpenHandshakes()
        self.echoes: list[Echo] = []
        self.left = 0

    async def __aenter__(self) -> Server:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> asyncio.Protocol:
        echo = Echo()
        self.echoes.append(echo)
        return ServerEnd(self.credentials, self.handshakes, echo.named, self.objection, lost=self._lose)

    def _lose(self) -> None:
        self.left += 1

    async def call(self, credentials: Credentials, node_id: int = 1) -> Caller:
        async with asyncio.timeout(5):
            return await connect_named(credentials, Caller, "127.0.0.1", self.port, is_node(node_id))

    async def refuses(self, credentials: Credentials, node_id: int = 1) -> str:
        """Why; within a second, where the machine has time."""
        started_s = time.monotonic()
        with pytest.raises(PeerRefused) as caught:
            await self.call(credentials, node_id)
        assert time.monotonic() - started_s < WITHIN_S
        return str(caught.value)


def refusals(reason: str) -> float:
    return REGISTRY.get_sample_value("penstock_inner_connections_refused_total", {"reason": reason}) or 0


@LOOPS
@MODES
def test_both_sides_know_each_other_and_bytes_pass_whole(tmp_path: Path, mode: InnerTlsMode, run: Run) -> None:
    authority = InnerAuthority(tmp_path, mode=mode)

    async def scenario() -> None:
        async with Server(authority.credentials(InnerRole.NODE)) as server:
            caller = await server.call(authority.credentials(InnerRole.FRONT_END))
            said = bytes(range(256)) * (4 * MIB // 256)
            for at in range(0, len(said), 300_001):
                caller.transport.write(said[at : at + 300_001])
            assert await caller.hear(len(said)) == said
            (echo,) = server.echoes
            assert [str(name) for name in echo.names] == ["penstock://pk-test/front-end/1"]
            caller.transport.close()
            await caller.lost.wait()
            assert server.left == 0

    run(scenario())


@MODES
def test_bytes_on_the_network_are_sealed_where_the_mode_says_so(tmp_path: Path, mode: InnerTlsMode) -> None:
    authority = InnerAuthority(tmp_path, mode=mode)
    seen = bytearray()

    class Pipe(asyncio.Protocol):
        """Between both: sees what passes."""

        def __init__(self, port: int) -> None:
            self._other = socket.create_connection(("127.0.0.1", port))
            self._other.setblocking(False)

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = cast(asyncio.Transport, transport)
            asyncio.get_running_loop().add_reader(self._other, self._back)

        def data_received(self, data: bytes) -> None:
            seen.extend(data)
            self._other.sendall(data)

        def connection_lost(self, exc: Exception | None) -> None:
            asyncio.get_running_loop().remove_reader(self._other)
            self._other.close()

        def _back(self) -> None:
            self._transport.write(self._other.recv(65536))

    async def scenario() -> None:
        async with Server(authority.credentials(InnerRole.NODE)) as server:
            loop = asyncio.get_running_loop()
            behind = server.port
            pipe = await loop.create_server(lambda: Pipe(behind), "127.0.0.1", 0)
            server.port = pipe.sockets[0].getsockname()[1]
            caller = await server.call(authority.credentials(InnerRole.FRONT_END))
            caller.transport.write(b"a message that anybody may read")
            await caller.hear(10)
            caller.transport.close()
            await caller.lost.wait()
            pipe.close()

    asyncio.run(scenario())
    assert (b"anybody may read" in seen) is (mode is InnerTlsMode.AUTHENTICATE)


@LOOPS
@MODES
def test_who_is_no_good_is_told_why_and_hung_up_on(tmp_path: Path, mode: InnerTlsMode, run: Run) -> None:
    authority = InnerAuthority(tmp_path / "ours", mode=mode)
    strangers = InnerAuthority(tmp_path / "theirs", mode=mode)
    node = authority.credentials(InnerRole.NODE)

    async def scenario() -> None:
        async with Server(node, lambda name: "not you" if name.role is InnerRole.METADATA else "") as server:
            before = {reason: refusals(reason) for reason in ("handshake", "cluster", "role", "mode")}
            # Nobody believes the other: here the client is the first to see that.
            assert "not believed" in await server.refuses(strangers.credentials(InnerRole.FRONT_END))
            foreign = authority.foreign(InnerRole.FRONT_END)
            foreign.cluster_id = "pk-test"  # a forger does not look at what he was given
            assert "of another cluster than pk-test" in await server.refuses(foreign)
            assert "not you" in await server.refuses(authority.credentials(InnerRole.METADATA))
            other = next(one for one in (InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE) if one is not mode)
            assert "PENSTOCK_INNER_TLS" in await server.refuses(authority.credentials(InnerRole.WORKER, mode=other))
            # A client that believes us, with a certificate of its own making.
            forged = strangers.files(InnerRole.FRONT_END)
            believing = Credentials("pk-test", authority.files(InnerRole.FRONT_END), mode)
            believing.current.client.load_cert_chain(forged.certificate, forged.key)
            assert "unknown ca" in await server.refuses(believing)
            await asyncio.sleep(0.3)
            assert refusals("handshake") >= before["handshake"] + 1
            for reason in ("cluster", "role", "mode"):
                assert refusals(reason) == before[reason] + 1, reason
            assert not any(echo.names for echo in server.echoes), "none of them came to the first frame"
            assert server.left == len(server.echoes)
            await server.call(authority.credentials(InnerRole.FRONT_END))

    run(scenario())


@LOOPS
def test_caller_hangs_up_on_who_is_not_whom_it_called(tmp_path: Path, run: Run) -> None:
    authority = InnerAuthority(tmp_path)

    async def scenario() -> None:
        async with Server(authority.credentials(InnerRole.NODE, "2")) as server:
            assert "it is node 2, not node 1" in await server.refuses(authority.credentials(InnerRole.FRONT_END))
        async with Server(authority.credentials(InnerRole.FRONT_END)) as server:
            assert "not node 1" in await server.refuses(authority.credentials(InnerRole.FRONT_END))
        async with Server(authority.foreign(InnerRole.NODE)) as server:
            assert "it is of cluster pk-other" in await server.refuses(authority.credentials(InnerRole.FRONT_END))

    run(scenario())


@LOOPS
@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\xa7" * 64, b"\x16\x03\x01\xff\xff", b"\x16" * 70_000])
def test_what_is_no_handshake_is_hung_up_on(
    tmp_path: Path, said: bytes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "GREETING_MS_MAX", 300)
    authority = InnerAuthority(tmp_path)

    async def scenario() -> None:
        async with Server(authority.credentials(InnerRole.NODE)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(said)
            async with asyncio.timeout(WITHIN_S):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            writer.close()
            assert server.left == 1
            await server.call(authority.credentials(InnerRole.FRONT_END))

    run(scenario())


def test_who_shows_nothing_is_cut_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "GREETING_MS_MAX", 100)
    authority = InnerAuthority(tmp_path)

    async def scenario() -> None:
        async with Server(authority.credentials(InnerRole.NODE)) as server:
            before = refusals("deadline")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(WITHIN_S):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            assert refusals("deadline") == before + 1
            writer.close()

    asyncio.run(scenario())


def test_bug_of_ours_before_it_is_known_who_is_there_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = InnerAuthority(tmp_path)
    unhandled: list[object] = []

    def judge(_: object) -> None:
        raise AssertionError("a bug")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
        async with Server(authority.credentials(InnerRole.NODE)) as server:
            with monkeypatch.context() as patched:
                patched.setattr(ServerEnd, "_judge", judge)
                assert await server.refuses(authority.credentials(InnerRole.FRONT_END))
            await server.call(authority.credentials(InnerRole.FRONT_END))

    asyncio.run(scenario())
    assert not unhandled


def test_port_of_a_service_lets_its_callers_in_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those who show nothing displace each other."""
    monkeypatch.setattr(handshakes_module, "HANDSHAKES_MAX", 3)
    authority = InnerAuthority(tmp_path)

    async def scenario() -> None:
        port = NamedPort(authority.credentials(InnerRole.METADATA), InnerRole.METADATA)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(port.over(Echo), "127.0.0.1", 0)
        address, number = listening.sockets[0].getsockname()

        async def call(role: InnerRole) -> Caller:
            async with asyncio.timeout(2):
                return await connect_named(authority.credentials(role), Caller, address, number, lambda name: "", True)

        with pytest.raises(PeerRefused, match="nothing to ask of the role metadata"):
            await call(InnerRole.WORKER)
        await asyncio.sleep(0.3)  # it has a moment to read why, and counts until then
        before = refusals("crowded")
        silent = [await asyncio.open_connection(address, number) for _ in range(5)]
        async with asyncio.timeout(WITHIN_S):
            for reader, _ in silent[:2]:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        assert refusals("crowded") == before + 2
        caller = await call(InnerRole.FRONT_END)
        caller.transport.write(b"there?")
        assert await caller.hear(6) == b"there?"
        for _, writer in silent:
            writer.close()
        async with asyncio.timeout(2):
            while len(port._handshakes):
                await asyncio.sleep(0.01)
        listening.close()

    asyncio.run(scenario())


def test_slow_reader_is_felt_through_tls(tmp_path: Path) -> None:
    """Whoever writes is paused by what the network does not take, as without TLS."""
    authority = InnerAuthority(tmp_path)
    paused: list[int] = []

    class Writes(Echo):
        def data_received(self, data: bytes) -> None:
            self.transport.set_write_buffer_limits(256 * 1024, 128 * 1024)
            self.transport.write(bytes(16 * MIB))

        def pause_writing(self) -> None:
            paused.append(self.transport.get_write_buffer_size())

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        credentials = authority.credentials(InnerRole.NODE)
        server = await loop.create_server(
            lambda: ServerEnd(credentials, OpenHandshakes(), lambda name: Writes()), "127.0.0.1", 0
        )
        address, number = server.sockets[0].getsockname()
        caller = await connect_named(authority.credentials(InnerRole.WORKER), Caller, address, number, is_node(1))
        caller.transport.pause_reading()
        caller.transport.write(b"go on")
        async with asyncio.timeout(5):
            while not paused:
                await asyncio.sleep(0.01)
        assert paused[0] > MIB
        caller.transport.resume_reading()
        await caller.hear(16 * MIB)
        server.close()

    asyncio.run(scenario())
