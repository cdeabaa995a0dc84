"""The bulk socket, driven as an ASGI application: publishes with confirms, deliveries settled by number."""

from __future__ import annotations

import asyncio
import json
from time import monotonic
from typing import Any

import msgspec
import pytest
import websockets

from frontend.limits import (
    BULK_BYTES_MAX,
    BULK_MESSAGES_MAX,
    MIB,
    SOCKET_FRAME_BYTES_MAX,
    SOCKET_LEASES_MAX,
    SOCKET_PUBLISHES_MAX,
    VISIBILITY_S_MAX,
)
from frontend.push import bulk_session, deliveries
from frontend.push.bulk_frames import ranges_of
from frontend.push.closing import CLOSE_BAD_FRAME, CLOSE_FORBIDDEN, CLOSE_RESTART, STOPPING
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.bulk_socket import JSON, MSGPACK, gate_storage
from tests.support.bulk_socket import sockets as sockets
from tests.support.frontend_plane import ACCOUNT, Installation
from tests.support.settling import settle


@pytest.mark.parametrize("subprotocols", [(), (JSON,), (MSGPACK,), ("other", JSON, MSGPACK)])
async def test_messages_go_in_and_out_and_are_acknowledged_by_ranges(
    front: Installation, sockets: Any, subprotocols: tuple[str, ...]
) -> None:
    socket = sockets(subprotocols=subprotocols)
    ready = await socket.first("ready")
    chosen = next((name for name in subprotocols if name in (JSON, MSGPACK)), None)
    assert socket.sent[0]["subprotocol"] == chosen
    assert (ready["messages_max"], ready["bytes_max"]) == (500, 4 * MIB)
    bodies = [f"größe {n}" for n in range(BULK_MESSAGES_MAX)]
    socket.publish(7, *bodies, ids=True)
    confirm = await socket.first("confirm")
    assert (confirm["seq"], confirm["failed"]) == (7, [])
    assert front.storage.calls == [("send", 1)]
    socket.say({"type": "credit", "n": 1_000})
    messages = await socket.first("messages")
    assert messages["first"] == 1 and socket.bodies() == bodies
    assert [one["id"] for one in messages["messages"]] == [one["id"] for one in confirm["sent"]]
    assert not {"receipt", "number"} & set(messages["messages"][0])
    socket.say({"type": "ack", "ranges": [[1, 100], [102, 500]]})
    await settle(lambda: front.storage.count() == 1)
    socket.say({"type": "ack", "ranges": [[101, 101], [1, 3]]})
    await settle(lambda: front.storage.count() == 0)
    assert not socket.of("error")


async def test_confirm_waits_for_storage(front: Installation, sockets: Any) -> None:
    gate = gate_storage(front)
    socket = sockets()
    for seq in range(SOCKET_PUBLISHES_MAX + 2):
        socket.publish(seq, "x")
    await settle(lambda: front.plane.bulk_sends.calls == SOCKET_PUBLISHES_MAX)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not socket.of("confirm") and not socket.incoming.empty(), "no further frame is read"
    gate.set()
    await settle(lambda: len(socket.of("confirm")) == SOCKET_PUBLISHES_MAX + 2)


async def test_fifo_publishes_are_stored_one_after_the_other(front: Installation, sockets: Any) -> None:
    front.add_queue("orders.fifo", (2,))
    socket = sockets("orders.fifo")
    for seq in range(5):
        rows = [{"body": f"{seq}", "group": "g", "deduplication_id": f"{seq}-{n}"} for n in range(3)]
        socket.say({"type": "publish", "seq": seq, "messages": rows})
    await settle(lambda: len(socket.of("confirm")) == 5)
    assert [frame["seq"] for frame in socket.of("confirm")] == list(range(5))
    socket.say({"type": "credit", "n": 100})
    await settle(lambda: len(socket.bodies()) == 15)
    assert socket.bodies() == [f"{n // 3}" for n in range(15)]


async def test_refused_entries_have_their_index_and_the_rest_is_stored(front: Installation, sockets: Any) -> None:
    socket = sockets()
    rows: list[dict[str, Any]] = [{"body": "a"}, {"body": ""}, {"body": "b", "priority": 99}, {"body": "c"}]
    socket.say({"type": "publish", "seq": 1, "messages": rows, "ids": True})
    confirm = await socket.first("confirm")
    assert [(one["index"], one["error"]["code"]) for one in confirm["failed"]] == [
        (1, "missing-required-parameter"),
        (2, "invalid-parameter-value"),
    ]
    assert [one is None for one in confirm["sent"]] == [False, True, True, False]
    assert front.storage.count() == 2


@pytest.mark.parametrize(
    ("bodies", "code"), [([], "empty-batch-request"), (["x"] * 501, "too-many-entries-in-batch-request")]
)
async def test_publish_out_of_bounds_is_refused_whole(
    front: Installation, sockets: Any, bodies: list[str], code: str
) -> None:
    socket = sockets()
    socket.publish(3, *bodies)
    refuse = await socket.first("refuse")
    assert (refuse["seq"], refuse["code"]) == (3, code) and front.storage.count() == 0
    socket.publish(4, "fine")
    await socket.first("confirm")


async def test_publish_that_storage_does_not_take_says_when_to_come_again(front: Installation, sockets: Any) -> None:
    front.storage.fail_with = ErrorCode.NO_QUORUM
    socket = sockets()
    socket.publish(1, "x")
    refuse = await socket.first("refuse")
    assert refuse["code"] == "service-unavailable" and refuse["retry_after_s"] >= 1
    assert socket.closed == (0, "")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\x81\xa4type\xdd\xff\xff\xff\xff", "claims more"),
        (msgspec.msgpack.encode({"type": "credit", "n": 1}) + b"\x00", "bytes follow"),
        (b"\x83\xa4type\xa6credit\xa1n\x01\xa1n\x02", "names 'n' twice"),
        (msgspec.msgpack.encode({"type": "credit", "n": float("nan")}), "wrong"),
        (b"\x91" * 50, "deeper"),
        (msgspec.msgpack.encode({"type": "publish", "seq": -1, "messages": []}), "seq"),
        (msgspec.msgpack.encode({"type": "nope"}), "wrong"),
        ('{"type":"credit","n":1}', "binary"),
        (b"", "cut"),
    ],
)
async def test_bad_frame_closes_and_says_why(front: Installation, sockets: Any, frame: Any, reason: str) -> None:
    socket = sockets()
    await socket.first("ready")
    socket.say(frame)
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed[0] == CLOSE_BAD_FRAME and reason in socket.closed[1], socket.closed


@pytest.mark.parametrize(
    ("frame", "reason"),
    [(b"\x81", "texts"), ('{"type":"credit","n":1,"n":2}', "twice"), ('{"type":"credit","n":1} x', "not valid JSON")],
)
async def test_bad_json_frame_closes_and_says_why(front: Installation, sockets: Any, frame: Any, reason: str) -> None:
    socket = sockets(subprotocols=(JSON,))
    await socket.first("ready")
    socket.say(frame)
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed[0] == CLOSE_BAD_FRAME and reason in socket.closed[1], socket.closed


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "ack", "ranges": [[1, 2]]},
        {"type": "ack", "ranges": [[0, 1]]},
        {"type": "ack", "ranges": [[1, 2**60]]},
        {"type": "ack", "ranges": []},
        {"type": "ack", "ranges": [[1, 1]] * (SOCKET_LEASES_MAX + 1)},
        {"type": "nack", "ranges": [[1, 1]], "delay_seconds": VISIBILITY_S_MAX + 1},
        {"type": "credit", "n": SOCKET_LEASES_MAX + 1},
    ],
)
async def test_frame_out_of_bounds_is_answered_with_an_error(front: Installation, sockets: Any, frame: Any) -> None:
    socket = sockets()
    socket.publish(1, "x")
    socket.say({"type": "credit", "n": 1})
    await socket.first("messages")
    socket.say(frame)
    assert (await socket.first("error"))["code"] == "invalid-parameter-value"
    assert front.storage.count() == 1 and socket.closed == (0, "")


async def test_nack_and_leaving_give_back(front: Installation, sockets: Any) -> None:
    socket = sockets()
    socket.publish(1, "a", "b", "c")
    socket.say({"type": "credit", "n": 3})
    await socket.first("messages")
    socket.say({"type": "nack", "ranges": [[2, 2]], "count": False})
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: len(socket.of("messages")) == 2)
    again = socket.of("messages")[1]
    assert (again["first"], again["messages"][0]["body"], again["messages"][0]["delivery_count"]) == (4, "b", 1)
    await socket.leave()
    other = sockets()
    other.say({"type": "credit", "n": 10})
    await settle(lambda: len(other.bodies()) == 3)


async def test_backlog_is_fetched_while_it_is_sent_and_goes_back_whole(front: Installation, sockets: Any) -> None:
    first, second = [[f"{n}-{k}" for k in range(BULK_MESSAGES_MAX)] for n in range(2)]
    socket = sockets()
    socket.publish(1, *first)
    socket.publish(2, *second)
    await settle(lambda: len(socket.of("confirm")) == 2)
    socket.is_stuck = True
    socket.say({"type": "credit", "n": 2_000})
    await settle(lambda: sum(call == "acquire" for call, _ in front.storage.calls) == 2)
    assert not socket.of("messages"), "the client has not taken the first yet"
    await socket.leave()
    other = sockets()
    other.say({"type": "credit", "n": 2_000})
    await settle(lambda: len(other.bodies()) == 1_000)
    assert sorted(other.bodies()) == sorted(first + second)


async def test_backlog_that_a_slow_client_does_not_take_in_time_goes_back(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "SOCKET_RENEW_S", 0.02)
    socket = sockets()
    for seq in range(2):
        socket.publish(seq, *["x"] * BULK_MESSAGES_MAX)
    await settle(lambda: len(socket.of("confirm")) == 2)
    socket.is_stuck = True
    socket.say({"type": "credit", "n": 2_000})
    await settle(lambda: sum(call == "acquire" for call, _ in front.storage.calls) == 2)
    other = sockets()
    other.say({"type": "credit", "n": 2_000})
    async with asyncio.timeout(5):
        while len(other.bodies()) < BULK_MESSAGES_MAX:
            await asyncio.sleep(0.01)
    assert {one["delivery_count"] for frame in other.of("messages") for one in frame["messages"]} == {1}
    assert len(other.bodies()) == BULK_MESSAGES_MAX, "those that are being sent are renewed"


async def test_leases_go_back_before_the_last_publish_is_stored(front: Installation, sockets: Any) -> None:
    socket = sockets()
    socket.publish(1, "a")
    socket.say({"type": "credit", "n": 1})
    await socket.first("messages")
    gate = gate_storage(front)
    socket.publish(2, "b")
    await settle(lambda: front.plane.bulk_sends.calls == 1)
    leaving = asyncio.create_task(socket.leave())
    other = sockets()
    other.say({"type": "credit", "n": 1})
    await settle(lambda: other.bodies() == ["a"])
    gate.set()
    await leaving
    assert front.storage.count() == 2


async def test_lease_that_ran_out_is_not_given_back(
    front: Installation, sockets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a standard queue that would end the lease of the consumer which has the message since."""
    socket = sockets()
    socket.publish(1, "a", "b")
    socket.say({"type": "credit", "n": 2})
    await socket.first("messages")
    ended_s = monotonic() + deliveries.SOCKET_VISIBILITY_S
    for module in (deliveries, bulk_session):
        monkeypatch.setattr(module, "monotonic", lambda: ended_s)
    socket.say({"type": "nack", "ranges": [[1, 1]]})
    await socket.leave()
    assert not any(call == "change_visibility" for call, _ in front.storage.calls)


async def test_client_that_is_gone_when_it_is_answered_leaves_nothing_behind(front: Installation, sockets: Any) -> None:
    socket = sockets()
    socket.publish(1, "a")
    socket.say({"type": "credit", "n": 1})
    await socket.first("messages")
    socket.is_gone = True
    socket.say({"type": "ack", "ranges": [[1, 9]]})
    with pytest.raises(OSError, match="gone"):
        await asyncio.wait_for(socket.task, 5)
    assert front.plane.sockets.calls == 0
    other = sockets()
    other.say({"type": "credit", "n": 1})
    await settle(lambda: other.bodies() == ["a"])


async def test_what_is_being_stored_is_confirmed_before_a_bad_frame_closes(front: Installation, sockets: Any) -> None:
    gate = gate_storage(front)
    socket = sockets()
    socket.publish(1, "x")
    await settle(lambda: front.plane.bulk_sends.calls == 1)
    socket.say(b"")
    for _ in range(20):
        await asyncio.sleep(0)
    assert socket.closed == (0, "")
    gate.set()
    await asyncio.wait_for(socket.task, 5)
    assert socket.of("confirm") and socket.closed[0] == CLOSE_BAD_FRAME


@pytest.mark.parametrize(("token", "code"), [(None, 401), ("pstk_wrong", 401)])
async def test_upgrade_without_a_right_token_is_refused(
    front: Installation, sockets: Any, token: str | None, code: int
) -> None:
    socket = sockets(token=token)
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused[0] == code


async def test_unknown_subprotocols_and_foreign_origins_are_refused(front: Installation, sockets: Any) -> None:
    socket = sockets(subprotocols=("mqtt",))
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (400, "unsupported-operation")
    socket = sockets(origin="http://evil.example")
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused == (403, "access-denied")


@pytest.mark.parametrize("queue", ["absent", "secret"])
async def test_queue_of_others_is_as_absent_as_none(front: Installation, sockets: Any, queue: str) -> None:
    socket = sockets(queue)
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed[0] == 4404 and socket.of("error")[0]["code"] == "queue-does-not-exist"


async def test_key_that_may_only_send_publishes_and_gets_nothing(front: Installation, sockets: Any) -> None:
    deny(front, "ReceiveMessage")
    socket = sockets()
    socket.publish(1, "x")
    await socket.first("confirm")
    for count in (1, 2):
        socket.say({"type": "credit", "n": SOCKET_LEASES_MAX})  # what was given is void
        await settle(lambda count=count: len(socket.of("error")) == count)
    assert {one["code"] for one in socket.of("error")} == {"access-denied"} and not socket.of("messages")
    socket.publish(2, "y")
    await settle(lambda: len(socket.of("confirm")) == 2)
    assert socket.closed == (0, "")


async def test_key_that_may_only_send_and_asks_for_messages_alone_is_closed(front: Installation, sockets: Any) -> None:
    deny(front, "ReceiveMessage")
    socket = sockets()
    socket.say({"type": "credit", "n": 1})
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed[0] == CLOSE_FORBIDDEN and not socket.of("messages")


async def test_key_that_may_only_receive_is_refused_its_publish(front: Installation, sockets: Any) -> None:
    deny(front, "SendMessage")
    socket = sockets()
    socket.publish(1, "x")
    assert (await socket.first("refuse"))["code"] == "access-denied"
    assert front.storage.count() == 0


async def test_publish_that_fails_inside_is_refused_and_the_socket_goes_on(front: Installation, sockets: Any) -> None:
    send = front.storage.send

    async def broken(*arguments: Any) -> Any:
        raise RuntimeError("a bug")

    front.storage.send = broken  # type: ignore[method-assign]
    socket = sockets()
    socket.publish(1, "x")
    assert (await socket.first("refuse"))["code"] == "internal-failure"
    front.storage.send = send  # type: ignore[method-assign]
    socket.publish(2, "x")
    assert (await socket.first("confirm"))["seq"] == 2 and socket.closed == (0, "")


async def test_failed_part_of_a_publish_is_told_by_entry(front: Installation, sockets: Any) -> None:
    send, calls = front.storage.send, 0

    async def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StorageError(ErrorCode.NO_QUORUM, "no majority")
        return await send(*arguments)

    front.storage.send = failing  # type: ignore[method-assign]
    socket = sockets()
    socket.publish(1, *["x" * (MIB - 100)] * 3)
    confirm = await socket.first("confirm")
    assert [one["index"] for one in confirm["failed"]] == [1] and front.storage.count() == 2


async def test_stop_of_the_process_closes(front: Installation, sockets: Any) -> None:
    socket = sockets()
    await socket.first("ready")
    front.plane.drain()
    socket.incoming.put_nowait({"type": "websocket.disconnect", "code": CLOSE_RESTART})
    await asyncio.wait_for(socket.task, 5)
    assert socket.closed == (CLOSE_RESTART, STOPPING)


@pytest.mark.parametrize(
    ("path", "bytes_max"),
    [
        ("queues/orders/bulk", BULK_BYTES_MAX),
        ("queues/orders%2Efifo/bulk", BULK_BYTES_MAX),
        (f"accounts/{ACCOUNT}/queues/orders/bulk", BULK_BYTES_MAX),
        ("queues/orders/subscribe", SOCKET_FRAME_BYTES_MAX),
        (f"accounts/{ACCOUNT}/queues/orders/subscribe", SOCKET_FRAME_BYTES_MAX),
    ],
)
async def test_frame_over_the_limit_of_its_wire_closes(
    front: Installation, port: int, path: str, bytes_max: int
) -> None:
    front.add_queue("orders.fifo")
    headers = {"Authorization": f"Bearer {front.key.bearer_token}"}
    uri = f"ws://127.0.0.1:{port}/v1/{path}"
    for length, code in ((bytes_max, CLOSE_BAD_FRAME), (bytes_max + 1, 1009)):
        socket = await websockets.connect(uri, additional_headers=headers, proxy=None)
        assert json.loads(await socket.recv())["type"] == "ready"
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await socket.send("x" * length)  # no frame either, but one that is looked at
            await asyncio.wait_for(socket.recv(), 5)
        assert caught.value.rcvd is not None and caught.value.rcvd.code == code


@pytest.fixture
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend.ports.SOCKET_PING_S", 0.1)


async def test_socket_that_is_not_read_is_not_taken_for_dead(front: Installation, quick_pings: None, port: int) -> None:
    gate = gate_storage(front)
    headers = {"Authorization": f"Bearer {front.key.bearer_token}"}
    count = SOCKET_PUBLISHES_MAX + 2
    async with websockets.connect(
        f"ws://127.0.0.1:{port}/v1/queues/orders/bulk", additional_headers=headers, proxy=None
    ) as socket:
        for seq in range(count):
            await socket.send(json.dumps({"type": "publish", "seq": seq, "messages": [{"body": "x"}]}))
        await asyncio.sleep(0.5)
        gate.set()
        async with asyncio.timeout(5):
            kinds = [json.loads(await socket.recv())["type"] for _ in range(1 + count)]
        assert kinds == ["ready", *["confirm"] * count]


def test_ranges_join_what_follows() -> None:
    assert ranges_of([5, 1, 2, 3, 9]) == [[1, 3], [5, 5], [9, 9]]
    assert ranges_of([]) == []


def deny(front: Installation, action: str) -> None:
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"
    statement = {"Effect": "Deny", "Principal": "*", "Action": f"sqs:{action}", "Resource": arn}
    front.add_queue("orders", attributes={"Policy": json.dumps({"Version": "2012-10-17", "Statement": statement})})
