"""The query protocol: forms and query strings in, XML out. botocore signs; its parser reads what we write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode
from xml.etree import ElementTree

import boto3
import botocore.auth
import botocore.session
import msgspec
import pytest
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.limits import FORM_FIELDS_MAX, REQUEST_BODY_BYTES_MAX
from frontend.sqs import query_form, requests
from tests.frontend.compat.query_model import write_query_model
from tests.frontend.compat.wire import FORM, read_answer, speak
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, REGION, Installation, Reply, at_time, sign

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
PATH = f"/{ACCOUNT}/orders"


async def post(front: Installation, fields: Any, path: str = "/", **more: Any) -> Reply:
    body = fields if isinstance(fields, bytes) else urlencode(fields).encode()
    headers = sign(front.key, "POST", path, body, "", front.clock.now_s, FORM)
    return await front.call("POST", path, {**headers, **more}, body)


def code(reply: Reply) -> str:
    """Of an error, whose form is checked on the way."""
    assert reply.headers["content-type"] == "text/xml" and "x-amzn-query-error" not in reply.headers
    root = ElementTree.fromstring(reply.body)
    assert root.tag == f"{NAMESPACE}ErrorResponse"
    assert [one.tag.removeprefix(NAMESPACE) for one in root] == ["Error", "RequestId"]
    assert [one.tag.removeprefix(NAMESPACE) for one in root[0]] == ["Type", "Code", "Message", "Detail"]
    assert root[0][0].text == ("Receiver" if reply.status >= 500 else "Sender")
    assert root[1].text == reply.headers["x-amzn-requestid"]
    return root[0][1].text or ""


def text_of(reply: Reply, *path: str) -> str | None:
    assert reply.status == 200, reply
    return ElementTree.fromstring(reply.body).findtext("/".join(NAMESPACE + one for one in path))


async def test_message_is_sent_received_and_deleted_by_form(front: Installation) -> None:
    sent = await post(front, {"Action": "SendMessage", "QueueUrl": QUEUE_URL, "MessageBody": "a&b <ü> +%"})
    assert sent.body.startswith(b'<?xml version="1.0"?><SendMessageResponse xmlns="http://queue.amazonaws.com/doc/')
    message_id = text_of(sent, "SendMessageResult", "MessageId")
    got = await post(front, {"Action": "ReceiveMessage", "QueueUrl": QUEUE_URL, "Version": "2012-11-05"})
    assert text_of(got, "ReceiveMessageResult", "Message", "Body") == "a&b <ü> +%"
    assert text_of(got, "ReceiveMessageResult", "Message", "MessageId") == message_id
    handle = text_of(got, "ReceiveMessageResult", "Message", "ReceiptHandle")
    deleted = await post(front, {"Action": "DeleteMessage", "QueueUrl": QUEUE_URL, "ReceiptHandle": handle})
    root = ElementTree.fromstring(deleted.body)
    assert [one.tag for one in root] == [f"{NAMESPACE}ResponseMetadata"], "an action without result has no element"
    assert root[0][0].text == deleted.headers["x-amzn-requestid"]
    assert front.storage.count() == 0


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/", PATH])
async def test_query_string_is_accepted_presigned_or_signed_in_the_header(
    front: Installation, method: str, path: str
) -> None:
    fields = {"Action": "SendMessage", "Version": "2012-11-05", "MessageBody": "a b+c&d=é X-Amz-Date"}
    if path == "/":
        fields["QueueUrl"] = QUEUE_URL
    query = urlencode(fields, quote_via=quote)
    credentials = Credentials(front.key.access_key_id, front.key.secret_access_key)
    for signer in (botocore.auth.SigV4QueryAuth, botocore.auth.SigV4Auth):
        request = AWSRequest(method, f"http://{HOST}{path}?{query}", headers={"Host": HOST})
        with at_time(front.clock.now_s):
            signer(credentials, "sqs", REGION).add_auth(request)
        where = request.url.removeprefix(f"http://{HOST}")
        reply = await front.call(method, where, dict(request.headers.items()))
        assert text_of(reply, "SendMessageResult", "MessageId"), reply
        changed = where.replace("MessageBody=a", "MessageBody=A")
        assert changed != where
        assert code(await front.call(method, changed, dict(request.headers.items()))) == "SignatureDoesNotMatch"
    got = await speak(front, "query", "ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10})
    assert {message["Body"] for message in got.result["Messages"]} == {fields["MessageBody"]}


async def test_plus_of_a_signed_query_string_is_no_space(front: Installation) -> None:
    """A plus and %2B sign alike: read as a space, one could be made of the other under the same signature."""
    query = f"Action=SendMessage&MessageBody=a%2Bb&QueueUrl={quote(QUEUE_URL, safe='')}"
    request = AWSRequest("GET", f"http://{HOST}/?{query}", headers={"Host": HOST})
    with at_time(front.clock.now_s):
        botocore.auth.SigV4Auth(
            Credentials(front.key.access_key_id, front.key.secret_access_key), "sqs", REGION
        ).add_auth(request)
    reply = await front.call("GET", f"/?{query.replace('%2B', '+')}", dict(request.headers.items()))
    assert reply.status == 200
    got = await speak(front, "query", "ReceiveMessage", {"QueueUrl": QUEUE_URL})
    assert [message["Body"] for message in got.result["Messages"]] == ["a+b"]


async def test_form_to_the_path_of_a_queue_needs_no_queue_url(front: Installation) -> None:
    assert (await post(front, {"Action": "SendMessage", "MessageBody": "x"}, PATH)).status == 200
    assert (await post(front, {"Action": "SendMessage", "MessageBody": "x"}, PATH + "/")).status == 200
    other = await post(front, {"Action": "SendMessage", "MessageBody": "x"}, f"/{ACCOUNT}/unknown")
    assert code(other) == "AWS.SimpleQueueService.NonExistentQueue"
    assert front.storage.count() == 2


@pytest.mark.parametrize("text", ["a\rb\r\nc\n", "]]>", "<!-- & -->", "\x7f\x85\u2028", "𝄞", "&#13;", " x ", "\t"])
async def test_text_arrives_as_it_was_sent(front: Installation, text: str) -> None:
    attributes = {"a": {"DataType": "String.&<", "StringValue": text}}
    sent = await speak(
        front, "query", "SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": text, "MessageAttributes": attributes}
    )
    assert sent.status == 200, sent
    asked = {"QueueUrl": QUEUE_URL, "MessageAttributeNames": ["All"]}
    (message,) = (await speak(front, "query", "ReceiveMessage", asked)).result["Messages"]
    assert (message["Body"], message["MessageAttributes"]) == (text, attributes)


async def test_unnumbered_and_gapped_lists_are_read(front: Installation) -> None:
    one = {"Action": "SetQueueAttributes", "Attribute.Name": "VisibilityTimeout", "Attribute.Value": "35"}
    assert (await post(front, one, PATH)).status == 200
    asked = {"Action": "GetQueueAttributes", "AttributeName": "VisibilityTimeout"}
    assert text_of(await post(front, asked, PATH), "GetQueueAttributesResult", "Attribute", "Value") == "35"
    gapped = {"Action": "GetQueueAttributes", "AttributeName.7": "QueueArn", "AttributeName.2": "DelaySeconds"}
    reply = await post(front, gapped, PATH)
    names = [one.text for one in ElementTree.fromstring(reply.body).iter(f"{NAMESPACE}Name")]
    assert sorted(names, key=str) == ["DelaySeconds", "QueueArn"]


@pytest.mark.parametrize("field", ["TagKeys", "TagKey"])
async def test_empty_list_is_read_under_the_name_of_its_member_too(front: Installation, field: str) -> None:
    """Serializers of SDKs write a list without items so, and one with items under the name of the items."""
    refused = await post(front, {"Action": "UntagQueue", field: ""}, PATH)
    assert (refused.status, code(refused)) == (400, "InvalidParameterValue")
    assert b"Tag keys must be between 1 and 128 characters in length." in refused.body
    missing = await post(front, {"Action": "UntagQueue"}, PATH)
    assert code(missing) == "MissingParameter"


LISTS = [
    (kind, field.name, field.encode_name)
    for kind in vars(requests).values()
    if isinstance(kind, type) and issubclass(kind, requests.SqsRequest)
    for field in msgspec.structs.fields(kind)
    if "list[" in str(field.type)
]


@pytest.mark.parametrize(("parameters", "attribute", "member"), LISTS)
def test_every_list_may_be_an_empty_field_of_its_members_name(parameters: Any, attribute: str, member: str) -> None:
    assert getattr(query_form.read_request(parameters, {member: ""}), attribute) == []
    # With something in it, it is no field that a client writes: ignored as others are.
    forms: list[query_form.Tree] = [{member: "x"}, {member: {"1": "x"}}]
    for form in forms:
        assert getattr(query_form.read_request(parameters, form), attribute) is None


def test_list_with_items_goes_before_an_empty_field_of_its_members_name() -> None:
    read = query_form.read_request(requests.UntagQueue, {"TagKeys": "", "TagKey": {"1": "a"}})
    assert read.tag_keys == ["a"]
    assert len(LISTS) == 12, "the expression above finds them"


MALFORMED = "MalformedInput"
SEND = b"Action=SendMessage&MessageBody=x"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "MissingAction"),
        (b"Action=", "MissingAction"),
        (b"Action.1=SendMessage", "MissingAction"),
        (b"Action=Nonsense", "InvalidAction"),
        (b"Action=%00%FF", MALFORMED),
        (b"Action=SendMessage&Version=2011-10-01", "NoSuchVersion"),
        (SEND + b"&Version=2012-11-05&Action=SendMessage", MALFORMED),
        (SEND + b"&MessageBody=y", MALFORMED),
        (SEND + b"&Message%42ody=y", MALFORMED),
        (SEND + b"&MessageBody.1=y", MALFORMED),
        (SEND + b"&DelaySeconds=x", MALFORMED),
        (SEND + b"&DelaySeconds=1.5", MALFORMED),
        (SEND + b"&DelaySeconds=+1", MALFORMED),
        (SEND + b"&DelaySeconds=null", MALFORMED),
        (SEND + b"&DelaySeconds=" + b"9" * 5000, MALFORMED),
        (SEND + b"&DelaySeconds.1=1", MALFORMED),
        (SEND + b"&DelaySeconds=-1", "InvalidParameterValue"),
        (SEND + b"&QueueUrl=%ZZ", MALFORMED),
        (SEND + b"&QueueUrl=%4", MALFORMED),
        (SEND + b"&QueueUrl=x%20y", "InvalidAddress"),
        (SEND + b"%FF", MALFORMED),
        (SEND + b"%00", "InvalidMessageContents"),
        (SEND + b"&MessageAttribute.1.Name=a", MALFORMED),
        (SEND + b"&MessageAttribute.1.Value=a", MALFORMED),
        (SEND + b"&MessageAttribute=a", MALFORMED),
        (SEND + b"&MessageAttribute.1.Name=a&MessageAttribute.1.Value=a", MALFORMED),
        (SEND + b"&MessageAttribute.x.Name=a&MessageAttribute.1.Name=b", MALFORMED),
        (SEND + b"&MessageAttribute.1.Name=a&MessageAttribute.01.Name=b", MALFORMED),
        (SEND + b"&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=String", "InvalidParameterValue"),
        (SEND + b"&" + b"&".join(b"A.%d=" % n for n in range(FORM_FIELDS_MAX - 2)), None),
        (SEND + b"&" + b"&".join(b"A.%d=" % n for n in range(FORM_FIELDS_MAX - 1)), MALFORMED),
        (SEND + b"&" * FORM_FIELDS_MAX, MALFORMED),
        (SEND + b"&" + b"n" * 256 + b"=", None),
        (SEND + b"&" + b"n" * 257 + b"=", MALFORMED),
        (SEND + b"&a" + b".1" * 7 + b"=", None),
        (SEND + b"&a" + b".1" * 8 + b"=", MALFORMED),
        (SEND + b"&Unknown.1.Deep=x&&..=", None),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_malformed_form_is_refused(front: Installation, body: bytes, error: str | None) -> None:
    reply = await post(front, body, PATH)
    assert reply.status == 200 if error is None else code(reply) == error
    assert front.storage.count() == (error is None)


async def test_form_over_the_size_is_refused(front: Installation) -> None:
    reply = await post(front, SEND + b"x" * REQUEST_BODY_BYTES_MAX, PATH)
    assert (reply.status, code(reply)) == (413, "InvalidParameterValue")


@pytest.mark.parametrize("character", ["ü", "%", "x"])
async def test_largest_message_passes_however_it_is_escaped(front: Installation, character: str) -> None:
    text = character * (2**20 // len(character.encode()))
    got = await post(front, {"Action": "SendMessage", "MessageBody": text}, PATH)
    assert text_of(got, "SendMessageResult", "MessageId")
    over = await post(front, {"Action": "SendMessage", "MessageBody": text + "x"}, PATH)
    assert code(over) == "InvalidParameterValue" and front.storage.count() == 1


async def test_body_of_another_type_is_refused(front: Installation) -> None:
    body = b'{"MessageBody": "x"}'
    path = f"{PATH}?Action=SendMessage&MessageBody=x"
    headers = sign(front.key, "POST", path, body, "", front.clock.now_s)
    reply = await front.call("POST", path, headers, body)
    assert (reply.status, code(reply)) == (415, "InvalidParameterValue")


async def test_nothing_of_a_form_is_told_to_who_did_not_sign_it(front: Installation) -> None:
    body = b"Action=Nonsense"
    unsigned = await front.call("POST", "/", {"host": HOST, "content-type": FORM}, body)
    assert (unsigned.status, code(unsigned)) == (403, "MissingAuthenticationToken")
    assert code(await front.call("GET", "/?Action=Nonsense", {"host": HOST})) == "MissingAuthenticationToken"
    signed = sign(front.key, "POST", "/", body, "", front.clock.now_s, FORM)
    assert code(await front.call("POST", "/", signed, body + b"x")) == "SignatureDoesNotMatch"


async def test_control_characters_of_a_question_make_no_broken_answer(front: Installation) -> None:
    asked = {"Action": "GetQueueAttributes", "AttributeName.1": "<\x01\ufffe&\r>"}
    reply = await post(front, asked, PATH)
    assert code(reply) == "InvalidAttributeName"
    assert "<\ufffd\ufffd&\r>" in (ElementTree.fromstring(reply.body)[0][2].text or "")


async def test_failure_of_ours_is_an_error_in_xml(front: Installation) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("internal detail")

    front.storage.send = broken  # type: ignore[method-assign]
    reply = await post(front, SEND, PATH)
    assert (reply.status, code(reply)) == (500, "InternalFailure") and b"detail" not in reply.body


async def test_partly_failed_batch_is_read_by_botocore(front: Installation) -> None:
    entries = [{"Id": "good", "MessageBody": "x"}, {"Id": "bad", "MessageBody": "x", "DelaySeconds": 901}]
    answered = await speak(front, "query", "SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    assert [one["Id"] for one in answered.result["Successful"]] == ["good"]
    (failed,) = answered.result["Failed"]
    assert (failed["Id"], failed["SenderFault"], failed["Code"]) == ("bad", True, "InvalidParameterValue")


async def test_answer_to_a_json_request_stays_json(front: Installation) -> None:
    """The target header decides, whatever stands in the query string."""
    reply = await front.signed("POST", "/?Action=ListQueues", b"{}", "AmazonSQS.ListQueues")
    assert read_answer("json", "ListQueues", reply).result["QueueUrls"] == [QUEUE_URL]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.text(max_size=20))
def test_escapes_are_read_as_the_standard_library_reads_them(raw: bytes, text: str) -> None:
    """Against urllib as the oracle, for what is well-formed."""
    escaped = quote(raw, safe="=_&? \n\r").encode()
    try:
        expected = unquote_to_bytes(escaped).decode()
    except UnicodeDecodeError:
        expected = None
    if expected is not None:
        assert query_form._text_of(escaped) == expected
    assert query_form._text_of(quote(text, safe="= \n").encode()) == text


async def test_boto3_with_the_query_model_round_trip(front: Installation, port: int) -> None:
    """A client as it was before JSON, over sockets; it checks every MD5 by itself."""
    import asyncio

    def use() -> None:
        with tempfile.TemporaryDirectory() as directory:
            write_query_model(Path(directory))
            session = botocore.session.get_session()
            session.get_component("data_loader").search_paths.insert(0, directory)
            sqs = boto3.Session(botocore_session=session).client(
                "sqs",
                endpoint_url=f"http://127.0.0.1:{port}",
                region_name=REGION,
                aws_access_key_id=front.key.access_key_id,
                aws_secret_access_key=front.key.secret_access_key,
                config=Config(retries={"total_max_attempts": 1}),
            )
        assert sqs.meta.service_model.metadata["protocol"] == "query"
        url = sqs.create_queue(QueueName="old", Attributes={"VisibilityTimeout": "5"}, tags={"a": "b"})["QueueUrl"]
        attributes = {
            "s": {"DataType": "String", "StringValue": "ü\r\n"},
            "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        }
        entries = [{"Id": str(n), "MessageBody": f"<{n}>\r", "MessageAttributes": attributes} for n in range(10)]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
        messages = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
        )["Messages"]
        assert sorted(one["Body"] for one in messages) == [f"<{n}>\r" for n in range(10)]
        assert messages[0]["MessageAttributes"] == attributes
        assert messages[0]["Attributes"]["ApproximateReceiveCount"] == "1"
        handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
        assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 10
        assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]["VisibilityTimeout"] == "5"
        with pytest.raises(sqs.exceptions.ClientError) as raised:
            sqs.get_queue_url(QueueName="unknown")
        assert raised.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
        assert raised.value.response["Error"]["Type"] == "Sender"

    await asyncio.to_thread(use)


@pytest.mark.parametrize(
    ("method", "path", "accept", "status"),
    [
        ("GET", "/", "text/html,application/xhtml+xml,*/*;q=0.8", 302),
        ("HEAD", "/", "text/html", 302),
        ("GET", "/", "*/*", 403),
        ("GET", "/?Action=ListQueues", "text/html", 403),
        ("POST", "/", "text/html", 400),
    ],
)
async def test_a_browser_at_the_endpoint_is_sent_to_the_console_and_no_program_is(
    front: Installation, method: str, path: str, accept: str, status: int
) -> None:
    reply = await front.call(method, path, {"host": HOST, "accept": accept})
    assert (reply.status, reply.headers.get("location")) == (status, "/console/" if status == 302 else None)
