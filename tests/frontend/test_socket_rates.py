"""Websockets at low rates: what is fetched is what the rate grants, and what the client has done is heard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frontend.limits import SOCKET_FETCH_AHEAD_S
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from frontend.push import deliveries
from frontend.push.closing import CLOSE_RESTART
from storage_nodes.protocol.messages import MessageState
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import ACCOUNT, Installation
from tests.support.message_browser import MESSAGES
from tests.support.push_socket import Socket
from tests.support.settling import settle

TIMES = 30  # as fast as the clock on the wall


class QuickAsyncio:
    """asyncio, whose seconds are shorter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, seconds: float) -> Any:
        return asyncio.sleep(seconds / TIMES)

    def timeout(self, seconds: float) -> Any:
        return asyncio.timeout(seconds / TIMES)


@pytest.fixture
async def quick(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Installation]:
    front = Installation(quotas=QuotaTree())
    monkeypatch.setattr(deliveries, "asyncio", QuickAsyncio())
    monkeypatch.setattr(deliveries, "monotonic", lambda: front.clock.now_s)
    begun_s, was_s = time.monotonic(), front.clock.now_s

    async def tick() -> None:
        while True:
            front.clock.now_s = was_s + (time.monotonic() - begun_s) * TIMES
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    yield front
    ticking.cancel()


async def send(front: Installation, count: int, body: str = "x") -> None:
    bodies = [{"body": f"{number} {body}"} for number in range(count)]
    assert (await front.rest(MESSAGES, {"messages": bodies})).status == 200


@pytest.mark.parametrize("rates", [Rates(10_000, 50, None), Rates(10_000, None, 20_000)])
async def test_each_message_is_delivered_once_and_acknowledged_at_a_low_rate(
    quick: Installation, sockets: Any, rates: Rates
) -> None:
    count = 500
    await send(quick, count, "" if rates.messages_per_s else "x" * 400)
    quick.plane.quotas = QuotaTree(lambda _: AccountLimits(rates))
    socket = sockets(at=quick)
    await socket.first("ready")
    socket.say({"type": "credit", "n": 1_000})
    acked = 0
    async with asyncio.timeout(15):
        while quick.storage.count() and not socket.closed[0]:
            await asyncio.sleep(0.005)
            frames = socket.of("messages")
            if len(frames) > acked:
                first = frames[acked]["first"]
                last = frames[-1]["first"] + len(frames[-1]["messages"]) - 1
                socket.say({"type": "ack", "ranges": [[first, last]]})
                acked = len(frames)
    assert socket.closed == (0, "") and quick.storage.count() == 0 and not socket.of("lost")
    assert len(socket.bodies()) == count == len(set(socket.bodies()))
    assert {one["delivery_count"] for frame in socket.of("messages") for one in frame["messages"]} == {1}


async def test_fetch_takes_what_the_rate_grants(sockets: Any) -> None:
    front = Installation(quotas=QuotaTree())
    await send(front, 500)
    front.plane.quotas = QuotaTree(lambda _: AccountLimits(Rates(10_000, 10, None)), burst_s=2.0)
    socket = sockets(at=front)
    socket.say({"type": "credit", "n": 1_000})
    first = await socket.first("messages")
    assert 20 <= len(first["messages"]) <= 10 * (2 + SOCKET_FETCH_AHEAD_S)


@pytest.mark.parametrize("kind", ["ack", "nack", "extend"])
async def test_frames_about_messages_that_the_client_has_wait_for_their_turn(quick: Installation, kind: str) -> None:
    await send(quick, 3)
    quick.plane.quotas = QuotaTree(lambda _: AccountLimits(Rates(10_000, 10, None)))
    socket = Socket(quick, "orders", {"authorization": f"Bearer {quick.key.bearer_token}"})
    await settle(lambda: bool(socket.of("ready")))
    socket.say({"type": "credit", "n": 3})
    await settle(lambda: len(socket.of("message")) == 3)
    receipts = [one["receipt"] for one in socket.of("message")]
    quick.plane.quotas.pay_later(ACCOUNT, quick.key.access_key_id, "orders", quick.clock.now_s, 600, 0)
    more = {"seconds": 1_000} if kind == "extend" else {}
    socket.say({"type": kind, "ids": receipts, **more})

    def is_heard() -> bool:
        stored = quick.storage.messages(1)
        if kind == "nack":
            return all(one.state == MessageState.WAITING for one in stored)
        return all(one.deadline_ms > (quick.clock.now_s + 500) * 1_000 for one in stored)  # of ack: there is none

    await asyncio.sleep(20 / TIMES)  # the debt is of a minute
    assert socket.close_code is None and not is_heard()
    async with asyncio.timeout(10):
        while not is_heard():
            await asyncio.sleep(0.01)
    assert socket.close_code is None and not socket.of("error") and not socket.of("lost")
    await socket.leave()


async def test_nothing_more_is_fetched_while_an_ack_waits_for_the_rate(quick: Installation, sockets: Any) -> None:
    await send(quick, 3)
    quick.plane.quotas = QuotaTree(lambda _: AccountLimits(Rates(10_000, 10, None)))
    body = quick.storage.messages(1)[0].body
    socket = sockets(at=quick)
    socket.say({"type": "credit", "n": 10})
    await settle(lambda: len(socket.bodies()) == 3)
    quick.plane.quotas.pay_later(ACCOUNT, quick.key.access_key_id, "orders", quick.clock.now_s, 600, 0)
    socket.say({"type": "ack", "ranges": [[1, 3]]})
    await asyncio.sleep(0.05)
    await quick.storage.send(1, [body])  # to the fetch that was under way
    await settle(lambda: len(socket.bodies()) == 4)
    await quick.storage.send(1, [body])
    await asyncio.sleep(20 / TIMES)  # the debt is of a minute
    assert len(socket.bodies()) == 4
    async with asyncio.timeout(10):
        while len(socket.bodies()) < 5:
            await asyncio.sleep(0.01)
    assert socket.closed == (0, "") and quick.storage.count() == 2


async def test_stop_does_not_wait_for_the_rate(quick: Installation, sockets: Any) -> None:
    await send(quick, 3)
    quick.plane.quotas = QuotaTree(lambda _: AccountLimits(Rates(10_000, 10, None)))
    socket = sockets(at=quick)
    socket.say({"type": "credit", "n": 3})
    await socket.first("messages")
    quick.plane.quotas.pay_later(ACCOUNT, quick.key.access_key_id, "orders", quick.clock.now_s, 10**6, 0)
    socket.say({"type": "ack", "ranges": [[1, 3]]})
    await asyncio.sleep(0.05)
    assert quick.storage.count() == 3
    quick.plane.drain()
    socket.incoming.put_nowait({"type": "websocket.disconnect", "code": CLOSE_RESTART})
    await asyncio.wait_for(socket.task, 5)
    assert quick.storage.count() == 0
