"""FIFO queues and dead letters at the front end: what storage is given, and what callers are shown."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from frontend.crypto.message_ids import MessageIds
from frontend.metadata.records import DataKeyGrantRecord, DataKeyRecord
from frontend.queues.fifo import FifoRules, dedup_key
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import DeadSource, encode_message
from storage_nodes.protocol.records import (
    HEADER_DEAD_SOURCE,
    HEADER_DEDUP,
    HEADER_DELAY_MS,
    HEADER_GROUP,
    decode_body,
    encode_body,
)
from tests.frontend.compat.wire import PROTOCOLS, speak
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, Installation
from tests.support.message_browser import peek
from tests.support.push_socket import Socket
from tests.support.settling import settle

FIFO_URL = f"http://{HOST}/{ACCOUNT}/line.fifo"
MESSAGE = {"QueueUrl": FIFO_URL, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
NO_GROUPS = FifoRules(content_dedup=False, per_group=False)
BY_GROUP = FifoRules(content_dedup=False, per_group=True)


@pytest.fixture
def line(front: Installation) -> Installation:
    front.add_queue("line.fifo", (2,))
    return front


def headers_of(front: Installation, place: int = 0) -> dict[bytes, bytes]:
    return dict(decode_body(front.storage.messages(2)[place].body).headers)


async def receive(front: Installation, url: str = FIFO_URL, **more: Any) -> list[dict[str, Any]]:
    asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], **more}
    messages: list[dict[str, Any]] = (await front.sqs("ReceiveMessage", asked)).json.get("Messages", [])
    return messages


# --- what storage is given ---


async def test_fifo_message_carries_group_and_key_and_hides_its_body(line: Installation) -> None:
    await line.sqs("SendMessage", MESSAGE)
    assert headers_of(line) == {HEADER_GROUP: b"g", HEADER_DEDUP: b"d"}
    assert line.storage.plain == [False]


async def test_content_hash_is_of_the_body_alone_and_an_id_goes_before_it(line: Installation) -> None:
    line.add_queue("line.fifo", (2,), attributes={"ContentBasedDeduplication": "true"})
    for attributes in ({}, {"a": {"DataType": "String", "StringValue": "v"}}):
        params = {"QueueUrl": FIFO_URL, "MessageBody": "x", "MessageGroupId": "g", "MessageAttributes": attributes}
        assert (await line.sqs("SendMessage", params)).status == 200
    assert headers_of(line)[HEADER_DEDUP] == hashlib.sha256(b"x").hexdigest().encode()
    assert line.storage.count() == 1
    await line.sqs("SendMessage", MESSAGE)
    assert line.storage.count() == 2
    (message,) = await receive(line, MaxNumberOfMessages=1)
    assert message["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"x").hexdigest()


async def test_scope_of_groups_keeps_equal_ids_of_two_groups_apart(line: Installation) -> None:
    line.add_queue("line.fifo", (2,), attributes={"DeduplicationScope": "messageGroup"})
    for group in ("g", "h", "g"):
        await line.sqs("SendMessage", {**MESSAGE, "MessageGroupId": group})
    assert line.storage.count() == 2
    assert [message["Attributes"]["MessageDeduplicationId"] for message in await receive(line)] == ["d", "d"]


def test_dedup_keys_of_a_queue_never_meet_and_fit() -> None:
    longest = "x" * 128
    keys = [dedup_key(NO_GROUPS, b"g", longest), dedup_key(NO_GROUPS, b"g", "d")]
    keys += [dedup_key(BY_GROUP, *pair) for pair in ((b"g", "d"), (b"gd", ""), (b"g" * 128, longest), (b"g", longest))]
    assert len(set(keys)) == len(keys)
    assert all(1 <= len(key) <= 128 for key in keys)
    assert dedup_key(BY_GROUP, b"g" * 63, "d" * 64) == b"g" * 63 + b"\0" + b"d" * 64


async def test_delay_of_a_fifo_queue_is_that_of_the_queue(line: Installation) -> None:
    line.add_queue("line.fifo", (2,), attributes={"DelaySeconds": "7"})
    assert (await line.sqs("SendMessage", {**MESSAGE, "DelaySeconds": 0})).status == 200
    assert headers_of(line)[HEADER_DELAY_MS] == b"7000"


# --- what callers are shown ---


async def test_messages_of_a_group_come_in_order_and_one_batch_at_a_time(line: Installation) -> None:
    for number, group in enumerate("gghg"):
        await line.sqs("SendMessage", {**MESSAGE, "MessageGroupId": group, "MessageDeduplicationId": f"{number}"})
    first = await receive(line, MaxNumberOfMessages=1)
    rest = await receive(line)
    assert [one["Attributes"]["MessageGroupId"] for one in (*first, *rest)] == ["g", "h"]
    await line.sqs("DeleteMessage", {"QueueUrl": FIFO_URL, "ReceiptHandle": first[0]["ReceiptHandle"]})
    more = await receive(line)
    assert [one["Attributes"]["MessageDeduplicationId"] for one in more] == ["1", "3"]
    assert more[0]["Attributes"]["SequenceNumber"] < more[1]["Attributes"]["SequenceNumber"]


async def test_send_and_receive_show_the_same_id_and_number(line: Installation) -> None:
    sent = (await line.sqs("SendMessage", MESSAGE)).json
    (received,) = await receive(line)
    assert received["MessageId"] == sent["MessageId"]
    assert received["Attributes"]["SequenceNumber"] == sent["SequenceNumber"]


def test_message_ids_of_places_are_uuids_of_their_own() -> None:
    ids, others = MessageIds(b"k" * 32), MessageIds(b"l" * 32)
    made = {ids.of(1, 2), ids.of(2, 1), ids.of(1, 3), others.of(1, 2), ids.moved_from(1, 2).hex()}
    assert len(made) == 5
    assert ids.of(1, 2)[14] == "4" and ids.of(1, 2) == MessageIds(b"k" * 32).of(1, 2)


async def test_rest_sends_and_receives_over_a_fifo_queue(line: Installation) -> None:
    path = "/v1/queues/line.fifo/messages"
    message = {"body": "x", "group": "g", "deduplication_id": "d"}
    sent = (await line.rest(path, message)).json
    again = (await line.rest(path, {"messages": [message]})).json["messages"]
    assert again == [sent]
    without = await line.rest(path, {"messages": [message, {"body": "y"}]})
    assert (without.status, without.json["code"]) == (400, "invalid-parameter-value")
    (received,) = (await line.rest(f"{path}/receive", {"attempt": "try"})).json["messages"]
    assert (received["id"], received["sequence_number"]) == (sent["id"], sent["sequence_number"])
    assert (received["group"], received["deduplication_id"]) == ("g", "d")
    repeated = (await line.rest(f"{path}/receive", {"attempt": "try"})).json["messages"]
    assert [one["receipt"] for one in repeated] == [received["receipt"]]
    line.clock.now_s += 31
    late = await line.rest(f"{path}/ack", {"receipts": [received["receipt"]]})
    assert (late.status, late.json["code"]) == (400, "invalid-parameter-value")


# --- dead letters ---


def grant_keys(front: Installation, source: str, target: str, partitions: tuple[int, ...]) -> None:
    """What a redrive policy does: the target's record has the source's keys. One account has one account key."""
    owner = front.metadata.queues[(ACCOUNT, source)]
    front.add_queue(target, partitions)
    record = front.metadata.queues[(ACCOUNT, target)]
    wrapped = front.keyring.new_data_key(ACCOUNT, owner.account_key_wrapped, record.queue_uuid, 77)
    front.metadata.queues[(ACCOUNT, target)] = msgspec.structs.replace(
        record,
        account_key_wrapped=owner.account_key_wrapped,
        data_keys=[DataKeyRecord(77, wrapped)],
        key_grants=[DataKeyGrantRecord(key.version, key.wrapped, owner.queue_uuid, source) for key in owner.data_keys],
    )


DEAD_URL = f"http://{HOST}/{ACCOUNT}/dead"
FIFO_DEAD_URL = f"{DEAD_URL}.fifo"


@pytest.fixture
async def buried(front: Installation) -> Installation:
    """`orders` with a message that was received twice, and then moved to `dead`."""
    front.storage.provide(3)
    front.storage.set_config(1, max_receives=2, dead_letter_partition=3)
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "hello", "MessageGroupId": "g"})
    for _ in range(2):
        assert len(await receive(front, QUEUE_URL, VisibilityTimeout=1)) == 1
        front.clock.now_s += 2
    assert await receive(front, QUEUE_URL) == []
    return front


async def test_dead_letter_opens_with_the_key_lent_by_its_source(buried: Installation) -> None:
    grant_keys(buried, "orders", "dead", (3,))
    (letter,) = await receive(buried, DEAD_URL)
    attributes = letter["Attributes"]
    assert letter["Body"] == "hello"
    assert attributes["DeadLetterQueueSourceArn"] == f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"
    assert (attributes["ApproximateReceiveCount"], attributes["MessageGroupId"]) == ("3", "g")
    assert attributes["SentTimestamp"] == attributes["ApproximateFirstReceiveTimestamp"] == "1700000000000"


async def test_key_lent_after_the_view_was_made_is_looked_up(buried: Installation) -> None:
    buried.add_queue("dead", (3,))
    old = buried.metadata.queues[(ACCOUNT, "dead")]
    grant_keys(buried, "orders", "dead", (3,))
    buried.metadata.cached_queue = lambda *_: old  # type: ignore[method-assign]  # the cache has not heard yet
    assert [letter["Body"] for letter in await receive(buried, DEAD_URL)] == ["hello"]
    assert ("refresh", ACCOUNT, "dead") in buried.metadata.lookups


async def test_dead_letter_without_its_key_stays_and_the_others_are_served(buried: Installation) -> None:
    buried.add_queue("dead", (3,))
    await buried.sqs("SendMessage", {"QueueUrl": DEAD_URL, "MessageBody": "direct"})
    assert [letter["Body"] for letter in await receive(buried, DEAD_URL)] == ["direct"]
    assert len(buried.storage.messages(3)) == 2


@pytest.mark.parametrize("source", [b"", b"\xff", encode_message(DeadSource(1, 2, 3, 4, 5))[:-1]])
async def test_dead_letter_with_a_broken_source_is_left_alone(front: Installation, source: bytes) -> None:
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "hello"})
    (stored,) = front.storage.messages(1)
    record = decode_body(stored.body)
    body = encode_body(record.value, record.key, [(HEADER_DEAD_SOURCE, source)])
    front.storage.replace_body(1, stored.offset, body)
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "well"})
    assert [message["Body"] for message in await receive(front, QUEUE_URL)] == ["well"]


async def test_fifo_dead_letter_keeps_its_message_id(line: Installation) -> None:
    line.storage.provide(4, fifo=True)
    line.storage.set_config(2, max_receives=1, dead_letter_partition=4)
    sent = (await line.sqs("SendMessage", MESSAGE)).json
    await receive(line, VisibilityTimeout=1)
    line.clock.now_s += 2
    assert await receive(line) == []
    grant_keys(line, "line.fifo", "dead.fifo", (4,))
    (letter,) = await receive(line, f"http://{HOST}/{ACCOUNT}/dead.fifo")
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["Attributes"]["MessageGroupId"] == "g"


async def test_fifo_dead_letter_shows_its_message_id_as_its_deduplication_id(line: Installation) -> None:
    """SQS-API.md section 4. What its sender gave is shown nowhere: it may be another message's in this queue."""
    line.storage.provide(4, fifo=True)
    line.storage.set_config(2, max_receives=1, dead_letter_partition=4)
    sent = (await line.sqs("SendMessage", MESSAGE)).json
    (alive,) = await receive(line, VisibilityTimeout=1)
    assert alive["Attributes"]["MessageDeduplicationId"] == "d"
    line.clock.now_s += 2
    assert await receive(line) == []
    grant_keys(line, "line.fifo", "dead.fifo", (4,))
    await line.sqs("SendMessage", {**MESSAGE, "QueueUrl": FIFO_DEAD_URL, "MessageGroupId": "direct"})
    asked = {"QueueUrl": FIFO_DEAD_URL, "VisibilityTimeout": 1, "MessageSystemAttributeNames": ["All"]}
    asked["MaxNumberOfMessages"] = 10
    expected = {(sent["MessageId"], sent["MessageId"])}
    shown = [(one["id"], one["deduplication_id"]) for one in await peek(line, "dead.fifo", limit=2)]
    direct = {one for one in shown if one[1] == "d"}
    assert len(direct) == 1 and set(shown) == expected | direct
    for protocol in PROTOCOLS:
        letters = (await speak(line, protocol, "ReceiveMessage", asked)).result["Messages"]
        ids = {(letter["MessageId"], letter["Attributes"]["MessageDeduplicationId"]) for letter in letters}
        assert ids == expected | direct, protocol
        line.clock.now_s += 2
    reply = await line.rest("/v1/queues/dead.fifo/messages/receive", {"max_messages": 10, "visibility_seconds": 1})
    assert {(one["id"], one["deduplication_id"]) for one in reply.json["messages"]} == expected | direct
    line.clock.now_s += 2
    for wire in ("subscribe", "bulk"):
        assert set(await pushed_ids(line, "dead.fifo", wire)) == expected | direct, wire
        line.clock.now_s += 1_000


async def pushed_ids(front: Installation, queue: str, wire: str) -> list[tuple[str, str]]:
    """Ids and deduplication ids of two messages that a websocket is given."""
    socket = Socket(front, queue, {"authorization": f"Bearer {front.key.bearer_token}"}, wire)

    def given() -> list[Any]:
        return [*socket.of("message"), *(row for frame in socket.of("messages") for row in frame["messages"])]

    socket.say({"type": "credit", "n": 10})
    await settle(lambda: len(given()) == 2)
    await socket.leave()
    return [(row["id"], row["deduplication_id"]) for row in given()]


async def test_dead_letter_of_a_standard_queue_keeps_its_deduplication_id(front: Installation) -> None:
    """SQS has none there: what was sent is shown."""
    front.add_queue("orders", (1,), attributes={"Penstock.DeduplicationWindow": "60"})
    front.storage.provide(3)
    front.storage.set_config(1, max_receives=1, dead_letter_partition=3)
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "hello", "MessageDeduplicationId": "d"})
    assert len(await receive(front, QUEUE_URL, VisibilityTimeout=1)) == 1
    front.clock.now_s += 2
    assert await receive(front, QUEUE_URL) == []
    grant_keys(front, "orders", "dead", (3,))
    (letter,) = await receive(front, DEAD_URL)
    assert letter["Attributes"]["MessageDeduplicationId"] == "d"


async def test_more_ids_than_storage_remembers_throttle_the_sender(line: Installation) -> None:
    line.storage.fail_with, line.storage.fail_text = ErrorCode.OVER_LIMIT, "too many deduplication ids are remembered"
    for url in (FIFO_URL, QUEUE_URL):
        message = MESSAGE if url == FIFO_URL else {"MessageBody": "x"}
        reply = await line.sqs("SendMessage", {**message, "QueueUrl": url})
        assert reply.error == "RequestThrottled" and int(reply.headers["retry-after"]) >= 1
        assert "too many deduplication ids are remembered" in reply.json["message"]


async def test_too_many_in_flight_on_a_fifo_queue_is_an_empty_answer(line: Installation) -> None:
    line.storage.fail_with = ErrorCode.OVER_LIMIT
    assert await receive(line) == []
    assert (await line.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).error == "OverLimit"


@pytest.mark.parametrize("wait_s", [0, 1])
async def test_receive_that_cannot_be_remembered_is_not_told_that_there_is_nothing(
    line: Installation, wait_s: int
) -> None:
    line.storage.fail_with, line.storage.fail_text = ErrorCode.OVER_LIMIT, "too many receives"
    asked = {"QueueUrl": FIFO_URL, "ReceiveRequestAttemptId": "try", "WaitTimeSeconds": wait_s}
    reply = await line.sqs("ReceiveMessage", asked)
    assert reply.error == "OverLimit" and "too many receives" in reply.json["message"]


async def test_delete_of_a_fifo_receipt_tells_that_it_has_expired_and_a_change_that_it_is_not_in_flight(
    line: Installation,
) -> None:
    await line.sqs("SendMessage", MESSAGE)
    (message,) = await receive(line)
    asked = {"QueueUrl": FIFO_URL, "ReceiptHandle": message["ReceiptHandle"]}
    line.clock.now_s += 31
    late = await line.sqs("DeleteMessage", asked)
    assert late.error == "InvalidParameterValueException" and "has expired" in late.json["message"]
    changed = await line.sqs("ChangeMessageVisibility", {**asked, "VisibilityTimeout": 9})
    assert changed.error == "MessageNotInflight"
    assert len(await receive(line)) == 1
