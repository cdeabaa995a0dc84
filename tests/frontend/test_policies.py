"""Queue attributes beyond SQS at the front end: which values are passed on, and what they do to requests."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.sqs.retry_policy import normal_retry_policy
from storage_nodes.protocol.messages import VisibilityMode
from tests.support.frontend_plane import QUEUE_URL, Installation


RETRY = "Penstock.RetryPolicy"
ATTRIBUTES_REFUSED = [
    ("Penstock.Paused", "yes"),
    ("Penstock.Unknown", "true"),
    ("Penstock.UncountedRelease", "1"),
    (RETRY, "fixed"),
    (RETRY, "[]"),
    (RETRY, '{"kind": "fixed"}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 1.5}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 1, "jitter": NaN}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 1, "delay": 2}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 50000000}'),
    (RETRY, "[" * 100_000),
]


@pytest.mark.parametrize(("name", "value"), ATTRIBUTES_REFUSED)
async def test_attribute_that_is_not_right_is_refused(front: Installation, name: str, value: str) -> None:
    answer = await front.sqs("SetQueueAttributes", {"QueueUrl": QUEUE_URL, "Attributes": {name: value}})
    assert answer.error in ("InvalidAttributeValue", "InvalidAttributeName")
    assert not front.control_calls


async def test_paused_is_shown_among_the_attributes(front: Installation) -> None:
    front.add_queue("orders", (1,), attributes={"Penstock.Paused": "true"})
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": ["Penstock.Paused"]}
    assert (await front.sqs("GetQueueAttributes", asked)).json["Attributes"] == {"Penstock.Paused": "true"}


def test_retry_policy_in_normal_form_names_everything() -> None:
    given = '{"delay_ms": 5, "kind": "fixed"}'
    assert normal_retry_policy(given) == '{"kind":"fixed","delay_ms":5,"max_ms":43200000,"jitter":0.0}'


# --- giving back ---


async def received(front: Installation) -> Any:
    (message,) = (await front.rest("/v1/queues/orders/messages/receive")).json["messages"]
    return message


@pytest.mark.parametrize(
    ("asked", "mode", "count"),
    [
        ({}, VisibilityMode.UNCOUNTED, 1),
        ({"delay_seconds": 0}, VisibilityMode.UNCOUNTED, 1),
        ({"count": True}, VisibilityMode.NACK, 2),
        ({"count": True, "delay_seconds": 0}, VisibilityMode.SET, 2),
    ],
)
async def test_release_says_whether_the_receive_counts(
    front: Installation, asked: dict[str, object], mode: VisibilityMode, count: int
) -> None:
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    message = await received(front)
    answer = await front.rest("/v1/queues/orders/messages/release", {"receipts": [message["receipt"]], **asked})
    assert (answer.status, answer.json, front.storage.modes) == (200, {"done": 1, "failed": []}, [mode])
    assert (await received(front))["delivery_count"] == count


async def test_release_with_a_delay_is_visible_after_it(front: Installation) -> None:
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    asked = {"receipts": [(await received(front))["receipt"]], "delay_seconds": 5}
    await front.rest("/v1/queues/orders/messages/release", asked)
    assert (await front.rest("/v1/queues/orders/messages/receive")).json["messages"] == []
    front.clock.now_s += 5
    assert (await received(front))["delivery_count"] == 1


@pytest.mark.parametrize("wrong", [{"delay_seconds": -1}, {"delay_seconds": 43_201}, {"count": 1}, {"receipts": []}])
async def test_release_that_is_not_right_is_refused(front: Installation, wrong: dict[str, object]) -> None:
    answer = await front.rest("/v1/queues/orders/messages/release", {"receipts": ["x"], **wrong})
    assert answer.status == 400


@pytest.mark.parametrize("uncounted", ["true", "false"])
async def test_visibility_of_zero_is_a_release_where_the_queue_says_so(front: Installation, uncounted: str) -> None:
    front.add_queue("orders", (1,), attributes={"Penstock.UncountedRelease": uncounted})
    for body in ("one", "two"):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": body})
    asked = {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"]}
    messages = (await front.sqs("ReceiveMessage", asked)).json["Messages"]
    entries = [
        {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": at}
        for at, message in enumerate(messages)
    ]
    changed = await front.sqs("ChangeMessageVisibilityBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    assert [entry["Id"] for entry in changed.json["Successful"]] == ["0", "1"]
    front.clock.now_s += 1
    again = (await front.sqs("ReceiveMessage", asked)).json["Messages"]
    counts = {message["Body"]: message["Attributes"]["ApproximateReceiveCount"] for message in again}
    assert counts == {"one": "1" if uncounted == "true" else "2", "two": "2"}
