"""The metadata service shows its certificate, and answers front ends alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.metadata.process import MetadataProcess, MetadataSettings
from frontend.metadata.connection import open_connection
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.messages import GetKey, KeyReply, MetadataOpcode, Subscribe
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
