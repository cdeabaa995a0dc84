"""`Penstock.DeduplicationWindow` on a standard queue: ids are taken, duplicates dropped, and both sides see one id."""

from __future__ import annotations

import pytest

from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, decode_body
from tests.support.frontend_plane import QUEUE_URL, Installation

WINDOW = {"Penstock.DeduplicationWindow": "60"}
MESSAGE = {"QueueUrl": QUEUE_URL, "MessageBody": "x", "MessageDeduplicationId": "d"}


@pytest.fixture
def orders(front: Installation) -> Installation:
    front.add_queue("orders", (1,), attributes=WINDOW)
    return front


async def test_id_on_a_standard_queue_without_a_window_is_refused(front: Installation) -> None:
    answer = await front.sqs("SendMessage", MESSAGE)
    assert (answer.status, answer.json["__type"].partition("#")[2]) == (400, "InvalidParameterValueException")


async def test_id_travels_to_storage_and_its_receiver(orders: Installation) -> None:
    sent = (await orders.sqs("SendMessage", {**MESSAGE, "MessageGroupId": "g"})).json
    (stored,) = orders.storage.messages(1)
    assert dict(decode_body(stored.body).headers) == {HEADER_GROUP: b"g", HEADER_DEDUP: b"d"}
    asked = {"QueueUrl": QUEUE_URL, "MessageSystemAttributeNames": ["All"]}
    (received,) = (await orders.sqs("ReceiveMessage", asked)).json["Messages"]
    assert received["MessageId"] == sent["MessageId"]
    assert received["Attributes"]["MessageDeduplicationId"] == "d"
    assert "SequenceNumber" not in sent and "SequenceNumber" not in received["Attributes"]


async def test_duplicate_is_answered_with_the_id_of_its_original(orders: Installation) -> None:
    first = (await orders.sqs("SendMessage", MESSAGE)).json
    entries = [
        {"Id": "again", "MessageBody": "x", "MessageDeduplicationId": "d"},
        {"Id": "free", "MessageBody": "x"},
        {"Id": "other", "MessageBody": "x", "MessageDeduplicationId": "e"},
    ]
    batch = (await orders.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})).json["Successful"]
    ids = {entry["Id"]: entry["MessageId"] for entry in batch}
    assert ids["again"] == first["MessageId"]
    assert len({*ids.values()}) == 3


@pytest.mark.parametrize("value", ["0", "3601", "-1", "x"])
async def test_window_out_of_range_is_refused(front: Installation, value: str) -> None:
    asked = {"QueueUrl": QUEUE_URL, "Attributes": {"Penstock.DeduplicationWindow": value}}
    answer = await front.sqs("SetQueueAttributes", asked)
    assert answer.json["__type"].partition("#")[2] == "InvalidAttributeValue"
