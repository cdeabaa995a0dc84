"""Headers that are not whole: what they may hold of memory, who is refused, that all is given back; and floods in the
log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import structlog

from frontend import client_bytes as client_bytes_module
from frontend import server as server_module
from frontend.client_bytes import held_headers
from frontend.flood_log import FloodLog
from frontend.limits import FLOOD_TOLD_EVERY_S, PARTIAL_HEADER_BYTES_MAX
from tests.support.express_client import Client, send_request
from tests.support.frontend_plane import Installation

BYTES_MAX = 60_000
TARGET = b"x-amz-target: AmazonSQS.SendMessage\r\ncontent-type: application/json\r\n"
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\nx: "


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is held before a test, and nothing may be left after it."""
    assert held_headers.held_bytes == 0
    monkeypatch.setattr(held_headers, "_bytes_max", BYTES_MAX)
    yield
    assert held_headers.held_bytes == 0 and not held_headers._by_holder


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def begin(port: int, size: int, address: str = "127.0.0.1") -> Client:
    """A request whose header does not end, of so many bytes."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))
    client.write(HEAD + b"y" * (size - len(HEAD)))
    return client


async def left(*clients: Client) -> None:
    for client in clients:
        client.writer.close()
    await until(lambda: held_headers.held_bytes == 0)


async def test_address_with_its_share_is_refused_and_others_are_not(front: Installation, port: int) -> None:
    holding = await begin(port, 25_000)
    await until(lambda: held_headers.held_bytes == 25_000)
    with structlog.testing.capture_logs() as logs:
        refused = await begin(port, 10_000)
        status, headers, body = await refused.answer()
    assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
    assert b"Too many bytes of headers" in body and await refused.ended() == b""
    assert [line["event"] for line in logs] == ["header_refused"] and "127.0.0.1" in logs[0]["client"]
    assert held_headers.held_bytes == 25_000, "what was refused holds nothing, though it may be sent on"
    other = await begin(port, 17_000, "127.0.0.2")
    await until(lambda: held_headers.held_bytes == 42_000)
    for client in (holding, other):
        client.write(b"\r\ncontent-length: 0\r\n\r\n")
        assert (await client.answer())[0] != 503
    assert held_headers.held_bytes == 0, "a header that is whole is held no longer"
    await left(holding, other, refused)


async def test_many_connections_of_one_address_hold_half_of_the_budget(front: Installation, port: int) -> None:
    clients = [await begin(port, 5_000) for _ in range(20)]
    answers = [asyncio.create_task(client.answer()) for client in clients]
    await until(lambda: sum(answer.done() for answer in answers) >= 14)
    assert {answer.result()[0] for answer in answers if answer.done()} == {503}
    assert 20_000 <= held_headers.held_bytes <= BYTES_MAX / 2
    for answer in answers:
        answer.cancel()
    await left(*clients)


async def test_messages_are_served_meanwhile(front: Installation, port: int) -> None:
    holding = [await begin(port, 29_000), await begin(port, 29_000)]
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.write(send_request(front, "x"))
    assert (await client.json())["MessageId"]
    await left(*holding, client)


@pytest.mark.parametrize("size", [29_000, PARTIAL_HEADER_BYTES_MAX + 1_000])
async def test_header_that_is_cut_is_given_back(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(held_headers, "_bytes_max", 3 * PARTIAL_HEADER_BYTES_MAX)
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.2)
    monkeypatch.setattr(server_module, "LINGER_S_MAX", 0.1)
    client = await begin(port, size)
    assert (await client.answer())[0] == (408 if size < PARTIAL_HEADER_BYTES_MAX else 431)
    await until(lambda: held_headers.held_bytes == 0)
    await left(client)


async def test_next_header_on_a_connection_counts_anew(front: Installation, port: int) -> None:
    client = await begin(port, 20_000)
    for _ in range(3):
        await until(lambda: held_headers.held_bytes >= 20_000)
        client.write(b"\r\ncontent-length: 0\r\n\r\n")
        assert (await client.answer())[0] == 400
        assert held_headers.held_bytes == 0
        client.write(HEAD + b"y" * 20_000)
    await left(client)


async def test_header_that_comes_in_one_read_is_not_counted(front: Installation, port: int) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    data = send_request(front, "x" * 10_000)
    with mock.patch.object(held_headers, "change", side_effect=AssertionError):
        for at in (0, data.index(b"\r\n\r\n") + 4):
            client.write(data[:at])
            await asyncio.sleep(0.02)
            client.write(data[at:])
            assert (await client.json())["MessageId"]
    await left(client)


# --- floods in the log ---


async def test_flood_of_slow_bodies_is_one_line_a_second(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.1)  # how often it is looked at
    monkeypatch.setattr(client_bytes_module, "REQUEST_READ_S_MAX", 0.05)
    with structlog.testing.capture_logs() as logs:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(30)]
        for client in clients:
            client.write(b"POST / HTTP/1.1\r\nhost: x\r\n" + TARGET + b"content-length: 10\r\n\r\nabc")
        for client in clients:
            assert (await client.answer())[0] == 408
    lines = [line for line in logs if line["event"] == "slow_request_cut"]
    assert 1 <= len(lines) <= 3 and lines[0]["left_out"] == 0
    await left(*clients)


def test_line_after_a_flood_says_how_many_were_left_out() -> None:
    log = mock.Mock()
    flood = FloodLog(log, "cut")
    for tick in range(21):
        flood.warn(100 + tick * FLOOD_TOLD_EVERY_S / 10, client=tick)
    told = [call.kwargs for call in log.warning.call_args_list]
    assert told == [{"client": 0, "left_out": 0}, {"client": 10, "left_out": 9}, {"client": 20, "left_out": 9}]
    flood.warn(200, client="x")
    assert log.warning.call_args.kwargs == {"client": "x", "left_out": 0}
