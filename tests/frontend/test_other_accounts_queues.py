"""Queues of other accounts over REST, websocket and bulk socket: what their policies open, by paths that name the
account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from frontend.metadata.interface import MISS, MetadataUnavailable
from frontend.push.closing import CLOSE_FORBIDDEN
from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from storage_nodes.protocol.messages import MessageState
from tests.frontend.test_queue_policies import SECRET_ARN, set_policy, statement
from tests.support.bulk_socket import JSON, BulkSocket
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, Installation
from tests.support.push_socket import Socket

QUEUE = f"/v1/accounts/{OTHER_ACCOUNT}/queues/secret"
MESSAGES = f"{QUEUE}/messages"
BODIES = {
    "send": {"body": "x"},
    "receive": {},
    "ack": {"receipts": ["r"]},
    "extend": {"receipts": ["r"], "visibility_seconds": 1},
    "release": {"receipts": ["r"]},
}


async def test_policy_opens_every_step_of_a_message_over_rest(front: Installation) -> None:
    actions = ["sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", actions, SECRET_ARN))
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200
    (message,) = (await front.rest(f"{MESSAGES}/receive", {})).json["messages"]
    receipts = {"receipts": [message["receipt"]]}
    assert message["body"] == "x"
    assert (await front.rest(f"{MESSAGES}/extend", {**receipts, "visibility_seconds": 60})).json["done"] == 1
    assert (await front.rest(f"{MESSAGES}/ack", receipts)).json["done"] == 1
    own = await front.rest("/v1/queues/secret/messages", {"body": "x"})
    assert own.status == 404, "the path without an account is of the caller's own queues"


async def test_owner_is_told_the_account_of_a_foreign_sender_and_not_its_key(front: Installation) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:SendMessage", SECRET_ARN))
    url = f"http://{HOST}/{OTHER_ACCOUNT}/secret"
    assert (await front.rest(MESSAGES, {"body": "rest"})).status == 200
    assert (await front.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "sqs"})).status == 200
    token = front.other_key.bearer_token
    assert (await front.rest("/v1/queues/secret/messages", {"body": "own"}, token)).status == 200
    received = await front.rest("/v1/queues/secret/messages/receive", {"max_messages": 10}, token)
    senders = {message["body"]: message["sender"] for message in received.json["messages"]}
    assert senders == {"rest": ACCOUNT, "sqs": ACCOUNT, "own": front.other_key.access_key_id}
    assert front.key.access_key_id.encode() not in received.body


async def test_foreign_receiver_is_told_the_owner_and_not_its_key(front: Installation) -> None:
    actions = ["sqs:SendMessage", "sqs:ReceiveMessage"]
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", actions, SECRET_ARN))
    token = front.other_key.bearer_token
    assert (await front.rest("/v1/queues/secret/messages", {"body": "owner's"}, token)).status == 200
    assert (await front.rest(MESSAGES, {"body": "own"})).status == 200
    url = f"http://{HOST}/{OTHER_ACCOUNT}/secret"
    asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0, "AttributeNames": ["SenderId"]}
    over_sqs = await front.sqs("ReceiveMessage", asked)
    senders = {message["Body"]: message["Attributes"]["SenderId"] for message in over_sqs.json["Messages"]}
    assert senders == {"owner's": OTHER_ACCOUNT, "own": ACCOUNT}
    over_rest = await front.rest(f"{MESSAGES}/receive", {"max_messages": 10})
    assert {message["body"]: message["sender"] for message in over_rest.json["messages"]} == senders
    assert front.other_key.access_key_id.encode() not in over_sqs.body + over_rest.body


@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.action)
async def test_queue_that_is_not_opened_is_as_one_that_does_not_exist(front: Installation, route: object) -> None:
    (name,) = [name for name, one in ROUTES.items() if one is route]
    action = ROUTES[name].action
    rest = f"/messages/{name.decode()}" if name else "/messages"
    told = [
        await front.rest(f"/v1/accounts/{OTHER_ACCOUNT}/queues/{queue}{rest}", BODIES[action])
        for queue in ("secret", "nothing")
    ]
    assert [reply.status for reply in told] == [403, 403] and not front.storage.messages(50)
    assert told[0].json["detail"].replace("secret", "nothing") == told[1].json["detail"]


async def test_own_account_may_be_named_too(front: Installation) -> None:
    assert (await front.rest(f"/v1/accounts/{ACCOUNT}/queues/orders/messages", {"body": "x"})).status == 200


@pytest.mark.parametrize("name", sorted(name.decode() for name in BROWSER_ROUTES if name))
async def test_message_browser_has_no_path_to_other_accounts(front: Installation, name: str) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    before = len(front.control_calls)
    await front.rest(f"{MESSAGES}/{name}", {})
    assert all("x-penstock-principal" not in call.headers for call in front.control_calls[before:])


async def until(condition: Callable[[], bool]) -> None:
    """Look-ups and refusals of foreign queues take time."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def subscribed(front: Installation, monkeypatch: pytest.MonkeyPatch, wire: str = "subscribe") -> Socket:
    """Its path names the other account."""
    application = front.application

    async def elsewhere(scope: dict[str, object], receive: object, send: object) -> None:
        await application({**scope, "path": f"{QUEUE}/{wire}"}, receive, send)  # type: ignore[arg-type]

    monkeypatch.setattr(front, "application", elsewhere)
    return Socket(front, "secret", {"authorization": f"Bearer {front.key.bearer_token}"})


def frames(socket: Socket) -> list[dict[str, object]]:
    return [json.loads(message["text"]) for message in socket.sent if message["type"] == "websocket.send"]


async def test_policy_opens_a_websocket(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    actions = ["sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage"]
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", actions, SECRET_ARN))
    await front.rest(MESSAGES, {"body": "x"})
    socket = await subscribed(front, monkeypatch)
    socket.say({"type": "credit", "n": 1})
    await until(lambda: any(frame["type"] == "message" for frame in frames(socket)))
    assert [frame["type"] for frame in frames(socket)] == ["ready", "message"]
    await socket.leave()


async def test_websocket_to_a_queue_that_is_not_opened_is_closed(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = await subscribed(front, monkeypatch)
    await asyncio.wait_for(socket.task, 5)
    (closed,) = [message for message in socket.sent if message["type"] == "websocket.close"]
    assert closed["code"] == 4403 and "message" not in [frame["type"] for frame in frames(socket)]


async def first(socket: BulkSocket, kind: str) -> dict[str, object]:
    await until(lambda: bool(socket.of(kind)))
    return socket.of(kind)[0]


def bulk_socket(front: Installation, queue: str = "secret") -> BulkSocket:
    return BulkSocket(front, queue, [JSON], "", of_account=OTHER_ACCOUNT)


async def test_policy_opens_a_bulk_socket(front: Installation) -> None:
    actions = ["sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage"]
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", actions, SECRET_ARN))
    socket = bulk_socket(front)
    socket.publish(1, "a", "b")
    assert (await first(socket, "confirm"))["failed"] == []
    socket.say({"type": "credit", "n": 2})
    await until(lambda: len(socket.bodies()) == 2)
    socket.say({"type": "nack", "ranges": [[2, 2]]})
    assert (await first(socket, "error"))["code"] == "access-denied", "it opens no ChangeMessageVisibility"
    socket.say({"type": "ack", "ranges": [[1, 1]]})
    await until(lambda: front.storage.count() == 1)
    await socket.leave()


@pytest.mark.parametrize(("opened", "told"), [("sqs:SendMessage", "error"), ("sqs:ReceiveMessage", "refuse")])
async def test_bulk_socket_does_what_the_policy_opens_alone(front: Installation, opened: str, told: str) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", opened, SECRET_ARN))
    socket = bulk_socket(front)
    await first(socket, "ready")
    socket.publish(1, "a")
    socket.say({"type": "credit", "n": 1})
    assert (await first(socket, told))["code"] == "access-denied"
    assert not socket.bodies() and front.storage.count() == (opened == "sqs:SendMessage")
    await socket.leave()


async def test_bulk_socket_to_a_queue_that_is_not_opened_tells_nothing_of_it(front: Installation) -> None:
    """As one that does not exist."""
    sockets = [bulk_socket(front, queue) for queue in ("secret", "nothing")]
    await asyncio.wait_for(asyncio.gather(*(socket.task for socket in sockets)), 5)
    codes, told = zip(*((socket.sent[-1]["code"], socket.of("error")[0]["detail"]) for socket in sockets), strict=True)
    assert codes == (CLOSE_FORBIDDEN, CLOSE_FORBIDDEN) and told[0].replace("secret", "nothing") == told[1]
    assert not any(socket.of("ready") for socket in sockets) and not front.storage.count()


async def test_live_tail_has_no_path_to_other_accounts(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    socket = await subscribed(front, monkeypatch, "tail")
    await asyncio.wait_for(socket.task, 5)
    assert socket.refused[0] == 404


async def test_owner_that_cannot_be_looked_up_is_an_outage_and_leases_go_back(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is at hand, the account that it is of is not."""
    actions = ["sqs:SendMessage", "sqs:ReceiveMessage"]
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", actions, SECRET_ARN))
    socket = bulk_socket(front)
    await first(socket, "ready")
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200
    lease, began = front.storage.acquire, asyncio.Event()

    async def away(_: str) -> None:
        raise MetadataUnavailable("the metadata service does not answer")

    async def then_away(*arguments: object, **more: object) -> object:
        monkeypatch.setattr(front.metadata, "cached_account", lambda _: MISS)
        monkeypatch.setattr(front.metadata, "get_account", away)
        began.set()
        return await lease(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(front.storage, "acquire", then_away)
    reply = await front.rest(MESSAGES + "/receive", {"visibility_seconds": 600, "wait_seconds": 1})
    assert reply.status == 503 and began.is_set()
    assert [message.state for message in front.storage.messages(50)] == [MessageState.WAITING]
    socket.publish(1, "a")
    assert (await first(socket, "refuse"))["code"] == "service-unavailable"
    await socket.leave()


async def test_leases_go_back_where_their_receive_breaks(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    monkeypatch.setattr("frontend.messages.receive.still_caller", broken)
    assert (await front.rest("/v1/queues/orders/messages/receive", {"wait_seconds": 1})).status == 500
    assert [message.state for message in front.storage.messages(1)] == [MessageState.WAITING]
