"""Bytes that two servers could read in two ways: what the front end refuses, what it passes on to the control plane,
and raw frames of a websocket."""

from __future__ import annotations

import asyncio
import io
import json
import zlib
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import structlog

from frontend.logs import structlog_settings
from tests.frontend.test_socket_frames import MASK, connect
from tests.support.frontend_plane import HOST, QUEUE_URL, Installation

# Served by the front end itself, on the express lane and beside it; passed on to the control plane.
PATHS = ("/v1/queues/orders/messages", "/", "/v1/queues")
HIDDEN = b"POST /v1/queues HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
BODY = b'{"name":"q"}'
EVIL = "x\r\nforged: y\r\n\x1b[31m\x00"


def framed(headers: str, body: bytes) -> bytes:
    """Behind a token, which is right: what is refused is the shape."""
    return f"{headers}\r\n\r\n".encode("latin-1") + body


CHUNKED = "transfer-encoding: chunked"
SHAPES = {
    "CL.TE": framed(f"content-length: 6\r\n{CHUNKED}", b"0\r\n\r\nG"),
    "TE.CL": framed(f"{CHUNKED}\r\ncontent-length: 3", b"8\r\nSMUGGLED\r\n0\r\n\r\n"),
    "TE.TE": framed(f"{CHUNKED}\r\ntransfer-encoding: x", b"0\r\n\r\n"),
    "TE not last": framed("transfer-encoding: chunked, identity", b"0\r\n\r\n"),
    "TE of two codings": framed("transfer-encoding: gzip, chunked", b"0\r\n\r\n"),
    "TE with a tab": framed("transfer-encoding:\tx chunked", b"0\r\n\r\n"),
    "TE before a colon": framed("transfer-encoding : chunked", b"0\r\n\r\n"),
    "length in a trailer": framed(CHUNKED, b"c\r\n" + BODY + b"\r\n0\r\ncontent-length: 999\r\n\r\n"),
    "two lengths": framed("content-length: 0\r\ncontent-length: 12", BODY),
    "list of lengths": framed("content-length: 0, 12", BODY),
    "length with a sign": framed("content-length: +12", BODY),
    "negative length": framed("content-length: -1", BODY),
    "length in hex": framed("content-length: 0x0c", BODY),
    "length with a space": framed("content-length: 1 2", BODY),
    "chunk with a plus": framed(CHUNKED, b"+c\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunk with a minus": framed(CHUNKED, b"-c\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunk with 0x": framed(CHUNKED, b"0xc\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunk of 2**64 and some": framed(CHUNKED, b"1000000000000000c\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "chunk without its end": framed(CHUNKED, b"c\r\n" + BODY + b"xx0\r\n\r\n"),
    "bare LF behind a size": framed(CHUNKED, b"c\n" + BODY + b"\r\n0\r\n\r\n"),
    "folded header": framed("x-a: b\r\n c: d\r\ncontent-length: 12", BODY),
    "NUL in a header": framed("x-a: b\x00c\r\ncontent-length: 12", BODY),
    "bare CR in a header": framed("x-a: b\rtransfer-encoding: chunked\r\ncontent-length: 12", BODY),
    "header without a colon": framed("content-length 12\r\ncontent-length: 12", BODY),
}


async def all_answers(port: int, data: bytes) -> bytes:
    """Until the server closes, which it does within the time that it gives requests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 8)
    finally:
        writer.close()


def head_of(front: Installation, path: str, more: str = "") -> bytes:
    token = f"authorization: Bearer {front.key.bearer_token}\r\ncontent-type: application/json\r\n{more}"
    return f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\n{token}".encode()


@pytest.mark.parametrize("shape", SHAPES)
async def test_request_of_two_meanings_is_refused_before_any_hop(front: Installation, port: int, shape: str) -> None:
    """S16: one answer, 400, and the end of the connection; nothing that hides behind it is done by anybody."""
    for path in PATHS:
        found = await all_answers(port, head_of(front, path) + SHAPES[shape] + HIDDEN)
        assert found.startswith(b"HTTP/1.1 400 ") and found.count(b"HTTP/1.1 ") == 1, (path, found)
        assert not front.control_calls and not front.storage.count(), path


@pytest.mark.parametrize("target", [b"/v1/queues\x00x", b"/v1/\r/queues", b"\x7f"])
async def test_target_of_two_meanings_is_refused_before_any_hop(front: Installation, port: int, target: bytes) -> None:
    token = f"authorization: Bearer {front.key.bearer_token}\r\n".encode()
    found = await all_answers(port, b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n" + token + b"\r\n" + HIDDEN)
    assert b"HTTP/1.1 2" not in found and found.count(b"HTTP/1.1 ") <= 2, found
    assert not front.control_calls


async def test_both_hops_count_the_same_requests(front: Installation, port: int) -> None:
    """Chunks become one body of a known length; what stands behind it is the next request, and not part of it."""
    front.control_answer = lambda request: httpx2.Response(200, json={"got": request.content.decode()})
    chunked = head_of(front, "/v1/queues") + framed(
        CHUNKED, b"5;x=y\r\n" + BODY[:5] + b"\r\n7\r\n" + BODY[5:] + b"\r\n"
    )
    ended = chunked + b"0\r\nx-trailer: y\r\n\r\n"  # a trailer, which is not read
    plain = head_of(front, "/v1/queues", "connection: close\r\n") + framed(f"content-length: {len(BODY)}", BODY)
    found = await all_answers(port, ended + plain)
    assert found.count(b"HTTP/1.1 200 ") == found.count(b"HTTP/1.1 ") == len(front.control_calls) == 2, found
    for call in front.control_calls:
        assert call.content == BODY and "transfer-encoding" not in call.headers
        assert call.headers["content-length"] == str(len(BODY))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip", "x"])
@pytest.mark.parametrize("path", ["/v1/queues/orders/messages", "/v1/queues", "/v1/queues/orders/messages/peek"])
async def test_compressed_body_is_refused_by_rest_too(front: Installation, encoding: str, path: str) -> None:
    """S19: nothing is inflated, and nothing passed on."""
    token = f"Bearer {front.key.bearer_token}"
    headers = {"host": HOST, "authorization": token, "content-type": "application/json", "content-encoding": encoding}
    reply = await front.call("POST", path, headers, zlib.compress(b'{"body":"' + b"x" * 10_000 + b'"}'))
    assert (reply.status, reply.json["code"]) == (415, "unsupported-media-type")
    assert not front.control_calls and not front.storage.count()


# First byte, second byte (with the bit of the mask), what follows; the codes that may be given.
FRAMES = {
    "not masked": (b"\x81\x02{}", {1002}),
    "no UTF-8": (b"\x81\x82" + MASK + b"\xc3\x28", {1007}),
    "no opcode": (b"\x83\x80" + MASK, {1002}),
    "reserved bit": (b"\xc1\x80" + MASK, {1002}),
    "ping of 126 bytes": (b"\x89\xfe\x00\x7e" + MASK + b"x" * 126, {1002}),
    "ping in parts": (b"\x09\x80" + MASK, {1002}),
    "continuation of nothing": (b"\x80\x80" + MASK, {1002}),
    "length of 2**63": (b"\x81\xff" + b"\xff" * 8 + MASK, {1002, 1009}),
    "longer than may be": (b"\x81\xff" + (1 << 30).to_bytes(8, "big") + MASK, {1009}),
    "close of one byte": (b"\x88\x81" + MASK + b"\x03", {1002}),
    "close with a code that is none": (b"\x88\x82" + MASK + b"\x03\xed", {1002}),
}


@pytest.mark.parametrize("wire", ["subscribe", "bulk"])
@pytest.mark.parametrize("frame", FRAMES)
async def test_frame_that_breaks_the_protocol_closes(front: Installation, port: int, wire: str, frame: str) -> None:
    """S20, as RFC 6455 says."""
    raw, codes = FRAMES[frame]
    socket = await connect(front, port, wire)
    socket.transport.write(raw)
    await asyncio.wait_for(socket.wait_closed(), 5)
    assert socket.close_code in codes, socket.close_code


async def test_frames_are_not_inflated(front: Installation, port: int) -> None:
    """S20: compression is offered by clients, and not taken."""
    socket = await connect(front, port)
    assert socket.response is not None and "sec-websocket-extensions" not in socket.response.headers
    await socket.close()


async def test_many_small_parts_are_one_frame_or_none(front: Installation, port: int) -> None:
    """S20: 1-byte fragments cost what their bytes cost."""
    socket = await connect(front, port, "subscribe")
    text = json.dumps({"type": "credit", "n": 1}).encode()
    parts = [bytes((0x80 if place == len(text) - 1 else 0, 0x81)) + MASK + text[place : place + 1]
             for place in range(1, len(text))]  # fmt: skip
    socket.transport.write(b"\x01\x81" + MASK + text[:1] + b"".join(parts))
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    assert json.loads(await asyncio.wait_for(socket.recv(), 5))["type"] == "message"
    await socket.close()


async def test_text_of_a_request_makes_no_line_of_a_log_and_no_header(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S30: line ends, escapes of terminals and NUL, wherever a request has text; each event stays one line of JSON."""
    log = io.StringIO()
    structlog.configure(**{**structlog_settings("debug", log), "cache_logger_on_first_use": False})

    async def broken(*_: Any, **__: Any) -> Any:
        raise KeyError(EVIL)

    monkeypatch.setattr(front.storage, "send", broken)
    try:
        replies = [
            await front.rest("/v1/queues/orders/messages", {"body": EVIL}),
            await front.rest("/v1/queues/orders/messages", {"body": "x", EVIL: 1}),
            await front.rest(f"/v1/queues/{quote(EVIL)}/messages", {"body": "x"}),
            await front.rest("/v1/queues/orders/messages", {"body": "x", "attributes": {EVIL: {"type": "String"}}}),
            await front.sqs("SendMessage", {"QueueUrl": EVIL, "MessageBody": "x"}),
            await front.sqs(EVIL.replace("\r\n", " ").replace("\x00", ""), {}),
            await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"}),
        ]
    finally:
        structlog.reset_defaults()
    assert [reply.status for reply in replies].count(500) >= 1, "something is logged"
    lines = log.getvalue().splitlines()
    assert lines and all(isinstance(json.loads(line), dict) for line in lines)
    assert "\x1b" not in log.getvalue() and not any(line.startswith("forged") for line in lines)
    for reply in replies:
        assert "forged" not in reply.headers and not any(
            "\n" in text or "\x1b" in text for text in reply.headers.values()
        )
