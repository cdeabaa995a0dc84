"""The public port over TLS: boto3, the lane, websockets; what comes in other ways; and that the scheme is the
connection's own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import httpx2
import pytest
import structlog
import websockets
from botocore.config import Config as BotoConfig

from frontend.express.call import ExpressCall
from frontend.express.protocol import express_config
from frontend.ports import small_config
from frontend.server import Server
from frontend.tls import connection as connection_module
from frontend.tls import handshakes as handshakes_module
from frontend.tls.handshakes import Handshakes
from frontend.tls.port import TlsPort
from frontend.tls.redirect import HttpsRedirect
from frontend.writing import paused_clients
from tests.frontend.test_queue_policies import ORDERS_ARN, set_policy, statement
from tests.support.certificates import DAY, CertificateAuthority
from tests.support.express_client import Client, send_request
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, REGION, Installation

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


class Served:
    """A front end on a TLS port, and the authority that its clients trust."""

    def __init__(self, port: int, tls: TlsPort, authority: CertificateAuthority) -> None:
        self.port = port
        self.tls = tls
        self.authority = authority

    async def open(self, context: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context or self.authority.client_context(), server_hostname="localhost"
        )

    async def is_serving(self) -> bool:
        reader, writer = await self.open()
        writer.write(HEALTH)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        writer.close()
        return b" 200 " in head

    async def failure(self, *reasons: str) -> None:
        """Waits until a handshake has failed for one of these reasons."""
        async with asyncio.timeout(5):
            while not any(self.tls.handshakes.failures[reason] for reason in reasons):
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[int]:
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await asyncio.wait_for(task, 10)


@pytest.fixture
async def served(front: Installation, tmp_path: Path) -> AsyncIterator[Served]:
    front.clock.now_s = time.time()
    authority = CertificateAuthority(tmp_path / "tls")
    certificate, key = authority.issue()
    tls = TlsPort(str(certificate), str(key))
    async with serving(Server(express_config(front.plane, "127.0.0.1", 0, tls=tls), front.plane.drain)) as port:
        yield Served(port, tls, authority)


def sqs_client(front: Installation, endpoint: str, verify: str | None = None) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=front.key.access_key_id,
        aws_secret_access_key=front.key.secret_access_key,
        verify=verify,
        config=BotoConfig(retries={"total_max_attempts": 1}),
    )


# --- what is served ---


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_boto3_that_verifies_works_with_https_urls(front: Installation, served: Served, host: str) -> None:
    endpoint = f"https://{host}:{served.port}"

    def use() -> None:
        sqs = sqs_client(front, endpoint, str(served.authority.file))
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        assert url == f"{endpoint}/{ACCOUNT}/jobs"
        large = "x" * 1_000_000
        sqs.send_message(QueueUrl=url, MessageBody=large)
        (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == large
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    await asyncio.to_thread(use)


async def test_hot_calls_take_the_lane_over_tls(
    front: Installation, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_the_lane: list[ExpressCall] = []
    begin = ExpressCall.begin

    def begun(call: ExpressCall, answering: Any) -> None:
        by_the_lane.append(call)
        begin(call, answering)

    monkeypatch.setattr(ExpressCall, "begin", begun)
    client = Client(*await served.open())
    for number in range(3):
        client.write(send_request(front, f"m{number}"))
        assert (await client.json())["MessageId"]
    client.writer.close()
    assert len(by_the_lane) == 3


async def test_client_that_trusts_other_authorities_is_not_served(front: Installation, served: Served) -> None:
    def use() -> None:
        with pytest.raises(botocore.exceptions.SSLError):
            sqs_client(front, f"https://localhost:{served.port}").list_queues()

    await asyncio.to_thread(use)
    await served.failure("client_refused")


async def test_websocket_works_over_tls(front: Installation, served: Served) -> None:
    headers = {"Authorization": f"Bearer {front.key.bearer_token}"}
    address = f"wss://localhost:{served.port}/v1/queues/orders/subscribe"
    context = served.authority.client_context()
    async with websockets.connect(address, additional_headers=headers, ssl=context) as socket:
        assert json.loads(await socket.recv()) == {"type": "ready"}
        await socket.send('{"type":"credit","n":1}')
        await front.rest("/v1/queues/orders/messages", {"body": "pushed" * 10_000})
        assert json.loads(await asyncio.wait_for(socket.recv(), 5))["body"] == "pushed" * 10_000


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_agree_on_http_and_an_authenticated_cipher(served: Served, version: ssl.TLSVersion) -> None:
    context = served.authority.client_context()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await served.open(context)
    spoken = writer.get_extra_info("ssl_object")
    assert spoken.selected_alpn_protocol() == "http/1.1"
    name = spoken.cipher()[0]
    assert ("GCM" in name or "CHACHA20" in name) and spoken.compression() is None
    # Both in one piece with the end of the handshake, and in small ones.
    writer.write(HEALTH[:10])
    await writer.drain()
    writer.write(HEALTH[10:] + HEALTH)
    for _ in range(2):
        assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\nok\n"), 5)
    writer.close()


async def test_refused_client_that_still_sends_reads_the_refusal_over_tls(front: Installation, served: Served) -> None:
    """With bytes unread, a close would be a reset. (A client that reads while it sends stops at the end.)"""
    head = b"POST /v1/queues/orders/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"

    def use() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", served.port), 5) as plain,
            served.authority.client_context().wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(head + b"content-length: 20000000\r\n\r\n")
            for _ in range(200):
                secure.sendall(b"x" * 100_000)
            return b"".join(iter(lambda: secure.recv(10_000), b""))

    whole = await asyncio.to_thread(use)
    assert whole.startswith(b"HTTP/1.1 413 ") and b"request-too-large" in whole


async def test_what_a_client_does_not_read_counts_as_held_over_tls(front: Installation, served: Served) -> None:
    for _ in range(2):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "z" * 900_000})
    reader, writer = await served.open()
    body = b'{"max_messages": 2, "visibility_seconds": 0}'
    request = (
        b"POST /v1/queues/orders/messages/receive HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b" % (front.key.bearer_token.encode(), len(body), body)
    )
    writer.write(request * 10)  # the system takes some answers
    async with asyncio.timeout(5):
        while paused_clients.held_bytes < 100_000:
            await asyncio.sleep(0.005)
    writer.transport.abort()
    async with asyncio.timeout(5):
        while paused_clients.held_bytes:
            await asyncio.sleep(0.005)
    del reader


async def test_end_of_a_connection_is_said_in_tls(served: Served) -> None:
    """A client can tell it from a connection that was cut on the way."""

    def use() -> bytes:
        context = served.authority.client_context()
        with (
            socket.create_connection(("127.0.0.1", served.port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as secure,
        ):
            secure.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            return b"".join(iter(lambda: secure.recv(10_000), b""))

    assert (await asyncio.to_thread(use)).endswith(b"ok\n")


# --- what comes otherwise ---


@pytest.mark.parametrize(
    ("sent", "reason", "answer"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", "plain_http", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc", "plain_http", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"\x00\x01garbage\r\n\r\n", "not_tls", b""),
        (b"SSH-2.0-x\r\n", "not_tls", b""),
        (b"\x16\x03\x01\x00\x05hello", "invalid", b"\x15"),
        (b"\x16\x09\x09\xff\xff" + b"z" * 500, "version", b""),
        (b"", "left", b""),
        (b"\x16\x03\x01\x02\x00\x01\x00", "left", b""),
    ],
)
async def test_what_is_no_handshake_is_answered_or_closed_and_others_are_served(
    served: Served, sent: bytes, reason: str, answer: bytes
) -> None:
    with structlog.testing.capture_logs() as logs:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        if reason == "left":
            await writer.drain()
            writer.close()
        else:
            said = await asyncio.wait_for(reader.read(), 5)
            assert said.startswith(answer) and bool(said) == bool(answer), said
            assert answer != b"HTTP/1.1 400 Bad Request\r\n" or b"use https" in said
            writer.close()
        await served.failure(reason)
    assert await served.is_serving() and not len(served.tls.handshakes)
    assert [line["event"] for line in logs if "exc_info" in line] == []


async def test_client_of_an_old_version_is_refused(served: Served) -> None:
    context = served.authority.client_context()
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        await served.open(context)
    await served.failure("version")
    assert await served.is_serving()


def hello(name: str) -> bytes:
    """The first bytes of a client that asks for this name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("name", [b"\x00" * 16, b"\xff" * 16, b"../../etc/passwd", b"' OR 1=1; -- \r\n "])
async def test_garbage_as_the_name_that_is_asked_for_harms_nothing(
    served: Served, name: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    known = b"abcdefgh.example"
    asked = hello(known.decode()).replace(known, name)
    assert name in asked and len(name) == len(known)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(asked)
    said = await asyncio.wait_for(reader.read(5), 5)
    assert said[:1] in (b"\x15", b"\x16"), "an alert, or the handshake goes on"
    writer.close()
    assert await served.is_serving() and "Traceback" not in capfd.readouterr().err


async def test_half_a_handshake_ends_in_time_and_keeps_nobody_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "TLS_HANDSHAKE_S_MAX", 8.0)
    half = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(20)]
    for place, (_, writer) in enumerate(half):
        writer.write(hello("localhost")[:place])
    assert await served.is_serving() and len(served.tls.handshakes) == 20
    for reader, writer in half:
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
    assert served.tls.handshakes.failures["deadline"] == 20


async def test_oldest_open_handshake_gives_way_where_there_are_too_many(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes_module, "TLS_HANDSHAKES_MAX", 3)
    idle = []
    for number in range(1, 6):
        idle.append(await asyncio.open_connection("127.0.0.1", served.port))
        async with asyncio.timeout(5):
            while len(served.tls.handshakes) + served.tls.handshakes.failures["crowded"] < number:
                await asyncio.sleep(0.001)
    assert len(served.tls.handshakes) == 3
    for reader, _ in idle[:2]:
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
    assert await served.is_serving()
    for _, writer in idle:
        writer.close()


class Opening:
    """A handshake that is under way."""

    def __init__(self, handshakes: Handshakes, address: str) -> None:
        self.reasons: list[str] = []
        self._handshakes = handshakes
        handshakes.begin(self, address)

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)
        self._handshakes.failed(self, reason, "", "")


def test_host_that_opens_too_many_handshakes_displaces_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes_module, "TLS_HANDSHAKES_MAX", 10)
    handshakes = Handshakes(lambda: 0.0)
    slow = [Opening(handshakes, f"10.0.0.{number}") for number in range(4)]
    flood = [Opening(handshakes, f"2001:db8::{number:x}") for number in range(200)]
    assert len(handshakes) == 10 and not any(one.reasons for one in slow)
    assert [one.reasons for one in flood] == [["crowded"]] * 194 + [[]] * 6
    for one in (*slow, *flood[194:]):
        handshakes.finish(one)
    assert len(handshakes) == 0 and handshakes.done == 10
    last = [Opening(handshakes, f"10.0.1.{number}") for number in range(11)]
    assert [bool(one.reasons) for one in last] == [True] + [False] * 10, "of equals the oldest gives way"


# --- the certificate while connections are open ---


async def test_new_certificate_is_for_new_connections_and_old_ones_go_on(served: Served) -> None:
    old_reader, old = await served.open()
    served.authority.issue()
    served.tls.keeper.look()
    served.tls.keeper.look()
    reader, new = await served.open()
    serials = [writer.get_extra_info("ssl_object").getpeercert()["serialNumber"] for writer in (old, new)]
    assert serials[0] != serials[1]
    for one_reader, writer in ((old_reader, old), (reader, new)):
        writer.write(HEALTH)
        assert b" 200 " in await asyncio.wait_for(one_reader.readuntil(b"\r\n\r\n"), 5)
        writer.close()


async def test_client_refuses_an_expired_certificate_and_the_port_lives(front: Installation, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "tls")
    certificate, key = authority.issue(begins_in=-3 * DAY, ends_in=-DAY)
    tls = TlsPort(str(certificate), str(key))
    async with serving(Server(express_config(front.plane, "127.0.0.1", 0, tls=tls))) as port:
        found = Served(port, tls, authority)
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await found.open()
        await found.failure("client_refused", "left")
        authority.issue()
        tls.keeper.look()
        tls.keeper.look()
        assert await found.is_serving()


# --- the scheme is the connection's own ---


async def test_policy_that_wants_encryption_refuses_over_http_and_allows_over_https(
    front: Installation, served: Served
) -> None:
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:*", ORDERS_ARN, principal="*", Condition=insecure))
    async with serving(Server(express_config(front.plane, "127.0.0.1", 0))) as plain_port:

        def use() -> None:
            secure = sqs_client(front, f"https://localhost:{served.port}", str(served.authority.file))
            plain = sqs_client(front, f"http://localhost:{plain_port}")
            plain.meta.events.register("before-send", lie)
            for _ in range(2):
                secure.send_message(QueueUrl=QUEUE_URL, MessageBody="x")
                with pytest.raises(botocore.exceptions.ClientError, match="explicit deny") as refused:
                    plain.send_message(QueueUrl=QUEUE_URL, MessageBody="x")
                assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403

        def lie(request: Any, **_: Any) -> None:
            request.headers["X-Forwarded-Proto"] = "https"

        await asyncio.to_thread(use)
    assert front.storage.count() == 2


async def test_page_of_the_console_hears_the_scheme_of_the_connection(front: Installation, served: Served) -> None:
    async with httpx2.AsyncClient(verify=served.authority.client_context()) as client:
        await client.get(f"https://localhost:{served.port}/console", headers={"X-Forwarded-Proto": "http"})
    assert front.control_calls[-1].headers["x-forwarded-proto"] == "https"


# --- the port that sends to https ---


@pytest.mark.parametrize(
    ("request_bytes", "status", "location"),
    [
        (b"GET /console?a=b HTTP/1.1\r\nhost: queue.example.com:80\r\n\r\n", 308, b"https://queue.example.com/console?a=b"),
        (b"HEAD // HTTP/1.1\r\nhost: [::1]\r\n\r\n", 308, b"https://[::1]//"),
        (b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400, None),
        (b"GET / HTTP/1.1\r\n\r\n", 400, None),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na", 403, None),
    ],
)  # fmt: skip
async def test_plain_port_sends_pages_to_https_and_serves_nothing(
    request_bytes: bytes, status: int, location: bytes | None
) -> None:
    async with serving(Server(small_config(HttpsRedirect(443), "127.0.0.1", 0))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        writer.close()
    assert b" %d " % status in head.partition(b"\r\n")[0]
    assert (b"location: %b\r\n" % location in head) if location else b"location" not in head
    assert HttpsRedirect(9324)._port == b":9324"
