"""Sends to what is stopped or held to a rate, because a budget is used up: who is refused what, and what goes on."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest

from frontend.limits.quota_tree import SENDS_OF_ACCOUNT, SENDS_TO_QUEUE, HeldSends, QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from frontend.metadata.records import AccountRecord
from frontend.queues.names import Address
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.frontend.test_queue_policies import SECRET_ARN, SECRET_URL, set_policy, statement
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, QUEUE_URL, Installation

MESSAGES = "/v1/queues/orders/messages"
REASON = "The budget cap of this month is used up."
SEND = {"QueueUrl": QUEUE_URL, "MessageBody": "x"}
THREE = {"QueueUrl": QUEUE_URL, "Entries": [{"Id": str(n), "MessageBody": "x"} for n in range(3)]}


@pytest.fixture
def front() -> Installation:
    made = Installation()
    for name, partition in (("mails", 7), ("dead", 8)):
        made.add_queue(name, (partition,))
    return made


def hold(front: Installation, name: str = "orders", account: str = ACCOUNT, **held: Any) -> None:
    """As the change feed brings it."""
    record = front.metadata.queues[account, name]
    front.metadata.queues[account, name] = msgspec.structs.replace(record, version=record.version + 1, **held)


def hold_account(front: Installation, account: str = ACCOUNT, **held: Any) -> None:
    front.metadata.accounts[account] = AccountRecord(account, "a", True, 2, **held)
    front.clock.now_s += 1


# --- a queue that is stopped ---


async def test_nothing_is_sent_to_a_stopped_queue_and_everything_else_goes_on(front: Installation) -> None:
    assert (await front.sqs("SendMessage", SEND)).status == 200
    hold(front, sending_stopped=REASON)
    for refused in (await front.sqs("SendMessage", SEND), await front.sqs("SendMessageBatch", THREE)):
        assert (refused.status, refused.error) == (403, "SendingStopped")
        assert refused.json["message"] == f"Messages cannot be sent to this queue now: {REASON}"
    for body in ({"body": "x"}, {"body": "x", "delay_ms": 60_000_000}, {"messages": [{"body": "x"}]}):
        refused = await front.rest(MESSAGES, body)
        assert (refused.status, refused.json["code"]) == (403, "sending-stopped"), body
    assert front.storage.count() == 1
    (message,) = (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).json["Messages"]
    gone = {"QueueUrl": QUEUE_URL, "ReceiptHandle": message["ReceiptHandle"]}
    assert (await front.sqs("DeleteMessage", gone)).status == 200
    assert (await front.rest("/v1/queues/mails/messages", {"body": "x"})).status == 200, "another queue"
    hold(front, sending_stopped="")
    assert (await front.sqs("SendMessage", SEND)).status == 200


async def test_queue_that_is_not_at_hand_is_stopped_too(front: Installation) -> None:
    hold(front, sending_stopped=REASON)
    front.metadata.cold = True
    assert (await front.sqs("SendMessage", SEND)).error == "SendingStopped"
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).status == 200


async def test_other_accounts_are_refused_without_the_reason(front: Installation) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    asked = {"QueueUrl": SECRET_URL, "MessageBody": "x"}
    assert (await front.sqs("SendMessage", asked)).status == 200
    hold(front, "secret", OTHER_ACCOUNT, sending_stopped=REASON)
    refused = await front.sqs("SendMessage", asked)
    assert (refused.error, refused.json["message"]) == ("SendingStopped", "Messages cannot be sent to this queue now.")
    assert "budget" in (await front.sqs("SendMessage", asked, key=front.other_key)).json["message"]
    assert len((await front.sqs("ReceiveMessage", {"QueueUrl": SECRET_URL})).json["Messages"]) == 1


async def test_caller_that_may_not_send_hears_nothing_of_a_stop(front: Installation) -> None:
    hold(front, "secret", OTHER_ACCOUNT, sending_stopped=REASON)
    assert (await front.sqs("SendMessage", {"QueueUrl": SECRET_URL, "MessageBody": "x"})).error == (
        "AccessDeniedException"
    )


async def test_message_is_not_sent_again_or_moved_to_a_stopped_queue(front: Installation) -> None:
    hold(front, attributes={"RedrivePolicy": f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"}}'})
    await front.rest(MESSAGES, {"body": "x"})
    (shown,) = (await front.rest(MESSAGES + "/peek", {})).json["messages"]
    for name in ("dead", "mails"):
        hold(front, name, sending_stopped=REASON)
    dead = {"message": shown["message"], "reason": "bad"}
    again = {"message": shown["message"], "destination": "mails"}
    for path, body in (("/dead-letter", dead), ("/resend", again)):
        refused = await front.rest(MESSAGES + path, body)
        assert (refused.status, refused.json["code"]) == (403, "sending-stopped"), refused.json
    assert front.storage.count() == 1 and not front.audit
    for name in ("dead", "mails"):
        hold(front, name, sending_stopped="")
    assert (await front.rest(MESSAGES + "/dead-letter", dead)).status == 200


# --- a queue that is held to a rate ---


async def test_sends_to_a_throttled_queue_are_held_to_its_rate(front: Installation) -> None:
    hold(front, sends_per_s=1, held_reason=REASON)
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(3)] == [200, 200, 429]
    refused = await front.rest(MESSAGES, {"body": "x"})
    assert refused.json["detail"].endswith(f"queue_sending_messages_per_s is 1. {REASON}")
    assert (refused.json["quota"], refused.json["limit_per_s"]) == ("queue_sending_messages_per_s", 1)
    assert refused.headers["retry-after"] == "1"
    refused = await front.sqs("SendMessage", SEND)
    assert (refused.status, refused.error) == (400, "RequestThrottled") and refused.headers["retry-after"] == "1"
    assert (await front.rest("/v1/queues/mails/messages", {"body": "x"})).status == 200, "another queue"
    assert (await front.rest(MESSAGES + "/receive", {})).status == 200
    front.clock.now_s += 1
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(2)] == [200, 429]
    hold(front, sends_per_s=0)
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(9)] == [200] * 9


async def test_batch_pays_for_each_of_its_messages(front: Installation) -> None:
    hold(front, sends_per_s=1)
    assert (await front.sqs("SendMessageBatch", THREE)).status == 200
    front.clock.now_s += 0.9
    assert (await front.sqs("SendMessage", SEND)).error == "RequestThrottled", "three are paid off in three seconds"
    front.clock.now_s += 0.2
    assert (await front.sqs("SendMessage", SEND)).status == 200


async def test_all_who_send_to_a_throttled_queue_share_its_rate(front: Installation) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    hold(front, "secret", OTHER_ACCOUNT, sends_per_s=1, held_reason=REASON)
    asked = {"QueueUrl": SECRET_URL, "MessageBody": "x"}
    assert (await front.sqs("SendMessage", asked)).status == 200
    assert (await front.sqs("SendMessage", asked, key=front.other_key)).status == 200
    refused = await front.sqs("SendMessage", asked)
    assert refused.error == "RequestThrottled" and "quota" not in refused.json["message"]
    assert "budget" not in refused.json["message"]
    assert refused.headers["retry-after"] == "1" and "is 1." not in refused.json["message"]
    assert (await front.sqs("SendMessage", asked, key=front.other_key)).error == "RequestThrottled"


async def test_messages_sent_again_and_moved_pay_the_rate_of_a_throttled_queue(front: Installation) -> None:
    policy = f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"}}'
    hold(front, attributes={"RedrivePolicy": policy})
    for _ in range(3):
        await front.rest(MESSAGES, {"body": "x"})
    shown = (await front.rest(MESSAGES + "/peek", {"limit": 10})).json["messages"]
    hold(front, "mails", sends_per_s=1)
    hold(front, "dead", sends_per_s=1)
    answers = [
        await front.rest(MESSAGES + "/resend", {"message": one["message"], "destination": "mails"}) for one in shown
    ]
    assert [one.status for one in answers] == [200, 200, 429]
    assert answers[2].json["quota"] == "queue_sending_messages_per_s"
    for status in (200, 200, 429):
        await front.rest(MESSAGES, {"body": "y"})
        one = (await front.rest(MESSAGES + "/peek", {"limit": 10})).json["messages"][-1]
        moved = await front.rest(MESSAGES + "/dead-letter", {"message": one["message"], "reason": "bad"})
        assert moved.status == status


async def test_what_is_refused_at_a_queue_costs_the_account_no_messages() -> None:
    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(Rates(100, 4)), burst_s=1.0))
    hold(front, sends_per_s=1)
    assert (await front.sqs("SendMessageBatch", THREE)).status == 200
    for _ in range(5):
        refused = await front.rest(MESSAGES, {"body": "x"})
        assert refused.json["quota"] == "queue_sending_messages_per_s"
    hold(front, sends_per_s=0, sending_stopped=REASON)
    for _ in range(5):
        assert (await front.rest(MESSAGES, {"body": "x"})).status == 403


# --- an account that is held to a rate ---


async def test_sends_of_a_throttled_account_are_held_to_its_rate(front: Installation) -> None:
    hold_account(front, sends_per_s=1, held_reason=REASON)
    sent = [(await front.rest(f"/v1/queues/{name}/messages", {"body": "x"})).status for name in ("orders", "mails")]
    assert sent == [200, 200]
    refused = await front.rest(MESSAGES, {"body": "x"})
    assert (refused.status, refused.json["quota"], refused.headers["retry-after"]) == (
        429, "sending_messages_per_s", "1",
    )  # fmt: skip
    assert refused.json["detail"].endswith(f"sending_messages_per_s is 1. {REASON}")
    assert (await front.sqs("SendMessageBatch", THREE)).error == "RequestThrottled"
    assert [(await front.rest(MESSAGES + "/receive", {})).status for _ in range(9)] == [200] * 9
    other = f"http://localhost:9324/{OTHER_ACCOUNT}/secret"
    assert (await front.sqs("SendMessage", {"QueueUrl": other, "MessageBody": "x"}, key=front.other_key)).status == 200
    front.clock.now_s += 1
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(2)] == [200, 429]
    hold_account(front)
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(9)] == [200] * 9


async def test_what_others_send_to_a_throttled_account_shares_its_rate(front: Installation) -> None:
    set_policy(front, OTHER_ACCOUNT, "secret", statement("Allow", "sqs:*", SECRET_ARN))
    hold_account(front, OTHER_ACCOUNT, sends_per_s=1)
    asked = {"QueueUrl": SECRET_URL, "MessageBody": "x"}
    assert (await front.sqs("SendMessage", asked, key=front.other_key)).status == 200
    assert [(await front.sqs("SendMessage", asked)).status for _ in range(2)] == [200, 400]
    assert (await front.sqs("SendMessage", asked, key=front.other_key)).error == "RequestThrottled"
    assert (await front.sqs("SendMessage", SEND)).status == 200, "its own account is not held"


async def test_messages_sent_again_pay_the_rate_of_a_throttled_account(front: Installation) -> None:
    for _ in range(3):
        await front.rest(MESSAGES, {"body": "x"})
    shown = (await front.rest(MESSAGES + "/peek", {"limit": 10})).json["messages"]
    hold_account(front, sends_per_s=1)
    answers = [(await front.rest(MESSAGES + "/resend", {"message": one["message"]})).status for one in shown]
    assert answers == [200, 200, 429]


async def test_failed_send_gives_the_rate_of_the_account_back(front: Installation) -> None:
    async def fails(*_: Any) -> Any:
        raise StorageError(ErrorCode.NO_QUORUM)

    hold_account(front, sends_per_s=1)
    send = front.storage.send
    front.storage.send = fails  # type: ignore[method-assign]
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(4)] == [503] * 4
    front.storage.send = send  # type: ignore[method-assign]
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(3)] == [200, 200, 429]


def test_front_ends_have_equal_parts_of_the_rate() -> None:
    tree = QuotaTree(burst_s=2.0)
    tree.share_out(2, {})
    passed = sum(
        tree.pay_sends([HeldSends(SENDS_TO_QUEUE, "1/orders", 1)], second / 10) is None for second in range(1000)
    )
    assert 49 <= passed <= 52


def test_what_one_rate_refuses_the_other_one_is_not_paid_for() -> None:
    tree = QuotaTree(burst_s=2.0)
    queue, account = HeldSends(SENDS_TO_QUEUE, "1/orders", 1), HeldSends(SENDS_OF_ACCOUNT, "1", 1)
    assert tree.pay_sends([account], 0.0, 2) is None
    for first, second in ((queue, account), (account, queue)):
        refusal = tree.pay_sends([first, second], 0.0)
        assert refusal is not None and refusal.quota == "sending_messages_per_s"
    assert [tree.pay_sends([queue], 0.0) is None for _ in range(3)] == [True, True, False]


def test_what_is_held_is_bounded() -> None:
    tree = QuotaTree(burst_s=2.0, buckets_max=10)
    for number in range(100):
        tree.pay_sends([HeldSends(SENDS_TO_QUEUE, f"1/{number}", 1)], 0.0)
    assert len(tree) <= 10


# --- what is not held ---


async def test_queue_that_is_not_held_is_looked_at_once_and_pays_no_rate(front: Installation) -> None:
    """No message of such a queue asks for more than before: neither a look-up, nor a bucket."""
    queue = front.plane.queues.cached(Address(ACCOUNT, "orders"))
    assert queue is not None and not queue.is_restricted
    found = mock.patch("frontend.messages.send.find_authorised")
    paid = mock.patch("frontend.limits.quota_tree.QuotaTree.pay_sends")
    with found as found_calls, paid as paid_calls:
        front.metadata.lookups.clear()
        assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(3)] == [200] * 3
    assert not found_calls.called and not paid_calls.called
    assert not [look for look in front.metadata.lookups if look[0] in ("queue", "look up", "refresh")]
