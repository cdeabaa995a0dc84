"""Push over websockets: the consumer driven as an ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frontend.limits import SOCKET_CREDIT_MAX, SOCKET_VISIBILITY_S, VISIBILITY_S_MAX
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates, account_limits
from frontend.push.closing import CLOSE_BAD_FRAME, CLOSE_OVER_LIMIT, CLOSE_RESTART, STOPPING, close_reason
from frontend.push.socket_consumer import origin_is_same_host
from storage_nodes.protocol.errors import ErrorCode
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, Installation
from tests.support.push_socket import Socket
from tests.support.settling import settle


@pytest.fixture
async def sockets(front: Installation) -> AsyncIterator[Any]:
    opened: list[Socket] = []

    def connect(queue: str = "orders", token: str | None = "", **headers: str) -> Socket:
        if token is not None:
            headers["authorization"] = f"Bearer {token or front.key.bearer_token}"
        opened.append(Socket(front, queue, headers))
        return opened[-1]

    yield connect
    for socket in opened:
        if not socket.task.done():
            await socket.leave()
    assert front.plane.sockets.calls == 0


async def send(front: Installation, count: int = 1) -> None:
    for number in range(count):
        reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": f"m{number}"})
        assert reply.status == 200


async def test_messages_come_as_far_as_credit_goes(front: Installation, sockets: Any) -> None:
    await send(front, 5)
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    assert socket.sent[0]["type"] == "websocket.accept"
    socket.say({"type": "credit", "n": 2})
    await settle(lambda: len(socket.of("message")) == 2)
    socket.say({"type": "credit", "n": 10})
    await settle(lambda: len(socket.of("message")) == 5)
    assert [frame["body"] for frame in socket.of("message")] == [f"m{n}" for n in range(5)]
    await settle(lambda: front.storage.polls == 1)
    await send(front)
    await settle(lambda: len(socket.of("message")) == 6)


async def test_filter_lets_matching_messages_through_alone(front: Installation, sockets: Any) -> None:
    await front.rest("/v1/queues/orders/messages", {"messages": [{"body": "no"}, {"body": "yes", "tag": "red"}]})
    socket = sockets()
    socket.say({"type": "filter", "tags": ["red", "blue"]})
    socket.say({"type": "credit", "n": 10})
    await settle(lambda: len(socket.of("message")) == 1)
    await front.rest("/v1/queues/orders/messages", {"messages": [{"body": "no"}, {"body": "too", "tag": "blue"}]})
    await settle(lambda: len(socket.of("message")) == 2)
    assert [(frame["body"], frame["tag"]) for frame in socket.of("message")] == [("yes", "red"), ("too", "blue")]
    socket.say({"type": "filter", "tags": []})
    await settle(lambda: bool(socket.of("error")))
    assert "before the first credit" in socket.of("error")[0]["detail"]
    await settle(lambda: socket.close_code == CLOSE_BAD_FRAME)


@pytest.mark.parametrize(
    ("queue", "tags", "detail"), [("orders.fifo", ["red"], "FIFO"), ("orders", ["a b"], "printable ASCII")]
)
async def test_filter_that_is_none_ends_the_subscription(
    front: Installation, sockets: Any, queue: str, tags: list[str], detail: str
) -> None:
    front.add_queue("orders.fifo", (2,))
    await send(front)
    socket = sockets(queue)
    socket.say({"type": "filter", "tags": tags})
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: socket.close_code is not None)
    (error,) = socket.of("error")
    assert detail in error["detail"] and socket.close_code == CLOSE_BAD_FRAME
    assert not any(call == "acquire" for call, _ in front.storage.calls), "the credit was for what the filter lets by"


async def test_filter_that_storage_refuses_is_told_once_and_ends_the_subscription(
    front: Installation, sockets: Any
) -> None:
    await send(front)
    socket = sockets()
    socket.say({"type": "filter", "tags": ["red"]})
    front.storage.fail_with = ErrorCode.OVER_LIMIT
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: socket.close_code is not None)
    assert socket.close_code == CLOSE_OVER_LIMIT
    (error,) = socket.of("error")
    assert error["code"] == "over-limit" and "filter finds nothing" in error["detail"]
    assert front.storage.calls.count(("acquire", 1)) == 1, "it was not tried again"
    await asyncio.wait_for(socket.task, 5)


async def test_storage_that_fails_otherwise_is_asked_again(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.push.deliveries.SOCKET_RETRY_S", 0.0)
    await send(front)
    for code, tags in ((ErrorCode.NOT_LEADER, ["red"]), (ErrorCode.OVER_LIMIT, [])):
        socket = sockets()
        socket.say({"type": "filter", "tags": tags})
        front.storage.fail_with = code
        socket.say({"type": "credit", "n": 1})
        asked = front.storage.calls.count(("acquire", 1))
        await settle(lambda asked=asked: front.storage.calls.count(("acquire", 1)) > asked + 2)  # type: ignore[misc]
        front.storage.fail_with = None
        assert not socket.of("error") and socket.close_code is None
        await socket.leave()


async def test_ack_deletes_and_nack_gives_back(front: Installation, sockets: Any) -> None:
    await send(front, 2)
    socket = sockets()
    socket.say({"type": "credit", "n": 2})
    await settle(lambda: len(socket.of("message")) == 2)
    first, second = socket.of("message")
    socket.say({"type": "ack", "ids": [first["receipt"]]})
    await settle(lambda: front.storage.count() == 1)
    socket.say({"type": "nack", "ids": [second["receipt"]]})
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: len(socket.of("message")) == 3)
    assert socket.of("message")[2]["delivery_count"] == 2 and not socket.of("error")


@pytest.mark.parametrize(("denied", "frame"), [("DeleteMessage", "ack"), ("ChangeMessageVisibility", "extend")])
async def test_frame_asks_the_policy_of_the_queue_for_what_it_does(
    front: Installation, sockets: Any, denied: str, frame: str
) -> None:
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"
    statement = {"Effect": "Deny", "Principal": "*", "Action": f"sqs:{denied}", "Resource": arn}
    front.add_queue("orders", attributes={"Policy": json.dumps({"Version": "2012-10-17", "Statement": statement})})
    await send(front)
    socket = sockets()
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: bool(socket.of("message")))
    more = {"seconds": 60} if frame == "extend" else {}
    socket.say({"type": frame, "ids": [socket.of("message")[0]["receipt"]], **more})
    await settle(lambda: bool(socket.of("error")))
    assert socket.of("error")[0]["code"] == "access-denied" and front.storage.count() == 1


async def test_nack_with_delay_holds_the_message_back(front: Installation, sockets: Any) -> None:
    await send(front)
    socket = sockets()
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: len(socket.of("message")) == 1)
    socket.say({"type": "nack", "ids": [socket.of("message")[0]["receipt"]], "delay_seconds": 60})
    await settle(lambda: ("change_visibility", 1) in front.storage.calls)
    front.clock.now_s += 59
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json == {}
    front.clock.now_s += 1
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json != {}


async def test_client_that_leaves_gives_back_what_it_held(front: Installation, sockets: Any) -> None:
    await send(front, 3)
    socket = sockets()
    socket.say({"type": "credit", "n": 2})
    await settle(lambda: len(socket.of("message")) == 2)
    await socket.leave()
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10})
    assert len(reply.json["Messages"]) == 3
    assert front.storage.polls == 0 and front.plane.sockets.calls == 0


async def test_leases_are_renewed_while_the_socket_lives(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frontend.push import deliveries

    monkeypatch.setattr(deliveries, "SOCKET_RENEW_S", 0.01)
    now = [1000.0]
    monkeypatch.setattr(deliveries, "monotonic", lambda: now[0])
    await send(front)
    socket = sockets()
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: len(socket.of("message")) == 1)
    for _ in range(3):
        before = front.storage.calls.count(("change_visibility", 1))
        now[0] += 20
        front.clock.now_s += 20
        async with asyncio.timeout(5):
            while front.storage.calls.count(("change_visibility", 1)) == before:
                await asyncio.sleep(0.002)
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json == {}, "60 s later it is still leased"
    assert not socket.of("lost")
    front.clock.now_s += 31
    now[0] += 31
    async with asyncio.timeout(5):
        while not socket.of("lost"):
            await asyncio.sleep(0.002)
    assert socket.of("lost")[0]["ids"] == [socket.of("message")[0]["receipt"]]


async def test_revoked_key_is_cut_off(front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """S11."""
    from frontend.push import deliveries

    monkeypatch.setattr(deliveries, "SOCKET_RENEW_S", 0.01)
    monkeypatch.setattr(deliveries, "SOCKET_RECHECK_S", 0.0)
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    front.metadata.keys.clear()
    await asyncio.wait_for(socket.task, 5)
    assert socket.close_code == 4401


async def test_first_frame_may_carry_the_token(front: Installation, sockets: Any) -> None:
    await send(front)
    socket = sockets(token=None)
    socket.say({"type": "auth", "token": front.key.bearer_token})
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: len(socket.of("message")) == 1)


@pytest.mark.parametrize("frame", [{"type": "credit", "n": 1}, {"type": "auth", "token": "pstk_wrong"}])
async def test_first_frame_without_a_right_token_closes(front: Installation, sockets: Any, frame: Any) -> None:
    await send(front)
    socket = sockets(token=None)
    socket.say(frame)
    await asyncio.wait_for(socket.task, 5)
    assert socket.close_code == 4401 and not socket.frames


async def test_silent_client_is_closed(front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from frontend.push import socket_consumer

    monkeypatch.setattr(socket_consumer, "SOCKET_AUTH_S_MAX", 0.0)
    socket = sockets(token=None)
    await asyncio.wait_for(socket.task, 5)
    assert socket.close_code == 4408


async def test_wrong_token_in_header_is_refused_before_the_upgrade(front: Installation, sockets: Any) -> None:
    socket = sockets(token="pstk_wrong")
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (401, "invalid-client-token-id")


async def test_signed_upgrade_is_told_that_a_bearer_token_is_taken(front: Installation, sockets: Any) -> None:
    socket = sockets(token=None, authorization="AWS4-HMAC-SHA256 Credential=x")
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (401, "invalid-client-token-id")
    assert socket.detail == "Subscriptions take a bearer token.", "the key may be valid"


async def test_socket_whose_key_cannot_be_looked_up_is_told_to_come_back(front: Installation, sockets: Any) -> None:
    front.metadata.down = True
    socket = sockets()
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (503, "service-unavailable")
    later = sockets(token=None)
    later.say({"type": "auth", "token": front.key.bearer_token})
    await asyncio.wait_for(later.task, 5)
    assert later.close_code == 1013 and "looked up" in later.close_reason


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"http://{HOST}.evil.example", "http://localhost"])
async def test_foreign_origin_is_refused_before_the_upgrade(front: Installation, sockets: Any, origin: str) -> None:
    """S21."""
    socket = sockets(origin=origin)
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (403, "access-denied")


def test_origin_must_be_exactly_the_host() -> None:
    assert origin_is_same_host(None, b"a:1") and origin_is_same_host(b"https://A:1", b"a:1")
    for origin in (b"https://a", b"https://a:2", b"https://u@a:1", b"file://a:1", b"a:1", b"", b"\xff", b"http://[a:1"):
        assert not origin_is_same_host(origin, b"a:1"), origin


@pytest.mark.parametrize("queue", ["absent", "secret"])
async def test_queue_that_is_not_ours_closes(front: Installation, sockets: Any, queue: str) -> None:
    socket = sockets(queue)
    await asyncio.wait_for(socket.task, 5)
    assert socket.close_code == 4404 and socket.of("error")[0]["code"] == "queue-does-not-exist"


@pytest.mark.parametrize("text", ["", "x", "[]", '{"type":"nope"}', '{"type":"credit","n":"1"}', "[" * 100_000])
async def test_frame_that_is_none_closes(front: Installation, sockets: Any, text: str) -> None:
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    socket.say(text)
    await asyncio.wait_for(socket.task, 5)
    assert socket.close_code == 4400


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"type":"credit","n":1,"n":2}', "n"),
        ('{"type":"credit","n":1,"\\u006e":2}', "n"),
        ('{"type":"credit","type":"credit","n":1}', "type"),
        ('{"type":"nack","ids":["x"],"count":true,"ids":[]}', "ids"),
        ('{"type":"credit","n":1,"amount":2}', "amount"),
    ],
)
async def test_frame_with_a_repeated_or_unknown_member_closes_and_names_it(
    front: Installation, sockets: Any, text: str, named: str
) -> None:
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    socket.say(text)
    await asyncio.wait_for(socket.task, 5)
    assert socket.close_code == CLOSE_BAD_FRAME
    assert f"'{named}' twice" in socket.close_reason or f"`{named}`" in socket.close_reason


def test_close_reason_fits_into_its_frame() -> None:
    assert close_reason("ü" * 100) == "ü" * 61 and close_reason("short") == "short"


async def test_frame_out_of_bounds_is_answered_with_an_error(front: Installation, sockets: Any) -> None:
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    bad: list[dict[str, Any]] = [
        {"type": "credit", "n": 0},
        {"type": "credit", "n": SOCKET_CREDIT_MAX + 1},
        {"type": "ack", "ids": []},
        {"type": "nack", "ids": ["x"], "delay_seconds": VISIBILITY_S_MAX + 1},
        {"type": "extend", "ids": ["x"], "seconds": 0},
    ]
    for frame in bad:
        socket.say(frame)
    await settle(lambda: len(socket.of("error")) == len(bad))
    socket.say({"type": "ack", "ids": ["wrong"]})
    await settle(lambda: len(socket.of("error")) == len(bad) + 1)
    assert socket.of("error")[-1] | {"detail": ""} == {
        "type": "error", "code": "receipt-handle-is-invalid", "detail": "", "ids": ["wrong"],
    }  # fmt: skip
    assert socket.close_code is None


async def test_stop_of_the_process_closes_sockets(front: Installation, sockets: Any) -> None:
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    front.plane.drain()
    socket.incoming.put_nowait({"type": "websocket.disconnect", "code": CLOSE_RESTART})
    await asyncio.wait_for(socket.task, 5)
    assert (socket.close_code, socket.close_reason) == (CLOSE_RESTART, STOPPING)


async def test_slow_client_holds_up_nobody_else(front: Installation, sockets: Any) -> None:
    await send(front, 4)
    stuck, quick = sockets(), sockets()
    await settle(lambda: bool(stuck.of("ready") and quick.of("ready")))
    blocked = asyncio.Event()

    async def never(_: Any) -> None:
        await blocked.wait()

    stuck_consumer_send = stuck._send
    stuck._send = never
    stuck.say({"type": "credit", "n": 1})
    quick.say({"type": "credit", "n": 10})
    await settle(lambda: len(quick.of("message")) >= 3)
    blocked.set()
    stuck._send = stuck_consumer_send


async def test_unknown_path_is_closed(front: Installation) -> None:
    socket = Socket(front, "a/b", {})
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (404, "not-found")


async def test_fifo_group_is_pushed_in_order_and_waits_for_its_acks(front: Installation, sockets: Any) -> None:
    front.add_queue("line.fifo", (2,))
    for number in range(3):
        message = {"body": f"m{number}", "group": "g", "deduplication_id": f"{number}"}
        await front.rest("/v1/queues/line.fifo/messages", message)
    socket = sockets("line.fifo")
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: len(socket.of("message")) == 1)
    socket.say({"type": "credit", "n": 5})
    await settle(lambda: front.storage.polls == 1)
    first = socket.of("message")[0]
    assert (first["body"], first["group"], len(first["sequence_number"])) == ("m0", "g", 20)
    socket.say({"type": "ack", "ids": [first["receipt"]]})
    await settle(lambda: len(socket.of("message")) == 3)
    assert [frame["body"] for frame in socket.of("message")] == ["m0", "m1", "m2"]


async def test_frames_over_the_rate_wait_and_then_the_socket_closes() -> None:
    limits = AccountLimits(Rates(messages_per_s=100))
    front = Installation(quotas=QuotaTree(lambda _: limits, burst_s=1.0))
    await send(front)
    socket = Socket(front, "orders", {"authorization": f"Bearer {front.key.bearer_token}"})
    await settle(lambda: bool(socket.of("ready")))
    socket.say({"type": "ack", "ids": ["x"] * 1_000})
    await settle(lambda: bool(socket.of("error")))
    polls = front.storage.polls
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: socket.close_code is not None)
    assert socket.close_code == CLOSE_OVER_LIMIT and "messages_per_s" in socket.close_reason
    assert front.storage.polls == polls, "the credit was not heard"
    await asyncio.wait_for(socket.task, 5)
    assert front.plane.sockets.calls == front.plane.open_sockets.calls == 0


async def test_frames_a_little_over_the_rate_are_late_alone() -> None:
    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(Rates(messages_per_s=2)), burst_s=1.0))
    socket = Socket(front, "orders", {"authorization": f"Bearer {front.key.bearer_token}"})
    await settle(lambda: bool(socket.of("ready")))
    for ids in (["a", "b", "c"], ["d"]):
        socket.say({"type": "extend", "ids": ids, "seconds": 5})
    await settle(lambda: len(socket.of("error")) == 1)
    await asyncio.sleep(0.1)
    assert len(socket.of("error")) == 1, "the second frame waits"
    front.clock.now_s += 1
    await asyncio.sleep(1.1)
    assert [frame["ids"] for frame in socket.of("error")] == [["a", "b", "c"], ["d"]] and socket.close_code is None
    await socket.leave()


async def test_extend_never_makes_a_lease_shorter(front: Installation, sockets: Any) -> None:
    """It would run out before the next renewal, and another consumer have the message while this one lives."""
    socket = sockets()
    await settle(lambda: bool(socket.of("ready")))
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: bool(socket.of("message")))
    for seconds, held_s in ((1, SOCKET_VISIBILITY_S), (SOCKET_VISIBILITY_S + 9, SOCKET_VISIBILITY_S + 9)):
        front.storage.modes.clear()
        socket.say({"type": "extend", "ids": [socket.of("message")[0]["receipt"]], "seconds": seconds})
        await settle(lambda: bool(front.storage.modes))
        (stored,) = front.storage.messages(1)
        assert stored.deadline_ms == int((front.clock.now_s + held_s) * 1_000)


async def test_sockets_without_a_key_count_for_their_address_and_then_for_the_account(
    front: Installation, sockets: Any
) -> None:
    socket = sockets(token=None)
    await settle(lambda: bool(socket.sent))
    assert (front.plane.open_sockets.calls, front.plane.sockets.calls) == (1, 0)
    socket.say({"type": "auth", "token": front.key.bearer_token})
    await settle(lambda: bool(socket.of("ready")))
    assert (front.plane.open_sockets.calls, front.plane.sockets.held_by(ACCOUNT)) == (0, 1)


async def test_quota_of_sockets_is_met_by_the_account() -> None:
    limits = account_limits({"sockets": 1})
    front = Installation(quotas=QuotaTree(lambda _: limits))
    headers = {"authorization": f"Bearer {front.key.bearer_token}"}
    first = Socket(front, "orders", headers)
    await settle(lambda: bool(first.of("ready")))
    second = Socket(front, "orders", headers)
    await settle(lambda: len(second.sent) == 2)
    assert second.refused == (429, "request-throttled")
    await first.leave()
    await second.leave()
    assert front.plane.sockets.calls == front.plane.open_sockets.calls == 0
