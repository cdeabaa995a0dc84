"""The metadata service shows its certificate, and answers front ends alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from api.metadata import server as server_module
from api.metadata.process import MetadataProcess, MetadataSettings
from api.metadata.server import MetadataServer
from frontend.metadata.connection import MetadataConnection, open_connection
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.limits import METADATA_FRAME_BYTES_MAX
from frontend.metadata.messages import GetKey, KeyReply, MetadataOpcode, Subscribe
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.messages import Hello, Opcode, encode_message
from storage_nodes.trust.connection import PeerRefused, connect_named, is_role
from storage_nodes.trust.credentials import Credentials, InnerTlsMode
from storage_nodes.trust.names import InnerRole
from tests.support.inner_certificates import CLUSTER, InnerAuthority, context_that_shows
from tests.support.strangers import Caller, Handshaker, Logs, V, Visit, comes, heard_logs, in_time, until

# Nothing listens there: what is tested here comes before any record.
NO_DATABASE = "postgresql://x@127.0.0.1:1/x"


@pytest.fixture(params=[InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])
def authority(tmp_path: Path, request: pytest.FixtureRequest) -> InnerAuthority:
    return InnerAuthority(tmp_path / "ours", mode=request.param)


@pytest.fixture
async def process(authority: InnerAuthority) -> AsyncIterator[MetadataProcess]:
    credentials = authority.credentials(InnerRole.METADATA)
    process = MetadataProcess(MetadataSettings(NO_DATABASE, CLUSTER, "127.0.0.1", 0, "", None, credentials))
    await process.start()
    yield process
    await process.close()


async def ask(process: MetadataProcess, credentials: Credentials | None) -> None:
    connection = await open_connection(
        "127.0.0.1", process.port, CLUSTER, "x", Subscribe(), lambda pushed: None, credentials
    )
    try:
        assert isinstance(await connection.ask(MetadataOpcode.GET_KEY, GetKey("?" * 500)), KeyReply)
    finally:
        connection.close()


async def test_front_end_is_answered(process: MetadataProcess, authority: InnerAuthority) -> None:
    await ask(process, authority.credentials(InnerRole.FRONT_END))


@pytest.mark.parametrize("role", [InnerRole.NODE, InnerRole.WORKER, InnerRole.CONTROL_PLANE])
async def test_other_roles_are_refused(process: MetadataProcess, authority: InnerAuthority, role: InnerRole) -> None:
    with pytest.raises(PeerRefused, match=f"role {role} has nothing to ask"):
        await ask(process, authority.credentials(role))


async def test_strangers_are_refused(process: MetadataProcess, authority: InnerAuthority, tmp_path: Path) -> None:
    foreign = authority.foreign(InnerRole.FRONT_END)
    foreign.cluster_id = CLUSTER
    with pytest.raises(PeerRefused, match="another cluster"):
        await ask(process, foreign)
    with pytest.raises(PeerRefused, match="not believed"):
        await ask(process, InnerAuthority(tmp_path / "theirs").credentials(InnerRole.FRONT_END))
    with pytest.raises((MetadataUnavailable, OSError)):
        await ask(process, None)


# --- within a second, with who and why, and at nobody's expense -------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return heard_logs(monkeypatch, server_module)


class Scene:
    """The service, and a front end that it answers while others come."""

    def __init__(self, process: MetadataProcess, told: Logs) -> None:
        self.process = process
        self._told = told
        self._front_end: MetadataConnection | None = None

    async def opens(self, credentials: Credentials | None) -> None:
        self._front_end = await open_connection(
            "127.0.0.1", self.process.port, CLUSTER, "x", Subscribe(), lambda pushed: None, credentials
        )

    def close(self) -> None:
        if self._front_end is not None:
            self._front_end.close()

    async def serves_another(self) -> None:
        assert self._front_end is not None
        assert isinstance(await self._front_end.ask(MetadataOpcode.GET_KEY, GetKey("?" * 500)), KeyReply)
        await asyncio.sleep(0.002)

    async def comes(self, make: Callable[[], V]) -> V:
        return await comes(make, "127.0.0.1", self.process.port)

    @contextlib.asynccontextmanager
    async def visit(self) -> AsyncIterator[Visit]:
        visit, before = Visit(self.serves_another, self._told), set(self.process._connections)
        async with visit.watched():
            yield visit
        await until(lambda: self.process._connections <= before)
        assert self.process._connections == before


@pytest.fixture
async def scene(process: MetadataProcess, authority: InnerAuthority, told: Logs) -> AsyncIterator[Scene]:
    scene = Scene(process, told)
    await scene.opens(authority.credentials(InnerRole.FRONT_END))
    yield scene
    scene.close()


async def caller_of(scene: Scene, credentials: Credentials | None, greets: bool) -> Caller:
    async with asyncio.timeout(5):
        caller = await connect_named(
            credentials, Caller, "127.0.0.1", scene.process.port, is_role(InnerRole.METADATA), always_encrypts=True
        )
    if greets:
        caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
        await until(lambda: bool(caller.answers))
    return caller


async def test_who_shows_no_certificate_is_hung_up_on_and_told(scene: Scene) -> None:
    async def case() -> Visit:
        async with scene.visit() as visit:
            caller = await scene.comes(Caller)
            caller.say(Opcode.HELLO, Hello(CLUSTER, "x"))
            await visit.ends(caller)
        assert not caller.answers
        visit.is_told("refusing a connection", caller, reason="not_tls", text="it does not speak TLS", name="")
        return visit

    await in_time(case)


@pytest.mark.parametrize(
    ("shown", "reason", "text", "name"),
    [
        ("nothing", "handshake", "did not return a certificate", ""),
        ("theirs", "handshake", "its certificate is not believed", ""),
        ("foreign", "cluster", f"it is of another cluster than {CLUSTER}", "penstock://pk-other/front-end/1"),
        ("node", "role", "the role node has nothing to ask of the role metadata", f"penstock://{CLUSTER}/node/1"),
        ("worker", "role", "the role worker has nothing to ask of", f"penstock://{CLUSTER}/worker/1"),
        ("control-plane", "role", "the role control-plane has nothing to", f"penstock://{CLUSTER}/control-plane/1"),
    ],
)
async def test_who_may_not_connect_is_hung_up_on_and_told(
    scene: Scene, authority: InnerAuthority, tmp_path: Path, shown: str, reason: str, text: str, name: str
) -> None:
    context = context_that_shows(shown, authority, tmp_path)

    async def case() -> Visit:
        async with scene.visit() as visit:
            stranger = await scene.comes(lambda: Handshaker(context))
            await visit.ends(stranger)
        line = visit.is_told("refusing a connection", stranger, reason=reason, name=name)
        assert text in line["text"] and (reason == "handshake" or text in stranger.heard)
        return visit

    await in_time(case)


@pytest.mark.parametrize("greets", [True, False])
async def test_frame_that_claims_two_gibibytes_ends_the_connection_and_takes_no_memory(
    scene: Scene, authority: InnerAuthority, greets: bool
) -> None:
    frame = bytearray(encode_frame(MetadataOpcode.GET_KEY, 0, 2, b""))
    frame[8:12] = (2**31).to_bytes(4, "big")
    credentials = authority.credentials(InnerRole.FRONT_END)

    async def case() -> Visit:
        before = set(scene.process._connections)
        async with scene.visit() as visit:
            caller = await caller_of(scene, credentials, greets)
            caller.write(bytes(frame[:-1]))
            await until(lambda: len(scene.process._connections) > len(before))
            (server,) = scene.process._connections - before
            await until(lambda: server._decoder.pending_bytes > 0)
            assert server._decoder.pending_bytes == len(frame) - 1
            caller.write(bytes(frame[-1:]) + bytes(1000))
            await visit.ends(caller)
        error = f"claims {2**31} bytes, at most {METADATA_FRAME_BYTES_MAX} are taken"
        visit.is_told("connection_refused", caller, error=error)
        return visit

    await in_time(case)


async def test_frame_of_a_later_protocol_ends_the_connection(scene: Scene, authority: InnerAuthority) -> None:
    frame = bytearray(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello(CLUSTER, "x"))))
    frame[1] = 2
    credentials = authority.credentials(InnerRole.FRONT_END)

    async def case() -> Visit:
        async with scene.visit() as visit:
            caller = await caller_of(scene, credentials, greets=False)
            caller.write(bytes(frame))
            await visit.ends(caller)
        visit.is_told("connection_refused", caller, error="protocol version 2 is not spoken here, 1 is")
        return visit

    await in_time(case)


@pytest.mark.parametrize("has_certificate", [True, False])
async def test_greeting_of_another_cluster_ends_the_connection(
    authority: InnerAuthority, told: Logs, has_certificate: bool
) -> None:
    """Without certificates the cluster's id is all that tells installations apart."""
    own, theirs = (
        authority.credentials(role) if has_certificate else None for role in (InnerRole.METADATA, InnerRole.FRONT_END)
    )
    process = MetadataProcess(MetadataSettings(NO_DATABASE, CLUSTER, "127.0.0.1", 0, "", None, own))
    await process.start()
    scene = Scene(process, told)
    await scene.opens(theirs)

    async def case() -> Visit:
        async with scene.visit() as visit:
            caller = await caller_of(scene, theirs, greets=False)
            caller.say(Opcode.HELLO, Hello("pk-other", "x"))
            await visit.ends(caller)
        assert [error.code for error in caller.errors] == [ErrorCode.INVALID_REQUEST]
        visit.is_told("connection_refused", caller, error="a client of another installation")
        return visit

    await in_time(case)
    scene.close()
    await process.close()


# --- a connection without a network -----------------------------------------------------------------------------


@pytest.fixture
async def greeted() -> tuple[MetadataServer, Any]:
    """A connection without a process and without a network."""
    server, transport = MetadataServer(MagicMock(), CLUSTER, set()), MagicMock()
    transport.is_closing.return_value = False
    server.connection_made(transport)
    server.data_received(encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello(CLUSTER, "x"))))
    transport.reset_mock()
    return server, transport


@pytest.mark.parametrize(
    "payload", [b"\x91\xa2\xff\xfe", b"\x93\xa1k\xc2" + b"\x91" * 100_000], ids=["no_utf8", "nested"]
)
async def test_question_that_nobody_can_read_ends_its_connection(
    greeted: tuple[MetadataServer, Any], payload: bytes
) -> None:
    server, transport = greeted
    server.data_received(encode_frame(MetadataOpcode.GET_KEY, 0, 2, payload))
    transport.abort.assert_called_once()


async def test_client_that_does_not_read_its_answers_is_not_read(greeted: tuple[MetadataServer, Any]) -> None:
    server, transport = greeted
    server.pause_writing()
    transport.pause_reading.assert_called_once()
    transport.resume_reading.assert_not_called()
    server.resume_writing()
    transport.resume_reading.assert_called_once()
