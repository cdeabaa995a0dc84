"""The REST data API and what is passed on to the control plane."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import re
from typing import Any

import httpx2
import pytest

from frontend.control import ControlPlane
from frontend.http import Request
from frontend.limits import CONTROL_OPEN_CALLS_MAX
from frontend.limits.gcra import LeakyBuckets
from storage_nodes.protocol.errors import ErrorCode
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, Installation, Reply, sign
from tests.support.settling import settle

MESSAGES = "/v1/queues/orders/messages"
LINE = "/v1/queues/line.fifo/messages"
# ContentBasedDeduplication is an attribute of the queue, which has that name on both wires.
SQS_PARAMETERS = re.compile(
    r"\b(MessageBody|DelaySeconds|Message\w*Id|MaxNumberOf\w+|VisibilityTimeout|WaitTimeSeconds|Receive\w+Id|ReceiptHandle)\b"
)


def problem(reply: Reply) -> str:
    """The code of an RFC 9457 problem, whose form is checked."""
    assert reply.headers["content-type"] == "application/problem+json"
    content = reply.json
    assert set(content) == {"type", "title", "status", "detail", "code", "request_id"}
    assert content["status"] == reply.status and content["request_id"] == reply.headers["x-request-id"]
    assert content["type"] == f"urn:penstock:problem:{content['code']}"
    return str(content["code"])


async def test_message_goes_in_and_out_and_is_acked(front: Installation) -> None:
    sent = await front.rest(MESSAGES, {"body": "hi", "attributes": {"a": {"value": "1"}}, "group": "g"})
    assert sent.status == 200 and set(sent.json) == {"id", "md5"}
    received = await front.rest(MESSAGES + "/receive", {"max_messages": 10})
    (message,) = received.json["messages"]
    assert message["id"] == sent.json["id"] and message["body"] == "hi" and message["group"] == "g"
    assert message["attributes"] == {"a": {"type": "String", "value": "1"}}
    assert message["delivery_count"] == 1 and message["sender"] == front.key.access_key_id
    extended = await front.rest(MESSAGES + "/extend", {"receipts": [message["receipt"]], "visibility_seconds": 60})
    assert extended.json == {"done": 1, "failed": []}
    acked = await front.rest(MESSAGES + "/ack", {"receipts": [message["receipt"]]})
    assert acked.json == {"done": 1, "failed": []} and front.storage.count() == 0


async def test_body_that_is_empty_is_told_from_one_that_is_not_given(front: Installation) -> None:
    empty = await front.rest(MESSAGES, {"body": ""})
    assert (problem(empty), empty.json["title"]) == ("missing-required-parameter", "Missing required parameter")
    assert empty.json["detail"] == "The body of a message must not be empty."
    absent = await front.rest(MESSAGES, {})
    assert absent.json["detail"] == "The request must contain the parameter body."
    (one,) = (await front.rest(MESSAGES, {"messages": [{"body": ""}]})).json["messages"]
    assert "must not be empty" in str(one)
    of_sqs = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": ""})
    assert of_sqs.json["message"] == "The request must contain the parameter MessageBody."


async def test_message_sent_by_rest_is_received_by_sqs(front: Installation) -> None:
    binary = {"type": "Binary", "value": base64.b64encode(b"\x00\xff").decode()}
    await front.rest(MESSAGES, {"body": "hi", "attributes": {"b": binary}})
    reply = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MessageAttributeNames": ["All"]})
    (message,) = reply.json["Messages"]
    assert message["MessageAttributes"]["b"] == {"DataType": "Binary", "BinaryValue": "AP8="}


async def test_batch_has_an_outcome_per_message(front: Installation) -> None:
    reply = await front.rest(MESSAGES, {"messages": [{"body": "1"}, {"body": ""}, {"body": "3", "delay_seconds": 9}]})
    first, second, third = reply.json["messages"]
    assert "id" in first and "id" in third and second["error"]["code"] == "missing-required-parameter"
    receipts = [m["receipt"] for m in (await front.rest(MESSAGES + "/receive", {})).json["messages"]]
    acked = await front.rest(MESSAGES + "/ack", {"receipts": [*receipts, "wrong"]})
    assert acked.json["done"] == 1 and acked.json["failed"][0]["error"]["code"] == "receipt-handle-is-invalid"


async def test_nack_by_zero_visibility_gives_the_message_back(front: Installation) -> None:
    await front.rest(MESSAGES, {"body": "x"})
    (message,) = (await front.rest(MESSAGES + "/receive", {})).json["messages"]
    await front.rest(MESSAGES + "/extend", {"receipts": [message["receipt"]], "visibility_seconds": 0})
    (again,) = (await front.rest(MESSAGES + "/receive", {})).json["messages"]
    assert again["delivery_count"] == 2


async def test_long_poll_is_woken(front: Installation) -> None:
    poll = asyncio.create_task(front.rest(MESSAGES + "/receive", {"wait_seconds": 20}))
    await settle(lambda: front.storage.polls == 1)
    await front.rest(MESSAGES, {"body": "x"})
    assert len((await poll).json["messages"]) == 1


@pytest.mark.parametrize(
    ("path", "params", "status", "code"),
    [
        ("/v1/queues/absent/messages", {"body": "x"}, 404, "queue-does-not-exist"),
        ("/v1/queues/secret/messages", {"body": "x"}, 404, "queue-does-not-exist"),
        (MESSAGES, {"body": 3}, 400, "serialization"),
        (MESSAGES, b"{", 400, "serialization"),
        (MESSAGES, b"[" * 100_000, 400, "serialization"),
        (MESSAGES, {}, 400, "missing-required-parameter"),
        (MESSAGES, {"body": "\x00"}, 400, "invalid-message-contents"),
        (MESSAGES, {"body": "x", "messages": [{"body": "y"}]}, 400, "invalid-parameter-value"),
        (MESSAGES, {"messages": []}, 400, "empty-batch-request"),
        (MESSAGES, {"messages": [{"body": "x"}] * 501}, 400, "too-many-entries-in-batch-request"),
        (MESSAGES + "/receive", {"max_messages": 501}, 400, "invalid-parameter-value"),
        (MESSAGES + "/ack", {"receipts": ["wrong"]}, 400, "receipt-handle-is-invalid"),
        (MESSAGES + "/ack", {}, 400, "empty-batch-request"),
        (MESSAGES + "/extend", {"receipts": ["x"]}, 400, "missing-required-parameter"),
        ("/v2/anything", {}, 404, "not-found"),
        ("/internal/sqs/CreateQueue", {}, 404, "not-found"),
        ("/v1/../internal/sqs/CreateQueue", {}, 404, "not-found"),
        ("/v1/%2e%2E/internal", {}, 404, "not-found"),
        ("/v1//internal", {}, 404, "not-found"),
        ("/v1/a%2fb", {}, 404, "not-found"),
    ],
)
async def test_bad_request_is_a_problem(front: Installation, path: str, params: Any, status: int, code: str) -> None:
    reply = await front.rest(path, params)
    assert (reply.status, problem(reply)) == (status, code)
    assert front.storage.count() == 0 and not front.control_calls
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (MESSAGES, b'{"body":"a","body":"b"}', "body"),
        (MESSAGES, b'{"body":"a","b\\u006fdy":"b"}', "body"),
        (MESSAGES, b'{"body":"a\\"}:{\\"","attributes":{"k":{"value":"1"},"k":{"value":"1"}}}', "k"),
        (MESSAGES, b'{"messages":[{"body":"a"},{"body":"b","tag":"x","tag":"x"}]}', "tag"),
        (MESSAGES + "/receive", b'{"max_messages":1, "max_messages" :2}', "max_messages"),
        (MESSAGES + "/ack", b'{"receipts":["x"],"receipts":["y"]}', "receipts"),
        (MESSAGES + "/find", b'{"limit":1,"filter":{"sent_after_ms":1,"sent_after_ms":2}}', "sent_after_ms"),
        ("/v1/queues/orders/scheduled/cancel", b'{"ids":["x"],"ids":["y"]}', "ids"),
        ("/v1/queues/orders/parked-groups/release", b'{"all":true,"all":false}', "all"),
    ],
)
async def test_member_named_twice_is_refused_by_name(front: Installation, path: str, body: bytes, named: str) -> None:
    reply = await front.rest(path, body)
    assert (reply.status, problem(reply)) == (400, "serialization")
    assert f"'{named}' twice" in reply.json["detail"] and front.storage.count() == 0


@pytest.mark.parametrize(
    ("path", "params", "named"),
    [
        (MESSAGES, {"body": "x", "delay_second": 5}, "delay_second"),
        (MESSAGES, {"messages": [{"body": "x", "dely": 5}]}, "dely"),
        (MESSAGES, {"body": "x", "attributes": {"a": {"value": "1", "kind": "String"}}}, "kind"),
        (MESSAGES + "/receive", {"wait": 5}, "wait"),
        (MESSAGES + "/extend", {"receipts": ["x"], "visibility_second": 1}, "visibility_second"),
        (MESSAGES + "/release", {"receipts": ["x"], "counts": True}, "counts"),
        (MESSAGES + "/peek", {"state": ["waiting"]}, "state"),
        (MESSAGES + "/find", {"filter": {"bodies": "x"}}, "bodies"),
        (MESSAGES + "/resend", {"message": "x", "timezone": "x"}, "timezone"),
        ("/v1/queues/orders/scheduled/reschedule", {"ids": ["x"], "deliver_at": 1}, "deliver_at"),
        ("/v1/queues/orders/parked-groups/release", {"group": ["x"]}, "group"),
    ],
)
async def test_unknown_member_is_refused_by_name(front: Installation, path: str, params: Any, named: str) -> None:
    reply = await front.rest(path, params)
    assert (reply.status, problem(reply)) == (400, "serialization")
    assert f"`{named}`" in reply.json["detail"] and front.storage.count() == 0


async def test_body_full_of_quotes_and_colons_is_no_repeated_member(front: Installation) -> None:
    text = json.dumps({"a": {"b": ':"b":'}, "c": '{\\"::'})
    batch = [{"body": text, "attributes": {"b": {"value": text}}}, {"body": text, "attributes": {"b": {"value": ":"}}}]
    assert (await front.rest(MESSAGES, {"messages": batch})).status == 200
    received = await front.rest(MESSAGES + "/receive", {"max_messages": 10})
    assert [message["body"] for message in received.json["messages"]] == [text, text]


@pytest.mark.parametrize(
    ("path", "params", "member"),
    [
        (MESSAGES, {}, "body"),
        (MESSAGES, {"body": "x", "delay_seconds": 901}, "delay_seconds"),
        (MESSAGES, {"body": "x", "delay_seconds": 5, "delay_ms": 5}, "delay_seconds"),
        (MESSAGES, {"body": "x", "group": ""}, "group"),
        (MESSAGES, {"body": "x", "deduplication_id": "d"}, "deduplication_id"),
        (MESSAGES, {"body": "x", "acks": "some"}, "acks"),
        (MESSAGES, {"body": "x", "deliver_at_ms": -1}, "deliver_at_ms"),
        (MESSAGES, {"body": "x", "delay_ms": -1}, "delay_ms"),
        (MESSAGES, {"body": "x", "delay_ms": 1, "deliver_at_ms": 1}, "deliver_at_ms"),
        (LINE, {"body": "x"}, "group"),
        (LINE, {"body": "x", "group": "g"}, "deduplication_id"),
        (LINE, {"body": "x", "group": "g", "deduplication_id": "d", "delay_seconds": 5}, "delay_seconds"),
        (MESSAGES + "/receive", {"max_messages": 501}, "max_messages"),
        (MESSAGES + "/receive", {"wait_seconds": 21}, "wait_seconds"),
        (MESSAGES + "/receive", {"visibility_seconds": 43_201}, "visibility_seconds"),
        (MESSAGES + "/receive", {"attempt": "a"}, "attempt"),
        (LINE + "/receive", {"attempt": ""}, "attempt"),
        (MESSAGES + "/extend", {"receipts": ["x"], "visibility_seconds": -1}, "visibility_seconds"),
    ],
)
async def test_refusal_names_the_member_and_no_parameter_of_sqs(
    front: Installation, path: str, params: Any, member: str
) -> None:
    front.add_queue("line.fifo", (2,))
    detail = (await front.rest(path, params)).json["detail"]
    assert re.search(rf"\b{member}\b", detail) and not SQS_PARAMETERS.search(detail), detail


async def test_outcome_of_one_of_a_batch_names_the_member(front: Installation) -> None:
    reply = await front.rest(MESSAGES, {"messages": [{"body": "x"}, {"body": "x", "delay_seconds": 901}]})
    assert "delay_seconds must be" in reply.json["messages"][1]["error"]["detail"]


async def test_what_a_caller_sent_is_told_as_it_was(front: Installation) -> None:
    message = {"body": "x", "acks": "WaitTimeSeconds", "attributes": {}}
    assert "Value WaitTimeSeconds for parameter acks" in (await front.rest(MESSAGES, message)).json["detail"]
    reply = await front.rest(MESSAGES + "/ack", {"receipts": ["ReceiptHandle"]})
    assert '"ReceiptHandle"' in reply.json["detail"]


async def test_answer_to_an_unknown_member_does_not_grow_with_its_name(front: Installation) -> None:
    assert len((await front.rest(MESSAGES, {"x" * 100_000: 1})).body) < 2_000


async def test_bearer_token_must_be_right_whole_and_live(front: Installation) -> None:
    """S9."""
    token = front.key.bearer_token
    off = front.add_key(ACCOUNT, active=False)
    from frontend.authn.tokens import mint_bearer_token

    wrong_secret = mint_bearer_token(front.key.access_key_id)
    unknown = mint_bearer_token("AKPSAAAAAAAAAAAAAAAA")
    for bad in (token[:-1], token + "x", "x", wrong_secret, unknown, off.bearer_token, "é"):
        reply = await front.rest(MESSAGES, {"body": "x"}, token=bad)
        assert (reply.status, problem(reply)) == (401, "invalid-client-token-id")
        assert reply.headers["www-authenticate"].startswith("Bearer")
    none = await front.call("POST", MESSAGES, {"host": HOST}, b"{}")
    assert (none.status, problem(none)) == (401, "missing-authentication-token")
    basic = await front.call("POST", MESSAGES, {"host": HOST, "authorization": "Basic YTpi"}, b"{}")
    for refused, words in ((reply, "its account is not active"), (none, "Bearer pstk_"), (basic, "must be Bearer")):
        assert words in json.loads(refused.body)["detail"], "the words of REST, not those of SQS"
    assert front.storage.count() == 0


async def test_signature_is_taken_instead_of_a_token(front: Installation) -> None:
    body = b'{"body":"x"}'
    signed = sign(front.key, "POST", MESSAGES, body, "", front.clock.now_s, "application/json")
    assert (await front.call("POST", MESSAGES, signed, body)).status == 200
    assert (await front.call("POST", MESSAGES + "/ack", signed, body)).status == 401
    other = sign(front.key, "POST", MESSAGES, body, "", front.clock.now_s)
    assert problem(await front.call("POST", MESSAGES, other, body)) == "unsupported-media-type"


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.OVERLOADED, 503), (ErrorCode.OVER_LIMIT, 429), (ErrorCode.NO_QUORUM, 503)],
)
async def test_storage_error_is_a_problem(front: Installation, code: ErrorCode, status: int) -> None:
    front.storage.fail_with = code
    reply = await front.rest(MESSAGES + "/receive", {})
    assert reply.status == status and problem(reply)
    assert status != 503 or "retry-after" in reply.headers


async def test_method_other_than_post_is_refused(front: Installation) -> None:
    assert problem(await front.rest(MESSAGES, method="GET")) == "method-not-allowed"


# --- passed on ---


async def test_management_path_is_passed_on_with_a_maced_principal(front: Installation) -> None:
    front.control_answer = lambda request: httpx2.Response(
        201, content=b'{"ok":1}', headers={"content-type": "application/json", "server": "hidden"}
    )
    headers = {
        "host": HOST,
        "authorization": f"Bearer {front.key.bearer_token}",
        "x-penstock-principal": "forged",
        "x-penstock-principal-mac": "forged",
        "x-forwarded-for": "6.6.6.6",
        "cookie": "a=1",
        "user-agent": "worker/" + "2" * 600,
        "referer": "https://example.com/",
    }
    reply = await front.call("POST", "/v1/queues?limit=3&x=%20y", headers, b'{"name":"q"}')
    assert (reply.status, reply.body) == (201, b'{"ok":1}') and "server" not in reply.headers
    (call,) = front.control_calls
    assert reply.headers["x-request-id"] == call.headers["x-request-id"], "the id that the audit trail has"
    assert front.mac_is_right(call) and call.url.raw_path == b"/v1/queues?limit=3&x=%20y"
    claim = json.loads(base64.urlsafe_b64decode(call.headers["x-penstock-principal"]))
    assert claim["account_id"] == ACCOUNT and claim["issued_ms"] == int(front.clock.now_s * 1000)
    assert claim["user_agent"] == ("worker/" + "2" * 600)[:512] and claim["referer"] == "https://example.com/"
    assert "x-forwarded-for" not in call.headers and "authorization" not in call.headers
    assert call.headers["host"] == HOST and call.headers["x-forwarded-host"] == HOST and call.headers["cookie"] == "a=1"


async def test_management_path_without_a_key_is_refused(front: Installation) -> None:
    reply = await front.call("GET", "/v1/queues", {"host": HOST})
    assert (reply.status, problem(reply)) == (401, "missing-authentication-token") and not front.control_calls


@pytest.mark.parametrize("path", ["/console/", "/static/app.css", "/v1/openapi.json", "/v1/docs"])
async def test_pages_are_passed_on_without_a_principal(front: Installation, path: str) -> None:
    front.control_answer = lambda _: httpx2.Response(200, text="page")
    headers = {"host": HOST, "x-penstock-principal": "forged", "x-penstock-principal-mac": "forged"}
    assert (await front.call("GET", path, headers)).body == b"page"
    assert "x-penstock-principal" not in front.control_calls[0].headers


async def test_unreachable_control_plane_is_a_problem(front: Installation) -> None:
    def dead(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    front.control_answer = dead
    reply = await front.call("GET", "/console/", {"host": HOST})
    assert (reply.status, problem(reply)) == (503, "service-unavailable") and "retry-after" in reply.headers


# --- operators ---


async def test_health_readiness_and_version(front: Installation) -> None:
    assert (await front.call("GET", "/healthz", {})).body == b"ok\n"
    assert (await front.call("GET", "/readyz", {})).status == 200
    assert set((await front.call("GET", "/version", {})).json) == {"version"}
    for method, path in (("PUT", "/healthz"), ("DELETE", "/readyz"), ("TRACE", "/version"), ("POST", "/healthz")):
        reply = await front.call(method, path, {})
        assert (reply.status, problem(reply), reply.headers["allow"]) == (405, "method-not-allowed", "GET, HEAD")
    front.plane.drain()
    assert (await front.call("GET", "/readyz", {})).status == 503
    assert (await front.call("GET", "/metrics", {})).status == 404, "metrics are on the operators' port"


async def test_metrics_count_requests_without_naming_tenants(front: Installation) -> None:
    from frontend.__main__ import operators_application

    await front.rest(MESSAGES, {"body": "x"})
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": ""})
    front.application = operators_application(front.plane)
    text = (await front.call("GET", "/metrics", {})).body.decode()
    assert 'penstock_requests_total{action="send",outcome="ok",way="rest"} 1.0' in text
    assert 'outcome="MissingRequiredParameterException",way="sqs"} 1.0' in text
    assert 'penstock_request_seconds_bucket{action="send",le="+Inf",way="rest"} 1.0' in text
    assert "penstock_messages_sent_total 1.0" in text
    assert ACCOUNT not in text and "orders" not in text and front.key.access_key_id not in text


@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("POST", "/v1/queues", b'{"name": "made", "tags": {}}', "made"),
        ("PATCH", "/v1/queues/orders", b"{}", "orders"),
        ("DELETE", "/v1/queues/line.fifo", b"", "line.fifo"),
        ("POST", "/v1/queues/orders/pause", b"", "orders"),
        ("GET", "/v1/queues/orders", b"", None),
        ("GET", "/v1/queues", b"", None),
        ("POST", "/v1/queues", b'{"name": "a/b"}', None),
        ("POST", "/v1/queues", b"[", None),
        ("POST", "/v1/keys", b'{"name": "made"}', None),
    ],
)
@pytest.mark.parametrize("status", [201, 409])
async def test_what_management_did_to_a_queue_is_seen_before_it_is_answered(
    front: Installation,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: bytes,
    name: str | None,
    status: int,
) -> None:
    """Or a send right behind the answer could meet a front end that has not heard of the queue."""
    refreshed: list[tuple[str, str]] = []

    async def refresh(account_id: str, name: str) -> None:
        refreshed.append((account_id, name))

    monkeypatch.setattr(front.metadata, "refresh_queue", refresh)
    problem = {"content-type": "application/problem+json"}
    front.control_answer = lambda request: httpx2.Response(status, json={"status": status}, headers=problem)
    headers = {"authorization": f"Bearer {front.key.bearer_token}", "host": HOST, "content-type": "application/json"}
    assert (await front.call(method, path, headers, body)).status == status
    assert refreshed == ([(ACCOUNT, name)] if name and status == 201 else [])


@pytest.mark.parametrize(
    "path", ["/v1/people", "/v1/session", "/v1/sessions", "/v1/accounts/1/members", "/v1/invitations/x"]
)
async def test_calls_of_people_go_on_without_a_key_with_the_address_they_come_from(
    front: Installation, path: str
) -> None:
    front.client_host = "203.0.113.9"
    front.control_answer = lambda request: httpx2.Response(200, json={})
    forged = {"x-penstock-source": "10.0.0.1 1", "x-penstock-source-mac": "forged", "session-token": "shown"}
    reply = await front.call("POST", path, {"host": HOST, "content-type": "application/json", **forged}, b"{}")
    assert reply.status == 200
    (call,) = front.control_calls
    source = call.headers["x-penstock-source"]
    assert source == f"203.0.113.9 {int(front.clock.now_s * 1000)}"
    text = "\n".join(("source", "POST", path, source)).encode()
    assert call.headers["x-penstock-source-mac"] == hmac.new(front.internal_key, text, "sha256").hexdigest()
    assert "x-penstock-principal" not in call.headers and call.headers["session-token"] == "shown"


@pytest.mark.parametrize("path", ["/v1/peoples", "/v1/sessionx", "/v1/account", "/v1/keys"])
async def test_all_else_below_v1_asks_for_a_key(front: Installation, path: str) -> None:
    assert (await front.call("GET", path, {"host": HOST})).status == 401
    assert not front.control_calls


@pytest.mark.parametrize("path", ["/v1/session", "/console", "/console/sign-in"])
async def test_calls_of_people_have_a_rate_by_their_address(path: str) -> None:
    front = Installation(addresses=LeakyBuckets(1, 2))
    front.control_answer = lambda request: httpx2.Response(200, json={})
    for address, expected in (
        ("203.0.113.9", [200, 200, 429]),
        ("203.0.113.10", [200, 200, 429]),
        ("2001:db8:1:1::1", [200, 200, 429]),
        ("2001:db8:1:1:2::2", [429, 429, 429]),  # the same /64
        ("2001:db8:1:2::1", [200, 200, 429]),
    ):
        front.client_host = address
        statuses = [(await front.call("GET", path, {"host": HOST})).status for _ in range(3)]
        assert statuses == expected


async def test_calls_without_a_key_leave_places_to_those_with_one(front: Installation) -> None:
    front.control_answer = lambda request: httpx2.Response(200, json={})
    front.plane.control._open_calls.calls = CONTROL_OPEN_CALLS_MAX
    assert (await front.call("GET", "/v1/session", {"host": HOST})).status == 503
    headers = {"authorization": f"Bearer {front.key.bearer_token}", "host": HOST}
    assert (await front.call("GET", "/v1/queues", headers)).status == 200


async def test_control_plane_gets_the_bytes_of_the_path_that_were_checked() -> None:
    """Over a socket: a client that normalises URLs ("/./", "{") would send another path than the MAC is for."""
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async def send(_: Any) -> None:
        pass

    async def receive() -> Any:
        raise AssertionError("there is no body to read")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    control = ControlPlane(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", b"i" * 32)
    for target in (b"/console/./a", b"/console/{a}\"'", b"/console/%27%c3%a9"):
        request = Request("GET", target, b"x={}%5b", "http", "203.0.113.7", [(b"host", b"localhost")], receive)
        request.read_headers()
        assert await control.pass_on(request, None, send, with_pages=True) == 404
        # Somebody else's probe may come to a port that was theirs a moment ago.
        assert b"GET " + target + b"?x={}%5b HTTP/1.1" in lines, lines
    await control.close()
    server.close()


@pytest.mark.parametrize("query", ["dry_run=true", "limit=", "a=1&X-Amz-Date=x", "%", "a", "%ff=1", "X-Amz-Date=x&=1"])
@pytest.mark.parametrize("path", ["", "/receive", "/ack", "/purge", "/delete"])
async def test_parameter_that_no_call_reads_is_refused_and_nothing_done(
    front: Installation, path: str, query: str
) -> None:
    sent = (await front.rest(MESSAGES, {"body": "hi"})).json
    body = {"": {"body": "x"}, "/receive": {}, "/ack": {"receipts": ["x"]}, "/delete": {"id": sent["id"]}}
    reply = await front.rest(f"{MESSAGES}{path}?{query}", body.get(path, {}))
    assert (reply.status, problem(reply)) == (400, "invalid-parameter-value"), reply.body
    assert front.storage.count() == 1
    (stored,) = front.storage.messages(1)
    assert not stored.delivery
