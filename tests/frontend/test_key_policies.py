"""What the policies of a key allow and close, on every way into the data plane; docs/policies.md."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import msgspec
import pytest

from frontend.authn.principal import Principal
from frontend.authn.tokens import MintedKey
from frontend.errors import RequestError
from frontend.messages import admission
from frontend.metadata.records import AccountRecord, PolicyRecord
from frontend.queues.names import Address
from tests.frontend.test_queue_policies import ORDERS_ARN, SECRET_ARN, SECRET_URL, set_policy, statement
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation
from tests.support.push_socket import Socket
from tests.support.settling import settle

SEND = {"QueueUrl": QUEUE_URL, "MessageBody": "x"}


def allow(actions: str | list[str], arn: str = ORDERS_ARN, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": arn, **more}


def deny(actions: str | list[str], arn: str = "*", **more: Any) -> dict[str, Any]:
    return {**allow(actions, arn, **more), "Effect": "Deny"}


def document(*statements: dict[str, Any]) -> PolicyRecord:
    return PolicyRecord("key", json.dumps({"Version": "2012-10-17", "Statement": list(statements)}))


def restricted(front: Installation, *statements: dict[str, Any], **fields: Any) -> MintedKey:
    """A key of ACCOUNT with one policy; without statements it has none, and may do nothing."""
    policies = [document(*statements)] if statements else []
    return front.add_key(ACCOUNT, policies=policies, **fields)


def change_key(front: Installation, key: MintedKey, **changes: Any) -> None:
    record = front.metadata.keys[key.access_key_id]
    changes = {"version": record.version + 1, **changes}
    front.metadata.keys[key.access_key_id] = msgspec.structs.replace(record, **changes)


async def test_key_may_do_what_its_policy_allows_and_nothing_else(front: Installation) -> None:
    key = restricted(front, allow("sqs:SendMessage"))
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 200
    refused = await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL}, key=key)
    assert (refused.status, refused.error) == (403, "AccessDeniedException")
    assert refused.json["Message"] == (
        f"User: arn:aws:iam::{ACCOUNT}:user/key/{key.access_key_id} is not authorized to perform: sqs:receivemessage "
        f"on resource: {ORDERS_ARN} because no identity-based policy allows the sqs:receivemessage action"
    )
    front.add_queue("other", (7,))
    elsewhere = {**SEND, "QueueUrl": QUEUE_URL.replace("orders", "other")}
    assert (await front.sqs("SendMessage", elsewhere, key=key)).status == 403
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json["Messages"], "the other key has no policy"


async def test_batch_asks_for_the_action_of_the_single_call(front: Installation) -> None:
    key = restricted(front, allow("sqs:SendMessage"))
    entries = {"QueueUrl": QUEUE_URL, "Entries": [{"Id": "a", "MessageBody": "x"}]}
    assert (await front.sqs("SendMessageBatch", entries, key=key)).status == 200
    assert (await front.sqs("DeleteMessageBatch", entries, key=key)).status == 403


async def test_deny_wins_over_all_that_allows(front: Installation) -> None:
    key = restricted(front, allow("*", "*"), deny("sqs:SendMessage"))
    set_policy(front, ACCOUNT, "orders", statement("Allow", "sqs:SendMessage", ORDERS_ARN, principal="*"))
    refused = await front.sqs("SendMessage", SEND, key=key)
    assert refused.json["Message"].endswith("with an explicit deny in an identity-based policy")
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL}, key=key)).status == 200


async def test_key_whose_policies_are_gone_may_do_nothing(front: Installation) -> None:
    key = restricted(front)
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 403


async def test_policy_that_cannot_be_understood_denies_everything(front: Installation) -> None:
    key = front.add_key(ACCOUNT, policies=[document(allow("*", "*")), PolicyRecord("old", '{"Statement": 1}')])
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 403


async def test_within_the_account_the_policy_of_the_queue_is_enough(front: Installation) -> None:
    key = restricted(front)
    named = f"arn:aws:iam::{ACCOUNT}:user/key/{key.access_key_id}"
    set_policy(front, ACCOUNT, "orders", statement("Allow", "sqs:SendMessage", ORDERS_ARN, principal=named))
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 200
    assert (await front.sqs("SendMessage", SEND, key=restricted(front))).status == 403, "it names another key"


async def test_queue_policy_that_names_the_account_leaves_it_to_the_policy_of_the_key(front: Installation) -> None:
    set_policy(front, ACCOUNT, "orders", statement("Allow", "sqs:SendMessage", ORDERS_ARN, principal=ACCOUNT))
    assert (await front.sqs("SendMessage", SEND, key=restricted(front))).status == 403


async def test_across_accounts_both_sides_must_allow(front: Installation) -> None:
    send = {"QueueUrl": SECRET_URL, "MessageBody": "x"}
    allowed, other = restricted(front, allow("sqs:SendMessage", SECRET_ARN)), restricted(front, allow("sqs:*"))
    assert (await front.sqs("SendMessage", send, key=allowed)).status == 403
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:SendMessage", SECRET_ARN))
    assert (await front.sqs("SendMessage", send, key=allowed)).status == 200
    refused = await front.sqs("SendMessage", send, key=other)
    assert refused.json["Message"].endswith("because no resource-based policy allows the sqs:sendmessage action")
    absent = await front.sqs("SendMessage", {**send, "QueueUrl": SECRET_URL.replace("secret", "absent")}, key=other)
    assert refused.body == absent.body.replace(b"absent", b"secret"), "no word of whether there is such a queue"


async def test_queue_that_is_not_there_is_told_to_those_who_may_use_it(front: Installation) -> None:
    absent = {**SEND, "QueueUrl": QUEUE_URL.replace("orders", "absent")}
    assert (await front.sqs("SendMessage", absent, key=restricted(front, allow("sqs:*")))).status == 403
    told = await front.sqs("SendMessage", absent, key=restricted(front, allow("sqs:*", "*")))
    assert told.error == "QueueDoesNotExist"
    front.metadata.cold = True
    assert (await front.sqs("SendMessage", absent, key=restricted(front, allow("sqs:*")))).status == 403


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}, True),
        ({"IpAddress": {"aws:SourceIp": "203.0.114.0/24"}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, False),
        ({"DateLessThan": {"aws:CurrentTime": "2023-11-15T00:00:00Z"}}, True),
        ({"DateLessThan": {"aws:CurrentTime": "2023-11-14T00:00:00Z"}}, False),
        ({"ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:user/key/AKPS*"}}, True),
        ({"StringEquals": {"aws:PrincipalAccount": OTHER_ACCOUNT}}, False),
        ({"StringEquals": {"aws:PrincipalTag/team": "blue"}}, True),
        ({"StringEquals": {"aws:ResourceTag/env": "test"}}, True),
        ({"StringEquals": {"aws:ResourceTag/env": "${aws:PrincipalTag/team}"}}, False),
    ],
)
async def test_conditions_see_the_request_the_key_and_the_queue(
    front: Installation, condition: dict[str, Any], holds: bool
) -> None:
    front.client_host = "203.0.113.7"
    record = front.metadata.queues[ACCOUNT, "orders"]
    front.metadata.queues[ACCOUNT, "orders"] = msgspec.structs.replace(record, tags={"env": "test"})
    key = restricted(front, allow("sqs:SendMessage", Condition=condition), tags={"team": "blue"})
    for _ in range(2):
        assert (await front.sqs("SendMessage", SEND, key=key)).status == (200 if holds else 403)


async def test_condition_is_evaluated_at_every_request(front: Installation) -> None:
    """Nothing of what was allowed is remembered where it hangs on the request."""
    condition = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    key = restricted(front, allow("sqs:SendMessage", Condition=condition))
    for address, status in (("203.0.113.7", 200), ("203.0.114.7", 403), ("203.0.113.8", 200)):
        front.client_host = address
        assert (await front.sqs("SendMessage", SEND, key=key)).status == status


async def test_what_was_allowed_from_one_address_is_remembered_for_that_alone(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    evaluate = admission.evaluate

    def counted(request: Any, *policies: Any) -> Any:
        asked.append(request.source_ip)
        return evaluate(request, *policies)

    monkeypatch.setattr(admission, "evaluate", counted)
    inside = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
    key = restricted(front, allow("sqs:SendMessage", Condition=inside))
    for address, status, evaluations in (
        ("10.1.1.1", 200, 1), ("10.1.1.1", 200, 0), ("9.9.9.9", 403, 1), ("9.9.9.9", 403, 1), ("10.1.1.2", 200, 1),
        ("10.1.1.1", 200, 0),
    ):  # fmt: skip
        front.client_host = address
        asked.clear()
        assert (await front.rest("/v1/queues/orders/messages", {"body": "x"}, token=key.bearer_token)).status == status
        assert len(asked) == evaluations, address


@pytest.mark.parametrize(("key", "header"), [("aws:UserAgent", "user-agent"), ("aws:Referer", "referer")])
async def test_condition_sees_what_the_client_says_of_itself(front: Installation, key: str, header: str) -> None:
    """A Deny of it holds, for keys with policies and without, in their own policies and in the queue's."""
    minted = restricted(
        front,
        allow("sqs:SendMessage", Condition={"StringLike": {key: "worker/*"}}),
        deny("sqs:SendMessage", Condition={"StringLike": {key: "worker/1*"}}),
    )
    headers = {"host": HOST, "authorization": f"Bearer {minted.bearer_token}", "content-type": "application/json"}
    for said, status in (({header: "worker/2"}, 200), ({header: "worker/1.4"}, 403), ({header: "x"}, 403), ({}, 403)):
        reply = await front.call("POST", "/v1/queues/orders/messages", headers | said, b'{"body":"x"}')
        assert reply.status == status, (said, reply.body)
    bad = {"StringLike": {key: "bad*"}}
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:SendMessage", ORDERS_ARN, Condition=bad))
    headers["authorization"] = f"Bearer {front.key.bearer_token}"
    for said, status in (({header: "bad/2"}, 403), ({header: "good"}, 200), ({}, 200)):
        reply = await front.call("POST", "/v1/queues/orders/messages", headers | said, b'{"body":"x"}')
        assert reply.status == status, (said, reply.body)


async def test_what_was_allowed_over_tls_is_not_allowed_without(front: Installation) -> None:
    key = restricted(front, allow("sqs:SendMessage", Condition={"Bool": {"aws:SecureTransport": "true"}}))
    for _ in range(2):
        assert authorised(front, await front.plane.authenticator.bearer(key.bearer_token, "10.1.1.1", True))
        assert not authorised(front, await front.plane.authenticator.bearer(key.bearer_token, "10.1.1.1", False))


def authorised(front: Installation, caller: Principal) -> bool:
    try:
        return admission.authorise(front.plane, caller, "SendMessage", Address(ACCOUNT, "orders")) is not None
    except RequestError as error:
        assert error.code == "AccessDeniedException"
        return False


async def test_what_looks_at_variables_is_not_remembered(front: Installation) -> None:
    """What looks at the time or at tags is, while neither changes (test_remembered_decisions.py)."""
    key = restricted(
        front, allow("sqs:SendMessage", Condition={"StringNotEquals": {"aws:PrincipalArn": "${aws:CurrentTime}"}})
    )
    assert (await front.rest("/v1/queues/orders/messages", {"body": "x"}, token=key.bearer_token)).status == 200
    (kept,) = front.plane.authenticator._rights._kept.values()
    assert kept[1] is not None and not kept[1].allowed


async def test_what_was_allowed_ends_with_a_change_of_either_policy(front: Installation) -> None:
    key = restricted(front, allow("sqs:SendMessage"))
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 200
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:SendMessage", ORDERS_ARN, principal="*"))
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 403
    set_policy(front, ACCOUNT, "orders")
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 200
    change_key(front, key, policies=[document(allow("sqs:ReceiveMessage"))])
    assert (await front.sqs("SendMessage", SEND, key=key)).status == 403


async def test_tags_of_a_request_are_seen(front: Installation) -> None:
    condition = {"StringEquals": {"aws:RequestTag/env": "test"}, "ForAllValues:StringEquals": {"aws:TagKeys": ["env"]}}
    key = restricted(front, allow("sqs:TagQueue", Condition=condition))
    tagging = {"QueueUrl": QUEUE_URL}
    assert (await front.sqs("TagQueue", {**tagging, "Tags": {"env": "test"}}, key=key)).status == 200
    assert (await front.sqs("TagQueue", {**tagging, "Tags": {"env": "live"}}, key=key)).status == 403
    assert (await front.sqs("TagQueue", {**tagging, "Tags": {"env": "test", "a": "b"}}, key=key)).status == 403
    keys = {"ForAnyValue:StringEquals": {"aws:TagKeys": ["env"]}}
    key = restricted(front, allow("sqs:UntagQueue", "*"), deny("sqs:UntagQueue", Condition=keys))
    assert (await front.sqs("UntagQueue", {**tagging, "TagKeys": ["a"]}, key=key)).status == 200
    assert (await front.sqs("UntagQueue", {**tagging, "TagKeys": ["a", "env"]}, key=key)).status == 403


async def test_more_tags_than_a_queue_can_have_are_refused_before_they_are_weighed(front: Installation) -> None:
    nothing, asked = restricted(front), {"QueueUrl": QUEUE_URL}
    keys = [f"k{number}" for number in range(51)]
    for action, sent, most in (
        ("UntagQueue", {"TagKeys": keys}, {"TagKeys": keys[:50]}),
        ("TagQueue", {"Tags": dict.fromkeys(keys, "v")}, {"Tags": dict.fromkeys(keys[:50], "v")}),
    ):
        assert (await front.sqs(action, {**asked, **sent}, key=nothing)).status == 400
        assert (await front.sqs(action, {**asked, **most}, key=nothing)).status == 403


async def test_browser_is_opened_by_its_own_action_and_closed_by_that_of_sqs(front: Installation) -> None:
    async def peek(*statements: dict[str, Any]) -> int:
        token = restricted(front, *statements).bearer_token
        return (await front.rest("/v1/queues/orders/messages/peek", {}, token)).status

    assert await peek(allow("sqs:*")) == 403
    assert await peek(allow("penstock:PeekMessages")) == 403
    assert await peek(allow(["penstock:PeekMessages", "sqs:ReceiveMessage"])) == 200
    assert await peek(allow("*"), deny("sqs:ReceiveMessage")) == 403


async def test_message_sent_again_needs_the_right_on_its_destination(front: Installation) -> None:
    """Or the message browser would be a way to send where one may not."""
    front.add_queue("other", (7,))
    await front.sqs("SendMessage", SEND)
    shown = await front.rest("/v1/queues/orders/messages/peek", {})
    asked = {"message": shown.json["messages"][0]["message"], "destination": "other"}
    only_here = restricted(front, allow("*")).bearer_token
    assert (await front.rest("/v1/queues/orders/messages/resend", asked, only_here)).status == 403
    there_too = restricted(front, allow("*"), allow("sqs:SendMessage", ORDERS_ARN.replace("orders", "other")))
    assert (await front.rest("/v1/queues/orders/messages/resend", asked, there_too.bearer_token)).status == 200


async def test_send_makes_a_queue_only_for_who_may_create_it(front: Installation) -> None:
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "demo", True, 1, auto_create_queues=True)
    absent = {**SEND, "QueueUrl": QUEUE_URL.replace("orders", "absent")}
    sender = restricted(front, allow("sqs:SendMessage", "*"))
    refused = await front.sqs("SendMessage", absent, key=sender)
    assert refused.error == "AccessDeniedException" and "sqs:createqueue" in refused.json["Message"]
    assert not front.control_calls and not front.plane.creations


# --- what goes on for longer than a request ---


@pytest.mark.parametrize("how", ["revoked", "switched off", "expired", "restricted"])
async def test_parked_poll_of_a_key_that_lost_its_right_gets_no_message(front: Installation, how: str) -> None:
    """S11: from the change on, not from the end of the poll on. The message is the next one's, and was not received."""
    key = front.add_key(ACCOUNT)
    poll = asyncio.create_task(front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 20}, key=key))
    await settle(lambda: front.storage.polls == 1)
    if how == "revoked":
        del front.metadata.keys[key.access_key_id]
    else:
        changes = {"switched off": {"active": False}, "expired": {"expires_at_ms": 1}, "restricted": {"policies": []}}
        change_key(front, key, **changes[how])
    await front.sqs("SendMessage", SEND)
    reply = await asyncio.wait_for(poll, 5)
    assert reply.error == ("AccessDeniedException" if how == "restricted" else "InvalidClientTokenId")
    wanted = {"QueueUrl": QUEUE_URL, "AttributeNames": ["ApproximateReceiveCount"]}
    (message,) = (await front.sqs("ReceiveMessage", wanted)).json["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


async def test_poll_that_waits_because_of_its_queue_is_asked_again_too(front: Installation) -> None:
    front.add_queue("orders", attributes={"ReceiveMessageWaitTimeSeconds": "20"})
    key = front.add_key(ACCOUNT)
    poll = asyncio.create_task(front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL}, key=key))
    await settle(lambda: front.storage.polls == 1)
    change_key(front, key, policies=[])
    await front.sqs("SendMessage", SEND)
    assert (await asyncio.wait_for(poll, 5)).error == "AccessDeniedException"


async def test_parked_poll_of_a_key_that_changed_otherwise_gets_its_message(front: Installation) -> None:
    key = front.add_key(ACCOUNT)
    poll = asyncio.create_task(front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL, "WaitTimeSeconds": 20}, key=key))
    await settle(lambda: front.storage.polls == 1)
    change_key(front, key, policies=[document(allow("sqs:ReceiveMessage"))])
    await front.sqs("SendMessage", SEND)
    assert (await asyncio.wait_for(poll, 5)).json["Messages"]


@pytest.mark.parametrize("policies", [None, []])
async def test_socket_of_a_key_that_lost_its_right_gets_no_message(
    front: Installation, policies: list[PolicyRecord] | None
) -> None:
    key = front.add_key(ACCOUNT)
    socket = Socket(front, "orders", {"authorization": f"Bearer {key.bearer_token}"})
    socket.say({"type": "credit", "n": 5})
    await settle(lambda: front.storage.polls == 1)
    if policies is None:
        del front.metadata.keys[key.access_key_id]
    else:
        change_key(front, key, policies=policies)
    await front.sqs("SendMessage", SEND)
    await asyncio.wait_for(socket.task, 5)
    assert not socket.of("message")
    assert socket.close_code == (4401 if policies is None else 4403)
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json["Messages"]


async def test_receipts_of_a_socket_are_settled_by_the_rights_of_the_moment(front: Installation) -> None:
    key = front.add_key(ACCOUNT)
    await front.sqs("SendMessage", SEND)
    socket = Socket(front, "orders", {"authorization": f"Bearer {key.bearer_token}"})
    socket.say({"type": "credit", "n": 1})
    await settle(lambda: bool(socket.of("message")))
    change_key(front, key, policies=[document(allow("sqs:ReceiveMessage"))])
    socket.say({"type": "ack", "ids": [socket.of("message")[0]["receipt"]]})
    await settle(lambda: bool(socket.of("error")))
    assert socket.of("error")[0]["code"] == "access-denied" and front.storage.count() == 1
    await socket.leave()


async def test_rights_that_are_kept_are_bounded(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    from frontend.authn import rights

    monkeypatch.setattr(rights, "KEY_RIGHTS_CACHED_MAX", 2)
    monkeypatch.setattr(admission, "KEY_DECISIONS_KEPT_MAX", 2)
    for number in range(4):
        front.add_queue(f"q{number}", (7,))
    for _ in range(4):
        key = restricted(front, allow("*", "*"))
        for number in range(4):
            url = f"http://{HOST}/{ACCOUNT}/q{number}"
            assert (await front.sqs("SendMessage", {**SEND, "QueueUrl": url}, key=key)).status == 200
    kept = front.plane.authenticator._rights._kept
    assert len(kept) == 2 and all(len(found.allowed) <= 2 for _, found in kept.values())


# --- uses ---


async def test_uses_of_keys_are_told_once(front: Installation) -> None:
    from frontend.key_uses import tell_key_uses

    front.control_answer = lambda request: httpx2.Response(200, json={})
    await front.sqs("SendMessage", SEND)
    refused = await front.sqs("SendMessage", SEND, key=front.add_key(ACCOUNT, active=False))
    assert refused.status == 403
    await tell_key_uses(front.plane)
    await tell_key_uses(front.plane)
    (told,) = front.control_calls
    assert (told.url.path, json.loads(told.content)) == (
        "/internal/keys/used",
        {"uses": {front.key.access_key_id: int(front.clock.now_s * 1000)}},
    )
    assert front.mac_is_right(told)


async def test_uses_that_are_held_are_bounded(front: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    from frontend.authn import authenticator

    monkeypatch.setattr(authenticator, "KEY_USES_HELD_MAX", 2)
    for _ in range(4):
        await front.sqs("SendMessage", SEND, key=front.add_key(ACCOUNT))
    assert len(front.plane.authenticator.uses.take(10)) == 2 and not front.plane.authenticator.uses.take(10)
