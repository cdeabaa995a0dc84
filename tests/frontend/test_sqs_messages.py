"""SQS message actions through the ASGI application, signed: what SQS-API.md sections 2 to 4 say of them."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

import httpx2
import pytest

from storage_nodes.protocol.errors import ErrorCode
from tests.frontend.compat.wire import PROTOCOLS, speak
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation, Reply
from tests.support.settling import settle


def params(**more: Any) -> dict[str, Any]:
    return {"QueueUrl": QUEUE_URL, **more}


async def send(front: Installation, body: str = "hello", **more: Any) -> Reply:
    return await front.sqs("SendMessage", params(MessageBody=body, **more))


async def receive(front: Installation, **more: Any) -> list[dict[str, Any]]:
    reply = await front.sqs("ReceiveMessage", params(**more))
    assert reply.status == 200, reply
    messages: list[dict[str, Any]] = reply.json.get("Messages", [])
    return messages


async def test_message_sent_is_received_and_deleted(front: Installation) -> None:
    reply = await send(front, "hello ü")
    assert reply.status == 200 and reply.headers["content-type"] == "application/x-amz-json-1.0"
    assert re.fullmatch(r"[0-9a-f-]{36}", reply.headers["x-amzn-requestid"])
    assert reply.json["MD5OfMessageBody"] == hashlib.md5("hello ü".encode()).hexdigest()
    (message,) = await receive(front)
    assert set(message) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    assert message["Body"] == "hello ü" and message["MessageId"] == reply.json["MessageId"]
    assert await receive(front) == []
    deleted = await front.sqs("DeleteMessage", params(ReceiptHandle=message["ReceiptHandle"]))
    assert (deleted.status, deleted.body) == (200, b"{}")
    assert front.storage.count() == 0


async def test_members_that_sqs_does_not_have_are_ignored(front: Installation) -> None:
    """A trace header comes in a header or a system attribute, where it is checked."""
    await send(front, TraceHeader="not\0checked", PenstockAcks="sometimes")
    (message,) = await receive(front, MessageSystemAttributeNames=["AWSTraceHeader"])
    assert "Attributes" not in message


async def test_empty_receive_has_no_messages_member(front: Installation) -> None:
    assert (await front.sqs("ReceiveMessage", params())).json == {}


async def test_storage_sees_no_plaintext(front: Installation) -> None:
    await send(front, "a very secret text", MessageAttributes={"a": {"DataType": "String", "StringValue": "hidden"}})
    (stored,) = front.storage.messages(1)
    assert b"secret" not in stored.body and b"hidden" not in stored.body


async def test_attributes_are_returned_as_asked_for(front: Installation) -> None:
    attributes = {
        "kind": {"DataType": "String", "StringValue": "x"},
        "trace.id": {"DataType": "Number.int", "StringValue": "-12.5e3"},
        "trace.raw": {"DataType": "Binary", "BinaryValue": "AP8="},
    }
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    reply = await send(front, MessageAttributes=attributes, MessageSystemAttributes=system, MessageGroupId="g-1")
    assert reply.json["MD5OfMessageSystemAttributes"] and reply.json["MD5OfMessageAttributes"]
    front.clock.now_s += 2

    async def again(**more: Any) -> dict[str, Any]:
        (message,) = await receive(front, VisibilityTimeout=0, **more)
        return message

    everything = await again(MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])
    assert everything["MessageAttributes"] == attributes
    assert everything["MD5OfMessageAttributes"] == reply.json["MD5OfMessageAttributes"]
    assert everything["Attributes"] == {
        "SenderId": front.key.access_key_id,
        "SentTimestamp": "1700000000000",
        "ApproximateReceiveCount": "1",
        "ApproximateFirstReceiveTimestamp": "1700000002000",
        "MessageGroupId": "g-1",
        "AWSTraceHeader": "Root=1",
    }
    assert set((await again(MessageAttributeNames=["trace.*"]))["MessageAttributes"]) == {"trace.id", "trace.raw"}
    assert set((await again(MessageAttributeNames=["kind"]))["MessageAttributes"]) == {"kind"}
    assert set((await again(MessageAttributeNames=[".*"]))["MessageAttributes"]) == set(attributes)
    assert "MessageAttributes" not in await again(MessageAttributeNames=["other", "oth.*"])
    assert (await again(AttributeNames=["ApproximateReceiveCount"]))["Attributes"] == {"ApproximateReceiveCount": "6"}
    refused = await front.sqs("ReceiveMessage", params(MessageSystemAttributeNames=["Nonsense"]))
    assert refused.error == "InvalidAttributeName"


async def test_delay_and_group_travel_as_clear_headers(front: Installation) -> None:
    await send(front)
    await send(front, DelaySeconds=5)
    await send(front, MessageGroupId="g")
    await send(front, DelaySeconds=0)
    assert front.storage.plain == [True, False, False, True]
    assert len(await receive(front, MaxNumberOfMessages=10)) == 3
    front.clock.now_s += 5
    assert len(await receive(front, MaxNumberOfMessages=10)) == 1


async def test_delay_of_the_queue_holds_unless_the_message_says_otherwise(front: Installation) -> None:
    front.add_queue("orders", attributes={"DelaySeconds": "7"})
    await send(front)
    await send(front, DelaySeconds=0)
    assert len(await receive(front, MaxNumberOfMessages=10)) == 1
    front.clock.now_s += 7
    assert len(await receive(front, MaxNumberOfMessages=10)) == 1


async def test_visibility_of_queue_and_request(front: Installation) -> None:
    front.add_queue("orders", attributes={"VisibilityTimeout": "10"})
    await send(front)
    await receive(front)
    front.clock.now_s += 9
    assert await receive(front) == []
    front.clock.now_s += 1
    assert len(await receive(front, VisibilityTimeout=3)) == 1
    front.clock.now_s += 3
    assert len(await receive(front)) == 1


# --- receipts ---


async def test_change_visibility_returns_message_and_hides_it_again(front: Installation) -> None:
    await send(front)
    (message,) = await receive(front)
    change = params(ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert (await front.sqs("ChangeMessageVisibility", change)).json == {}
    assert len(await receive(front, VisibilityTimeout=0)) == 1
    change = params(ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=9)
    assert (await front.sqs("ChangeMessageVisibility", change)).json == {}
    assert await receive(front) == []


async def test_change_of_visibility_that_storage_refuses_is_not_in_flight(front: Installation) -> None:
    await send(front)
    (message,) = await receive(front)
    front.storage.codes = [ErrorCode.NOT_IN_FLIGHT]
    change = params(ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    reply = await front.sqs("ChangeMessageVisibility", change)
    assert (reply.status, reply.error) == (400, "MessageNotInflight")
    assert reply.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.MessageNotInflight;Sender"


async def test_change_of_visibility_of_a_deleted_message_says_so(front: Installation) -> None:
    await send(front)
    (message,) = await receive(front)
    handle = params(ReceiptHandle=message["ReceiptHandle"])
    assert (await front.sqs("DeleteMessage", handle)).status == 200
    reply = await front.sqs("ChangeMessageVisibility", {**handle, "VisibilityTimeout": 1})
    assert reply.json["message"] == (
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. "
        "Reason: Message does not exist or is not available for visibility timeout change."
    )
    assert (await front.sqs("DeleteMessage", handle)).status == 200


async def test_delete_with_old_handle_deletes(front: Installation) -> None:
    await send(front)
    (first,) = await receive(front, VisibilityTimeout=0)
    await receive(front)
    reply = await front.sqs("DeleteMessage", params(ReceiptHandle=first["ReceiptHandle"]))
    assert reply.status == 200 and front.storage.count() == 0


@pytest.mark.parametrize("handle", ["x", "A" * 56, "A" * 4000, "ü" * 56])
async def test_receipt_handle_that_is_none_is_invalid(front: Installation, handle: str) -> None:
    for action, more in (("DeleteMessage", {}), ("ChangeMessageVisibility", {"VisibilityTimeout": 1})):
        reply = await front.sqs(action, params(ReceiptHandle=handle, **more))
        assert (reply.status, reply.error) == (400, "ReceiptHandleIsInvalid")


async def test_receipt_handle_of_another_queue_is_invalid(front: Installation) -> None:
    """S12: also where both queues belong to the same account and lie in the same partition."""
    front.add_queue("invoices")
    await send(front)
    (message,) = await receive(front)
    url = QUEUE_URL.replace("orders", "invoices")
    reply = await front.sqs("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]})
    assert reply.error == "ReceiptHandleIsInvalid" and front.storage.count() == 1


# --- batches ---


async def test_batch_send_answers_entry_by_entry(front: Installation) -> None:
    entries = [
        {"Id": "a", "MessageBody": "1"},
        {"Id": "b", "MessageBody": "\x00"},
        {"Id": "c", "MessageBody": "3", "DelaySeconds": 901},
        {"Id": "d", "MessageBody": "4"},
    ]
    reply = await front.sqs("SendMessageBatch", params(Entries=entries))
    assert [one["Id"] for one in reply.json["Successful"]] == ["a", "d"]
    failed = {one["Id"]: (one["Code"], one["SenderFault"]) for one in reply.json["Failed"]}
    assert failed == {"b": ("InvalidMessageContents", True), "c": ("InvalidParameterValue", True)}
    assert {message["Body"] for message in await receive(front, MaxNumberOfMessages=10)} == {"1", "4"}


async def test_batch_delete_and_visibility_answer_entry_by_entry(front: Installation) -> None:
    for number in range(3):
        await send(front, str(number))
    first, second, third = (m["ReceiptHandle"] for m in await receive(front, MaxNumberOfMessages=10))
    entries = [
        {"Id": "a", "ReceiptHandle": first, "VisibilityTimeout": 0},
        {"Id": "b", "ReceiptHandle": "wrong", "VisibilityTimeout": 0},
        {"Id": "c", "ReceiptHandle": second, "VisibilityTimeout": 43_201},
    ]
    reply = await front.sqs("ChangeMessageVisibilityBatch", params(Entries=entries))
    assert reply.json["Successful"] == [{"Id": "a"}]
    codes = {one["Id"]: one["Code"] for one in reply.json["Failed"]}
    assert codes == {"b": "ReceiptHandleIsInvalid", "c": "InvalidParameterValue"}
    entries = [{"Id": "x", "ReceiptHandle": third}, {"Id": "y", "ReceiptHandle": "wrong"}]
    reply = await front.sqs("DeleteMessageBatch", params(Entries=entries))
    assert reply.json["Successful"] == [{"Id": "x"}] and reply.json["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"
    assert front.storage.count() == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_entry_without_a_receipt_handle_is_told_so_as_a_single_call_is(
    front: Installation, protocol: str
) -> None:
    """An empty one is a handle that is none of ours. What else is wrong with the entry comes behind."""
    await send(front)
    (message,) = await receive(front)
    given = {"empty": {"ReceiptHandle": ""}, "right": {"ReceiptHandle": message["ReceiptHandle"]}, "none": {}}
    for action, more, worse in (
        ("ChangeMessageVisibility", {"VisibilityTimeout": 5}, {"VisibilityTimeout": 43_201}),
        ("DeleteMessage", {}, {}),
    ):
        single = await speak(front, protocol, action, params(**more))
        missing = (single.code, single.message)
        assert missing == ("MissingParameter", "The request must contain the parameter ReceiptHandle.")
        entries = [{"Id": name, **handle, **more} for name, handle in given.items()] + [{"Id": "worse", **worse}]
        answered = await speak(front, protocol, f"{action}Batch", params(Entries=entries))
        assert [one["Id"] for one in answered.result["Successful"]] == ["right"]
        failed = {one["Id"]: (one["Code"], one["Message"]) for one in answered.result["Failed"]}
        wrong = ("ReceiptHandleIsInvalid", 'The input receipt handle "" is not a valid receipt handle.')
        assert failed == {"none": missing, "empty": wrong, "worse": missing}
        assert all(one["SenderFault"] for one in answered.result["Failed"])


def _entries(count: int) -> list[dict[str, Any]]:
    return [{"Id": str(n), "MessageBody": "x", "ReceiptHandle": "h", "VisibilityTimeout": 0} for n in range(count)]


@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ([], "EmptyBatchRequest"),
        (None, "EmptyBatchRequest"),
        (_entries(11), "TooManyEntriesInBatchRequest"),
        ([*_entries(2), *_entries(1)], "BatchEntryIdsNotDistinct"),
        ([{**_entries(1)[0], "Id": "no spaces"}], "InvalidBatchEntryId"),
        ([{**_entries(1)[0], "Id": "x" * 81}], "InvalidBatchEntryId"),
        ([{**_entries(1)[0], "Id": ""}], "InvalidBatchEntryId"),
        ([{"MessageBody": "x"}], "InvalidBatchEntryId"),
    ],
)
async def test_malformed_batch_is_refused_as_a_whole(
    front: Installation, action: str, entries: Any, error: str
) -> None:
    """S24."""
    reply = await front.sqs(action, params(Entries=entries) if entries is not None else params())
    assert (reply.status, reply.error) == (400, error)
    assert front.storage.count() == 0


@pytest.mark.parametrize(("over", "passes"), [(0, True), (1, False)])
async def test_batch_sum_is_bounded(front: Installation, over: int, passes: bool) -> None:
    """S24: the sum of a batch, plus or minus one byte."""
    half = 512 * 1024
    entries = [{"Id": "a", "MessageBody": "x" * half}, {"Id": "b", "MessageBody": "x" * (half + over)}]
    reply = await front.sqs("SendMessageBatch", params(Entries=entries))
    assert reply.status == 200 if passes else reply.error == "BatchRequestTooLong"
    assert front.storage.count() == (2 if passes else 0)


@pytest.mark.parametrize(("size", "passes"), [(1_048_576, True), (1_048_577, False)])
async def test_message_size_is_bounded(front: Installation, size: int, passes: bool) -> None:
    reply = await send(front, "x" * size)
    assert reply.status == 200 if passes else reply.error == "InvalidParameterValueException"


# --- polls ---


async def test_long_poll_is_woken_by_a_send(front: Installation) -> None:
    poll = asyncio.create_task(receive(front, WaitTimeSeconds=20))
    await settle(lambda: front.storage.polls == 1)
    assert front.plane.polls.calls == 1
    await send(front)
    assert len(await poll) == 1 and front.plane.polls.calls == 0


async def test_wait_of_the_queue_is_used_unless_the_request_says_otherwise(front: Installation) -> None:
    front.add_queue("orders", attributes={"ReceiveMessageWaitTimeSeconds": "20"})
    assert await receive(front, WaitTimeSeconds=0) == []
    poll = asyncio.create_task(receive(front))
    await settle(lambda: front.storage.polls == 1)
    await send(front)
    assert len(await poll) == 1


async def test_client_that_leaves_cancels_its_poll(front: Installation) -> None:
    gone = asyncio.Event()
    poll = asyncio.create_task(front.sqs("ReceiveMessage", params(WaitTimeSeconds=20), gone=gone))
    await settle(lambda: front.storage.polls == 1)
    gone.set()
    assert (await poll).status == 0
    assert (front.storage.cancelled, front.storage.polls, front.plane.polls.calls) == (1, 0, 0)
    await send(front)
    assert len(await receive(front)) == 1


async def test_stop_answers_parked_polls_empty(front: Installation) -> None:
    poll = asyncio.create_task(receive(front, WaitTimeSeconds=20))
    await settle(lambda: front.storage.polls == 1)
    front.plane.drain()
    assert await poll == []
    assert await receive(front, WaitTimeSeconds=20) == [], "polls no longer park"


async def test_queue_of_many_partitions_is_swept_and_parked_at() -> None:
    front = Installation(partitions=(1, 2, 3))
    for number in range(9):
        await send(front, str(number))
    assert all(front.storage.messages(partition) for partition in (1, 2, 3)), "sends go around"
    received = [message for _ in range(3) for message in await receive(front, MaxNumberOfMessages=10)]
    assert {message["Body"] for message in received} == {str(number) for number in range(9)}
    entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(received)]
    assert len((await front.sqs("DeleteMessageBatch", params(Entries=entries))).json["Successful"]) == 9
    assert front.storage.count() == 0
    poll = asyncio.create_task(receive(front, WaitTimeSeconds=20))
    await settle(lambda: front.storage.polls == 3)
    await send(front, "last")
    assert [message["Body"] for message in await poll] == ["last"]
    assert front.storage.polls == 0


# --- storage errors ---


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        (ErrorCode.OUTCOME_UNKNOWN, 503, "ServiceUnavailable"),
        (ErrorCode.NO_QUORUM, 503, "ServiceUnavailable"),
        (ErrorCode.OVERLOADED, 503, "ServiceUnavailable"),
        (ErrorCode.TOO_LARGE, 400, "InvalidParameterValueException"),
        (ErrorCode.UNKNOWN_PARTITION, 503, "ServiceUnavailable"),
    ],
)
async def test_storage_error_on_send(front: Installation, code: ErrorCode, status: int, error: str) -> None:
    front.storage.fail_with = code
    reply = await send(front)
    assert (reply.status, reply.error) == (status, error)
    assert status != 503 or int(reply.headers["retry-after"]) >= 1
    batch = await front.sqs("SendMessageBatch", params(Entries=_entries(2)))
    assert (batch.status, batch.error) == (status, error)


async def test_unknown_partition_of_a_deleted_queue_is_no_queue(front: Installation) -> None:
    front.storage.fail_with = ErrorCode.UNKNOWN_PARTITION
    view = await front.plane.queues.find(next(iter([(await _address(front))])))
    assert view is not None
    record = front.metadata.queues.pop((ACCOUNT, "orders"))
    front.metadata.cached_queue = lambda *_: record  # type: ignore[method-assign]  # the cache has not heard yet
    assert (await send(front)).error == "QueueDoesNotExist"


async def _address(front: Installation) -> Any:
    from frontend.queues.names import Address

    return Address(ACCOUNT, "orders")


async def test_over_limit_is_told_on_short_poll_only(front: Installation) -> None:
    front.storage.fail_with, front.storage.fail_text = ErrorCode.OVER_LIMIT, "too many messages are in flight"
    reply = await front.sqs("ReceiveMessage", params())
    assert (reply.status, reply.error) == (403, "OverLimit")
    assert "too many messages are in flight" in reply.json["message"]
    assert await receive(front, WaitTimeSeconds=1) == []


async def test_purge_in_progress_and_counts(front: Installation) -> None:
    await send(front)
    await send(front, DelaySeconds=9)
    asked = params(AttributeNames=["All"])
    attributes = (await front.sqs("GetQueueAttributes", asked)).json["Attributes"]
    assert attributes["ApproximateNumberOfMessages"] == "1"
    assert attributes["ApproximateNumberOfMessagesDelayed"] == "1"
    await receive(front)
    names = params(AttributeNames=["ApproximateNumberOfMessagesNotVisible", "QueueArn"])
    assert (await front.sqs("GetQueueAttributes", names)).json["Attributes"] == {
        "ApproximateNumberOfMessagesNotVisible": "1",
        "QueueArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders",
    }
    assert (await front.sqs("PurgeQueue", params())).json == {}
    assert front.storage.count() == 0
    assert front.audit == [{"action": "queue.purge", "queue": "orders", "owner": ACCOUNT}]
    front.storage.fail_with = ErrorCode.PURGE_IN_PROGRESS
    reply = await front.sqs("PurgeQueue", params())
    assert (reply.status, reply.error) == (403, "PurgeQueueInProgress") and len(front.audit) == 1


async def test_purge_goes_on_where_it_cannot_be_noted(front: Installation) -> None:
    """As all that is asked of messages does while the control plane is away."""

    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("down")

    await send(front, "x")
    front.control_answer = broken
    assert (await front.sqs("PurgeQueue", params())).json == {} and front.storage.count() == 0


async def test_message_that_does_not_open_is_left_out_and_counted(front: Installation) -> None:
    """S27: swapped between queues of one account, at the node."""
    front.add_queue("invoices", (50,))
    await send(front, "mine")
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL.replace("orders", "invoices"), "MessageBody": "other"})
    await front.storage.send(1, [one.body for one in front.storage.messages(50)])
    assert [message["Body"] for message in await receive(front, MaxNumberOfMessages=10)] == ["mine"]
    assert front.plane.meters.total("envelopes_unopened") == 1


# --- whose queue ---


@pytest.mark.parametrize(
    "action",
    ["SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "PurgeQueue", "GetQueueAttributes",
     "SetQueueAttributes", "DeleteQueue", "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"],
)  # fmt: skip
async def test_queue_of_another_account_answers_like_none(front: Installation, action: str) -> None:
    """S12: word for word the same as for a queue of that account that does not exist."""
    more = {
        "MessageBody": "x", "ReceiptHandle": "A" * 56, "VisibilityTimeout": 1, "Entries": _entries(1),
        "Attributes": {"DelaySeconds": "1"},
    }  # fmt: skip
    other = await front.sqs(action, {"QueueUrl": f"http://{HOST}/{OTHER_ACCOUNT}/secret", **more})
    absent = await front.sqs(action, {"QueueUrl": f"http://{HOST}/{OTHER_ACCOUNT}/absent", **more})
    assert (other.status, other.error) == (403, "AccessDeniedException")
    assert other.body == absent.body.replace(b"absent", b"secret")
    assert not front.storage.calls and not front.control_calls
    if action not in ("DeleteQueue",):
        own = await front.sqs(action, {"QueueUrl": f"http://{HOST}/{ACCOUNT}/absent", **more})
        assert (own.status, own.error) == (400, "QueueDoesNotExist")


async def test_queue_url_on_another_host_names_the_same_queue(front: Installation) -> None:
    """S25: the host is ignored."""
    end = f"/{ACCOUNT}/orders"
    for url in ("https://evil.example" + end, "ftp://x:1/a/b" + end, end, "orders"):
        assert (await front.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})).status == 200, url
    assert front.storage.count() == 4
    for url in (
        f"http://{HOST}/{ACCOUNT}%2forders", "or ders", "", "ftp://x", f"http://{HOST}/{ACCOUNT}/orders?a=b",
        f"http://{HOST}/12345/orders", f"http://{HOST}/{ACCOUNT}/or ders", f"http://{HOST}/{ACCOUNT}/orders\n",
        f"http://{HOST}/{ACCOUNT}/" + "q" * 600,
    ):  # fmt: skip
        reply = await front.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        assert reply.error in ("InvalidAddress", "MissingRequiredParameterException"), url


async def test_queue_path_stands_in_for_a_missing_queue_url(front: Installation) -> None:
    reply = await front.signed("POST", f"/{ACCOUNT}/orders", b'{"MessageBody":"x"}', "AmazonSQS.SendMessage")
    assert reply.status == 200 and front.storage.count() == 1


async def test_throttled_account_is_told_when_to_come_back() -> None:
    from frontend.limits.quota_tree import QuotaTree
    from frontend.limits.quotas import AccountLimits, Rates

    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(Rates(1))))
    assert [(await send(front)).status for _ in range(2)] == [200, 200]
    reply = await send(front)
    assert (reply.status, reply.error) == (400, "RequestThrottled") and int(reply.headers["retry-after"]) >= 1
    assert front.storage.count() == 2
    front.clock.now_s += 1
    assert (await send(front)).status == 200
