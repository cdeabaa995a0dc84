"""REST batches: each entry has an outcome of its own, and what stands beside the entries is not passed over."""

from __future__ import annotations

import pytest

from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.frontend.test_rest import problem
from tests.support.frontend_plane import Installation

MESSAGES = "/v1/queues/orders/messages"
SCHEDULED = "/v1/queues/orders/scheduled"


def fail(front: Installation, *partitions: int) -> None:
    def before(call: str, partition: int) -> None:
        if partition in partitions:
            raise StorageError(ErrorCode.NO_QUORUM, "no majority")

    front.storage.before = before


async def received(front: Installation, count: int) -> list[str]:
    receipts: list[str] = []
    while len(receipts) < count:
        answer = await front.rest(MESSAGES + "/receive", {"max_messages": 10})
        receipts += [message["receipt"] for message in answer.json["messages"]]
    return receipts


@pytest.mark.parametrize("call", ["ack", "extend", "release"])
async def test_partition_that_is_away_fails_its_receipts_alone(call: str) -> None:
    front = Installation((1, 2))
    for number in range(4):
        await front.rest(MESSAGES, {"body": str(number)})
    ask = {"receipts": await received(front, 4), **({"visibility_seconds": 60} if call == "extend" else {})}
    fail(front, 2)
    reply = await front.rest(f"{MESSAGES}/{call}", ask)
    assert (reply.status, reply.json["done"]) == (200, 2)
    assert {one["error"]["code"] for one in reply.json["failed"]} == {"service-unavailable"}
    assert {ask["receipts"][one["index"]] for one in reply.json["failed"]} == {
        one["receipt"] for one in reply.json["failed"]
    }
    fail(front, 1, 2)
    reply = await front.rest(f"{MESSAGES}/{call}", ask)
    assert (reply.status, problem(reply)) == (503, "service-unavailable"), "all of it failed so"


@pytest.mark.parametrize("call", ["cancel", "reschedule"])
async def test_partition_that_is_away_fails_its_scheduled_messages_alone(call: str) -> None:
    front = Installation((1, 2))
    sends = [await front.rest(MESSAGES, {"body": str(number), "delay_ms": 3_600_000}) for number in range(4)]
    ask = {"ids": [sent.json["schedule_id"] for sent in sends], **({"delay_ms": 9} if call == "reschedule" else {})}
    fail(front, 2)
    reply = await front.rest(f"{SCHEDULED}/{call}", ask)
    assert (reply.status, reply.json["done"]) == (200, 2)
    assert [one["error"]["code"] for one in reply.json["failed"]] == ["service-unavailable"] * 2
    fail(front, 1, 2)
    reply = await front.rest(f"{SCHEDULED}/{call}", ask)
    assert (reply.status, problem(reply)) == (503, "service-unavailable"), "all of it failed so"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("delay_seconds", 600),
        ("tag", "red"),
        ("group", "g"),
        ("deduplication_id", "d"),
        ("attributes", {}),
        ("priority", 0),
        ("deliver_at_ms", 1),
        ("delay_ms", 0),
    ],
)
async def test_member_of_a_message_does_not_stand_beside_messages(
    front: Installation, member: str, value: object
) -> None:
    reply = await front.rest(MESSAGES, {"messages": [{"body": "a"}, {"body": "b"}], member: value})
    assert reply.status == 400 and member in reply.json["detail"] and front.storage.count() == 0
    assert (await front.rest(MESSAGES, {"messages": [{"body": "a"}], "acks": "leader"})).status == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 99},
        {"tag": "red", "attributes": {"Penstock.Tag": {"value": "red"}}},
        {"priority": 1, "attributes": {"Penstock.Priority": {"type": "Number", "value": "1"}}},
    ],
)
async def test_entry_whose_members_contradict_each_other_fails_alone(
    front: Installation, wrong: dict[str, object]
) -> None:
    reply = await front.rest(MESSAGES, {"messages": [{"body": "a"}, {"body": "b", **wrong}, {"body": "c"}]})
    assert reply.status == 200 and front.storage.count() == 2
    a, b, c = reply.json["messages"]
    assert "id" in a and "id" in c and (b["index"], b["error"]["code"]) == (1, "invalid-parameter-value")
