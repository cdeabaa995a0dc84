"""What a bulk socket pays, and how the sockets of one account share its places."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from frontend.limits import BULK_MESSAGES_MAX, BULK_SENDS_MAX
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates, account_limits
from frontend.metadata.records import PolicyRecord
from frontend.push import deliveries
from frontend.push.closing import CLOSE_OVER_LIMIT
from frontend.routing.bulkhead import Bulkhead
from tests.support.bulk_socket import SEND_ONLY
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import ACCOUNT, Installation
from tests.support.settling import settle


async def test_account_that_fills_its_share_waits_and_others_do_not(front: Installation, sockets: Any) -> None:
    places = [front.plane.bulk_sends.place(ACCOUNT) for _ in range(BULK_SENDS_MAX // 2)]
    for place in places:
        place.__enter__()
    mine, other = sockets(), sockets("secret", token=front.other_key.bearer_token)
    mine.publish(1, "x")
    other.publish(1, "x")
    await other.first("confirm")
    assert not mine.of("confirm") and mine.closed == (0, "")
    places.pop().__exit__(None, None, None)
    async with asyncio.timeout(5):
        while not mine.of("confirm"):
            await asyncio.sleep(0.01)
    for place in places:
        place.__exit__(None, None, None)


async def test_sockets_of_an_account_wait_in_turn(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [front.plane.bulk_sends.place(ACCOUNT) for _ in range(BULK_SENDS_MAX // 2)]
    for place in places:
        place.__enter__()
    looks = 0
    take = Bulkhead.take

    def counted(bulkhead: Bulkhead, holder: str, held_max: int) -> None:
        nonlocal looks
        looks += bulkhead is front.plane.bulk_sends
        take(bulkhead, holder, held_max)

    monkeypatch.setattr(Bulkhead, "take", counted)
    waiting = [sockets() for _ in range(20)]
    for socket in waiting:
        socket.publish(1, "x")
    await asyncio.sleep(0.2)
    assert 1 <= looks <= 15, "one looks, not twenty"
    for place in places:
        place.__exit__(None, None, None)
    for socket in waiting:
        async with asyncio.timeout(5):
            while not socket.of("confirm"):
                await asyncio.sleep(0.01)
    assert not front.plane.bulk_turns


async def test_publishes_pay_for_messages_and_bytes_before_they_are_looked_at(sockets: Any) -> None:
    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(account=Rates(1_000, 1, None))))
    socket = sockets(at=front)
    socket.publish(1, *["x"] * 500)
    socket.publish(2, "late")
    await settle(lambda: bool(socket.of("confirm")))
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed[0] == CLOSE_OVER_LIMIT and "messages_per_s" in socket.closed[1]
    assert front.storage.count() == 500


async def test_frames_out_of_bounds_are_paid_for(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[tuple[int, int]] = []
    pay = deliveries.pay

    def noted(*arguments: Any) -> None:
        paid.append(arguments[3:5] or (0, 0))
        pay(*arguments)

    monkeypatch.setattr(deliveries, "pay", noted)
    socket = sockets()
    await socket.first("ready")
    paid.clear()
    socket.publish(1, *["x"] * (BULK_MESSAGES_MAX + 1))
    await socket.first("refuse")
    socket.say({"type": "ack", "ranges": [[1, 1]]})
    await socket.first("error")
    (publish, ack) = paid
    assert publish[0] == BULK_MESSAGES_MAX and publish[1] > BULK_MESSAGES_MAX and ack[0] == 0 and ack[1] > 20


async def test_every_frame_pays_its_bytes(sockets: Any) -> None:
    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(account=Rates(1_000, 1_000, 1_000))))
    socket = sockets(at=front)
    socket.publish(1, "x")
    socket.say({"type": "credit", "n": 1})
    await socket.first("messages")
    socket.say({"type": "ack", "ranges": [[1, 1]] * 5_000})
    socket.say({"type": "credit", "n": 1})
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed[0] == CLOSE_OVER_LIMIT and "bytes_per_s" in socket.closed[1]


async def test_stopped_sending_and_payload_quota_refuse_the_publish(sockets: Any) -> None:
    for limits, code in (
        (account_limits({}, "not paid"), "sending-stopped"),
        (account_limits({"payload_bytes": 1_024}), "request-too-large"),
    ):
        front = Installation(quotas=QuotaTree(lambda _, limits=limits: limits))
        socket = sockets(at=front)
        socket.publish(1, "x" * 2_000)
        assert (await socket.first("refuse"))["code"] == code
        assert front.storage.count() == 0 and socket.closed == (0, "")
        await socket.leave()


@pytest.mark.parametrize(
    ("held", "code", "stored"),
    [({"sending_stopped": "used up"}, "sending-stopped", 0), ({"sends_per_s": 1}, "request-throttled", 3)],
)
async def test_queue_that_is_stopped_or_throttled_refuses_the_publish(
    front: Installation, sockets: Any, held: dict[str, Any], code: str, stored: int
) -> None:
    record = front.metadata.queues[ACCOUNT, "orders"]
    front.metadata.queues[ACCOUNT, "orders"] = msgspec.structs.replace(record, **held)
    front.metadata.keys[front.key.access_key_id] = msgspec.structs.replace(
        front.metadata.keys[front.key.access_key_id], policies=[PolicyRecord("key", SEND_ONLY)]
    )
    socket = sockets()  # of a key that may only send: it opens, and each publish is told
    if stored:
        socket.publish(1, *["x"] * stored)
        await socket.first("confirm")
    socket.publish(2, "x")
    assert (await socket.first("refuse"))["code"] == code and socket.closed == (0, "")
    assert front.storage.count() == stored
    front.metadata.queues[ACCOUNT, "orders"] = record
    socket.publish(9, "x")
    await settle(lambda: front.storage.count() == stored + 1)
