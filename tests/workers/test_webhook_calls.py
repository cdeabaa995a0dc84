"""S26: calls of webhooks, made to a server of the tests behind TLS."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.webhooks import limits
from api.webhooks.addresses import Address, CallPolicy, parse_networks
from api.webhooks.deliveries import CallOutcome, ClaimedDelivery
from api.webhooks.models import CallResult
from api.webhooks.signing import new_webhook_secret
from tests.support.certificates import CertificateAuthority
from workers.webhooks import calls

NAME = "hooks.example.com"
LOOPBACK = ipaddress.ip_address("127.0.0.1")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Endpoint:
    """Answers each request with `answer`, and keeps what it got."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.answer = OK
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")), 0
            )
            self.requests.append(head + await reader.readexactly(length))
            writer.write(self.answer)
            await writer.drain()
            if not self.answer:
                await asyncio.sleep(60)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def policy(self) -> CallPolicy:
        return CallPolicy(parse_networks("127.0.0.0/8"), frozenset((self.port,)))


@pytest.fixture
async def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    authority = CertificateAuthority(tmp_path)
    certificate, key = authority.issue(hosts=(NAME, "127.0.0.1"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    found = Endpoint()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(calls, "tls_context", authority.client_context)
    yield found
    server.close()


def delivery(endpoint: Endpoint, host: str = NAME, tail: str = "/in?k=1", **given: Any) -> ClaimedDelivery:
    url = f"https://{host}:{endpoint.port}{tail}"
    secrets = given.get("secrets", (new_webhook_secret(),))
    return ClaimedDelivery(1, 1, "1" * 12, "msg_1", url, secrets, b'{"a":1}')


class Names:
    """A resolver that says what a test tells it, and counts."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = [ipaddress.ip_address(one) for one in addresses]
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked += 1
        return self.addresses


async def called(endpoint: Endpoint, *addresses: str, policy: CallPolicy | None = None, **given: Any) -> CallOutcome:
    return await calls.call_webhook(delivery(endpoint, **given), policy or endpoint.policy(), 1_000, Names(*addresses))


async def test_call_carries_signatures_that_the_receiver_can_check(endpoint: Endpoint) -> None:
    secrets = (new_webhook_secret(), new_webhook_secret())
    found = await called(endpoint, "127.0.0.1", secrets=secrets)
    assert (found.result, found.status_code) == (CallResult.DELIVERED, 200)
    head, _, body = endpoint.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert lines[0] == "POST /in?k=1 HTTP/1.1" and body == b'{"a":1}'
    assert headers["host"] == f"{NAME}:{endpoint.port}" and headers["content-type"] == "application/json"
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = [
        "v1," + base64.b64encode(hmac.new(base64.b64decode(one[6:]), content, hashlib.sha256).digest()).decode()
        for one in secrets
    ]
    assert headers["webhook-signature"].split() == expected
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_1", "1000")


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("8.8.8.8", "127.0.0.1"),
        ("::1",),
        ("::ffff:127.0.0.1",),
        ("169.254.169.254",),
        ("10.0.0.1",),
        (),
    ],
)
async def test_name_that_leads_inside_is_not_called(endpoint: Endpoint, addresses: tuple[str, ...]) -> None:
    policy = CallPolicy(ports=frozenset((endpoint.port,)))
    found = await called(endpoint, *addresses, policy=policy)
    assert found.result is CallResult.NO_ADDRESS and endpoint.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"])
async def test_url_that_was_stored_is_judged_again_before_each_call(endpoint: Endpoint, host: str) -> None:
    policy = CallPolicy(ports=frozenset((endpoint.port,)))
    found = await called(endpoint, policy=policy, host=host)
    assert found.result is CallResult.NO_ADDRESS and endpoint.connections == 0


async def test_name_is_resolved_once_and_the_judged_address_is_called(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere between check and connection is not asked again."""
    asked: list[object] = []
    real = socket.getaddrinfo

    def rebound(host: Any, *given: Any, **more: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.9", *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    found = await calls.call_webhook(delivery(endpoint), endpoint.policy(), 1_000)
    assert found.result is CallResult.DELIVERED
    assert [host for host in asked if host == NAME] == [NAME]


async def test_mapped_address_is_connected_to_as_the_address_that_was_judged(endpoint: Endpoint) -> None:
    assert (await called(endpoint, "::ffff:127.0.0.1")).result is CallResult.DELIVERED


async def test_address_of_this_machine_is_not_called(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is a public one."""
    monkeypatch.setattr("api.webhooks.addresses._REFUSED_IPV4", [])
    found = await called(endpoint, "127.0.0.1", policy=CallPolicy(ports=frozenset((endpoint.port,))))
    assert found.result is CallResult.NO_ADDRESS and endpoint.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_to_loopback_is_not_followed(endpoint: Endpoint, status: int) -> None:
    target = f"https://127.0.0.1:{endpoint.port}/inside"
    endpoint.answer = f"HTTP/1.1 {status} X\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
    found = await called(endpoint, "127.0.0.1")
    assert (found.result, found.status_code) == (CallResult.STATUS, status)
    assert endpoint.connections == 1


async def test_proxy_of_the_environment_is_not_used(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await called(endpoint, "127.0.0.1")).result is CallResult.DELIVERED


async def test_cookie_of_one_call_is_not_sent_with_the_next(endpoint: Endpoint) -> None:
    endpoint.answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
    for _ in range(2):
        await called(endpoint, "127.0.0.1")
    assert len(endpoint.requests) == 2 and b"cookie" not in endpoint.requests[1].lower()


@pytest.mark.parametrize("kind", ["untrusted", "other name"])
async def test_certificate_is_verified(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "untrusted":
        monkeypatch.setattr(calls, "tls_context", ssl.create_default_context)
    found = await called(endpoint, "127.0.0.1", host=NAME if kind == "untrusted" else "other.example.com")
    assert found.result is CallResult.NO_TLS and not endpoint.requests


async def test_endpoint_that_does_not_answer_is_cut(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_S_MAX", 0.5)
    endpoint.answer = b""
    found = await called(endpoint, "127.0.0.1")
    assert found.result is CallResult.TIMEOUT and found.latency_ms < 5_000


async def test_answer_of_any_length_is_not_read(endpoint: Endpoint) -> None:
    endpoint.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n" + b"x" * 1000
    assert (await called(endpoint, "127.0.0.1")).result is CallResult.DELIVERED


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000])
async def test_answer_that_is_no_http_is_none(endpoint: Endpoint, answer: bytes) -> None:
    endpoint.answer = answer
    assert (await called(endpoint, "127.0.0.1")).result is CallResult.NO_ANSWER


async def test_port_that_nothing_listens_on_is_no_connection(endpoint: Endpoint) -> None:
    assert (await called(endpoint, "127.0.0.77")).result is CallResult.NO_CONNECTION
