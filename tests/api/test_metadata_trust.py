"""The metadata service shows its certificate, and answers front ends alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from api.metadata.process import MetadataProcess, MetadataSettings
from api.metadata.server import MetadataServer
from frontend.metadata.connection import open_connection
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.messages import GetKey, KeyReply, MetadataOpcode, Subscribe
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.messages import Hello, Opcode, encode_message
from storage_nodes.trust.connection import PeerRefused
from storage_nodes.trust.credentials import Credentials, InnerTlsMode
from storage_nodes.trust.names import InnerRole
from tests.support.inner_certificates import CLUSTER, InnerAuthority

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
