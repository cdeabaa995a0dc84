"""Queue actions: checked here, decided by the control plane, answered with URLs of the host the caller used."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation


async def test_queue_is_created_used_listed_and_deleted(front: Installation) -> None:
    reply = await front.sqs("CreateQueue", {"QueueName": "new-1", "Attributes": {"DelaySeconds": "0"}})
    assert reply.json == {"QueueUrl": f"http://{HOST}/{ACCOUNT}/new-1"}
    url = reply.json["QueueUrl"]
    assert (await front.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})).status == 200
    assert ("refresh", ACCOUNT, "new-1") in front.metadata.lookups
    assert (await front.sqs("GetQueueUrl", {"QueueName": "new-1"})).json == {"QueueUrl": url}
    assert (await front.sqs("ListQueues")).json == {"QueueUrls": [url, QUEUE_URL]}
    assert (await front.sqs("ListQueues", {"QueueNamePrefix": "zzz"})).json == {}
    assert (await front.sqs("DeleteQueue", {"QueueUrl": url})).json == {}
    assert (await front.sqs("GetQueueUrl", {"QueueName": "new-1"})).error == "QueueDoesNotExist"
    asked = json.loads(front.control_calls[0].content)
    assert asked["account_id"] == ACCOUNT and asked["name"] == front.key.access_key_id


async def test_attributes_are_set_and_read(front: Installation) -> None:
    change = {"QueueUrl": QUEUE_URL, "Attributes": {"VisibilityTimeout": "77"}}
    assert (await front.sqs("SetQueueAttributes", change)).json == {}
    everything = await front.sqs("GetQueueAttributes", {"QueueUrl": QUEUE_URL, "AttributeNames": ["All"]})
    attributes = everything.json["Attributes"]
    assert attributes["VisibilityTimeout"] == "77" and attributes["MessageRetentionPeriod"] == "345600"
    assert attributes["CreatedTimestamp"] == "1700000000" and attributes["LastModifiedTimestamp"] == "1700000001"
    assert (await front.sqs("GetQueueAttributes", {"QueueUrl": QUEUE_URL})).json == {}
    unknown = await front.sqs("GetQueueAttributes", {"QueueUrl": QUEUE_URL, "AttributeNames": ["Nope"]})
    assert unknown.error == "InvalidAttributeName"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", "MissingRequiredParameterException"),
        ("x" * 81, "InvalidParameterValueException"),
        ("a b", "InvalidParameterValueException"),
        ("a/b", "InvalidParameterValueException"),
        ("ü", "InvalidParameterValueException"),
        ("a\n", "InvalidParameterValueException"),
        ("x.fifo", "InvalidParameterValueException"),
        (".fifo", "InvalidParameterValueException"),
    ],
)
async def test_queue_name_is_checked_before_anyone_is_asked(front: Installation, name: str, error: str) -> None:
    assert (await front.sqs("CreateQueue", {"QueueName": name})).error == error
    assert not front.control_calls


async def test_queue_name_of_eighty_characters_passes(front: Installation) -> None:
    assert (await front.sqs("CreateQueue", {"QueueName": "x" * 80})).status == 200


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("DelaySeconds", ("0", "900"), ("-1", "901", "x", "", "1.0", "٣")),
        ("MaximumMessageSize", ("1024", "1048576"), ("1023", "1048577")),
        ("MessageRetentionPeriod", ("60", "1209600"), ("59", "1209601")),
        ("ReceiveMessageWaitTimeSeconds", ("0", "20"), ("21",)),
        ("VisibilityTimeout", ("0", "43200"), ("43201",)),
        ("SqsManagedSseEnabled", ("true", "false"), ("yes",)),
        ("Policy", ("x" * 8192,), ("x" * 8193,)),
    ],
)
async def test_attribute_ranges(front: Installation, name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for value in good:
        change = {"QueueUrl": QUEUE_URL, "Attributes": {name: value}}
        assert (await front.sqs("SetQueueAttributes", change)).status == 200, value
    calls = len(front.control_calls)
    for value in bad:
        change = {"QueueUrl": QUEUE_URL, "Attributes": {name: value}}
        assert (await front.sqs("SetQueueAttributes", change)).error == "InvalidAttributeValue", value
    assert len(front.control_calls) == calls


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("QueueArn", "x", "InvalidAttributeName"),
        ("Nope", "x", "InvalidAttributeName"),
        ("All", "x", "InvalidAttributeName"),
        ("FifoQueue", "true", "InvalidParameterValueException"),
        ("FifoQueue", "false", "InvalidAttributeName"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
    ],
)
async def test_attributes_that_cannot_be_set(front: Installation, name: str, value: str, error: str) -> None:
    assert (await front.sqs("CreateQueue", {"QueueName": "q", "Attributes": {name: value}})).error == error
    number = await front.sqs("CreateQueue", {"QueueName": "q", "Attributes": {name: 1}})
    assert number.error == "SerializationException"


async def test_refusal_of_the_control_plane_is_passed_on(front: Installation) -> None:
    reply = await front.sqs("CreateQueue", {"QueueName": "orders", "Attributes": {"DelaySeconds": "3"}})
    assert (reply.status, reply.error) == (400, "QueueNameExists")
    assert reply.headers["x-amzn-query-error"] == "QueueAlreadyExists;Sender"


async def test_refusal_below_the_actions_of_the_control_plane_is_not_to_be_repeated(front: Installation) -> None:
    problem = {"code": "request-too-large", "status": 413, "detail": "A body has at most 1048576 bytes here."}
    front.control_answer = lambda _: httpx2.Response(413, json=problem)
    reply = await front.sqs("SetQueueAttributes", {"QueueUrl": QUEUE_URL, "Attributes": {"DelaySeconds": "1"}})
    assert (reply.status, reply.error) == (400, "InvalidParameterValueException")
    assert "at most 1048576 bytes" in reply.body.decode() and "retry-after" not in reply.headers


@pytest.mark.parametrize("status", [500, 503, 400, 302])
async def test_failure_of_the_control_plane_shows_nothing_of_it(front: Installation, status: int) -> None:
    front.control_answer = lambda _: httpx2.Response(status, text="<h1>Traceback: password</h1>")
    reply = await front.sqs("CreateQueue", {"QueueName": "q"})
    assert (reply.status, reply.error) == (503, "ServiceUnavailable") and b"password" not in reply.body
    assert int(reply.headers["retry-after"]) >= 1


async def test_dead_control_plane_is_asked_no_more_and_messages_still_flow(front: Installation) -> None:
    def dead(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    alive = front.control_answer
    front.control_answer, front.control_alive = dead, 503
    assert (await front.sqs("ListQueues")).status == 503
    while not front.plane.control.troubles():
        await asyncio.sleep(0.001)
    for _ in range(3):
        assert (await front.sqs("ListQueues")).status == 503
    assert len(front.control_calls) == 1
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})).status == 200
    front.control_answer, front.control_alive = alive, 200
    while front.plane.control.troubles():
        await asyncio.sleep(0.01)
    assert (await front.sqs("ListQueues")).status == 200


async def test_queue_of_another_account_by_name(front: Installation) -> None:
    asked = {"QueueName": "secret", "QueueOwnerAWSAccountId": OTHER_ACCOUNT}
    assert (await front.sqs("GetQueueUrl", asked)).error == "QueueDoesNotExist"
    assert (await front.sqs("GetQueueUrl", {"QueueName": "secret"})).error == "QueueDoesNotExist"


@pytest.mark.parametrize("state", ["creating", "deleting"])
async def test_queue_that_is_not_active_does_not_exist(front: Installation, state: str) -> None:
    front.add_queue("orders", state=state)
    reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    assert reply.error == "QueueDoesNotExist"


@pytest.mark.parametrize("value", [0, 1001])
async def test_list_bounds(front: Installation, value: int) -> None:
    assert (await front.sqs("ListQueues", {"MaxResults": value})).error == "InvalidParameterValueException"
