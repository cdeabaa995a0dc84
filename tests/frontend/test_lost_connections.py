"""Connections that end: by a reset, and by a client that says only that it will send no more."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from frontend import server as server_module
from tests.support.express_client import Client, hold_sends, protocol_of, received_bodies, rest_request, until
from tests.support.frontend_plane import Installation

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


async def connect(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


@pytest.mark.parametrize("is_hot", [True, False])
async def test_reset_connection_is_freed_at_once(front: Installation, port: int, is_hot: bool) -> None:
    """Not with its keep-alive time."""
    client = await connect(port)
    client.write(rest_request(front, "/v1/queues/orders/messages", {"body": "a"}) if is_hot else HEALTH)
    assert (await client.answer())[0] == 200
    protocol = protocol_of(client)
    left, connections = weakref.ref(protocol), protocol.connections
    del protocol
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()
    await until(lambda: not connections)
    await asyncio.sleep(0.05)
    gc.collect()
    assert left() is None


# --- a client that sends no more ---


def chunked(request: bytes) -> bytes:
    """The same request, on the unmodified path."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    return b"%b\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (b"\r\n".join(lines), len(body), body)


def poll(front: Installation, wait_s: int = 20) -> bytes:
    return rest_request(front, "/v1/queues/orders/messages/receive", {"wait_seconds": wait_s})


@pytest.mark.parametrize("form", [bytes, chunked])
async def test_client_that_sends_no_more_gets_its_answers(
    front: Installation, port: int, form: Callable[[bytes], bytes]
) -> None:
    release = hold_sends(front)
    client = await connect(port)
    for text in "ab":
        client.write(form(rest_request(front, "/v1/queues/orders/messages", {"body": text})))
    client.writer.write_eof()
    await asyncio.sleep(0.05)
    release.set()
    assert [(await client.answer())[0] for _ in range(2)] == [200, 200]
    assert await client.ended() == b"", "the connection ends behind the last one"
    assert sorted(await received_bodies(front)) == ["a", "b"]


async def test_request_and_end_in_one_piece_are_answered(front: Installation, port: int) -> None:
    client = await connect(port)
    client.write(HEALTH + HEALTH + b"GET /hea")
    client.writer.write_eof()
    assert [(await client.answer())[0] for _ in range(2)] == [200, 200]
    assert await client.ended() == b""


async def test_older_version_hears_no_word_before_its_answer(front: Installation, port: int) -> None:
    client = await connect(port)
    whole = rest_request(front, "/v1/queues/orders/messages", {"body": "a"}).replace(b"HTTP/1.1", b"HTTP/1.0")
    client.write(whole)
    client.writer.write_eof()
    assert (await client.ended()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("form", [bytes, chunked])
async def test_receive_of_a_client_that_sends_no_more_takes_what_is_there(
    front: Installation, port: int, form: Callable[[bytes], bytes]
) -> None:
    await front.rest("/v1/queues/orders/messages", {"body": "a"})
    client = await connect(port)
    client.write(form(poll(front)))
    client.writer.write_eof()
    (message,) = (await client.json())["messages"]
    assert message["body"] == "a" and await client.ended() == b""


@pytest.mark.parametrize("form", [bytes, chunked])
async def test_parked_poll_of_a_client_that_sends_no_more_answers_now(
    front: Installation, port: int, form: Callable[[bytes], bytes]
) -> None:
    """It may be gone: a message that comes later must not be handed to it."""
    client = await connect(port)
    client.write(form(poll(front)))
    await until(lambda: front.plane.parked)
    client.writer.write_eof()
    async with asyncio.timeout(2):
        assert await client.json() == {"messages": []}
    assert await client.ended() == b"" and not front.plane.parked
    await front.rest("/v1/queues/orders/messages", {"body": "a"})
    assert await received_bodies(front) == ["a"]


@pytest.mark.parametrize("form", [bytes, chunked])
async def test_client_that_left_is_noticed_at_once_and_takes_no_message_along(
    front: Installation, port: int, form: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host refuses the word that comes before the answer: the poll is not asked for what is there now."""
    monkeypatch.setattr(server_module, "HALF_CLOSED_LOOK_S", 60.0)
    asked: list[object] = []
    acquire = front.storage.acquire

    async def noted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return await acquire(*arguments, **options)

    front.storage.acquire = noted  # type: ignore[method-assign]
    client = await connect(port)
    client.write(form(poll(front)))
    await until(lambda: front.plane.parked)
    connections = protocol_of(client).connections
    client.writer.close()
    await until(lambda: not front.plane.parked and not connections)
    assert len(asked) == 1
    await front.rest("/v1/queues/orders/messages", {"body": "a"})
    assert await received_bodies(front) == ["a"]


async def test_answer_that_does_not_come_is_waited_for_a_while(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HALF_CLOSED_S_MAX", 0.2)
    monkeypatch.setattr(server_module, "HALF_CLOSED_LOOK_S", 0.05)
    release = hold_sends(front)
    client = await connect(port)
    client.write(rest_request(front, "/v1/queues/orders/messages", {"body": "a"}))
    await asyncio.sleep(0.05)
    client.writer.write_eof()
    assert await client.ended() == server_module.INTERIM
    release.set()


@pytest.mark.parametrize("left_bytes", [5, 60, 1_000])
async def test_nothing_is_due_to_a_request_that_is_not_whole(front: Installation, port: int, left_bytes: int) -> None:
    """Nor one word before it."""
    whole = rest_request(front, "/v1/queues/orders/messages", {"body": "x" * 20})
    client = await connect(port)
    client.write(whole[:-left_bytes])  # in its body, in its header, before it
    await asyncio.sleep(0.05)
    client.writer.write_eof()
    async with asyncio.timeout(2):
        assert await client.ended() == b""
