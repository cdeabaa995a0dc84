"""Quotas on the three wires: what pays, what is answered, and how much of what is shared one account may hold."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import msgspec
import pytest

from frontend.errors import RequestError
from frontend.limits import (
    BROWSER_CALLS_MAX,
    CONTROL_CALLS_IN_FLIGHT_MAX,
    UNKNOWN_KEYS_PER_ADDRESS_PER_S,
    UNKNOWN_KEYS_PER_S,
)
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import INSTALLATION, AccountLimits, Rates, account_limits
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.records import AccountRecord
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.frontend_plane import (
    ACCOUNT,
    HOST,
    OTHER_ACCOUNT,
    QUEUE_URL,
    Installation,
    Reply,
)

MESSAGES = "/v1/queues/orders/messages"
SQS_BATCH = {"QueueUrl": QUEUE_URL, "Entries": [{"Id": str(n), "MessageBody": "x"} for n in range(10)]}
REST_BATCH = {"messages": [{"body": "x"}] * 10}


def limited(burst_s: float = 1.0, **rates: float) -> Installation:
    return Installation(quotas=QuotaTree(lambda _: AccountLimits(Rates(**rates)), burst_s=burst_s))


# --- what pays ---


async def test_batch_pays_for_each_message_on_both_wires() -> None:
    front = limited(messages_per_s=10)
    assert (await front.sqs("SendMessageBatch", SQS_BATCH)).status == 200
    assert (await front.sqs("SendMessageBatch", SQS_BATCH)).error == "RequestThrottled"
    front.clock.now_s += 1
    assert (await front.rest(MESSAGES, REST_BATCH)).status == 200
    assert (await front.rest(MESSAGES, REST_BATCH)).status == 429
    assert front.storage.count() == 20


async def test_bytes_of_bodies_pay() -> None:
    front = limited(bytes_per_s=100_000)
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x" * 150_000})).status == 200
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 429
    front.clock.now_s += 1
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200


async def test_messages_given_out_are_paid_afterwards() -> None:
    front = limited(messages_per_s=10)
    await front.rest(MESSAGES, REST_BATCH)
    front.clock.now_s += 1
    assert len((await front.rest(MESSAGES + "/receive", {"max_messages": 10})).json["messages"]) == 10
    refused = await front.rest(MESSAGES + "/receive", {})
    assert (refused.status, refused.json["quota"]) == (429, "messages_per_s")


async def test_search_pays_for_what_it_reads_found_or_not() -> None:
    front = limited(messages_per_s=10, requests_per_s=100)
    await front.rest(MESSAGES, REST_BATCH)
    front.clock.now_s += 2
    nothing = {"filter": {"body_contains": "nowhere"}}
    assert (await front.rest(MESSAGES + "/find", nothing)).json["messages"] == []
    refused = await front.rest(MESSAGES + "/find", nothing)
    assert (refused.status, refused.json["quota"]) == (429, "messages_per_s")


@pytest.mark.parametrize("what", ["ack", "extend", "release"])
async def test_receipts_pay_one_by_one(what: str) -> None:
    front = limited(messages_per_s=10)
    params: dict[str, Any] = {"receipts": ["x"] * 10} | ({"visibility_seconds": 5} if what == "extend" else {})
    assert (await front.rest(f"{MESSAGES}/{what}", params)).status == 200
    assert (await front.rest(f"{MESSAGES}/{what}", params)).status == 429


async def test_absent_queue_is_paid_for_before_it_is_looked_up() -> None:
    front = limited(requests_per_s=2)
    front.metadata.cold = True
    for number in range(10):
        await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL.replace("orders", f"absent-{number}")})
    assert len([look for look in front.metadata.lookups if look[0] == "queue"]) == 2


@pytest.mark.parametrize(
    ("path", "params"),
    [
        (f"{MESSAGES}/receive", {"max_messages": 501}),
        (f"{MESSAGES}/receive", {"unknown": 1}),
        (MESSAGES, {"messages": [{"body": "x"}] * 501}),
        (f"{MESSAGES}/peek", [1]),
    ],
)
async def test_rest_call_that_is_refused_for_its_form_pays_as_a_request(path: str, params: Any) -> None:
    front = limited(requests_per_s=3)
    assert [(await front.rest(path, params)).status for _ in range(5)] == [400, 400, 400, 429, 429]
    assert (await front.rest(f"{MESSAGES}/receive", {})).status == 429


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 77}),
        ("ReceiveMessage", {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": "x"}),
        ("ReceiveMessage", {}),
        ("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": []}),
        ("DeleteMessage", {"QueueUrl": QUEUE_URL}),
    ],
)
async def test_sqs_call_that_is_refused_for_its_form_pays_as_a_request(action: str, params: Any) -> None:
    front = limited(requests_per_s=3)
    answers = [await front.sqs(action, params) for _ in range(5)]
    assert [answer.error == "RequestThrottled" for answer in answers] == [False, False, False, True, True]
    assert (await front.sqs("ReceiveMessage", {"QueueUrl": QUEUE_URL})).error == "RequestThrottled"


async def test_call_that_fails_after_it_has_paid_pays_once() -> None:
    front = limited(requests_per_s=3)
    absent = QUEUE_URL.replace("orders", "absent")
    errors = [(await front.sqs("ReceiveMessage", {"QueueUrl": absent})).error for _ in range(4)]
    assert errors[3] == "RequestThrottled" and errors[3] not in errors[:3]


async def test_batch_that_storage_fails_pays_no_messages() -> None:
    front = limited(messages_per_s=10, requests_per_s=100)
    send = front.storage.send

    async def away(*_: Any, **__: Any) -> Any:
        raise StorageError(ErrorCode.UNAVAILABLE)

    front.storage.send = away  # type: ignore[method-assign]
    assert [(await front.sqs("SendMessageBatch", SQS_BATCH)).status for _ in range(5)] == [503] * 5
    front.storage.send = send  # type: ignore[method-assign]
    assert (await front.sqs("SendMessageBatch", SQS_BATCH)).status == 200


async def test_send_whose_queue_cannot_be_looked_up_pays_no_messages() -> None:
    front = limited(messages_per_s=10, requests_per_s=100)
    find = front.metadata.get_queue

    async def away(*_: Any) -> Any:
        raise MetadataUnavailable("down")

    front.metadata.cold = True
    front.metadata.get_queue = away  # type: ignore[method-assign]
    for _ in range(5):
        assert (await front.sqs("SendMessageBatch", SQS_BATCH)).status == 503
        assert (await front.rest(MESSAGES, {"body": "x"})).status == 503
    front.metadata.get_queue = find  # type: ignore[method-assign]
    assert (await front.sqs("SendMessageBatch", SQS_BATCH)).status == 200


async def test_queue_of_another_account_cannot_be_used_up() -> None:
    """Its quota per queue is its owner's to use."""
    front = Installation(quotas=QuotaTree(lambda _: AccountLimits(Rates(), queue=Rates(2)), burst_s=1.0))
    secret = f"http://{HOST}/{OTHER_ACCOUNT}/secret"
    for _ in range(5):
        assert (await front.sqs("SendMessage", {"QueueUrl": secret, "MessageBody": "x"})).status == 403
    assert (await front.sqs("SendMessage", {"QueueUrl": secret, "MessageBody": "x"}, key=front.other_key)).status == 200


# --- what is answered ---


async def test_rest_tells_what_is_left_and_when_to_come_back() -> None:
    front = limited(burst_s=2.0, requests_per_s=5)
    passed = await front.rest(MESSAGES, {"body": "x"})
    assert passed.headers["ratelimit-policy"] == '"requests_per_s";q=10;w=2'
    assert passed.headers["ratelimit"] == '"requests_per_s";r=9;t=1'
    for _ in range(9):
        assert (await front.rest(MESSAGES, {"body": "x"})).status == 200
    refused = await front.rest(MESSAGES, {"body": "x"})
    assert refused.status == 429 and refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["ratelimit-policy"] == '"requests_per_s";q=10;w=2'
    assert refused.headers["ratelimit"] == '"requests_per_s";r=0;t=1' and refused.headers["retry-after"] == "1"
    assert (refused.json["quota"], refused.json["limit_per_s"]) == ("requests_per_s", 5)


async def test_management_call_tells_what_is_left_and_when_to_come_back() -> None:
    front = limited(burst_s=2.0, requests_per_s=1)
    front.control_answer = lambda request: httpx2.Response(200, json={})
    passed = await front.rest("/v1/queues", {"name": "x"})
    assert passed.status == 200 and passed.headers["ratelimit-policy"] == '"requests_per_s";q=2;w=2'
    assert passed.headers["ratelimit"] == '"requests_per_s";r=1;t=1'
    refused = [await front.rest("/v1/queues", {"name": "x"}) for _ in range(2)][1]
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert refused.headers["ratelimit"] == '"requests_per_s";r=0;t=1'


async def test_large_quota_is_told_in_full() -> None:
    front = limited(bytes_per_s=1_234_567)
    await front.rest(MESSAGES, {"messages": [{"body": "x" * 600_000}] * 3})
    refused = await front.rest(MESSAGES, {"body": "x"})
    assert refused.status == 429 and "bytes_per_s is 1234567." in refused.json["detail"]


async def test_both_protocols_of_sqs_say_request_throttled() -> None:
    front = limited(requests_per_s=1)
    await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    refused = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    assert (refused.status, refused.error) == (400, "RequestThrottled")
    assert refused.headers["x-amzn-query-error"] == "RequestThrottled;Sender" and refused.headers["retry-after"] == "1"


async def test_stopped_account_may_receive_and_not_send() -> None:
    front = Installation()
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 1, sending_stopped="spend cap reached")
    assert (await front.rest(MESSAGES + "/receive", {})).status == 200
    refused = await front.rest(MESSAGES, {"body": "x"})
    assert (refused.status, refused.json["code"]) == (403, "sending-stopped")
    assert "spend cap reached" in refused.json["detail"]
    refused = await front.sqs("SendMessageBatch", SQS_BATCH)
    assert refused.status == 403 and "spend cap reached" in refused.body.decode() and front.storage.count() == 0
    other = f"http://{HOST}/{OTHER_ACCOUNT}/secret"
    assert (await front.sqs("SendMessage", {"QueueUrl": other, "MessageBody": "x"}, key=front.other_key)).status == 200


async def test_stopped_account_may_not_send_a_message_again() -> None:
    front = Installation()
    await front.rest(MESSAGES, {"body": "x"})
    (shown,) = (await front.rest(MESSAGES + "/peek", {})).json["messages"]
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 1, sending_stopped="spend cap reached")
    front.clock.now_s += 1
    refused = await front.rest(MESSAGES + "/resend", {"message": shown["message"]})
    assert (refused.status, refused.json["code"]) == (403, "sending-stopped")
    assert front.storage.count() == 1 and not front.audit


async def test_stopped_account_may_not_move_a_message_to_the_dead_letter_queue() -> None:
    front = Installation()
    await front.rest(MESSAGES, {"body": "x"})
    (shown,) = (await front.rest(MESSAGES + "/peek", {})).json["messages"]
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 1, sending_stopped="spend cap reached")
    front.clock.now_s += 1
    asked = {"message": shown["message"], "reason": "bad"}
    refused = await front.rest(MESSAGES + "/dead-letter", asked)
    assert (refused.status, refused.json["code"]) == (403, "sending-stopped")
    assert (await front.rest(MESSAGES + "/delete", {"message": shown["message"]})).status == 200


async def test_quotas_of_the_account_record_hold() -> None:
    front = Installation()
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 1, quotas={"requests_per_s": 1})
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(3)] == [200, 200, 429]
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 2)
    front.clock.now_s += 1
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(3)] == [200] * 3


async def test_quotas_of_one_key_hold() -> None:
    front = Installation()
    keys = front.metadata.keys
    key_id = front.key.access_key_id
    keys[key_id] = msgspec.structs.replace(keys[key_id], quotas={"requests_per_s": 1})
    answers = [await front.rest(MESSAGES, {"body": "x"}) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert (answers[2].json["quota"], answers[2].json["limit_per_s"]) == ("key_requests_per_s", 1)
    refused = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})
    assert refused.error == "RequestThrottled" and "key_requests_per_s is 1" in refused.body.decode()


async def test_quotas_of_one_queue_hold() -> None:
    front = Installation()
    front.add_queue("slow")
    queues = front.metadata.queues
    queues[ACCOUNT, "slow"] = msgspec.structs.replace(queues[ACCOUNT, "slow"], quotas={"messages_per_s": 1})
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 1, queues_differ=True)
    slow = "/v1/queues/slow/messages"
    answers = [await front.rest(slow, {"body": "x"}) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert (answers[2].json["quota"], answers[2].json["limit_per_s"]) == ("queue_messages_per_s", 1)
    assert [(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(9)] == [200] * 9
    front.metadata.accounts[ACCOUNT] = AccountRecord(ACCOUNT, "a", True, 2)
    front.clock.now_s += 1
    assert [(await front.rest(slow, {"body": "x"})).status for _ in range(9)] == [200] * 9


async def test_quotas_of_the_installation_hold_for_all_accounts() -> None:
    front = Installation()
    front.metadata.accounts[INSTALLATION] = AccountRecord(INSTALLATION, "", True, 1, quotas={"requests_per_s": 1})
    other = {"QueueUrl": f"http://{HOST}/{OTHER_ACCOUNT}/secret", "MessageBody": "x"}
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200
    assert (await front.sqs("SendMessage", other, key=front.other_key)).status == 200
    assert (await front.sqs("SendMessage", other, key=front.other_key)).error == "RequestThrottled"


async def test_account_that_is_not_cached_is_looked_up_beside_its_request() -> None:
    front = Installation()
    front.metadata.cold = True
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200
    await asyncio.sleep(0)
    assert ("account", ACCOUNT) in front.metadata.lookups


async def test_body_beyond_the_quota_is_refused() -> None:
    limits = account_limits({"payload_bytes": 1_234_567})
    front = Installation(quotas=QuotaTree(lambda _: limits))
    assert (await front.rest(MESSAGES, {"body": "x" * 1_000})).status == 200
    refused = await front.rest(MESSAGES, {"body": "x" * 1_234_567})
    assert refused.status == 413 and "more than 1234567 bytes" in refused.json["detail"]
    refused = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x" * 1_234_567})
    assert refused.status == 400 and front.storage.count() == 1


# --- invented keys ---


async def test_invented_keys_of_one_address_are_looked_up_at_a_stated_rate() -> None:
    front = Installation()
    front.metadata.cold = True
    keys = [front.add_key(ACCOUNT) for _ in range(200)]
    front.metadata.keys.clear()
    replies = [await front.rest(MESSAGES, {}, token=key.bearer_token) for key in keys]
    looked = [look for look in front.metadata.lookups if look[0] == "key"]
    assert len(looked) == 2 * UNKNOWN_KEYS_PER_ADDRESS_PER_S
    assert {reply.status for reply in replies} == {401, 429} and replies[-1].headers["retry-after"]
    signed = await front.sqs("ListQueues", key=keys[0])
    assert signed.error == "RequestThrottled"


async def test_invented_keys_of_many_addresses_are_bounded_together() -> None:
    front = Installation()
    front.metadata.cold = True
    keys = [front.add_key(ACCOUNT) for _ in range(1_000)]
    front.metadata.keys.clear()
    calls = []
    for number, key in enumerate(keys):
        front.client_host = f"2001:db8:0:{number:x}::1"
        calls.append(asyncio.ensure_future(front.rest(MESSAGES, {}, token=key.bearer_token)))
        await asyncio.sleep(0)  # it has its address
    await asyncio.gather(*calls)  # those beyond the bound wait for a while
    looked = [look for look in front.metadata.lookups if look[0] == "key"]
    assert 2 * UNKNOWN_KEYS_PER_S - 1 <= len(looked) <= 2 * UNKNOWN_KEYS_PER_S


async def test_keys_that_exist_are_looked_up_as_often_as_they_come() -> None:
    front = Installation()
    front.metadata.cold = True
    statuses = {(await front.rest(MESSAGES, {"body": "x"})).status for _ in range(4 * UNKNOWN_KEYS_PER_ADDRESS_PER_S)}
    assert statuses == {200}


async def test_requests_of_one_key_that_come_together_share_its_look_up() -> None:
    """As after a start of the front end, when a client's connections all ask at once."""
    front = Installation()
    front.metadata.cold = True
    find = front.metadata.get_key

    async def slow(access_key_id: str) -> Any:
        await asyncio.sleep(0.05)
        return await find(access_key_id)

    front.metadata.get_key = slow  # type: ignore[method-assign]
    calls = [front.rest(MESSAGES, {"body": "x"}) for _ in range(4 * UNKNOWN_KEYS_PER_ADDRESS_PER_S)]
    assert {reply.status for reply in await asyncio.gather(*calls)} == {200}


def slow_keys(front: Installation, seconds: float = 0.01) -> None:
    find = front.metadata.get_key

    async def slow(access_key_id: str) -> Any:
        await asyncio.sleep(seconds)
        return await find(access_key_id)

    front.metadata.get_key = slow  # type: ignore[method-assign]


async def test_any_number_of_keys_that_exist_come_at_once_from_one_address() -> None:
    """As after a start of the front end, behind which many clients stand."""
    front = Installation()
    front.metadata.cold = True
    keys = [front.add_key(ACCOUNT) for _ in range(3 * UNKNOWN_KEYS_PER_S)]
    slow_keys(front)
    calls = [front.rest(MESSAGES, {"body": "x"}, token=key.bearer_token) for key in keys]
    assert {reply.status for reply in await asyncio.gather(*calls)} == {200}


async def test_invented_keys_that_come_at_once_are_bounded_and_hold_up_no_other_address() -> None:
    front = Installation()
    front.metadata.cold = True
    keys = [front.add_key(ACCOUNT) for _ in range(200)]
    for key in keys:
        del front.metadata.keys[key.access_key_id]
    slow_keys(front)
    calls = [asyncio.ensure_future(front.rest(MESSAGES, {}, token=key.bearer_token)) for key in keys]
    await asyncio.sleep(0)
    front.client_host = "10.9.9.9"
    assert (await front.rest(MESSAGES, {"body": "x"})).status == 200
    replies = await asyncio.gather(*calls)
    assert [reply.status for reply in replies].count(401) == 2 * UNKNOWN_KEYS_PER_ADDRESS_PER_S
    assert {reply.status for reply in replies} == {401, 429}


async def test_client_that_leaves_while_its_key_waits_holds_up_nobody() -> None:
    front = Installation()
    front.metadata.cold = True
    keys = [front.add_key(ACCOUNT) for _ in range(4 * UNKNOWN_KEYS_PER_ADDRESS_PER_S)]
    slow_keys(front)
    calls = [asyncio.ensure_future(front.rest(MESSAGES, {"body": "x"}, token=key.bearer_token)) for key in keys]
    await asyncio.sleep(0.001)
    for call in calls[2 * UNKNOWN_KEYS_PER_ADDRESS_PER_S :: 2]:
        call.cancel()
    replies = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert [reply.status for reply in replies if isinstance(reply, Reply)] == [200] * 60


# --- shared places ---


async def test_one_account_leaves_places_of_the_message_browser_to_others() -> None:
    front = Installation()
    held = take_all(front.plane.browser_calls, ACCOUNT)
    assert held == BROWSER_CALLS_MAX // 2
    assert (await front.rest(MESSAGES + "/peek", {})).status == 429
    other = await front.rest("/v1/queues/secret/messages/peek", {}, token=front.other_key.bearer_token)
    assert other.status == 200


async def test_one_account_leaves_places_of_the_control_plane_to_others() -> None:
    front = Installation()
    assert take_all(front.plane.control._calls, ACCOUNT) == CONTROL_CALLS_IN_FLIGHT_MAX // 2
    refused = await front.sqs("ListQueues")
    assert (refused.status, refused.error) == (400, "RequestThrottled")
    assert (await front.sqs("ListQueues", key=front.other_key)).status == 200


async def test_quota_of_long_polls_is_met() -> None:
    limits = account_limits({"polls": 1})
    front = Installation(quotas=QuotaTree(lambda _: limits))
    with front.plane.polls.place(ACCOUNT):
        assert (await front.rest(MESSAGES + "/receive", {"wait_seconds": 1})).status == 429
        assert (await front.rest(MESSAGES + "/receive", {})).status == 200


async def test_one_address_leaves_calls_without_a_key_to_others() -> None:
    front = Installation()
    front.control_answer = lambda request: httpx2.Response(200, json={})
    take_all(front.plane.control._open_calls, "127.0.0.1")
    assert (await front.call("GET", "/v1/session", {"host": HOST})).status == 429
    front.client_host = "192.0.2.1"
    assert (await front.call("GET", "/v1/session", {"host": HOST})).status == 200


def take_all(bulkhead: Any, holder: str) -> int:
    """As many places as it gives this holder."""
    taken = 0
    while True:
        try:
            bulkhead.place(holder).__enter__()
        except RequestError:
            return taken
        taken += 1
