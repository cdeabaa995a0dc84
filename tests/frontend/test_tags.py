"""Tags of messages, and receives that ask for some: over SQS, REST and push."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import QueueStats
from storage_nodes.protocol.records import HEADER_TAG, decode_body
from tests.support.frontend_plane import QUEUE_URL, Installation
from tests.support.settling import settle

FIFO_URL = QUEUE_URL.replace("orders", "orders.fifo")


def attribute(tag: str) -> dict[str, Any]:
    return {"Penstock.Tag": {"DataType": "String", "StringValue": tag}}


async def send(front: Installation, body: str, tag: str | None = None) -> None:
    attributes = {} if tag is None else {"MessageAttributes": attribute(tag)}
    answer = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": body, **attributes})
    assert answer.status == 200


async def receive(front: Installation, *names: str) -> list[dict[str, Any]]:
    asked = {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "MessageAttributeNames": list(names)}
    answer = await front.sqs("ReceiveMessage", asked)
    assert answer.status == 200, answer.json
    return answer.json.get("Messages", [])


async def test_tag_is_stored_in_the_clear_and_comes_back_as_an_attribute(front: Installation) -> None:
    await send(front, "a", "red")
    (stored,) = front.storage.messages(1)
    assert dict(decode_body(stored.body).headers) == {HEADER_TAG: b"red"}
    (message,) = await receive(front, "All")
    assert message["MessageAttributes"] == attribute("red")


async def test_sqs_filter_takes_matching_messages_and_leaves_the_others(front: Installation) -> None:
    for body, tag in (("a", "red"), ("b", "blue"), ("c", None), ("d", "green")):
        await send(front, body, tag)
    found = await receive(front, "Penstock.Tag=red|green")
    assert [(message["Body"], message["MessageAttributes"]) for message in found] == [
        ("a", attribute("red")),
        ("d", attribute("green")),
    ]
    rest = await front.sqs(
        "ReceiveMessage",
        {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "AttributeNames": ["ApproximateReceiveCount"]},
    )
    counts = {one["Body"]: one["Attributes"]["ApproximateReceiveCount"] for one in rest.json["Messages"]}
    assert counts == {"b": "1", "c": "1"}


@pytest.mark.parametrize("asked", ["", "a||b", "a b", "x" * 129])
async def test_sqs_filter_with_a_bad_tag_is_refused(front: Installation, asked: str) -> None:
    names = [f"Penstock.Tag={asked}"]
    answer = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MessageAttributeNames": names})
    assert answer.json["__type"].partition("#")[2] == "InvalidParameterValueException"


async def test_filter_of_too_many_tags_is_refused(front: Installation) -> None:
    name = "Penstock.Tag=" + "|".join(map(str, range(17)))
    answer = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MessageAttributeNames": [name]})
    assert answer.status == 400 and "at most 16 tags" in answer.json["message"]


@pytest.mark.parametrize(
    "value",
    [
        {"DataType": "Number", "StringValue": "1"},
        {"DataType": "String", "StringValue": "a b"},
        {"DataType": "String", "StringValue": "a|b"},
        {"DataType": "String", "StringValue": "ä"},
        {"DataType": "String", "StringValue": "x" * 129},
    ],
)
async def test_message_with_a_bad_tag_is_refused(front: Installation, value: dict[str, str]) -> None:
    asked = {"QueueUrl": QUEUE_URL, "MessageBody": "x", "MessageAttributes": {"Penstock.Tag": value}}
    answer = await front.sqs("SendMessage", asked)
    assert answer.json["__type"].partition("#")[2] == "InvalidParameterValueException"


async def test_filter_on_a_fifo_queue_is_refused_clearly(front: Installation) -> None:
    front.add_queue("orders.fifo", (1,))
    answer = await front.sqs("ReceiveMessage", {"QueueUrl": FIFO_URL, "MessageAttributeNames": ["Penstock.Tag=red"]})
    assert answer.status == 400 and "FIFO" in answer.json["message"]


async def test_filter_that_finds_its_messages_out_of_sight_says_so(front: Installation) -> None:
    front.storage.fail_with = ErrorCode.OVER_LIMIT
    for wait_s in (0, 1):
        asked = {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": wait_s, "MessageAttributeNames": ["Penstock.Tag=red"]}
        answer = await front.sqs("ReceiveMessage", asked)
        assert answer.json["__type"].partition("#")[2] == "OverLimit"
        assert "filter" in answer.json["message"]


async def test_rest_sends_and_filters_by_tag(front: Installation) -> None:
    messages = [{"body": "a", "tag": "red"}, {"body": "b"}, {"body": "c", "tag": "blue"}]
    await front.rest("/v1/queues/orders/messages", {"messages": messages})
    answer = await front.rest("/v1/queues/orders/messages/receive", {"max_messages": 10, "tags": ["red", "blue"]})
    assert [(one["body"], one["tag"]) for one in answer.json["messages"]] == [("a", "red"), ("c", "blue")]
    rest = await front.rest("/v1/queues/orders/messages/receive", {"max_messages": 10})
    assert [one["body"] for one in rest.json["messages"]] == ["b"] and "tag" not in rest.json["messages"][0]


async def test_rest_tag_beside_the_attribute_is_refused(front: Installation) -> None:
    message = {"body": "a", "tag": "red", "attributes": {"Penstock.Tag": {"value": "red"}}}
    assert (await front.rest("/v1/queues/orders/messages", message)).status == 400


async def test_long_poll_with_a_filter_wakes_for_its_tag(front: Installation) -> None:
    poll = asyncio.create_task(
        front.sqs(
            "ReceiveMessage",
            {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 5, "MessageAttributeNames": ["Penstock.Tag=red"]},
        )
    )
    await settle(lambda: front.storage.polls == 1)
    await send(front, "no", "blue")
    await asyncio.sleep(0)
    assert not poll.done()
    await send(front, "yes", "red")
    answer = await asyncio.wait_for(poll, 5)
    assert [message["Body"] for message in answer.json["Messages"]] == ["yes"]


async def test_counts_of_noisy_groups_are_told_to_who_asks_by_name(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stats(partition: int) -> QueueStats:
        return QueueStats(10, 40, 0, 1_700_000_000_000, groups=7, noisy_groups=2, noisy_waiting=9)

    front.add_queue("orders", (1,))
    monkeypatch.setattr(front.storage, "stats", stats)
    expected = {
        "Penstock.MessageGroups": "7",
        "Penstock.NoisyGroups": "2",
        "Penstock.NoisyGroupMessages": "9",
        "Penstock.OldestMessageTimestamp": "1700000000000",
    }
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": list(expected)}
    assert (await front.sqs("GetQueueAttributes", asked)).json["Attributes"] == expected
    everything = {"QueueUrl": QUEUE_URL, "AttributeNames": ["All"]}
    assert not expected.keys() & (await front.sqs("GetQueueAttributes", everything)).json["Attributes"].keys()
    change = {"QueueUrl": QUEUE_URL, "Attributes": {"Penstock.NoisyGroups": "1"}}
    assert (await front.sqs("SetQueueAttributes", change)).status == 400
