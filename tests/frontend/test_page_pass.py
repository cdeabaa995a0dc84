"""The pass with which pages ask for messages (decision 0023): one request about messages, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.authn.page_pass import PAGE_PASS_AGE_MS_MAX, make_page_pass
from frontend.authn.principal import Principal, PrincipalKind, person
from frontend.authn.vouching import principal_of_claim
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, START_S, Installation, Reply

PERSON = "0a3c1111-1111-4111-8111-111111111111"
PEEK = "/v1/queues/orders/messages/peek"


async def call(plane: Installation, target: str, content: Any, method: str = "POST", **tricks: Any) -> Reply:
    """`tricks`: what the pass says, or was made for, instead."""
    body = json.dumps(content).encode() if content is not None else b""
    issued_ms = int(START_S * 1000) - tricks.get("age_ms", 0)
    who = person(tricks.get("account", ACCOUNT), PERSON, "10.0.0.7", False, tricks.get("acting_as", ""))
    made_for = tricks.get("made_for", target).encode()
    key = tricks.get("key", plane.internal_key)
    made_method, made_body = tricks.get("made_method", method), tricks.get("made_body", body)
    token = make_page_pass(key, made_method, made_for, made_body, who, issued_ms)
    headers = {"host": HOST, "content-type": "application/json", "authorization": tricks.get("token", token)}
    return await plane.call(method, target, headers, body)


def installation(with_key: bool = True) -> Installation:
    plane = Installation()
    plane.plane.authenticator._page_key = plane.internal_key if with_key else b""
    return plane


async def test_pass_opens_the_message_browser_as_the_person() -> None:
    plane = installation()
    assert (await call(plane, "/v1/queues/orders/messages", {"body": "hello"})).status == 200
    (message,) = (await call(plane, PEEK, {})).json["messages"]
    assert message["body"] == "hello" and message["sender"] == f"person:{PERSON}"


async def test_what_a_person_does_stands_in_the_audit_trail() -> None:
    plane = installation()
    await call(plane, "/v1/queues/orders/messages", {"body": "hello"})
    (message,) = (await call(plane, PEEK, {})).json["messages"]
    answer = await call(plane, "/v1/queues/orders/messages/delete", {"message": message["message"], "reason": "r"})
    assert answer.status == 200 and plane.audit[-1]["action"] == "message.delete"


async def test_purge_is_noted_before_it_is_done() -> None:
    plane = installation()
    await call(plane, "/v1/queues/orders/messages", {"body": "hello"})
    assert (await call(plane, "/v1/queues/orders/messages/purge", {})).status == 200
    assert plane.audit == [{"action": "queue.purge", "queue": "orders"}]
    assert (await call(plane, PEEK, {})).json["messages"] == []


async def test_purge_that_cannot_be_noted_is_not_done() -> None:
    import httpx2

    plane = installation()
    await call(plane, "/v1/queues/orders/messages", {"body": "hello"})
    plane.control_answer = lambda request: httpx2.Response(503)
    assert (await call(plane, "/v1/queues/orders/messages/purge", {})).status == 503
    assert len((await call(plane, PEEK, {})).json["messages"]) == 1


@pytest.mark.parametrize(
    "tricks",
    [
        {"made_for": "/v1/queues/other/messages/peek"},
        {"made_method": "GET"},
        {"made_body": b'{"limit": 1}'},
        {"age_ms": PAGE_PASS_AGE_MS_MAX + 1},
        {"age_ms": -PAGE_PASS_AGE_MS_MAX - 1},
        {"key": b"x" * 32},
        {"token": "Penstock-Page "},
        {"token": "Penstock-Page a.b"},
        {"token": "Penstock-Page " + "a" * 5_000},
    ],
    ids=str,
)
async def test_pass_that_was_not_made_for_this_request_opens_nothing(tricks: dict[str, Any]) -> None:
    assert (await call(installation(), PEEK, {}, **tricks)).status in (401, 403)


async def test_front_end_without_the_key_takes_no_pass() -> None:
    plane = installation(with_key=False)
    assert (await call(plane, PEEK, {}, key=b"")).status in (401, 403)


@pytest.mark.parametrize("target", ["/v1/queues", "/v1/keys", "/v1/account", "/v1/queues/orders"])
async def test_pass_opens_no_management(target: str) -> None:
    plane = installation()
    assert (await call(plane, target, None, "GET")).status in (401, 403)
    assert not plane.control_calls


async def test_pass_for_an_account_opens_no_queue_of_another() -> None:
    answer = await call(installation(), "/v1/queues/secret/messages/peek", {}, account=ACCOUNT)
    assert answer.status == 404
    assert (await call(installation(), PEEK, {}, account=OTHER_ACCOUNT)).status == 404


async def test_counts_of_many_queues_come_in_one_call() -> None:
    plane = installation()
    for _ in range(3):
        await call(plane, "/v1/queues/orders/messages", {"body": "hello"})
    counts = (await call(plane, "/v1/message-counts", {"queues": ["orders", "none", "orders"]})).json["queues"]
    assert counts["orders"]["waiting"] == 3 and counts["orders"]["in_flight"] == 0
    assert counts["none"]["error"]["code"] == "queue-does-not-exist"


@pytest.mark.parametrize("queues", [[], ["a"] * 51, ["../x"], "orders"], ids=str)
async def test_counts_are_refused_for_what_names_no_queues(queues: Any) -> None:
    assert (await call(installation(), "/v1/message-counts", {"queues": queues})).status == 400


async def test_person_receives_although_no_key_can_be_looked_at_again() -> None:
    plane = installation()
    await call(plane, "/v1/queues/orders/messages", {"body": "hello"})
    answer = await call(plane, "/v1/queues/orders/messages/receive", {"wait_seconds": 1})
    assert [one["body"] for one in answer.json["messages"]] == ["hello"]


@pytest.mark.parametrize(
    ("principal", "acting_as", "status"),
    [
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/person/{PERSON}"}, "", 403),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/person/another"}, "", 200),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/person/another"}, "another", 403),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "", 403),
        ("*", "", 403),
    ],
)
async def test_policy_of_a_queue_is_weighed_for_the_person(principal: Any, acting_as: str, status: int) -> None:
    plane = installation()
    statement = {"Effect": "Deny", "Principal": principal, "Action": "sqs:ReceiveMessage", "Resource": "*"}
    plane.add_queue("guarded", attributes={"Policy": json.dumps({"Version": "2012-10-17", "Statement": statement})})
    answer = await call(plane, "/v1/queues/guarded/messages/peek", {}, acting_as=acting_as)
    assert answer.status == status


async def test_pass_opens_nothing_for_what_is_no_person() -> None:
    """A claim of a key with a good MAC: rights of a page are a person's."""
    plane = installation()
    key = Principal(ACCOUNT, plane.key.access_key_id)
    token = make_page_pass(plane.internal_key, "POST", PEEK.encode(), b"{}", key, int(START_S * 1000))
    assert (await call(plane, PEEK, {}, token=token)).status in (401, 403)


async def test_operator_who_acts_as_a_member_is_noted_with_both_names() -> None:
    plane = installation()
    await call(plane, "/v1/queues/orders/messages/purge", {}, acting_as="ann")
    headers = plane.control_calls[-1].headers
    claim = headers["x-penstock-principal"]
    found = principal_of_claim(claim.encode(), int(START_S * 1000), PAGE_PASS_AGE_MS_MAX)
    assert (found.name, found.acting_as, found.kind) == (f"person:{PERSON}", "person:ann", PrincipalKind.OPERATOR)
