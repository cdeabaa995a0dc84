"""What a socket keeps of the messages that its client has, and what becomes of those that the client never got."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from frontend.limits import VISIBILITY_S_MAX
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import account_limits
from storage_nodes.protocol.messages import MessageState
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import Installation
from tests.support.message_browser import MESSAGES, peek
from tests.support.push_socket import Socket
from tests.support.settling import settle


def subscribe(front: Installation, queue: str = "orders") -> Socket:
    return Socket(front, queue, {"authorization": f"Bearer {front.key.bearer_token}"})


async def send(front: Installation, *bodies: str) -> None:
    assert (await front.rest(MESSAGES, {"messages": [{"body": body} for body in bodies]})).status == 200


@pytest.mark.parametrize("wire", ["bulk", "subscribe"])
async def test_socket_keeps_no_body_of_what_its_client_holds(front: Installation, sockets: Any, wire: str) -> None:
    count, body_bytes = 40, 100_000
    real = front.storage.acquire

    async def copied(*arguments: Any) -> Any:
        """As from a node: not the bytes that this storage holds itself."""
        reply = await real(*arguments)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=type(reply))

    front.storage.acquire = copied  # type: ignore[method-assign]
    for _ in range(count // 10):
        await send(front, *["x" * body_bytes] * 10)
    socket = sockets() if wire == "bulk" else subscribe(front)
    await settle(lambda: bool(socket.of("ready")))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    socket.say({"type": "credit", "n": count})
    await settle(lambda: all(one.state != MessageState.WAITING for one in front.storage.messages(1)), 5_000)
    await asyncio.sleep(0.05)
    socket.sent.clear()
    gc.collect()
    held_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held_bytes < body_bytes, "some hundred bytes of each"
    await socket.leave()
    assert all(one.state == MessageState.WAITING for one in front.storage.messages(1))


async def test_bulk_messages_that_did_not_leave_count_as_never_received(front: Installation, sockets: Any) -> None:
    await send(front, "a", "b", "c")
    for _ in range(3):
        socket = sockets()
        await socket.first("ready")
        socket.is_stuck = True
        socket.say({"type": "credit", "n": 3})
        await settle(lambda: all(one.state != MessageState.WAITING for one in front.storage.messages(1)))
        await socket.leave()
    assert [one["receive_count"] for one in await peek(front)] == [0, 0, 0]


@pytest.mark.parametrize("queue", ["orders", "line.fifo"])
async def test_of_a_subscription_only_what_left_counts_as_received(front: Installation, queue: str) -> None:
    front.add_queue("line.fifo", (2,))
    for number in range(3):
        fifo = {"group": "g", "deduplication_id": f"{number}"} if queue != "orders" else {}
        reply = await front.rest(f"/v1/queues/{queue}/messages", {"body": f"{number}", **fifo})
        assert reply.status == 200
    socket = subscribe(front, queue)
    await settle(lambda: bool(socket.of("ready")))

    class Stuck(list[dict[str, Any]]):
        def append(self, message: dict[str, Any]) -> None:
            if len(socket.of("message")) == 1 and message["type"] == "websocket.send":
                raise OSError("the client has gone")
            super().append(message)

    socket.sent = Stuck(socket.sent)
    socket.say({"type": "credit", "n": 3})
    await settle(lambda: len(socket.of("message")) == 1)
    await socket.leave()
    shown = await front.rest(f"/v1/queues/{queue}/messages/peek", {})
    assert [one["receive_count"] for one in shown.json["messages"]] == [1, 0, 0]
    assert [one["state"] for one in shown.json["messages"]] == ["waiting"] * 3


@pytest.mark.parametrize("wire", ["bulk", "subscribe"])
async def test_nack_takes_what_a_release_over_rest_takes_and_names_what_it_refuses(
    front: Installation, sockets: Any, wire: str
) -> None:
    await send(front, "a")
    socket = sockets() if wire == "bulk" else subscribe(front)
    await settle(lambda: bool(socket.of("ready")))
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: bool(socket.of("messages") or socket.of("message")))
    named: dict[str, Any] = {"ranges": [[1, 1]]}
    if wire == "subscribe":
        named = {"ids": [socket.of("message")[0]["receipt"]]}
    socket.say({"type": "nack", "delay_seconds": VISIBILITY_S_MAX + 1, **named})
    await settle(lambda: bool(socket.of("error")))
    (refused,) = socket.of("error")
    assert refused["code"] == "invalid-parameter-value" and named.items() <= refused.items()
    socket.say({"type": "nack", "delay_seconds": VISIBILITY_S_MAX, **named})
    await settle(lambda: front.storage.messages(1)[0].deadline_ms >= (front.clock.now_s + VISIBILITY_S_MAX) * 1_000)
    assert len(socket.of("error")) == 1
    await socket.leave()


async def test_quota_of_payloads_is_of_what_sends() -> None:
    front = Installation(quotas=QuotaTree(lambda _: account_limits({"payload_bytes": 1_024})))
    for number in range(30):
        await send(front, f"{number}")
    socket = subscribe(front)
    await settle(lambda: bool(socket.of("ready")))
    socket.say({"type": "credit", "n": 30})
    await settle(lambda: len(socket.of("message")) == 30)
    socket.say({"type": "ack", "ids": [one["receipt"] for one in socket.of("message")]})
    await settle(lambda: front.storage.count() == 0)
    assert not socket.of("error")
    await socket.leave()
