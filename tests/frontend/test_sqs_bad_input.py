"""Bad input of every kind: the answer SQS-API.md names, never a 500, nothing stored, the next request served."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import structlog

from frontend.limits import REQUEST_BODY_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from frontend.logs import structlog_settings
from frontend.sqs import protocol as protocol_module
from tests.support.frontend_plane import QUEUE_URL, Installation, sign

SERIALIZATION = "SerializationException"
INVALID = "InvalidParameterValueException"
TRACE = {"DataType": "String", "StringValue": "Root=1"}
MISSING = "MissingRequiredParameterException"
URL = json.dumps(QUEUE_URL).encode()


@pytest.fixture(autouse=True)
async def front_is_usable_afterwards(front: Installation) -> Any:
    yield
    stored = front.storage.count()
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})).status == 200
    assert front.storage.count() == stored + 1
    assert "InternalFailure" not in str(front.plane.meters._observed)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xef\xbb\xbf{}",
        b'{"QueueUrl":%b,"MessageBody":3}' % URL,
        b'{"QueueUrl":%b,"MessageBody":["x"]}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","DelaySeconds":"1"}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","DelaySeconds":1.5}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","DelaySeconds":true}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","DelaySeconds":1e999}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","DelaySeconds":NaN}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","DelaySeconds":%b}' % (URL, b"9" * 5000),
        b'{"QueueUrl":%b,"MessageBody":"\\ud800"}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"\xff"}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","Z":%b}' % (URL, b"[" * 5000 + b"]" * 5000),
        b"[" * 200_000,
        b'{"QueueUrl":%b,"MessageBody":"x","MessageBody":"y"}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","MessageAttributes":{"a":1}}' % URL,
        b'{"QueueUrl":%b,"MessageBody":"x","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"*"}}}' % URL,
        "{}".encode("utf-16"),
        b"Action=SendMessage&MessageBody=x",
    ],
)
async def test_body_that_is_not_json_of_the_shape_is_refused(front: Installation, body: bytes) -> None:
    """S23."""
    reply = await front.sqs("SendMessage", body)
    assert (reply.status, reply.error) == (400, SERIALIZATION)
    assert reply.json["__type"] == "com.amazon.coral.service#SerializationException"
    assert front.storage.count() == 0


async def test_body_that_quotes_a_member_name_is_no_repetition(front: Installation) -> None:
    text = 'see "QueueUrl": "MessageBody", "MessageBody"'
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": text})).status == 200
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "MessageBody"})).status == 200


@pytest.mark.parametrize(
    "entries",
    [
        b'{"Id":"1","MessageBody":"a"},{"Id":"2","MessageBody":"b","MessageBody":"c"}',
        # As many as there are entries.
        b'{"Id":"1","Mess\\u0061geBody":"a"},{"Id":"2","MessageBody":"b","MessageBody":"c"}',
        b'{"Id":"1"},{"Id":"2","MessageBody":"b","MessageBody":"c"}',
        b'{"Id":"1","MessageBody":null},{"Id":"2","MessageBody":"b","MessageBody":"c"}',
        b'{"Id":"1","MessageBody":"a","MessageBody":null},{"Id":"2"}',
    ],
)
async def test_entry_of_a_batch_that_names_its_body_twice_is_refused(front: Installation, entries: bytes) -> None:
    reply = await front.sqs("SendMessageBatch", b'{"QueueUrl":%b,"Entries":[%b]}' % (URL, entries))
    assert (reply.status, reply.error) == (400, SERIALIZATION)
    assert front.storage.count() == 0


@pytest.mark.parametrize(
    "name", [b"Mess\\u0061geBody", b"\\u004dessageBody", b"MessageBod\\u0079", b"\\u0051ueueUrl", b"D\\u0065laySeconds"]
)
async def test_member_that_is_named_once_more_in_escaped_letters_is_refused(front: Installation, name: bytes) -> None:
    again = {b"M": b'"b"', b"Q": URL, b"D": b"2"}[json.loads(b'"%b"' % name)[:1].encode()]
    whole = b'{"QueueUrl":%b,"MessageBody":"a","DelaySeconds":1,"%b" : %b}' % (URL, name, again)
    reply = await front.sqs("SendMessage", whole)
    assert (reply.status, reply.error) == (400, SERIALIZATION)
    assert front.storage.count() == 0


async def test_member_that_is_named_twice_around_a_text_of_escaped_letters_is_refused(front: Installation) -> None:
    body = b'{"QueueUrl":%b,"MessageBody":%b,"Mess\\u0061geBody":"b"}'
    reply = await front.sqs("SendMessage", body % (URL, json.dumps("é" * 1_000).encode()))
    assert (reply.status, reply.error) == (400, SERIALIZATION)
    assert front.storage.count() == 0


async def test_name_in_escaped_letters_is_taken_once(front: Installation) -> None:
    reply = await front.sqs("SendMessage", b'{"QueueUrl":%b,"Mess\\u0061geBody":"\\u0061\\":"}' % URL)
    assert reply.status == 200


async def test_batch_that_names_each_body_once_is_not_looked_at_twice(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bytes] = []

    def repeated(body: bytes) -> None:
        looks.append(body)

    monkeypatch.setattr(protocol_module, "repeated_member", repeated)
    entries = [{"Id": str(number), "MessageBody": f"text {number}"} for number in range(10)]
    reply = await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    assert len(reply.json["Successful"]) == 10 and not looks
    entries[3]["MessageBody"] = "MessageBody"
    reply = await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    assert len(reply.json["Successful"]) == 10 and len(looks) == 1


@pytest.mark.parametrize("text", ["\x00", "a\x08b", "\x0b", "\x1f", "\ufffe", "\uffff", "ü\x01", "x" * 100 + "\x1b"])
async def test_forbidden_characters_are_refused(front: Installation, text: str) -> None:
    reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": text})
    assert (reply.status, reply.error) == (400, "InvalidMessageContents")
    attribute = {"a": {"DataType": "String", "StringValue": text}}
    more = {"MessageBody": "x", "MessageAttributes": attribute}
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, **more})).error == "InvalidParameterValueException"


@pytest.mark.parametrize("text", ["\t\n\r", " ", "\x7f\x85", "\ud7ff\ue000\ufffd", "\U00010000\U0010ffff", "𝄞"])
async def test_allowed_characters_pass(front: Installation, text: str) -> None:
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": text})).status == 200
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})
    assert reply.json["Messages"][0]["Body"] == text


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"MessageBody": ""}, MISSING),
        ({"MessageBody": None}, MISSING),
        ({"QueueUrl": None}, MISSING),
        ({"DelaySeconds": 900}, None),
        ({"DelaySeconds": 901}, INVALID),
        ({"DelaySeconds": -1}, INVALID),
        ({"MessageDeduplicationId": "x"}, INVALID),
        ({"MessageGroupId": "!" * 128}, None),
        ({"MessageGroupId": "x" * 129}, INVALID),
        ({"MessageGroupId": ""}, INVALID),
        ({"MessageGroupId": "a b"}, INVALID),
        ({"QueueUrl": QUEUE_URL + ".fifo"}, "QueueDoesNotExist"),
        ({"QueueUrl": QUEUE_URL + "s"}, "QueueDoesNotExist"),
        ({"MessageSystemAttributes": {"Other": {"DataType": "String", "StringValue": "x"}}}, INVALID),
        ({"MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}}}, INVALID),
        ({"MessageSystemAttributes": {"AWSTraceHeader": TRACE, "Other": TRACE}}, INVALID),
        ({"MessageSystemAttributes": {"AWSTraceHeader": {**TRACE, "BinaryValue": "AA=="}}}, INVALID),
        ({"Unknown": {"deep": [1, 2, {"x": None}]}}, None),
    ],
)
async def test_send_parameter_is_checked(front: Installation, changes: dict[str, Any], error: str | None) -> None:
    reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x", **changes})
    assert reply.status == 200 if error is None else reply.error == error
    assert front.storage.count() == (error is None)


def attribute(kind: str = "String", value: str = "x") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


@pytest.mark.parametrize(
    ("attributes", "passes"),
    [
        ({f"a{n}": attribute() for n in range(10)}, True),
        ({f"a{n}": attribute() for n in range(11)}, False),
        ({"n" * 256: attribute()}, True),
        ({"n" * 257: attribute()}, False),
        ({"": attribute()}, False),
        ({".a": attribute()}, False),
        ({"a.": attribute()}, False),
        ({"a..b": attribute()}, False),
        ({"a b": attribute()}, False),
        ({"aws.x": attribute()}, False),
        ({"AMAZON.x": attribute()}, False),
        ({"awsx": attribute()}, True),
        ({"a": attribute("String.label")}, True),
        ({"a": attribute("Strings")}, False),
        ({"a": attribute("")}, False),
        ({"a": {"StringValue": "x"}}, False),
        ({"a": attribute(value="")}, False),
        ({"a": attribute("Number", "1e126")}, True),
        ({"a": attribute("Number", "1.001e126")}, False),
        ({"a": attribute("Number", "-0." + "0" * 200 + "1e329")}, True),
        ({"a": attribute("Number", "-1.1e128")}, False),
        ({"a": attribute("Number", "1e-999")}, True),
        ({"a": attribute("Number", "twelve")}, False),
        ({"a": attribute("Binary")}, False),
        ({"a": {"DataType": "Binary", "BinaryValue": ""}}, False),
        ({"a": {"DataType": "String", "BinaryValue": "AA=="}}, False),
        ({"a": {"DataType": "String", "StringValue": "x", "BinaryValue": "AA=="}}, False),
    ],
)
async def test_message_attribute_rules(front: Installation, attributes: dict[str, Any], passes: bool) -> None:
    reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x", "MessageAttributes": attributes})
    assert reply.status == 200 if passes else reply.error == INVALID


@pytest.mark.parametrize(("value_bytes", "passes"), [(1024 - 1 - 4 - 6, True), (1024 - 1 - 4 - 6 + 1, False)])
async def test_attributes_count_towards_the_size(front: Installation, value_bytes: int, passes: bool) -> None:
    """Body 1, name 4, type 6, and the value must fit MaximumMessageSize."""
    front.add_queue("orders", attributes={"MaximumMessageSize": "1024"})
    attributes = {"name": attribute(value="v" * value_bytes)}
    reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x", "MessageAttributes": attributes})
    assert reply.status == 200 if passes else reply.error == INVALID


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("MaxNumberOfMessages", (1, 10), (0, 11, -1)),
        ("WaitTimeSeconds", (0,), (-1, 21)),
        ("VisibilityTimeout", (0, 43_200), (-1, 43_201)),
    ],
)
async def test_receive_parameter_ranges(
    front: Installation, name: str, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    for value in good:
        assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, name: value})).status == 200
    for value in bad:
        assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, name: value})).error == INVALID


# --- the request around it ---


async def test_unknown_action_method_and_media_type(front: Installation) -> None:
    assert (await front.sqs("Nonsense")).error == "UnknownOperationException"
    assert (await front.signed("POST", "/", b"{}")).error == "UnknownOperationException"
    assert (await front.signed("GET", "/", b"", "AmazonSQS.ListQueues")).error == "MethodNotAllowed"
    headers = sign(front.key, "POST", "/", b"{}", "AmazonSQS.ListQueues", front.clock.now_s)
    reply = await front.call("POST", "/", {**headers, "Content-Type": "text/plain"}, b"{}")
    assert (reply.status, reply.error) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip"])
async def test_compressed_body_is_refused(front: Installation, encoding: str) -> None:
    """S19."""
    reply = await front.sqs("SendMessage", b"{}", headers={"Content-Encoding": encoding})
    assert (reply.status, reply.error) == (415, "UnsupportedMediaType")


async def test_huge_header_and_many_headers_are_refused(front: Installation) -> None:
    reply = await front.sqs("SendMessage", headers={"X-Filler": "x" * REQUEST_HEADER_BYTES_MAX})
    assert (reply.status, reply.error) == (431, "HeadersTooLarge")
    reply = await front.sqs("SendMessage", headers={f"X-{n}": "x" for n in range(101)})
    assert reply.status == 431


@pytest.mark.parametrize(
    ("action", "status", "error"),
    [
        ("SendMessage", 400, INVALID),
        ("SendMessageBatch", 400, "BatchRequestTooLong"),
        ("DeleteMessage", 413, "RequestTooLarge"),
    ],
)
async def test_body_over_the_cap_is_refused_without_being_kept(
    front: Installation, action: str, status: int, error: str
) -> None:
    piece = b"x" * 65_536
    chunks = [piece] * (REQUEST_BODY_BYTES_MAX // len(piece) + 2)
    reply = await front.sqs(action, {"QueueUrl": QUEUE_URL}, chunks=chunks)
    assert (reply.status, reply.error) == (status, error)


async def test_body_in_pieces_is_put_together(front: Installation) -> None:
    body = json.dumps({"QueueUrl": QUEUE_URL, "MessageBody": "y" * 100}).encode()
    reply = await front.sqs("SendMessage", body, chunks=[body[:10], b"", body[10:60], body[60:]])
    assert reply.status == 200


async def test_bad_host_is_refused_where_a_url_is_made(front: Installation) -> None:
    from tests.support import frontend_plane

    for host in ("evil host", "a/b", "x@y"):
        headers = sign(front.key, "POST", "/", b'{"QueueName":"orders"}', "AmazonSQS.GetQueueUrl", front.clock.now_s)
        assert headers["Host"] == frontend_plane.HOST
        reply = await front.call("POST", "/", {**headers, "Host": host}, b'{"QueueName":"orders"}')
        assert reply.status == 403, "another host is another signature"


async def test_failure_of_ours_shows_nothing(front: Installation) -> None:
    """S35: to the caller not the text of the error, not a trace; to the log no body and no secret."""
    log = io.StringIO()
    structlog.configure(**{**structlog_settings("info", log), "cache_logger_on_first_use": False})

    async def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("internal detail")

    kept = front.storage.send
    front.storage.send = broken  # type: ignore[method-assign]
    reply = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "a secret body"})
    front.storage.send = kept  # type: ignore[method-assign]
    assert (reply.status, reply.error) == (500, "InternalFailure") and b"internal detail" not in reply.body
    structlog.reset_defaults()
    printed = log.getvalue()
    line = json.loads(printed)
    assert line["event"] == "request_failed" and line["request_id"] == reply.headers["x-amzn-requestid"]
    assert line["level"] == "error" and line["process"] == "frontend" and "KeyError" in line["exception"]
    assert "a secret body" not in printed and front.key.secret_access_key not in printed
    front.plane.meters._observed.clear()


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("owner", ["", "210987654321"])
async def test_name_of_any_length_is_neither_looked_up_nor_told_whole(
    front: Installation, cold: bool, owner: str
) -> None:
    """It would be a frame beyond what the metadata service takes, whose connection all accounts share."""
    front.metadata.cold = cold
    asked = {"QueueName": "q" * 1_000_000} | ({"QueueOwnerAWSAccountId": owner} if owner else {})
    reply = await front.sqs("GetQueueUrl", asked)
    assert reply.error == "QueueDoesNotExist" and len(reply.body) < 1_000
    assert (await front.sqs("GetQueueUrl", {"QueueName": "q" * 81})).error == "QueueDoesNotExist"
