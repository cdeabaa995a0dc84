"""REST in bulk: many messages a call, in JSON and msgpack."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from frontend.limits import BULK_BYTES_MAX, BULK_MESSAGES_MAX, BULK_SENDS_MAX, MIB, STORAGE_SEND_BYTES_MAX
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.frontend_plane import ACCOUNT, HOST, Installation, Reply

PATH = "/v1/queues/orders/messages"
MSGPACK = "application/msgpack"


async def post(front: Installation, path: str, body: bytes, accept: str = "", content_type: str = MSGPACK) -> Reply:
    headers = {"host": HOST, "content-type": content_type, "authorization": f"Bearer {front.key.bearer_token}"}
    if accept:
        headers["accept"] = accept
    return await front.call("POST", path, headers, body)


async def pack(front: Installation, path: str, params: Any, accept: str = "") -> Any:
    reply = await post(front, path, msgspec.msgpack.encode(params), accept)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == MSGPACK
    return msgspec.msgpack.decode(reply.body)


async def drain(front: Installation, queue: str) -> list[str]:
    """Bodies of all messages. An answer of storage holds no more bytes than ACQUIRE_BYTES_MAX: it takes several."""
    path, bodies = f"/v1/queues/{queue}/messages", []
    while received := (await pack(front, f"{path}/receive", {"max_messages": 100}))["messages"]:
        bodies += [one["body"] for one in received]
        receipts = [one["receipt"] for one in received]
        assert (await pack(front, f"{path}/ack", {"receipts": receipts}))["done"] == len(receipts)
    return bodies


async def test_as_many_messages_as_may_be_go_through_in_one_call_each_way(front: Installation) -> None:
    bodies = [f"m{n}" for n in range(BULK_MESSAGES_MAX)]
    sent = await front.rest(PATH, {"messages": [{"body": body} for body in bodies]})
    assert len({one["id"] for one in sent.json["messages"]}) == BULK_MESSAGES_MAX
    assert front.storage.calls == [("send", 1)], "one storage call"
    received = (await front.rest(f"{PATH}/receive", {"max_messages": BULK_MESSAGES_MAX})).json["messages"]
    assert [one["body"] for one in received] == bodies
    receipts = [one["receipt"] for one in received]
    assert (await front.rest(f"{PATH}/ack", {"receipts": receipts})).json == {"done": BULK_MESSAGES_MAX, "failed": []}
    assert front.storage.count() == 0


async def test_msgpack_says_what_json_says(front: Installation) -> None:
    message = {"body": "größe", "attributes": {"a": {"value": "x"}}, "tag": "red"}
    sent = await pack(front, PATH, {"messages": [message, {"body": ""}]})
    assert sent["messages"][1]["index"] == 1 and sent["messages"][1]["error"]["code"] == "missing-required-parameter"
    (got,) = (await pack(front, f"{PATH}/receive", {"max_messages": 10}))["messages"]
    assert (got["body"], got["tag"], got["id"]) == ("größe", "red", sent["messages"][0]["id"])
    again = await pack(front, f"{PATH}/extend", {"receipts": [got["receipt"], "x"], "visibility_seconds": 0})
    assert again["done"] == 1 and (again["failed"][0]["index"], again["failed"][0]["receipt"]) == (1, "x")
    (same,) = (await front.rest(f"{PATH}/receive", {})).json["messages"]
    assert {name: same[name] for name in ("id", "body", "tag", "attributes")} == {
        name: got[name] for name in ("id", "body", "tag", "attributes")
    }
    assert await pack(front, f"{PATH}/ack", {"receipts": [same["receipt"]]}) == {"done": 1, "failed": []}


@pytest.mark.parametrize(
    ("content_type", "accept", "answered"),
    [
        (MSGPACK, "", MSGPACK),
        (MSGPACK, "*/*", MSGPACK),
        (MSGPACK, "application/json", "application/json"),
        ("application/json", MSGPACK, MSGPACK),
        ("application/json; charset=utf-8", "application/vnd.msgpack", MSGPACK),
        ("application/json", "application/msgpack;q=0.5, application/json", "application/json"),
        ("application/json", "application/msgpack, application/json;q=0.9", MSGPACK),
        ("application/json", "application/msgpack;q=0, */*", "application/json"),
        ("application/json", "text/html", "application/json"),
        ("application/json", "text/html, */*", "application/json"),
        (MSGPACK, "application/json, application/msgpack", MSGPACK),
    ],
)
async def test_answer_has_the_form_that_is_accepted(
    front: Installation, content_type: str, accept: str, answered: str
) -> None:
    encode = msgspec.msgpack.encode if content_type == MSGPACK else msgspec.json.encode
    reply = await post(front, PATH, encode({"body": "x"}), accept, content_type)
    assert (reply.status, reply.headers["content-type"]) == (200, answered)
    decode = msgspec.msgpack.decode if answered == MSGPACK else msgspec.json.decode
    assert "md5" in decode(reply.body)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"\x81\xa8messages\xdd\xff\xff\xff\xff", "claims more"),
        (b"\x82\xa4body\xa1x\xa4body\xa1y", "names 'body' twice"),
        (msgspec.msgpack.encode({"body": "x"}) + b"\xc0", "bytes follow"),
        (b"\x81\xa4body" + b"\x91" * 100, "deeper"),
        (msgspec.msgpack.encode({"body": "x", "delay_seconds": float("nan")}), "wrong type"),
        (msgspec.msgpack.encode({"body": "x", "colour": 1}), "not known"),
        (msgspec.msgpack.encode({"body": b"x"}), "wrong type"),
        (b"\x81\xa4body\xa1\xff", "not valid msgpack"),
        (b"\x81\xa4body", "is cut"),
    ],
)
async def test_bad_msgpack_is_a_problem_in_json(front: Installation, body: bytes, detail: str) -> None:
    reply = await post(front, PATH, body)
    assert reply.status == 400 and reply.headers["content-type"] == "application/problem+json"
    assert detail in reply.json["detail"], reply.json
    assert front.storage.count() == 0


async def test_other_routes_take_no_msgpack(front: Installation) -> None:
    assert (await post(front, "/v1/message-counts", msgspec.msgpack.encode({}))).status == 415
    assert (await post(front, PATH, b"x", content_type="text/plain")).status == 415


async def test_too_many_or_too_large_is_refused_whole(front: Installation) -> None:
    many = [{"body": "x"}] * (BULK_MESSAGES_MAX + 1)
    assert (await front.rest(PATH, {"messages": many})).json["code"] == "too-many-entries-in-batch-request"
    assert (await front.rest(f"{PATH}/receive", {"max_messages": BULK_MESSAGES_MAX + 1})).status == 400
    assert (await front.rest(f"{PATH}/ack", {"receipts": ["x"] * (BULK_MESSAGES_MAX + 1)})).status == 400
    too_large = await post(front, PATH, b"x" * (BULK_BYTES_MAX + 1))
    assert too_large.status == 413 and front.storage.count() == 0


async def test_large_batch_goes_in_several_storage_calls_in_order(front: Installation) -> None:
    front.add_queue("orders.fifo", (2,))
    sizes: list[int] = []
    front.storage.send = counting(front.storage.send, sizes)  # type: ignore[method-assign]
    bodies = [f"{n}" + "x" * (MIB // 4) for n in range(15)]
    for queue, extra in (("orders", {}), ("orders.fifo", {"group": "g"})):
        rows = [{"body": body, **extra, **({"deduplication_id": body[:2]} if extra else {})} for body in bodies]
        sizes.clear()
        reply = await pack(front, f"/v1/queues/{queue}/messages", {"messages": rows})
        assert all("id" in one for one in reply["messages"])
        assert len(sizes) == 4 and max(sizes) <= STORAGE_SEND_BYTES_MAX
        assert await drain(front, queue) == bodies


@pytest.mark.parametrize("queue", ["orders", "orders.fifo"])
async def test_part_that_is_not_stored_is_told_by_entry(front: Installation, queue: str) -> None:
    """And in a FIFO queue nothing behind it is stored."""
    front.add_queue("orders.fifo", (2,))
    send, calls = front.storage.send, 0

    async def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StorageError(ErrorCode.NO_QUORUM, "no majority")
        return await send(*arguments)

    front.storage.send = failing  # type: ignore[method-assign]
    more = {"group": "g"} if queue.endswith(".fifo") else {}
    rows = [{"body": f"{n}" + "x" * (MIB // 2), **more} for n in range(6)]
    for n, row in enumerate(rows):
        row |= {"deduplication_id": f"{n}"} if more else {}
    reply = await pack(front, f"/v1/queues/{queue}/messages", {"messages": rows})
    failed = [one["index"] for one in reply["messages"] if "error" in one]
    assert failed == ([2, 3, 4, 5] if more else [2, 3])
    assert {one["error"]["code"] for one in reply["messages"] if "error" in one} == {"service-unavailable"}
    assert [int(body[0]) for body in await drain(front, queue)] == [n for n in range(6) if n not in failed]


async def test_bulk_sends_of_one_account_leave_room_for_others(front: Installation) -> None:
    places = [front.plane.bulk_sends.place(ACCOUNT) for _ in range(BULK_SENDS_MAX // 2)]
    for place in places:
        place.__enter__()
    many = {"messages": [{"body": "x"}] * 11}
    assert (await front.rest(PATH, many)).status == 429
    assert (await front.rest(PATH, {"messages": [{"body": "x"}] * 10})).status == 200, "small ones need no place"
    other = await front.rest("/v1/queues/secret/messages", many, token=front.other_key.bearer_token)
    assert other.status == 200
    for place in places:
        place.__exit__(None, None, None)


async def test_bulk_pays_for_each_message_before_it_is_looked_at() -> None:
    limits = AccountLimits(account=Rates(1_000, 100, None))
    front = Installation(quotas=QuotaTree(lambda _: limits))
    body = json.dumps({"messages": [{"body": "x"}] * BULK_MESSAGES_MAX}).encode()
    assert (await front.rest(PATH, body)).status == 200
    refused = await front.rest(PATH, body)
    assert (refused.status, refused.json["quota"]) == (429, "messages_per_s")
    assert front.storage.count() == BULK_MESSAGES_MAX


def counting(send: Any, sizes: list[int]) -> Any:
    async def counted(partition: int, bodies: list[bytes], *more: Any) -> Any:
        sizes.append(sum(map(len, bodies)))
        return await send(partition, bodies, *more)

    return counted


@pytest.mark.parametrize(
    ("charset", "status"),
    [
        ("; charset=utf-8", 200), (';charset="UTF-8"', 200), ("; charset=us-ascii; x=y", 200), ("; x=y", 200),
        ("; charset=utf-16", 400), (";charset=latin-1", 400), ("; x=y; Charset=ISO-8859-1", 400), ("; charset=", 400),
    ],
)  # fmt: skip
async def test_body_in_another_charset_is_refused(front: Installation, charset: str, status: int) -> None:
    """S23: bytes that mean something else there are not read as if they did not."""
    body = json.dumps({"body": "x"}).encode()
    reply = await post(front, PATH, body, content_type=f"application/json{charset}")
    assert reply.status == status
    assert status == 200 or b"charset" in reply.body
