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
from tests.support.inner_certificates import InnerAuthority, context_that_shows
from tests.support.strangers import Handshaker, Visit, Visitor, comes, heard_logs, in_time

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


@pytest.mark.parametrize("mode", [InnerTlsMode.ENCRYPT, InnerTlsMode.AUTHENTICATE])
@pytest.mark.parametrize(
    ("shown", "reason", "text", "name"),
    [
        ("", "not_tls", "it does not speak TLS", ""),
        ("nothing", "handshake", "did not return a certificate", ""),
        ("theirs", "handshake", "its certificate is not believed", ""),
        ("foreign", "cluster", "it is of another cluster than pk-test", "penstock://pk-other/front-end/1"),
        ("node", "role", "the role node has nothing to ask of the role control-plane", "penstock://pk-test/node/1"),
        ("worker", "role", "the role worker has nothing to ask of", "penstock://pk-test/worker/1"),
        ("metadata", "role", "the role metadata has nothing to ask of", "penstock://pk-test/metadata/1"),
    ],
)
async def test_stranger_is_hung_up_on_within_a_second_and_told_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: InnerTlsMode, shown: str, reason: str, text: str, name: str
) -> None:
    authority, told = InnerAuthority(tmp_path / "ours", mode=mode), heard_logs(monkeypatch)
    context = context_that_shows(shown, authority, tmp_path) if shown else None
    async with control_plane(authority.credentials(InnerRole.CONTROL_PLANE)) as address:
        front_end = AskingContext.of(authority.credentials(InnerRole.FRONT_END), InnerRole.CONTROL_PLANE)
        control = ControlPlane(address, KEY, tls=front_end)
        host, port = address.split(":")

        async def served() -> None:
            assert (await control.sqs("CreateQueue", CALLER, "r", {}))["asked"]

        async def case() -> Visit:
            visit = Visit(served, told)
            async with visit.watched():
                stranger = await comes(lambda: Handshaker(context) if context else Visitor(), host, int(port))
                if context is None:
                    stranger.write(b"GET /internal/alive HTTP/1.1\r\nhost: x\r\n\r\n")
                await visit.ends(stranger)
            line = visit.is_told("refusing a connection", stranger, reason=reason, name=name)
            assert text in line["text"]
            return visit

        await in_time(case)
        await control.close()
