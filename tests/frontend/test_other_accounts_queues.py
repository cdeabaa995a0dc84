"""Queues of other accounts over REST and websocket: what their policies open, by paths that name the account."""

from __future__ import annotations

import asyncio
import json

import pytest

from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from tests.frontend.test_push import Socket
from tests.frontend.test_queue_policies import SECRET_ARN, set_policy, statement
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, Installation

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


@pytest.mark.parametrize("route", ROUTES.values(), ids=lambda route: route.action)
async def test_queue_that_is_not_opened_is_as_one_that_does_not_exist(front: Installation, route: object) -> None:
    (name,) = [name for name, one in ROUTES.items() if one is route]
    action = ROUTES[name].action
    rest = f"/messages/{name.decode()}" if name else "/messages"
    told = [
        await front.rest(f"/v1/accounts/{OTHER_ACCOUNT}/queues/{queue}{rest}", BODIES[action])
        for queue in ("secret", "nothing")
    ]
    assert [reply.status for reply in told] == [403, 403] and not front.storage.logs.get(50)
    assert told[0].json["detail"].replace("secret", "nothing") == told[1].json["detail"]


async def test_own_account_may_be_named_too(front: Installation) -> None:
    assert (await front.rest(f"/v1/accounts/{ACCOUNT}/queues/orders/messages", {"body": "x"})).status == 200


@pytest.mark.parametrize("name", sorted(name.decode() for name in BROWSER_ROUTES if name))
async def test_message_browser_has_no_path_to_other_accounts(front: Installation, name: str) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    before = len(front.control_calls)
    await front.rest(f"{MESSAGES}/{name}", {})
    assert all("x-penstock-principal" not in call.headers for call in front.control_calls[before:])


async def subscribed(front: Installation, monkeypatch: pytest.MonkeyPatch) -> Socket:
    """Its path names the other account."""
    application = front.application

    async def elsewhere(scope: dict[str, object], receive: object, send: object) -> None:
        await application({**scope, "path": f"{QUEUE}/subscribe"}, receive, send)  # type: ignore[arg-type]

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
    for _ in range(100):
        if any(frame["type"] == "message" for frame in frames(socket)):
            break
        await asyncio.sleep(0.01)
    assert [frame["type"] for frame in frames(socket)] == ["ready", "message"]
    await socket.leave()


async def test_websocket_to_a_queue_that_is_not_opened_is_closed(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = await subscribed(front, monkeypatch)
    await asyncio.wait_for(socket.task, 5)
    (closed,) = [message for message in socket.sent if message["type"] == "websocket.close"]
    assert closed["code"] == 4403 and "message" not in [frame["type"] for frame in frames(socket)]
