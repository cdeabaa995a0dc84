"""The express lane over real sockets: what it takes, what it leaves to the unmodified path, and that nothing of a
request is lost between the two."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from unittest import mock

import pytest

from frontend import client_bytes as arriving_module
from frontend import server as server_module
from frontend.express.call import ExpressCall
from frontend.express.hot import HotRequests
from frontend.express.protocol import express_config
from frontend.http import HttpResponse
from frontend.limits import REQUEST_BODY_BYTES_MAX
from frontend.metadata.client import MetadataClient
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.limits import METADATA_RECONNECT_WAIT_MS
from frontend.server import Server
from storage_nodes.protocol.errors import ErrorCode
from tests.support.express_client import (
    Client,
    Ways,
    hold_sends,
    protocol_of,
    received_bodies,
    request,
    rest_request,
    send_request,
    until,
)
from tests.support.express_client import client as client
from tests.support.express_client import ways as ways
from tests.support.frontend_plane import QUEUE_URL, Installation

# --- what is taken ---


async def test_every_hot_call_takes_the_lane(front: Installation, client: Client, ways: Ways) -> None:
    async def ask(action: str, **params: Any) -> Any:
        client.write(request(front, action, {"QueueUrl": QUEUE_URL, **params}))
        return await client.json()

    await ask("SendMessage", MessageBody="a")
    await ask("SendMessageBatch", Entries=[{"Id": "1", "MessageBody": "b"}, {"Id": "2", "MessageBody": "c"}])
    messages = (await ask("ReceiveMessage", MaxNumberOfMessages=10))["Messages"]
    assert [message["Body"] for message in messages] == ["a", "b", "c"]
    handles = [message["ReceiptHandle"] for message in messages]
    await ask("ChangeMessageVisibility", ReceiptHandle=handles[0], VisibilityTimeout=60)
    entry = {"Id": "1", "ReceiptHandle": handles[1], "VisibilityTimeout": 60}
    await ask("ChangeMessageVisibilityBatch", Entries=[entry])
    await ask("DeleteMessage", ReceiptHandle=handles[0])
    entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles[1:])]
    assert len((await ask("DeleteMessageBatch", Entries=entries))["Successful"]) == 2
    assert (ways.express, ways.unmodified) == (7, 0)


async def test_rest_calls_on_messages_take_the_lane_and_others_do_not(
    front: Installation, client: Client, ways: Ways
) -> None:
    path = "/v1/queues/orders/messages"
    client.write(rest_request(front, path, {"body": "x"}))
    await client.json()
    client.write(rest_request(front, f"{path}/receive", {}))
    (message,) = (await client.json())["messages"]
    client.write(rest_request(front, f"{path}/extend", {"receipts": [message["receipt"]], "visibility_seconds": 9}))
    await client.json()
    client.write(rest_request(front, f"{path}/ack", {"receipts": [message["receipt"]]}))
    assert (await client.json())["done"] == 1
    assert (ways.express, ways.unmodified) == (4, 0)
    client.write(rest_request(front, f"{path}/receive?x-amz-x=1", {}))
    assert (await client.answer())[0] == 200
    client.write(rest_request(front, f"{path}/peek", {}))
    assert (await client.answer())[0] == 200
    client.write(rest_request(front, path, {}, method="PUT"))
    assert (await client.answer())[0] == 405
    assert (ways.express, ways.unmodified) == (4, 3)


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /123456789012/orders HTTP/1.1\r\n",
        b"POST /?a=b HTTP/1.1\r\n",
        b"POST / HTTP/1.0\r\nConnection: keep-alive\r\n",
        b"POST / HTTP/1.1\r\nExpect: 100-continue\r\n",
        b"POST / HTTP/1.1\r\nExpect: something\r\n",
    ],
)
async def test_what_asks_for_more_takes_the_unmodified_path(
    front: Installation, client: Client, ways: Ways, start: bytes
) -> None:
    client.write(send_request(front).replace(b"POST / HTTP/1.1\r\n", start, 1))
    first = await client.reader.readuntil(b"\r\n\r\n")
    assert b"100-continue" not in start or first.startswith(b"HTTP/1.1 100 ")
    assert (ways.express, ways.unmodified) == (0, 1)


async def test_management_takes_the_unmodified_path(front: Installation, client: Client, ways: Ways) -> None:
    client.write(request(front, "GetQueueUrl", {"QueueName": "orders"}))
    assert (await client.json())["QueueUrl"]
    assert (ways.express, ways.unmodified) == (0, 1)


def test_header_names_decide_whatever_their_place(front: Installation) -> None:
    hot = HotRequests(front.plane)
    host, target = (b"host", b"x"), (b"x-amz-target", b"AmazonSQS.SendMessage")
    assert hot.find(b"/", dict([host, target])) is not None
    for name in (b"expect", b"upgrade", b"transfer-encoding"):
        assert hot.find(b"/", dict([host, (name, b"x"), target])) is None
        assert hot.find(b"/", dict([target, (name, b"x"), host])) is None
    assert hot.find(b"/", dict([host, target, (b"x-amz-target", b"AmazonSQS.CreateQueue")])) is None
    assert hot.find(b"/", dict([target])) is None
    assert hot.find(b"/", dict([host])) is None


# --- how it arrives ---


async def test_head_that_is_split_anywhere_is_read_whole(front: Installation, client: Client, ways: Ways) -> None:
    data = send_request(front)
    for at in (1, 10, 60, data.index(b"\r\n\r\n") + 2, data.index(b"\r\n\r\n") + 3):
        client.write(data[:at])
        await client.writer.drain()
        await asyncio.sleep(0.01)
        client.write(data[at:])
        assert (await client.json())["MessageId"]
    assert (ways.express, ways.unmodified) == (5, 0)


async def test_body_that_comes_in_parts_takes_the_unmodified_path_whole(
    front: Installation, client: Client, ways: Ways
) -> None:
    data = send_request(front, "whole")
    for count, at in enumerate((data.index(b"\r\n\r\n") + 4, len(data) - 1), 1):
        client.write(data[:at])
        await asyncio.sleep(0.02)
        client.write(data[at:])
        await client.json()
        assert (ways.express, ways.unmodified) == (0, count)
    assert (await received_bodies(front)) == ["whole", "whole"]


async def test_chunked_body_is_put_together(front: Installation, client: Client, ways: Ways) -> None:
    params = {"QueueUrl": QUEUE_URL, "MessageBody": "in chunks"}
    body = json.dumps(params).encode()
    client.write(request(front, "SendMessage", params, "Transfer-Encoding: chunked", head_only=True))
    for piece in (body[:7], body[7:]):
        client.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await asyncio.sleep(0.01)
    client.write(b"0\r\n\r\n")
    await client.json()
    assert (ways.express, ways.unmodified) == (0, 1)
    assert (await received_bodies(front)) == ["in chunks"]


async def test_pipelined_requests_are_answered_in_their_order(front: Installation, client: Client, ways: Ways) -> None:
    release = hold_sends(front)
    names = [f"m{number}" for number in range(4)]
    bodies = [send_request(front, name) for name in names]
    client.write(bodies[0] + bodies[1] + request(front, "GetQueueUrl", {"QueueName": "orders"}) + bodies[2])
    client.write(bodies[3])
    await asyncio.sleep(0.05)
    assert ways.express == 1, "what was sent ahead of an answer waits behind it"
    release.set()
    answers = [await client.json() for _ in range(5)]
    assert [sorted(answer)[-1] for answer in answers] == ["MessageId"] * 2 + ["QueueUrl"] + ["MessageId"] * 2
    assert (await received_bodies(front)) == names
    client.write(send_request(front))
    await client.json()
    assert ways.express == 2, "the connection is back on the lane"


async def test_pipelined_requests_that_are_answered_at_once_stay_on_the_lane(
    front: Installation, client: Client, ways: Ways
) -> None:
    refused = send_request(front, "")
    client.write(refused * 3)
    for _ in range(3):
        status, headers, body = await client.answer()
        assert status == 400 and json.loads(body)["__type"].endswith("MissingRequiredParameterException")
        assert headers["x-amzn-query-error"] == "MissingParameter;Sender"
    assert (ways.express, ways.unmodified) == (3, 0)


async def test_body_that_never_ends_is_cut(
    front: Installation, port: int, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving_module, "REQUEST_READ_S_MAX", 0.2)
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.2)  # how often it is looked at, too
    late = Client(*await asyncio.open_connection("127.0.0.1", port))
    data = send_request(front, "y" * 1000)
    late.write(data[:-10])
    status, _, body = await late.answer()
    assert status == 408 and b"no whole body" in body
    assert await late.ended() == b""
    assert ways.unmodified == 1 and front.storage.count() == 0
    late.writer.close()


async def test_body_over_the_limit_is_refused(front: Installation, client: Client, ways: Ways) -> None:
    head = request(front, "SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"}, head_only=True)
    announced = b"Content-Length: %d" % (REQUEST_BODY_BYTES_MAX + 1)
    client.write(head.replace(head[head.index(b"Content-Length") : -4], announced))
    status, headers, _ = await client.answer()
    assert status == 400 and headers["connection"] == "close"
    assert (ways.express, ways.unmodified) == (0, 1)


async def test_too_many_headers_are_refused_on_the_lane(front: Installation, client: Client, ways: Ways) -> None:
    client.write(send_request(front, "x", *(f"a{number}: b" for number in range(101))))
    status, headers, _ = await client.answer()
    assert status == 431 and headers["x-amzn-requestid"]
    assert (ways.express, ways.unmodified) == (1, 0)


# --- how it is answered ---


async def test_both_ways_answer_with_the_same_headers(front: Installation, client: Client, ways: Ways) -> None:
    client.write(send_request(front))
    _, express, body = await client.answer()
    data = send_request(front)
    client.write(data[:-1])
    await asyncio.sleep(0.02)
    client.write(data[-1:])
    _, unmodified, other = await client.answer()
    assert (ways.express, ways.unmodified) == (1, 1)
    assert list(express) == list(unmodified) == ["date", "content-type", "x-amzn-requestid", "content-length"]
    assert express["content-type"] == unmodified["content-type"] and json.loads(body).keys() == json.loads(other).keys()


async def test_close_that_is_asked_for_is_told_and_done(front: Installation, client: Client, ways: Ways) -> None:
    client.write(send_request(front, "x", "Connection: close"))
    status, headers, _ = await client.answer()
    assert status == 200 and headers["connection"] == "close"
    assert await client.ended() == b"" and ways.express == 1


async def test_call_behind_one_that_was_answered_at_once_is_not_idle(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.1)  # how often it is looked at
    release = hold_sends(front)
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.write(send_request(front, "") + send_request(front, "slow"))
    assert (await client.answer())[0] == 400
    protocol_of(client).timeout_keep_alive = 0.1
    await asyncio.sleep(0.4)
    release.set()
    assert (await client.json())["MessageId"]
    client.writer.close()


@pytest.mark.parametrize("path", [b"/", b"/?a=b"])
@pytest.mark.parametrize("after", [b"", b"\r\n"])
async def test_line_end_behind_an_answer_keeps_no_connection_open(
    front: Installation, port: int, monkeypatch: pytest.MonkeyPatch, path: bytes, after: bytes
) -> None:
    """The parser passes over it, on the express lane and beside it: no request begins, and none is waited for long."""
    monkeypatch.setattr(server_module, "HEADER_READ_S_MAX", 0.1)
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    protocol_of(client).timeout_keep_alive = 0.1
    client.write(send_request(front).replace(b"POST / ", b"POST %b " % path))
    await client.answer()
    client.write(after)
    assert await asyncio.wait_for(client.ended(), 3) == b""


async def test_call_that_needs_look_ups_is_served(front: Installation, client: Client, ways: Ways) -> None:
    """Whatever a cold cache waits for needs no task of the caller's."""
    front.metadata.cold = True
    client.write(send_request(front))
    await client.json()
    assert ways.express == 1


@pytest.mark.parametrize(
    ("look_up", "arguments"),
    [
        ("get_key", ("AKPS",)),
        ("refresh_queue", ("123456789012", "orders")),
        ("look_up_queue", ("210987654321", "123456789012", "orders")),
        ("repeat_look_up", ("210987654321", "123456789012", "orders")),
    ],
)
async def test_look_ups_need_no_task_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, look_up: str, arguments: tuple[str, ...]
) -> None:
    """A hot call is no task, and deadlines need one."""
    metadata = MetadataClient("127.0.0.1", 1, "cluster", "test")
    monkeypatch.setattr(metadata, "_lost_at_ms", time.monotonic() * 1000 - METADATA_RECONNECT_WAIT_MS + 50)
    finished: asyncio.Future[HttpResponse | None] = asyncio.get_running_loop().create_future()

    async def answering() -> HttpResponse:
        with pytest.raises(MetadataUnavailable):
            await getattr(metadata, look_up)(*arguments)
        return HttpResponse(200, (), b"refused as it should be")

    connection = mock.Mock(loop=asyncio.get_running_loop(), flow=mock.Mock(write_paused=False))
    connection.finish = lambda _, answer: finished.set_result(answer)
    ExpressCall(connection, True).begin(answering())
    answer = await asyncio.wait_for(finished, 5)
    assert answer is not None and answer.status == 200


async def test_failure_of_storage_is_told(front: Installation, client: Client, ways: Ways) -> None:
    front.storage.fail_with = ErrorCode.UNREACHABLE
    client.write(send_request(front))
    status, headers, _ = await client.answer()
    assert status == 503 and headers["x-amzn-query-error"] == "ServiceUnavailable;Receiver"
    assert ways.express == 1


async def test_call_that_is_cancelled_closes_the_connection(front: Installation, client: Client) -> None:
    async def cancelled(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError

    front.storage.send = cancelled  # type: ignore[method-assign]
    client.write(send_request(front))
    status, headers, _ = await client.answer()
    assert status == 500 and headers["connection"] == "close"


# --- behind a proxy ---


async def test_trusted_proxy_is_believed_and_others_are_not(front: Installation, ways: Ways) -> None:
    seen: list[tuple[str, bool]] = []
    authenticate = front.plane.authenticator.signature

    async def note(asked: Any) -> Any:
        seen.append((asked.client_host, asked.is_secure))
        return await authenticate(asked)

    front.plane.authenticator.signature = note  # type: ignore[method-assign]
    front.clock.now_s = time.time()
    for trusted in ("127.0.0.1", "10.0.0.1"):
        server = Server(express_config(front.plane, "127.0.0.1", 0, trusted), front.plane.drain)
        task = asyncio.create_task(server.serve())
        await until(lambda server=server: server.started)  # type: ignore[misc]
        port = server.servers[0].sockets[0].getsockname()[1]
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.write(send_request(front, "x", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"))
        await client.json()
        client.writer.close()
        server.should_exit = True
        await asyncio.wait_for(task, 10)
    assert seen == [("192.0.2.7", True), ("127.0.0.1", False)]
    assert ways.express == 2
