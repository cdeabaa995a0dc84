"""Calls to a control plane that shows its certificate, and asks for that of the caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frontend.authn.principal import service
from frontend.control import ControlPlane
from frontend.errors import RequestError
from storage_nodes.trust.connection import AskingContext
from storage_nodes.trust.credentials import Credentials, InnerTlsMode
from storage_nodes.trust.names import InnerRole
from storage_nodes.trust.port import NamedPort
from tests.support.inner_certificates import InnerAuthority

CALLER = service("front-end")
KEY = b"i" * 32


async def application(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"asked":true}'})


@contextlib.asynccontextmanager
async def control_plane(credentials: Credentials) -> AsyncIterator[str]:
    """As `python -m api` serves, with another application."""
    config = uvicorn.Config(application, host="127.0.0.1", port=0, ws="none", lifespan="off", log_config=None)
    port = NamedPort(credentials, InnerRole.CONTROL_PLANE, is_http=True)
    config.http = cast(Any, port.over(HttpToolsProtocol))
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await task


async def asked(address: str, credentials: Credentials | None) -> bool:
    tls = None if credentials is None else AskingContext.of(credentials, InnerRole.CONTROL_PLANE)
    control = ControlPlane(address, KEY, tls=tls)
    try:
        return bool((await control.sqs("CreateQueue", CALLER, "r", {}))["asked"])
    finally:
        await control.close()


@pytest.mark.parametrize("mode", [InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])
async def test_front_end_and_control_plane_know_each_other(tmp_path: Path, mode: InnerTlsMode) -> None:
    authority = InnerAuthority(tmp_path, mode=mode)
    async with control_plane(authority.credentials(InnerRole.CONTROL_PLANE)) as address:
        assert await asked(address, authority.credentials(InnerRole.FRONT_END))


async def test_who_may_not_ask_the_control_plane_is_refused(tmp_path: Path) -> None:
    authority = InnerAuthority(tmp_path / "ours")
    strangers = InnerAuthority(tmp_path / "theirs")
    async with control_plane(authority.credentials(InnerRole.CONTROL_PLANE)) as address:
        for credentials in (
            authority.credentials(InnerRole.NODE),
            authority.credentials(InnerRole.WORKER),
            authority.foreign(InnerRole.FRONT_END),
            strangers.credentials(InnerRole.FRONT_END),
            None,
        ):
            with pytest.raises(RequestError):
                await asyncio.wait_for(asked(address, credentials), 5)
        assert await asked(address, authority.credentials(InnerRole.FRONT_END))


@pytest.mark.parametrize("is_foreign", [True, False])
async def test_front_end_tells_nothing_to_who_is_not_its_control_plane(tmp_path: Path, is_foreign: bool) -> None:
    """Of another role, or of another cluster."""
    authority = InnerAuthority(tmp_path)
    if is_foreign:
        server = authority.foreign(InnerRole.CONTROL_PLANE)
        server.cluster_id = "pk-test"  # it lets our front end in
    else:
        server = authority.credentials(InnerRole.METADATA)
    async with control_plane(server) as address:
        with pytest.raises(RequestError):
            await asked(address, authority.credentials(InnerRole.FRONT_END))
