"""The real server: boto3 and a websocket client over sockets, deadlines and sizes that the protocol class enforces."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import boto3
import botocore.exceptions
import pytest
import structlog
import websockets
from botocore.config import Config as BotoConfig

from frontend import client_bytes as arriving_module
from frontend import server as server_module
from frontend.config import FrontendConfig, split_address
from frontend.errors import RequestError
from frontend.express.protocol import express_config
from frontend.limits import PARTIAL_HEADER_BYTES_MAX, REQUEST_BODY_BYTES_MAX
from frontend.push.closing import STOPPING
from frontend.server import Server
from tests.support.frontend_plane import REGION, Installation


def sqs_client(front: Installation, port: int) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name=REGION,
        aws_access_key_id=front.key.access_key_id,
        aws_secret_access_key=front.key.secret_access_key,
        config=BotoConfig(retries={"total_max_attempts": 1}),
    )


async def test_boto3_round_trip(front: Installation, port: int) -> None:
    """boto3 checks every MD5 by itself."""

    def use() -> None:
        sqs = sqs_client(front, port)
        url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "5"}, tags={"a": "b"})["QueueUrl"]
        assert url == f"http://127.0.0.1:{port}/123456789012/jobs"
        attributes = {
            "s": {"DataType": "String", "StringValue": "ü"},
            "n": {"DataType": "Number.x", "StringValue": "1"},
            "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        }
        trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
        sqs.send_message(
            QueueUrl=url, MessageBody="body ü", MessageAttributes=attributes, MessageSystemAttributes=trace
        )
        entries = [{"Id": str(n), "MessageBody": f"m{n}", "MessageAttributes": attributes} for n in range(9)]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 9
        messages = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
        )["Messages"]
        assert len(messages) == 10 and messages[0]["MessageAttributes"] == attributes
        handles = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        visibility = [{**one, "VisibilityTimeout": 10} for one in handles]
        assert len(sqs.change_message_visibility_batch(QueueUrl=url, Entries=visibility)["Successful"]) == 10
        assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 10
        assert sqs.list_queues(QueueNamePrefix="jo")["QueueUrls"] == [url]
        assert sqs.get_queue_url(QueueName="jobs")["QueueUrl"] == url
        asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert asked["VisibilityTimeout"] == "5"
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "6"})
        sqs.purge_queue(QueueUrl=url)
        sqs.delete_queue(QueueUrl=url)
        with pytest.raises(sqs.exceptions.QueueDoesNotExist) as raised:
            sqs.send_message(QueueUrl=url, MessageBody="x")
        assert raised.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
        with pytest.raises(botocore.exceptions.ClientError) as invalid:
            sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=901)
        assert invalid.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400

    await asyncio.to_thread(use)


async def test_boto3_filters_by_tag_unmodified(front: Installation, port: int) -> None:
    def use() -> None:
        sqs = sqs_client(front, port)
        url = sqs.create_queue(QueueName="tagged")["QueueUrl"]
        for tag in ("red", "green", "blue"):
            attributes = {"Penstock.Tag": {"DataType": "String", "StringValue": tag}}
            sqs.send_message(QueueUrl=url, MessageBody=tag, MessageAttributes=attributes)
        asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["Penstock.Tag=red|blue"]}
        messages = sqs.receive_message(**asked)["Messages"]
        assert [message["Body"] for message in messages] == ["red", "blue"]
        assert messages[0]["MessageAttributes"]["Penstock.Tag"]["StringValue"] == "red"
        (rest,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert rest["Body"] == "green"

    await asyncio.to_thread(use)


async def test_websocket_round_trip(front: Installation, port: int) -> None:
    headers = {"Authorization": f"Bearer {front.key.bearer_token}"}
    address = f"ws://127.0.0.1:{port}/v1/queues/orders/subscribe"
    async with websockets.connect(address, additional_headers=headers) as socket:
        assert json.loads(await socket.recv()) == {"type": "ready"}
        await socket.send('{"type":"credit","n":1}')
        await front.rest("/v1/queues/orders/messages", {"body": "pushed"})
        message = json.loads(await asyncio.wait_for(socket.recv(), 5))
        assert message["body"] == "pushed"
        await socket.send(json.dumps({"type": "ack", "ids": [message["receipt"]]}))
        async with asyncio.timeout(5):
            while front.storage.count():
                await asyncio.sleep(0.001)


async def test_websocket_frame_over_the_limit_closes_with_1009(front: Installation, port: int) -> None:
    """S20."""
    headers = {"Authorization": f"Bearer {front.key.bearer_token}"}
    address = f"ws://127.0.0.1:{port}/v1/queues/orders/subscribe"
    async with websockets.connect(address, additional_headers=headers) as socket:
        await socket.recv()
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.send("x" * (300 * 1024))
            await asyncio.wait_for(socket.recv(), 5)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


async def test_socket_that_is_open_at_the_stop_is_told_why(front: Installation) -> None:
    server = Server(express_config(front.plane, "127.0.0.1", 0))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with websockets.connect(f"ws://127.0.0.1:{port}/v1/queues/orders/subscribe") as socket:
        server.should_exit = True
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), 5)
    await asyncio.wait_for(task, 10)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1012, STOPPING)


async def test_upgrade_whose_key_is_still_looked_up_at_the_stop_may_come_again(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20: no 500, and not in plain text."""
    looking, told = asyncio.Event(), asyncio.Event()

    async def bearer(*_: Any) -> None:
        looking.set()
        await told.wait()
        raise RequestError("ServiceUnavailable", "The key could not be looked up.")

    monkeypatch.setattr(front.plane.authenticator, "bearer", bearer)
    server = Server(express_config(front.plane, "127.0.0.1", 0))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    address = f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1/queues/orders/subscribe"
    headers = {"Authorization": f"Bearer {front.key.bearer_token}"}
    asked = asyncio.create_task(websockets.connect(address, additional_headers=headers).__aenter__())
    await asyncio.wait_for(looking.wait(), 5)
    server.should_exit = True
    with pytest.raises(websockets.InvalidStatus) as refused:
        await asyncio.wait_for(asked, 5)
    told.set()
    await asyncio.wait_for(task, 10)
    answer = refused.value.response
    assert (answer.status_code, json.loads(answer.body)["code"]) == (503, "service-unavailable")
    assert json.loads(answer.body)["detail"] == STOPPING and answer.headers["retry-after"]
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/queues/orders/subscribe", {"Authorization": "Bearer x"}, 401, "invalid-client-token-id"),
        ("/v1/queues/orders/subscribe", {"Origin": "http://evil.example"}, 403, "access-denied"),
        ("/v1/nothing", {}, 404, "not-found"),
    ],
)
async def test_upgrade_is_refused_with_a_problem(
    front: Installation, port: int, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(f"ws://127.0.0.1:{port}{path}", additional_headers=headers)
    answer = refused.value.response
    assert (answer.status_code, json.loads(answer.body)["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json" and answer.headers["x-request-id"]


async def raw(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def answered(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)


async def test_header_without_end_is_refused(front: Installation, port: int) -> None:
    reader, writer = await raw(port, b"GET / HTTP/1.1\r\nx: ")
    await asyncio.sleep(0)
    writer.write(b"y" * (PARTIAL_HEADER_BYTES_MAX + 100))
    assert b" 431 " in await answered(reader)
    writer.close()


async def test_slow_header_and_slow_body_are_cut(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18."""
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.05)
    monkeypatch.setattr(arriving_module, "REQUEST_READ_S_MAX", 0.05)
    for start in (b"", b"POST / HT", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"):
        reader, writer = await raw(port, start)
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 408 ") if start else answer == b"", start
        writer.close()
    target = b"x-amz-target: AmazonSQS.SendMessage\r\ncontent-type: application/json\r\n"
    reader, writer = await raw(port, b"POST / HTTP/1.1\r\nhost: x\r\n" + target + b"content-length: 10\r\n\r\nabc")
    assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_body_that_arrives_byte_by_byte_is_cut_with_408_and_told_and_others_are_served(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.2)  # also how often it is looked at
    monkeypatch.setattr(arriving_module, "BODY_GRACE_S", 0.2)
    target = b"x-amz-target: AmazonSQS.SendMessage\r\ncontent-type: application/json\r\n"
    reader, writer = await raw(port, b"POST / HTTP/1.1\r\nhost: x\r\n" + target + b"content-length: 9000\r\n\r\n")

    async def drip() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    with structlog.testing.capture_logs() as logs:
        answer = asyncio.create_task(answered(reader))
        while not answer.done():
            assert (await front.rest("/v1/queues/orders/messages", {"body": "x"})).status == 200
            await asyncio.sleep(0.02)
    dripping.cancel()
    assert answer.result().startswith(b"HTTP/1.1 408 ")
    (line,) = [line for line in logs if line["event"] == "slow_request_cut"]
    assert "bytes in" in line["reason"] and "127.0.0.1" in line["client"]
    writer.close()


async def test_body_that_is_slow_but_not_too_slow_is_taken(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.1)
    monkeypatch.setattr(arriving_module, "BODY_GRACE_S", 0.05)
    reader, writer = await raw(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4000\r\n\r\n")
    for _ in range(10):
        writer.write(b"x" * 400)
        await asyncio.sleep(0.03)
    assert b" 400 " in await answered(reader)
    writer.close()


async def test_late_request_is_not_answered_in_the_middle_of_another_answer(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll before it is parked: a 408 would be taken for its answer."""
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.1)
    poll = json.dumps({"wait_seconds": 20}).encode()
    head = b"POST /v1/queues/orders/messages/receive HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    token = f"authorization: Bearer {front.key.bearer_token}\r\ncontent-length: {len(poll)}\r\n\r\n".encode()
    reader, writer = await raw(port, head + token + poll + b"GET /heal")
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


REST_SEND = b"POST /v1/queues/orders/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
SQS_SEND = b"POST / HTTP/1.1\r\nhost: x\r\nx-amz-target: AmazonSQS.%b\r\ncontent-type: application/x-amz-json-1.0\r\n"
QUERY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"


@pytest.mark.parametrize(
    ("head", "status", "body"),
    [
        (REST_SEND, 413, b'"code":"request-too-large"'),
        (SQS_SEND % b"DeleteMessage", 413, b"#RequestTooLarge"),
        (SQS_SEND % b"SendMessage", 400, b"Message must be shorter"),
        (QUERY, 413, b"<Code>InvalidParameterValue</Code>"),
        (b"GET /console HTTP/1.1\r\nhost: x\r\n", 413, b'"code":"request-too-large"'),
    ],
)
@pytest.mark.parametrize("length", [REQUEST_BODY_BYTES_MAX + 1, 10**12])
async def test_body_that_is_announced_too_large_is_refused_before_it_comes(
    front: Installation, port: int, head: bytes, status: int, body: bytes, length: int
) -> None:
    reader, writer = await raw(port, head + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % length)
    answer = await answered(reader)
    assert answer.startswith(b"HTTP/1.1 %d " % status) and b"connection: close" in answer
    assert body in await asyncio.wait_for(reader.read(), 5), "the server says that it is done"
    writer.close()


async def test_client_that_sends_its_large_body_first_reads_the_refusal(front: Installation, port: int) -> None:
    """With bytes unread, a close would be a reset."""
    reader, writer = await raw(port, REST_SEND + b"content-length: 20000000\r\n\r\n")
    for _ in range(200):
        writer.write(b"x" * 100_000)
        await writer.drain()
    whole = await asyncio.wait_for(reader.read(), 5)
    assert whole.startswith(b"HTTP/1.1 413 ") and b"request-too-large" in whole
    writer.close()


async def test_refused_client_that_goes_on_sending_is_cut(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LINGER_S_MAX", 0.1)
    _, writer = await raw(port, REST_SEND + b"content-length: 900000000\r\n\r\n")
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(5):
            while True:
                writer.write(b"x" * 1_000)
                await writer.drain()
                await asyncio.sleep(0.005)
    writer.close()


async def test_answer_of_the_server_itself_has_a_text_and_a_request_id(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.05)
    for start, status in (
        (b"POST / HT", b"408 Request Timeout"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (PARTIAL_HEADER_BYTES_MAX + 100), b"431 Request Header Fields Too Large"),
        (b"\x00\r\n\r\n", b"400 Bad Request"),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"400 Bad Request"),
    ):
        reader, writer = await raw(port, start)
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status) and b"\r\nx-request-id: " in head, start[:20]
        assert b"content-type: text/plain" in head and body.endswith(b".\n") and b"<" not in body
        assert int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]) == len(body)
        writer.close()


async def test_garbage_behind_a_request_is_not_answered_in_its_place(front: Installation, port: int) -> None:
    poll = json.dumps({"wait_seconds": 20}).encode()
    token = f"authorization: Bearer {front.key.bearer_token}\r\ncontent-length: {len(poll)}\r\n\r\n".encode()
    head = REST_SEND.replace(b"messages", b"messages/receive")
    reader, writer = await raw(port, head + token + poll + b"\x00\x01\r\n\r\n")
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/", "/v1/queues/orders/messages"])
async def test_broken_body_of_an_answered_request_is_refused_once_and_leaves_no_trace(
    front: Installation, port: int, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await raw(port, head.encode() + b"2\r\n{}\r\nzz\r\n")
    told = await answered(reader)
    writer.close()
    assert told.startswith(b"HTTP/1.1 400 ") and told.count(b"HTTP/1.1") == 1
    await asyncio.sleep(0.05)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_connection_is_usable_after_a_refusal(front: Installation, port: int) -> None:
    bad = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n{bad"
    reader, writer = await raw(port, bad)
    head = await answered(reader)
    assert b" 400 " in head and b"server:" not in head.lower()
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b" 200 " in await answered(reader)
    writer.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nx-amz-target: AmazonSQS.SendMessage\r\ncontent-length: 2\r\n\r\n{}",
        b"\x00\x01\x02\r\n\r\n",
    ],
)
async def test_smuggling_shapes_are_refused(front: Installation, port: int, request_bytes: bytes) -> None:
    """S16; and heads without a host."""
    reader, writer = await raw(port, request_bytes)
    assert b" 400 " in await answered(reader)
    writer.close()


async def test_older_version_needs_no_host(front: Installation, port: int) -> None:
    reader, writer = await raw(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert b" 200 " in await answered(reader)
    writer.close()


def test_config_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "CLUSTER_ID": "pk-1", "SECRETS_DIR": "/s", "STORAGE_NODES": "1=127.0.0.1:7101@a", "METADATA": "127.0.0.1:7201",
        "CONTROL": "127.0.0.1:7301", "SOMETHING_ELSE": "x",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"PENSTOCK_{name}", value)
    config = FrontendConfig()  # type: ignore[call-arg]
    assert config.listen == "127.0.0.1:9324" and config.region == "us-east-1" and config.nodes[0].port == 7101
    assert config.all_regions == ["us-east-1"]
    monkeypatch.setenv("PENSTOCK_REGIONS", "eu-west-1,us-east-1")
    assert FrontendConfig().all_regions == ["eu-west-1", "us-east-1"]  # type: ignore[call-arg]
    for wrong in ("eu-west-1", "us-east-1,", "us-east-1;eu-west-1", "us-east-1,EU"):
        monkeypatch.setenv("PENSTOCK_REGIONS", wrong)
        with pytest.raises(ValueError):
            FrontendConfig()  # type: ignore[call-arg]
    monkeypatch.delenv("PENSTOCK_REGIONS")
    monkeypatch.setenv("PENSTOCK_METADATA", "nonsense")
    with pytest.raises(ValueError):
        FrontendConfig()  # type: ignore[call-arg]
    assert split_address("[::1]:80") == ("::1", 80)
