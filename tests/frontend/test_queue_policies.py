"""What the policy of a queue opens to other accounts, and closes to its own; docs/policies.md."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from frontend.metadata.records import AccountRecord
from tests.frontend.compat.control import ControlPlaneInMemory
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, QUEUE_URL, Installation

SECRET_URL = f"http://{HOST}/{OTHER_ACCOUNT}/secret"
SECRET_ARN = f"arn:aws:sqs:us-east-1:{OTHER_ACCOUNT}:secret"
ORDERS_ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"


def set_policy(front: Installation, account_id: str, name: str, *statements: dict[str, Any]) -> None:
    text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)}) if statements else ""
    store(front, account_id, name, text)


def store(front: Installation, account_id: str, name: str, text: str) -> None:
    record = front.metadata.queues[account_id, name]
    attributes = {**record.attributes, "Policy": text}
    front.metadata.queues[account_id, name] = msgspec.structs.replace(record, attributes=attributes)


def statement(effect: str, actions: str | list[str], arn: str, **more: Any) -> dict[str, Any]:
    principal = {"AWS": more.pop("principal", ACCOUNT)}
    return {"Effect": effect, "Principal": principal, "Action": actions, "Resource": arn, **more}


async def test_policy_opens_what_it_names_to_another_account_and_nothing_else(front: Installation) -> None:
    both = ["sqs:SendMessage", "sqs:ReceiveMessage"]
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", both, SECRET_ARN))
    assert (await front.sqs("SendMessage", {"QueueUrl": SECRET_URL, "MessageBody": "x"})).status == 200
    got = await front.sqs("ReceiveMessage", {"QueueUrl": SECRET_URL})
    (message,) = got.json["Messages"]
    assert message["Body"] == "x"
    refused = await front.sqs("DeleteMessage", {"QueueUrl": SECRET_URL, "ReceiptHandle": message["ReceiptHandle"]})
    assert (refused.status, refused.error) == (403, "AccessDeniedException")
    assert refused.json["Message"] == (
        f"User: arn:aws:iam::{ACCOUNT}:root is not authorized to perform: sqs:deletemessage on resource: {SECRET_ARN} "
        "because no resource-based policy allows the sqs:deletemessage action"
    )
    asked = {"QueueName": "secret", "QueueOwnerAWSAccountId": OTHER_ACCOUNT}
    told = await front.sqs("GetQueueUrl", asked)
    assert told.json["message"] == "The specified queue does not exist or you do not have access to it."
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    assert (await front.sqs("GetQueueUrl", asked)).json == {"QueueUrl": SECRET_URL}
    assert (
        await front.sqs("DeleteMessage", {"QueueUrl": SECRET_URL, "ReceiptHandle": message["ReceiptHandle"]})
    ).status == 200


@pytest.mark.parametrize(
    ("action", "members"),
    [
        ("DeleteQueue", {}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("ListQueueTags", {}),
        ("AddPermission", {"Label": "l", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}),
    ],
)
async def test_no_policy_opens_what_the_control_plane_does(
    front: Installation, action: str, members: dict[str, Any]
) -> None:
    """It would be done to the queue of that name in the caller's own account."""
    front.add_queue("secret", (90,))
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    reply = await front.sqs(action, {"QueueUrl": SECRET_URL, **members})
    assert (reply.status, reply.error) == (403, "AccessDeniedException") and not front.control_calls


async def test_policy_opens_the_sources_of_a_dead_letter_queue(front: Installation) -> None:
    ControlPlaneInMemory(front)
    redrive = json.dumps({"deadLetterTargetArn": SECRET_ARN, "maxReceiveCount": 3})
    front.add_queue("source", (91,), account_id=OTHER_ACCOUNT, attributes={"RedrivePolicy": redrive})
    asked = {"QueueUrl": SECRET_URL}
    refused = await front.sqs("ListDeadLetterSourceQueues", asked)
    assert (refused.status, refused.error) == (403, "AccessDeniedException")
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:ListDeadLetterSourceQueues", SECRET_ARN))
    told = await front.sqs("ListDeadLetterSourceQueues", asked)
    assert told.json == {"queueUrls": [f"http://{HOST}/{OTHER_ACCOUNT}/source"]}


async def test_deny_counts_for_the_own_account_too_but_leaves_a_way_back(front: Installation) -> None:
    send = {"QueueUrl": QUEUE_URL, "MessageBody": "x"}
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:*", ORDERS_ARN, principal="*"))
    refused = await front.sqs("SendMessage", send)
    assert refused.error == "AccessDeniedException"
    assert refused.json["Message"].endswith("with an explicit deny in a resource-based policy")
    assert (await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": []})).status == 400
    bearer = {"authorization": f"Bearer {front.key.bearer_token}"}
    body = b'{"messages":[{"body":"x"}]}'
    assert (await front.call("POST", "/v1/queues/orders/messages", bearer, body)).status == 403
    assert not front.storage.count()
    shown = await front.sqs("GetQueueAttributes", {"QueueUrl": QUEUE_URL, "AttributeNames": ["Policy"]})
    assert shown.status == 200
    set_policy(front, ACCOUNT, "orders")
    assert (await front.sqs("SendMessage", send)).status == 200


@pytest.mark.parametrize(("address", "is_open"), [("203.0.113.7", True), ("203.0.114.7", False)])
async def test_condition_looks_at_the_address_of_the_client(front: Installation, address: str, is_open: bool) -> None:
    front.client_host = address
    condition = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:SendMessage", SECRET_ARN, Condition=condition))
    reply = await front.sqs("SendMessage", {"QueueUrl": SECRET_URL, "MessageBody": "x"})
    assert reply.status == (200 if is_open else 403)


@pytest.mark.parametrize("text", ["{", '{"Version": "2012-10-17", "Statement": [{"Effect": "Maybe"}]}'])
async def test_policy_that_cannot_be_understood_opens_nothing_and_denies(front: Installation, text: str) -> None:
    store(front, ACCOUNT, "orders", text)
    store(front, OTHER_ACCOUNT, "secret", text)
    for url in (QUEUE_URL, SECRET_URL):
        reply = await front.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        assert (reply.status, reply.error) == (403, "AccessDeniedException")


async def test_look_ups_of_others_queues_are_paid_for() -> None:
    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(Rates(1))))
    asked = [f"http://{HOST}/{OTHER_ACCOUNT}/guess-{number}" for number in range(3)]
    errors = [(await front.sqs("ReceiveMessage", {"QueueUrl": url})).error for url in asked]
    assert errors == ["AccessDeniedException", "AccessDeniedException", "RequestThrottled"]


async def test_denial_tells_another_account_nothing_of_the_queue(front: Installation) -> None:
    """Word for word what a queue that is not there answers."""
    absent = await front.sqs("SendMessage", {"QueueUrl": SECRET_URL.replace("secret", "absent"), "MessageBody": "x"})
    for text in ("{", json.dumps({"Version": "2012-10-17", "Statement": statement("Deny", "sqs:*", SECRET_ARN)})):
        store(front, OTHER_ACCOUNT, "secret", text)
        refused = await front.sqs("SendMessage", {"QueueUrl": SECRET_URL, "MessageBody": "x"})
        assert refused.status == absent.status == 403
        assert refused.body == absent.body.replace(b"absent", b"secret")


async def test_denied_queue_is_not_deleted(front: Installation) -> None:
    set_policy(front, ACCOUNT, "orders", statement("Deny", "sqs:DeleteQueue", ORDERS_ARN, principal="*"))
    refused = await front.sqs("DeleteQueue", {"QueueUrl": QUEUE_URL})
    assert (refused.status, refused.error) == (403, "AccessDeniedException") and not front.control_calls


@pytest.mark.parametrize("denied", ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:SendMessage"])
async def test_message_sent_again_asks_for_all_that_it_does(front: Installation, denied: str) -> None:
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})).status == 200
    bearer = {"authorization": f"Bearer {front.key.bearer_token}", "host": HOST, "content-type": "application/json"}
    shown = await front.call("POST", "/v1/queues/orders/messages/peek", bearer, b"{}")
    token = shown.json["messages"][0]["message"]
    set_policy(front, ACCOUNT, "orders", statement("Deny", denied, ORDERS_ARN, principal="*"))
    asked = json.dumps({"message": token}).encode()
    refused = await front.call("POST", "/v1/queues/orders/messages/resend", bearer, asked)
    assert refused.status == 403, refused.body
    set_policy(front, ACCOUNT, "orders")
    assert (await front.call("POST", "/v1/queues/orders/messages/resend", bearer, asked)).status == 200


@pytest.mark.parametrize(
    ("action", "members"),
    [
        ("SendMessage", {"MessageBody": "x"}),
        ("ReceiveMessage", {}),
        ("GetQueueAttributes", {}),
        ("ListDeadLetterSourceQueues", {}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("ListQueueTags", {}),
        ("DeleteQueue", {}),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
async def test_call_about_a_queue_of_another_account_pays_once(
    front: Installation, action: str, members: dict[str, Any], is_open: bool
) -> None:
    ControlPlaneInMemory(front)
    if is_open:
        set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    await front.sqs(action, {"QueueUrl": SECRET_URL, **members})
    assert {account: asked.requests for account, asked in front.plane.quotas.take_asked().items()} == {ACCOUNT: 1}


@pytest.mark.parametrize("cold", [False, True])
async def test_queue_of_an_account_that_is_not_active_is_closed_to_others(front: Installation, cold: bool) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    front.metadata.cold = cold
    asked = {"QueueUrl": SECRET_URL, "AttributeNames": ["All"]}
    assert (await front.sqs("GetQueueAttributes", asked)).status == 200
    front.metadata.accounts[OTHER_ACCOUNT] = AccountRecord(OTHER_ACCOUNT, "suspended", False, 2)
    refused = await front.sqs("GetQueueAttributes", asked)
    absent = await front.sqs("GetQueueAttributes", {**asked, "QueueUrl": SECRET_URL + "-not"})
    assert (refused.status, refused.error) == (absent.status, absent.error) == (403, "AccessDeniedException")
    assert refused.json["Message"] == absent.json["Message"].replace("secret-not", "secret")
    for action, members in (("SendMessage", {"MessageBody": "x"}), ("ReceiveMessage", {}), ("PurgeQueue", {})):
        assert (await front.sqs(action, {"QueueUrl": SECRET_URL, **members})).error == "AccessDeniedException"


async def test_nobody_sends_to_an_account_whose_sending_is_stopped(front: Installation) -> None:
    """A spend cap holds for what others send, too: it is billed to the owner of the queue."""
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    asked = {"QueueUrl": SECRET_URL, "MessageBody": "x"}
    assert (await front.sqs("SendMessage", asked)).status == 200
    stopped = AccountRecord(OTHER_ACCOUNT, "a", True, 2, sending_stopped="the owner's reason")
    front.metadata.accounts[OTHER_ACCOUNT] = stopped
    refused = await front.sqs("SendMessage", asked)
    assert (refused.status, refused.error) == (403, "SendingStopped") and "reason" not in refused.json["message"]
    entries = {"QueueUrl": SECRET_URL, "Entries": [{"Id": "1", "MessageBody": "x"}]}
    assert (await front.sqs("SendMessageBatch", entries)).error == "SendingStopped"
    assert len((await front.sqs("ReceiveMessage", {"QueueUrl": SECRET_URL})).json["Messages"]) == 1
