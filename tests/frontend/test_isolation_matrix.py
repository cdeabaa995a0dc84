"""Every action and route of the data plane, by every kind of credential: made from the route tables, so what is added
there is tested here. tests/api/test_isolation_matrix.py has those that the control plane answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from frontend.authn.tokens import MintedKey, mint_key
from frontend.metadata.records import PolicyRecord
from frontend.rest.call import Route
from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from frontend.rest.parked import PARKED_ROUTES
from frontend.rest.scheduled import SCHEDULED_ROUTES
from frontend.sqs.actions import ACTIONS, SqsAction
from tests.support.bulk_socket import JSON, BulkSocket
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation
from tests.support.push_socket import Socket

ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"
# Something for every parameter that an action cannot do without. A new one fails until it has a line.
PARAMETERS: dict[str, Any] = {
    "QueueUrl": QUEUE_URL,
    "QueueName": "orders",
    "QueueOwnerAWSAccountId": ACCOUNT,
    "MessageBody": "x",
    "Entries": [{"Id": "a", "MessageBody": "x", "ReceiptHandle": "r", "VisibilityTimeout": 1}],
    "ReceiptHandle": "r",
    "VisibilityTimeout": 1,
    "Attributes": {"DelaySeconds": "1"},
    "Tags": {"a": "b"},
    "TagKeys": ["a"],
    "Label": "l",
    "AWSAccountIds": [OTHER_ACCOUNT],
    "Actions": ["SendMessage"],
    "SourceArn": ARN,
    "DestinationArn": ARN.replace("orders", "others"),
    "TaskHandle": "t",
}
# What the control plane decides about: the front end passes it on in the name of the caller alone.
PASSED_ON = {
    "CreateQueue", "ListQueues", "StartMessageMoveTask", "ListMessageMoveTasks", "CancelMessageMoveTask",
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "send": {"body": "x"},
    "receive": {},
    "ack": {"receipts": ["r"]},
    "extend": {"receipts": ["r"], "visibility_seconds": 1},
    "release": {"receipts": ["r"]},
    "peek": {},
    "find": {"filter": {}},
    "browser_delete": {"message": "m"},
    "browser_dead_letter": {"message": "m", "reason": "r"},
    "browser_resend": {"message": "m"},
    "browser_purge": {},
    "parked-groups": {},
    "release-groups": {"all": True},
    "list_scheduled": {},
    "cancel_scheduled": {"ids": ["i"]},
    "reschedule": {"ids": ["i"], "delay_ms": 1_000},
}
SUBFOLDERS: dict[str, dict[bytes | None, Route]] = {
    "messages": ROUTES | BROWSER_ROUTES,
    "parked-groups": PARKED_ROUTES,
    "scheduled": SCHEDULED_ROUTES,
}
PATHS = [
    (route, f"/v1/queues/orders/{folder}" + (f"/{name.decode()}" if name else ""))
    for folder, table in SUBFOLDERS.items()
    for name, route in table.items()
]
# The same, by paths that name the account.
OF_ACCOUNT = f"/v1/accounts/{ACCOUNT}/queues/"
PATHS += [
    (route, path.replace("/v1/queues/", OF_ACCOUNT))
    for route, path in PATHS
    if any(route is one for one in ROUTES.values())
]
KINDS = ("none", "other account", "no right", "denied", "switched off", "expired", "revoked")
DENIED = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "*", "Resource": ARN},
]}  # fmt: skip


def credential(front: Installation, kind: str) -> MintedKey | None:
    match kind:
        case "none":
            return None
        case "other account":
            return front.other_key
        case "no right":
            return front.add_key(ACCOUNT, policies=[])
        case "denied":
            return front.add_key(ACCOUNT, policies=[PolicyRecord("key", json.dumps(DENIED))])
        case "switched off":  # also the keys of a suspended account
            return front.add_key(ACCOUNT, active=False)
        case "expired":
            return front.add_key(ACCOUNT, expires_at_ms=int(front.clock.now_s * 1000) - 1)
    return mint_key()


def parameters_of(action: SqsAction) -> dict[str, Any]:
    names = {field.encode_name for field in msgspec.structs.fields(action.parameters)}
    found = {name: value for name, value in PARAMETERS.items() if name in names}
    if action.name == "CreateQueue":
        found["Attributes"] = {}
    return found


def state_of(front: Installation) -> tuple[Any, ...]:
    """What a refused request must not touch."""
    return front.storage.contents(), dict(front.metadata.queues), list(front.audit)


async def prepared(front: Installation) -> tuple[Any, ...]:
    front.add_queue("others", (7,))
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "private"})).status == 200
    front.control_calls.clear()
    return state_of(front)


def callers_of(front: Installation) -> set[str]:
    return {json.loads(call.content)["account_id"] for call in front.control_calls}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", list(ACTIONS.values()), ids=lambda action: action.name)
async def test_sqs_action_of_a_caller_without_the_right(front: Installation, action: SqsAction, kind: str) -> None:
    before = await prepared(front)
    key, params = credential(front, kind), parameters_of(action)
    if key is None:
        headers = {
            "host": HOST,
            "x-amz-target": f"AmazonSQS.{action.name}",
            "content-type": "application/x-amz-json-1.0",
        }
        reply = await front.call("POST", "/", headers, json.dumps(params).encode())
    else:
        reply = await front.sqs(action.name, params, key=key)
    assert b"private" not in reply.body
    if kind in ("switched off", "expired", "revoked"):
        assert reply.error == "InvalidClientTokenId" and not front.control_calls
    elif kind == "none":
        assert reply.error == "MissingAuthenticationToken" and not front.control_calls
    elif action.name in PASSED_ON:
        assert callers_of(front) == {OTHER_ACCOUNT if kind == "other account" else ACCOUNT}
        return
    elif kind == "other account" and action.name == "GetQueueUrl":
        assert reply.error == "QueueDoesNotExist"
    else:
        assert (reply.status, reply.error) == (403, "AccessDeniedException"), reply.body
        assert not front.control_calls
    assert state_of(front) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("route", "path"), PATHS, ids=lambda value: getattr(value, "action", ""))
async def test_route_of_a_caller_without_the_right(front: Installation, route: Route, path: str, kind: str) -> None:
    before = await prepared(front)
    key = credential(front, kind)
    headers = {"host": HOST, "content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key.bearer_token}"
    reply = await front.call(route.method, path, headers, json.dumps(BODIES[route.action]).encode())
    # A path without an account names a queue of the caller's own: that of another has none of the name.
    foreign = 403 if path.startswith(OF_ACCOUNT) else 404
    status = {"other account": foreign, "no right": 403, "denied": 403}.get(kind, 401)
    assert reply.status == status, reply.body
    assert b"private" not in reply.body and not front.control_calls and state_of(front) == before


@pytest.mark.parametrize("kind", KINDS)
async def test_socket_of_a_caller_without_the_right(front: Installation, kind: str) -> None:
    before = await prepared(front)
    key = credential(front, kind)
    socket = Socket(front, "orders", {} if key is None else {"authorization": f"Bearer {key.bearer_token}"})
    socket.say({"type": "credit", "n": 5})
    await asyncio.wait_for(socket.task, 5)
    assert not socket.of("message") and state_of(front) == before
    expected = {"other account": 4404, "no right": 4403, "denied": 4403, "none": 4401}.get(kind)
    assert socket.close_code == expected if expected else socket.refused[0] == 401


@pytest.mark.parametrize("of_account", ["", ACCOUNT], ids=["own path", "path of the account"])
@pytest.mark.parametrize("kind", KINDS)
async def test_bulk_socket_of_a_caller_without_the_right(front: Installation, kind: str, of_account: str) -> None:
    before = await prepared(front)
    key = credential(front, kind)
    token = None if key is None else key.bearer_token
    socket = BulkSocket(front, "orders", [JSON], token, of_account=of_account)
    socket.publish(1, "x")
    socket.say({"type": "credit", "n": 5})
    await asyncio.wait_for(socket.task, 5)
    assert not socket.bodies() and not socket.of("confirm") and state_of(front) == before
    foreign = 4403 if of_account else 4404
    expected = {"other account": foreign, "no right": 4403, "denied": 4403}.get(kind)
    last = socket.sent[-1] if expected else next(one for one in socket.sent if "status" in one)
    assert last.get("code") == expected if expected else last["status"] == 401


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("kind", ["none", "switched off", "expired", "revoked"])
async def test_management_call_of_no_valid_key_is_not_passed_on(front: Installation, kind: str, method: str) -> None:
    key = credential(front, kind)
    headers = {"host": HOST} if key is None else {"host": HOST, "authorization": f"Bearer {key.bearer_token}"}
    for path in ("/v1/queues/orders", "/v1/keys", "/v1/policies", "/v1/anything"):
        assert (await front.call(method, path, headers)).status == 401
    assert not front.control_calls


@pytest.mark.parametrize("action", list(ACTIONS.values()), ids=lambda action: action.name)
async def test_sqs_action_of_a_key_that_may_do_everything_is_not_refused(
    front: Installation, action: SqsAction
) -> None:
    """Or the matrix would show nothing."""
    await prepared(front)
    everything = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    key = front.add_key(ACCOUNT, policies=[PolicyRecord("key", json.dumps(everything))])
    reply = await front.sqs(action.name, parameters_of(action), key=key)
    assert reply.status not in (401, 403, 500), reply.body


@pytest.mark.parametrize(("route", "path"), PATHS, ids=lambda value: getattr(value, "action", ""))
async def test_route_of_a_key_that_may_do_everything_is_not_refused(
    front: Installation, route: Route, path: str
) -> None:
    await prepared(front)
    headers = {"host": HOST, "authorization": f"Bearer {front.key.bearer_token}"}
    reply = await front.call(route.method, path, headers, json.dumps(BODIES[route.action]).encode())
    assert reply.status not in (401, 403, 500), reply.body


def test_every_parameter_of_every_action_is_known_here() -> None:
    needed = {name for action in ACTIONS.values() for name in parameters_of(action)}
    assert needed == set(PARAMETERS)


async def test_counts_tell_nothing_of_queues_that_the_key_may_not_look_at(front: Installation) -> None:
    await prepared(front)
    for kind, code in (("no right", "access-denied"), ("other account", "queue-does-not-exist")):
        key = credential(front, kind)
        assert key is not None
        reply = await front.rest("/v1/message-counts", {"queues": ["orders"]}, key.bearer_token)
        assert reply.json["queues"]["orders"]["error"]["code"] == code
