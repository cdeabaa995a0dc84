"""Answers recorded on Amazon SQS that have no place in the matrix of actions: words, headers, content types."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.frontend.compat.control import ControlPlaneInMemory
from tests.frontend.compat.wire import FORM, PROTOCOLS, Answered, speak
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, QUEUE_URL, Installation, Reply, sign

DEAD_ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture
def control(front: Installation) -> ControlPlaneInMemory:
    return ControlPlaneInMemory(front)


async def form(front: Installation, fields: dict[str, str], path: str = "/", accept: str = "") -> Reply:
    body = urlencode(fields).encode()
    headers = sign(front.key, "POST", path, body, "", front.clock.now_s, FORM)
    return await front.call("POST", path, {**headers, "accept": accept} if accept else headers, body)


async def send(front: Installation, protocol: str, **members: Any) -> Answered:
    return await speak(front, protocol, "SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x", **members})


# --- the query protocol ---


async def test_result_without_members_is_an_empty_element(front: Installation) -> None:
    reply = await form(front, {"Action": "ReceiveMessage", "QueueUrl": QUEUE_URL})
    assert b"<ReceiveMessageResult/><ResponseMetadata>" in reply.body


async def test_get_without_action_is_an_unknown_operation(front: Installation) -> None:
    headers = sign(front.key, "GET", "/", b"", "", front.clock.now_s, FORM)
    reply = await front.call("GET", "/", headers)
    assert (reply.status, reply.body.strip()) == (404, b"<UnknownOperationException/>")


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues"])
async def test_path_of_a_queue_is_no_endpoint_of_actions_without_queue(
    front: Installation, control: ControlPlaneInMemory, action: str
) -> None:
    reply = await form(front, {"Action": action, "QueueName": "q"}, f"/{ACCOUNT}/orders")
    assert reply.status == 400 and b"<Code>InvalidAction</Code>" in reply.body
    assert f"The action {action} is not valid for this endpoint.".encode() in reply.body
    assert (await form(front, {"Action": action, "QueueName": "q"})).status == 200


async def test_query_request_that_accepts_json_is_answered_in_json(
    front: Installation, control: ControlPlaneInMemory
) -> None:
    listed = await form(front, {"Action": "ListQueues"}, accept="application/json")
    assert listed.headers["content-type"] == "application/json"
    answer = json.loads(listed.body)["ListQueuesResponse"]
    assert answer == {
        "ListQueuesResult": {"queueUrls": [QUEUE_URL]},
        "ResponseMetadata": {"RequestId": listed.headers["x-amzn-requestid"]},
    }
    await send(front, "json")
    received = await form(front, {"Action": "ReceiveMessage", "QueueUrl": QUEUE_URL}, accept="application/json")
    (message,) = json.loads(received.body)["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"]
    assert message["Body"] == "x"
    asked = {"Action": "GetQueueAttributes", "QueueUrl": QUEUE_URL, "AttributeName.1": "DelaySeconds"}
    told = json.loads((await form(front, asked, accept="application/json")).body)
    result = told["GetQueueAttributesResponse"]["GetQueueAttributesResult"]
    assert result == {"Attributes": [{"Name": "DelaySeconds", "Value": "0"}]}


async def test_refused_query_request_that_accepts_json_is_refused_in_json(front: Installation) -> None:
    reply = await form(front, {"Action": "ReceiveMessage"}, accept="application/json")
    assert reply.status == 400
    told = json.loads(reply.body)
    assert (told["Error"]["Code"], told["Error"]["Type"]) == ("MissingParameter", "Sender")
    assert told["RequestId"] == reply.headers["x-amzn-requestid"]


# --- queue URLs ---


@both
@pytest.mark.parametrize("url", ["orders", f"https://sqs.example/{ACCOUNT}/orders", f"http://a:1/x/y/{ACCOUNT}/orders"])
async def test_queue_is_found_by_name_or_by_the_end_of_any_url(front: Installation, protocol: str, url: str) -> None:
    assert (await send(front, protocol, QueueUrl=url)).status == 200
    received = await speak(front, protocol, "ReceiveMessage", {"QueueUrl": url})
    assert [one["Body"] for one in received.result["Messages"]] == ["x"]


@both
@pytest.mark.parametrize("url", ["https://sqs.us-east-1.amazonaws.com/", f"{ACCOUNT}/orders", "no name!"])
async def test_what_names_no_queue_is_refused_with_the_words_of_sqs(
    front: Installation, protocol: str, url: str
) -> None:
    answered = await send(front, protocol, QueueUrl=url)
    assert (answered.status, answered.code) == (400, "InvalidAddress")
    assert answered.message == f"The address {url} is not valid for this endpoint."


# --- messages ---


@both
@pytest.mark.parametrize("count", [1, 2])
async def test_trace_of_the_http_request_is_that_of_its_messages(
    front: Installation, protocol: str, count: int
) -> None:
    entries = [{"Id": str(n), "MessageBody": "x"} for n in range(count)]
    body = json.dumps({"QueueUrl": QUEUE_URL, "Entries": entries}).encode()
    headers = sign(front.key, "POST", "/", body, "AmazonSQS.SendMessageBatch", front.clock.now_s)
    assert (await front.call("POST", "/", {**headers, "x-amzn-trace-id": "Root=1-2-3"}, body)).status == 200
    asked = {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["AWSTraceHeader"]}
    found = (await speak(front, protocol, "ReceiveMessage", asked)).result["Messages"]
    assert [one["Attributes"] for one in found] == [{"AWSTraceHeader": "Root=1-2-3"}] * count


async def test_trace_that_a_message_names_goes_before_that_of_the_request(front: Installation) -> None:
    named = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=mine"}}
    body = json.dumps({"QueueUrl": QUEUE_URL, "MessageBody": "x", "MessageSystemAttributes": named}).encode()
    for trace in ("Root=1-2-3", "\x01", "x" * 10_000):  # one that cannot be an attribute refuses nothing
        headers = sign(front.key, "POST", "/", body, "AmazonSQS.SendMessage", front.clock.now_s)
        assert (await front.call("POST", "/", {**headers, "x-amzn-trace-id": trace}, body)).status == 200
    asked = {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["AWSTraceHeader"]}
    found = (await speak(front, "json", "ReceiveMessage", asked)).result["Messages"]
    assert [one["Attributes"]["AWSTraceHeader"] for one in found] == ["Root=mine"] * 3


@both
@pytest.mark.parametrize("name", ["naïve", "名前", "a.b-c_d", "x" * 256])
async def test_attribute_names_may_be_of_any_alphabet(front: Installation, protocol: str, name: str) -> None:
    attribute = {name: {"DataType": "String", "StringValue": "v"}}
    assert (await send(front, protocol, MessageAttributes=attribute)).status == 200
    for wanted in ("*", "All", ".*"):
        asked = {"QueueUrl": QUEUE_URL, "MessageAttributeNames": [wanted, '!"§(?'], "VisibilityTimeout": 0}
        (message,) = (await speak(front, protocol, "ReceiveMessage", asked)).result["Messages"]
        assert message["MessageAttributes"] == attribute, wanted


@both
@pytest.mark.parametrize("name", ['!"§(?', ".a", "a.", "a..b", "aws.x", "Amazon.x", "AWS.x", "x" * 257, "a b"])
async def test_illegal_attribute_names_are_refused(front: Installation, protocol: str, name: str) -> None:
    answered = await send(front, protocol, MessageAttributes={name: {"DataType": "String", "StringValue": "v"}})
    assert (answered.status, answered.code) == (400, "InvalidParameterValue")
    if len(name) > 256:
        assert answered.message == "Message (user) attribute names must be shorter than 256 Bytes"
    elif name in ('!"§(?', "a b", "a..b"):
        assert answered.message.startswith("Message (user) attributes name can only contain")
    else:
        assert answered.message.startswith("You can't use message attribute names beginning with 'AWS.' or 'Amazon.'.")


@both
async def test_refusals_of_messages_have_the_words_of_sqs(front: Installation, protocol: str) -> None:
    empty = await send(front, protocol, MessageAttributes={"X": {"DataType": "String", "StringValue": ""}})
    assert empty.message == "Message (user) attribute 'X' must contain a non-empty value of type 'String'."
    words = (
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
        "#x10000 to #x10FFFF"
    )
    forbidden = {"X": {"DataType": "String", "StringValue": "a\x01"}}
    answered = await send(front, protocol, MessageAttributes=forbidden)
    assert (answered.code, answered.message) == ("InvalidParameterValue", words)
    answered = await send(front, protocol, MessageBody="a\ufffe")
    assert (answered.code, answered.message) == ("InvalidMessageContents", words)
    answered = await send(front, protocol, MessageDeduplicationId="d")
    assert answered.message == (
        "Value d for parameter MessageDeduplicationId is invalid. Reason: The request includes a parameter that is not "
        "valid for this queue type."
    )
    long = "g" * 129
    answered = await send(front, protocol, MessageGroupId=long)
    assert answered.message == (
        f"Value {long} for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric "
        "and punctuation characters. 1 to 128 in length."
    )
    handle = await speak(front, protocol, "DeleteMessage", {"QueueUrl": QUEUE_URL, "ReceiptHandle": "garbage"})
    assert (handle.code, handle.message) == (
        "ReceiptHandleIsInvalid", 'The input receipt handle "garbage" is not a valid receipt handle.'
    )  # fmt: skip


@both
@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
async def test_empty_batch_names_its_kind_of_entry(front: Installation, protocol: str, action: str) -> None:
    answered = await speak(front, protocol, action, {"QueueUrl": QUEUE_URL, "Entries": []})
    assert answered.message == f"There should be at least one {action}RequestEntry in the request."


@both
async def test_fifo_entry_without_an_id_fails_its_whole_batch(front: Installation, protocol: str) -> None:
    front.add_queue("line.fifo", (2,))
    good = {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for missing, words in (
        ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
        ("MessageDeduplicationId", "The queue should either have ContentBasedDeduplication enabled or "
         "MessageDeduplicationId provided explicitly"),
    ):  # fmt: skip
        bad = {name: value for name, value in {**good, "Id": "b"}.items() if name != missing}
        asked = {"QueueUrl": QUEUE_URL.replace("orders", "line.fifo"), "Entries": [good, bad]}
        answered = await speak(front, protocol, "SendMessageBatch", asked)
        assert (answered.status, answered.code, answered.message) == (400, "InvalidParameterValue", words)
    assert front.storage.count() == 0


@both
@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
async def test_batch_answers_leave_out_a_list_without_entries(front: Installation, protocol: str, action: str) -> None:
    bad = {"Id": "a", "MessageBody": "\x01"} if action == "SendMessageBatch" else {"Id": "a", "ReceiptHandle": "x"}
    if action == "ChangeMessageVisibilityBatch":
        bad["VisibilityTimeout"] = 1  # type: ignore[assignment]
    answered = await speak(front, protocol, action, {"QueueUrl": QUEUE_URL, "Entries": [bad]})
    assert answered.status == 200 and "Successful" not in answered.result
    assert [one["Id"] for one in answered.result["Failed"]] == ["a"]
    entry = {"Id": "a", "MessageBody": "x"}
    answered = await speak(front, protocol, "SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": [entry]})
    assert set(answered.result) == {"Successful"}


# --- queues ---


@both
async def test_attribute_that_was_never_set_leaves_the_answer_empty(front: Installation, protocol: str) -> None:
    for asked in (["Policy"], ["RedrivePolicy", "FifoQueue"], []):
        reply = await speak(front, protocol, "GetQueueAttributes", {"QueueUrl": QUEUE_URL, "AttributeNames": asked})
        assert reply.status == 200 and "Attributes" not in reply.result
        if protocol == "query":
            assert b"<GetQueueAttributesResult/>" in reply.reply.body
        else:
            assert reply.reply.body == b"{}"


@both
async def test_missing_queue_is_told_in_the_words_of_its_account(front: Installation, protocol: str) -> None:
    mine = await speak(front, protocol, "GetQueueUrl", {"QueueName": "nope"})
    version = " for this wsdl version" if protocol == "query" else ""
    assert mine.message == f"The specified queue does not exist{version}."
    asked = {"QueueName": "nope", "QueueOwnerAWSAccountId": OTHER_ACCOUNT}
    other = await speak(front, protocol, "GetQueueUrl", asked)
    assert mine.code == other.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert other.message == "The specified queue does not exist or you do not have access to it."


@both
@pytest.mark.parametrize("name", ["a*b", "a" * 81, "line.fifo", ".fifo"])
async def test_names_of_queues_are_refused_with_the_words_of_sqs(front: Installation, protocol: str, name: str) -> None:
    answered = await speak(front, protocol, "CreateQueue", {"QueueName": name})
    words = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    assert (answered.code, answered.message) == ("InvalidParameterValue", words)


@both
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}, "Invalid value for deadLetterTargetArn."),
        ({"maxReceiveCount": 3}, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        ({"deadLetterTargetArn": DEAD_ARN}, "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        (
            {"deadLetterTargetArn": DEAD_ARN, "maxReceiveCount": "invalid"},
            "Invalid value for maxReceiveCount: invalid, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            {"deadLetterTargetArn": DEAD_ARN, "maxReceiveCount": 0},
            "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000 both inclusive.",
        ),
    ],
)
async def test_redrive_policies_are_refused_with_the_words_of_sqs(
    front: Installation, control: ControlPlaneInMemory, protocol: str, policy: dict[str, Any], reason: str
) -> None:
    text = json.dumps(policy)
    for action, members in (("CreateQueue", {"QueueName": "q"}), ("SetQueueAttributes", {"QueueUrl": QUEUE_URL})):
        answered = await speak(front, protocol, action, {**members, "Attributes": {"RedrivePolicy": text}})
        assert (answered.code, answered.message) == (
            "InvalidParameterValue", f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}"
        )  # fmt: skip


@both
async def test_booleans_are_read_without_regard_to_case(
    front: Installation, control: ControlPlaneInMemory, protocol: str
) -> None:
    attributes = {"FifoQueue": "True", "ContentBasedDeduplication": "TRUE", "SqsManagedSseEnabled": "False"}
    made = await speak(front, protocol, "CreateQueue", {"QueueName": "q.fifo", "Attributes": attributes})
    assert made.status == 200, made
    url = made.result["QueueUrl"]
    asked = {"QueueUrl": url, "AttributeNames": list(attributes)}
    shown = (await speak(front, protocol, "GetQueueAttributes", asked)).result["Attributes"]
    assert shown == {"FifoQueue": "true", "ContentBasedDeduplication": "true", "SqsManagedSseEnabled": "false"}


@both
@pytest.mark.parametrize("name", ["DeduplicationScope", "FifoThroughputLimit"])
async def test_fifo_throughput_of_a_standard_queue_is_refused(
    front: Installation, control: ControlPlaneInMemory, protocol: str, name: str
) -> None:
    value = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}[name]
    answered = await speak(front, protocol, "CreateQueue", {"QueueName": "q", "Attributes": {name: value}})
    assert (answered.code, answered.message) == (
        "InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true."
    )  # fmt: skip


@both
async def test_policies_set_to_nothing_are_removed(
    front: Installation, control: ControlPlaneInMemory, protocol: str
) -> None:
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"
    statement = {"Sid": "mine", "Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    for value in (policy, ""):
        asked: dict[str, Any] = {"QueueUrl": QUEUE_URL, "Attributes": {"Policy": value}}
        assert (await speak(front, protocol, "SetQueueAttributes", asked)).status == 200
        question = {"QueueUrl": QUEUE_URL, "AttributeNames": ["Policy"]}
        shown = await speak(front, protocol, "GetQueueAttributes", question)
        assert ("Policy" in shown.result.get("Attributes", {})) == bool(value)


@both
async def test_tags_are_refused_with_the_words_of_sqs(
    front: Installation, control: ControlPlaneInMemory, protocol: str
) -> None:
    tags = {f"k{number}": "v" for number in range(51)}
    answered = await speak(front, protocol, "TagQueue", {"QueueUrl": QUEUE_URL, "Tags": tags})
    assert (answered.code, answered.message) == ("InvalidParameterValue", "Too many tags added for queue orders.")
    wrong_keys: tuple[list[str], ...] = ([], ["k" * 129], ["a", ""])
    for action, asked in (
        *(("UntagQueue", {"TagKeys": keys}) for keys in wrong_keys),
        *(("TagQueue", {"Tags": dict.fromkeys(keys, "v")}) for keys in wrong_keys[1:]),
    ):
        answered = await speak(front, protocol, action, {"QueueUrl": QUEUE_URL, **asked})
        assert (answered.code, answered.message) == (
            "InvalidParameterValue", "Tag keys must be between 1 and 128 characters in length."
        )  # fmt: skip
    answered = await speak(front, protocol, "UntagQueue", {"QueueUrl": QUEUE_URL, "TagKeys": list(tags)})
    assert (answered.code, answered.message) == (
        "InvalidParameterValue", "Maximum number of tag keys per request are 50. You have sent 51."
    )  # fmt: skip


@both
async def test_permissions_are_refused_with_the_words_of_sqs(
    front: Installation, control: ControlPlaneInMemory, protocol: str
) -> None:
    good = {"QueueUrl": QUEUE_URL, "Label": "l", "AWSAccountIds": [OTHER_ACCOUNT], "Actions": ["SendMessage"]}
    for change, name, value, reason in (
        ({"Actions": ["DeleteQueue"]}, "ActionName", "SQS:DeleteQueue",
         "Only the queue owner is allowed to invoke this action."),
        ({"Actions": ["Foo"]}, "ActionName", "SQS:Foo",
         "Please refer to the appropriate WSDL for a list of valid actions."),
        ({"AWSAccountIds": ["1234"]}, "PrincipalId", "[1234]", "Unable to verify."),
        ({"AWSAccountIds": []}, "PrincipalId", "[]", "Unable to verify."),
    ):  # fmt: skip
        answered = await speak(front, protocol, "AddPermission", {**good, **change})
        assert (answered.status, answered.code, answered.message) == (
            400, "InvalidParameterValue", f"Value {value} for parameter {name} is invalid. Reason: {reason}"
        )  # fmt: skip
    answered = await speak(front, protocol, "AddPermission", {**good, "Actions": []})
    assert (answered.code, answered.message) == (
        "MissingParameter", "The request must contain the parameter Actions."
    )  # fmt: skip


@both
async def test_wrong_signature_is_refused_with_the_words_of_sqs(front: Installation, protocol: str) -> None:
    wrong = front.key._replace(secret_access_key="x" * 40)
    answered = await speak(front, protocol, "ListQueues", {}, wrong)
    assert (answered.status, answered.code, answered.message) == (
        403, "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access "
        "Key and signing method. Consult the service documentation for details.",
    )  # fmt: skip
