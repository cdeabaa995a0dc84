"""Websockets over real connections: frames that do not become whole, what they may hold of memory, and the stop of the
process."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import websockets

from frontend.client_bytes import HeldBytes, held_frames
from frontend.express.protocol import express_config
from frontend.limits import BULK_MESSAGES_MAX, FRAME_OVERHEAD_BYTES, JSON_VALUES_MAX
from frontend.push.closing import CLOSE_BAD_FRAME, CLOSE_LATE, CLOSE_RESTART, CLOSE_TRY_LATER, STOPPING
from frontend.server import Server
from tests.support.bulk_socket import gate_storage
from tests.support.frontend_plane import Installation

MASK = bytes(4)


async def connect(front: Installation, port: int, wire: str = "bulk", token: str = "") -> websockets.ClientConnection:
    headers = {"Authorization": f"Bearer {token or front.key.bearer_token}"}
    queue = "secret" if token else "orders"
    address = f"ws://127.0.0.1:{port}/v1/queues/{queue}/{wire}"
    socket = await websockets.connect(address, additional_headers=headers, proxy=None, ping_interval=None)
    assert json.loads(await socket.recv())["type"] == "ready"
    return socket


def beginning(length: int, sent: bytes, first: int = 0x81) -> bytes:
    """Of a frame; 0x01: the first part of one that is sent in several."""
    return bytes((first, 0xFF)) + length.to_bytes(8, "big") + MASK + sent


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def closed(socket: websockets.ClientConnection) -> tuple[int, str]:
    with pytest.raises(websockets.ConnectionClosed) as caught:
        while True:
            await asyncio.wait_for(socket.recv(), 5)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend.client_bytes.REQUEST_READ_S_MAX", 0.3)
    monkeypatch.setattr("frontend.push.connection.FRAME_LOOK_S", 0.05)


@pytest.mark.parametrize("wire", ["bulk", "subscribe"])
@pytest.mark.parametrize("part", [b"\x81", beginning(1_000, b"x" * 10), beginning(10, b'{"type":"c', 0x01)])
async def test_frame_that_does_not_become_whole_in_time_closes_the_socket(
    front: Installation, port: int, impatient: None, wire: str, part: bytes
) -> None:
    socket = await connect(front, port, wire)
    socket.transport.write(part)
    code, reason = await closed(socket)
    assert code == CLOSE_LATE and "no whole frame within" in reason
    await until(lambda: front.plane.sockets.calls == 0 and held_frames.held_bytes == 0)


async def test_pings_keep_no_frame_alive(front: Installation, port: int, impatient: None) -> None:
    socket = await connect(front, port)
    socket.transport.write(beginning(4, b"abcd", 0x01))

    async def ping() -> None:
        while True:
            socket.transport.write(b"\x89\x80" + MASK)
            await asyncio.sleep(0.02)

    pinging = asyncio.create_task(ping())
    assert (await closed(socket))[0] == CLOSE_LATE
    pinging.cancel()


async def test_frame_that_arrives_byte_by_byte_closes_the_socket(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.client_bytes.BODY_GRACE_S", 0.1)
    monkeypatch.setattr("frontend.push.connection.FRAME_LOOK_S", 0.05)
    socket = await connect(front, port)
    socket.transport.write(beginning(100_000, b"x"))
    code, reason = await closed(socket)
    assert code == CLOSE_LATE and "bytes in" in reason


async def test_frames_one_after_the_other_are_never_late(front: Installation, port: int, impatient: None) -> None:
    """Each piece ends in the middle of a frame."""
    socket = await connect(front, port, "subscribe")
    frame = b"\x81" + bytes((0x80 | 23,)) + MASK + b'{"type":"credit","n":1}'
    socket.transport.write(frame[:10])
    for _ in range(60):
        socket.transport.write(frame[10:] + frame[:10])
        await asyncio.sleep(0.02)
    socket.transport.write(frame[10:])
    await socket.close()
    assert socket.close_code == 1000


async def test_frame_that_nobody_reads_at_the_moment_is_not_late(
    front: Installation, port: int, impatient: None
) -> None:
    gate = gate_storage(front)
    socket = await connect(front, port)
    text = json.dumps({"type": "publish", "seq": 1, "messages": [{"body": "x" * 100}]}).encode()
    frame = b"\x81\xfe" + len(text).to_bytes(2, "big") + MASK + text
    # One more than are taken at a time, and one that waits, end in the middle of the next.
    socket.transport.write(frame * 10 + frame[:20])
    await asyncio.sleep(0.8)
    gate.set()
    socket.transport.write(frame[20:])
    for _ in range(11):
        assert json.loads(await asyncio.wait_for(socket.recv(), 5))["type"] == "confirm"
    await socket.close()


async def test_account_whose_frames_hold_too_much_gives_way_and_others_do_not(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_frames, "_bytes_max", 100_000)
    first = await connect(front, port)
    first.transport.write(beginning(60_000, b"x" * 40_000))
    await until(lambda: held_frames.held_bytes >= 40_000)
    second = await connect(front, port)
    second.transport.write(beginning(60_000, b"x" * 40_000))
    code, reason = await closed(second)
    assert code == CLOSE_TRY_LATER and "Too many bytes" in reason
    other = await connect(front, port, token=front.other_key.bearer_token)
    publish = json.dumps({"type": "publish", "seq": 1, "messages": [{"body": "x" * 20_000}]})
    await other.send(publish)
    assert json.loads(await other.recv())["type"] == "confirm"
    first.transport.abort()
    await until(lambda: held_frames.held_bytes == 0)
    await other.close()


async def test_frames_that_wait_for_their_turn_count_as_held(front: Installation, port: int) -> None:
    gate = gate_storage(front)
    socket = await connect(front, port)
    publish = json.dumps({"type": "publish", "seq": 1, "messages": [{"body": "x" * 10_000}]})
    for _ in range(9):
        await socket.send(publish)
    await until(lambda: front.plane.bulk_sends.calls == 8 and held_frames.held_bytes >= 10_000)
    await asyncio.sleep(0.05)
    assert 10_000 <= held_frames.held_bytes < 20_000, "the ninth is in work, and not forgotten"
    gate.set()
    for _ in range(9):
        assert json.loads(await asyncio.wait_for(socket.recv(), 5))["type"] == "confirm"
    await until(lambda: held_frames.held_bytes == 0)
    await socket.close()


class NeverWalked(deque[int]):
    def __iter__(self) -> Any:
        raise AssertionError("looked at frame by frame")


async def test_cost_of_a_frame_does_not_grow_with_those_that_wait(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One piece of the network holds tens of thousands of small ones."""
    monkeypatch.setattr("frontend.push.connection.deque", NeverWalked)
    gate = gate_storage(front)
    socket = await connect(front, port)
    text = json.dumps({"type": "publish", "seq": 1, "messages": [{"body": "x" * 100}]}).encode()
    frame = b"\x81\xfe" + len(text).to_bytes(2, "big") + MASK + text
    socket.transport.write(frame * 20)
    await until(lambda: front.plane.bulk_sends.calls == 8)
    # The one in work is held until its send is under way.
    await until(lambda: held_frames.held_bytes == 12 * (len(text) + FRAME_OVERHEAD_BYTES))
    gate.set()
    for _ in range(20):
        assert json.loads(await asyncio.wait_for(socket.recv(), 5))["type"] == "confirm"
    await until(lambda: held_frames.held_bytes == 0)
    await socket.close()


def test_holder_has_no_more_than_is_free_for_others() -> None:
    frames = HeldBytes(100)
    frames.change("a", 50)
    assert not frames.is_over("a")
    frames.change("a", 1)
    assert frames.is_over("a") and not frames.is_over("b")
    frames.change("b", 20)
    assert not frames.is_over("b")
    frames.change("a", -51)
    frames.change("b", -20)
    assert frames.held_bytes == 0 and not frames._by_holder


# --- the stop of the process ---


async def test_publishes_under_way_are_confirmed_before_the_process_stops(front: Installation) -> None:
    server = Server(express_config(front.plane, "127.0.0.1", 0), front.plane.drain)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    gate = gate_storage(front)
    socket = await connect(front, server.servers[0].sockets[0].getsockname()[1])
    for seq in range(3):
        await socket.send(json.dumps({"type": "publish", "seq": seq, "messages": [{"body": "x"}] * BULK_MESSAGES_MAX}))
    await until(lambda: front.plane.bulk_sends.calls == 3)
    server.should_exit = True
    await until(front.plane.stopping.is_set)
    await asyncio.sleep(0.1)
    gate.set()
    said: list[Any] = []
    with pytest.raises(websockets.ConnectionClosed) as caught:
        while True:
            said.append(json.loads(await asyncio.wait_for(socket.recv(), 5)))
    assert sorted(frame["seq"] for frame in said if frame["type"] == "confirm") == [0, 1, 2]
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (CLOSE_RESTART, STOPPING)
    await asyncio.wait_for(serving, 10)
    assert front.storage.count() == 3 * BULK_MESSAGES_MAX


# --- how many values there may be ---


async def test_json_with_more_values_than_are_taken_is_refused_before_it_is_decoded(
    front: Installation, port: int
) -> None:
    ranges = json.dumps({"type": "ack", "ranges": [[1, 1]] * (JSON_VALUES_MAX // 3)}, separators=(",", ":"))
    socket = await connect(front, port)
    await socket.send(ranges)
    code, reason = await closed(socket)
    assert code == CLOSE_BAD_FRAME and "more than 60000 values" in reason
    reply = await front.rest("/v1/queues/orders/messages/ack", {"receipts": ["x"] * (JSON_VALUES_MAX + 1)})
    assert reply.status == 400 and "more than 60000 values" in reply.json["detail"]
    entries = [{"Id": "a", "ReceiptHandle": "b"}] * JSON_VALUES_MAX
    refused = await front.sqs("DeleteMessageBatch", {"QueueUrl": "x", "Entries": entries})
    assert refused.error == "SerializationException" and "more than 60000 values" in refused.json["message"]
