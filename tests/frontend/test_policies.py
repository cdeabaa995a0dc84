"""Queue attributes beyond SQS at the front end: which values are passed on, and what they do to requests."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from frontend.messages.opening import death_json
from frontend.queues.retry_policy import normal_retry_policy
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import DeadSource, VisibilityMode
from storage_nodes.protocol.records import HEADER_GROUP, encode_body
from tests.frontend.test_fifo import grant_keys
from tests.support.frontend_plane import QUEUE_URL, Installation
from tests.support.settling import at_once

RETRY = "Penstock.RetryPolicy"
ATTRIBUTES_REFUSED = [
    ("Penstock.Paused", "yes"),
    ("Penstock.Unknown", "true"),
    ("Penstock.UncountedRelease", "1"),
    ("Penstock.ParkGroups", "true"),
    ("Penstock.Acks", "some"),
    (RETRY, "fixed"),
    (RETRY, "[]"),
    (RETRY, '{"kind": "fixed"}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 1.5}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 1, "jitter": NaN}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 1, "delay": 2}'),
    (RETRY, '{"kind": "fixed", "delay_ms": 50000000}'),
    (RETRY, "[" * 100_000),
]


@pytest.mark.parametrize(("name", "value"), ATTRIBUTES_REFUSED)
async def test_attribute_that_is_not_right_is_refused(front: Installation, name: str, value: str) -> None:
    answer = await front.sqs("SetQueueAttributes", {"QueueUrl": QUEUE_URL, "Attributes": {name: value}})
    assert answer.error in ("InvalidAttributeValue", "InvalidAttributeName")
    assert not front.control_calls


async def test_paused_is_shown_among_the_attributes(front: Installation) -> None:
    front.add_queue("orders", (1,), attributes={"Penstock.Paused": "true"})
    asked = {"QueueUrl": QUEUE_URL, "AttributeNames": ["Penstock.Paused"]}
    assert (await front.sqs("GetQueueAttributes", asked)).json["Attributes"] == {"Penstock.Paused": "true"}


def test_retry_policy_in_normal_form_names_everything() -> None:
    given = '{"delay_ms": 5, "kind": "fixed"}'
    assert normal_retry_policy(given) == '{"kind":"fixed","delay_ms":5,"max_ms":43200000,"jitter":0.0}'


# --- giving back ---


async def received(front: Installation) -> Any:
    (message,) = (await front.rest("/v1/queues/orders/messages/receive")).json["messages"]
    return message


@pytest.mark.parametrize(
    ("asked", "mode", "count"),
    [
        ({}, VisibilityMode.UNCOUNTED, 1),
        ({"delay_seconds": 0}, VisibilityMode.UNCOUNTED, 1),
        ({"count": True}, VisibilityMode.NACK, 2),
        ({"count": True, "delay_seconds": 0}, VisibilityMode.SET, 2),
    ],
)
async def test_release_says_whether_the_receive_counts(
    front: Installation, asked: dict[str, object], mode: VisibilityMode, count: int
) -> None:
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    message = await received(front)
    answer = await front.rest("/v1/queues/orders/messages/release", {"receipts": [message["receipt"]], **asked})
    assert (answer.status, answer.json, front.storage.modes) == (200, {"done": 1, "failed": []}, [mode])
    assert (await received(front))["delivery_count"] == count


async def test_release_with_a_delay_is_visible_after_it(front: Installation) -> None:
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    asked = {"receipts": [(await received(front))["receipt"]], "delay_seconds": 5}
    await front.rest("/v1/queues/orders/messages/release", asked)
    assert (await front.rest("/v1/queues/orders/messages/receive")).json["messages"] == []
    front.clock.now_s += 5
    assert (await received(front))["delivery_count"] == 1


@pytest.mark.parametrize("wrong", [{"delay_seconds": -1}, {"delay_seconds": 43_201}, {"count": 1}, {"receipts": []}])
async def test_release_that_is_not_right_is_refused(front: Installation, wrong: dict[str, object]) -> None:
    answer = await front.rest("/v1/queues/orders/messages/release", {"receipts": ["x"], **wrong})
    assert answer.status == 400


@pytest.mark.parametrize("uncounted", ["true", "false"])
async def test_visibility_of_zero_is_a_release_where_the_queue_says_so(front: Installation, uncounted: str) -> None:
    front.add_queue("orders", (1,), attributes={"Penstock.UncountedRelease": uncounted})
    for body in ("one", "two"):
        await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": body})
    asked = {"QueueUrl": QUEUE_URL, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"]}
    messages = (await front.sqs("ReceiveMessage", asked)).json["Messages"]
    entries = [
        {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": at}
        for at, message in enumerate(messages)
    ]
    changed = await front.sqs("ChangeMessageVisibilityBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    assert [entry["Id"] for entry in changed.json["Successful"]] == ["0", "1"]
    front.clock.now_s += 1
    again = (await front.sqs("ReceiveMessage", asked)).json["Messages"]
    counts = {message["Body"]: message["Attributes"]["ApproximateReceiveCount"] for message in again}
    assert counts == {"one": "1" if uncounted == "true" else "2", "two": "2"}


# --- parked groups ---

PARKED_PATH = "/v1/queues/orders.fifo/parked-groups"


@pytest.fixture
def parking(front: Installation) -> Installation:
    """Three groups are parked; in each a message follows the dead letter."""
    front.add_queue("orders.fifo", (3,), attributes={"FifoQueue": "true", "Penstock.ParkGroups": "true"})
    front.add_queue("dead.fifo", (4,))
    front.storage.set_config(3, max_receives=1, dead_letter_partition=4, park_groups=True)
    bodies = [encode_body(b"x", None, [(HEADER_GROUP, b"g%d" % number)]) for number in range(3)]
    at_once(front.storage.send(3, bodies, False))
    assert len(at_once(front.storage.acquire(3, 10, 1)).messages) == 3
    front.clock.now_s += 1
    at_once(front.storage.send(3, bodies, False))
    front.storage.calls.clear()
    return front


def parked(front: Installation) -> int:
    return at_once(front.storage.parked_groups(3, b"", 10)).total


async def test_parked_groups_are_listed_page_by_page(parking: Installation) -> None:
    first = await parking.rest(f"{PARKED_PATH}?limit=2", method="GET")
    assert (first.status, first.json["total"], first.json["next_after"]) == (200, 3, "g1")
    (group, *_) = (await parking.storage.parked_groups(3, b"", 1)).groups
    assert first.json["groups"][0] == {
        "group": "g0",
        "since_ms": int(parking.clock.now_s * 1000),
        "dead_letter_id": parking.plane.message_ids.of(3, group.offset),
        "messages": 1,
    }
    rest = await parking.rest(f"{PARKED_PATH}?after=g1", method="GET")
    assert [one["group"] for one in rest.json["groups"]] == ["g2"] and rest.json["next_after"] is None


async def test_parked_groups_are_released_by_name_or_all(parking: Installation) -> None:
    named = await parking.rest(f"{PARKED_PATH}/release", {"groups": ["g1", "other"]})
    assert (named.status, named.json) == (200, {"released": 1, "not_parked": ["other"]})
    assert (await parking.rest(f"{PARKED_PATH}/release", {"all": True})).json["released"] == 2
    entry = {"action": "parked_groups.release", "queue": "orders.fifo"}
    assert parking.audit == [{**entry, "groups": ["g1", "other"]}, {**entry, "groups": []}]


async def test_release_that_cannot_be_audited_is_not_done(parking: Installation) -> None:
    parking.control_answer = lambda request: httpx2.Response(503)
    assert (await parking.rest(f"{PARKED_PATH}/release", {"all": True})).status == 503
    assert parked(parking) == 3


async def test_release_that_fails_is_audited_too(parking: Installation) -> None:
    parking.storage.fail_with = ErrorCode.NO_QUORUM
    assert (await parking.rest(f"{PARKED_PATH}/release", {"groups": ["g1"]})).status == 503
    assert [(one["action"], one.get("reason")) for one in parking.audit] == [
        ("parked_groups.release", None),
        ("parked_groups.release.failed", "ServiceUnavailable"),
    ]


@pytest.mark.parametrize(
    ("method", "path", "asked", "status"),
    [
        ("GET", f"{PARKED_PATH}?limit=0", None, 400),
        ("GET", f"{PARKED_PATH}?limit=x", None, 400),
        ("GET", f"{PARKED_PATH}?page=1", None, 400),
        ("GET", f"{PARKED_PATH}?limit=1&limit=2", None, 400),
        ("GET", f"{PARKED_PATH}?after=%00", None, 400),
        ("POST", PARKED_PATH, None, 405),
        ("GET", f"{PARKED_PATH}/release", None, 405),
        ("POST", f"{PARKED_PATH}/release", {}, 400),
        ("POST", f"{PARKED_PATH}/release", {"groups": ["g"], "all": True}, 400),
        ("POST", f"{PARKED_PATH}/release", {"groups": ["g"] * 11}, 400),
        ("POST", f"{PARKED_PATH}/release", {"groups": [""]}, 400),
        ("GET", "/v1/queues/orders/parked-groups", None, 400),
        ("GET", "/v1/queues/none.fifo/parked-groups", None, 404),
    ],
)
async def test_request_about_parked_groups_that_is_not_right_is_refused(
    parking: Installation, method: str, path: str, asked: object, status: int
) -> None:
    assert (await parking.rest(path, asked, method=method)).status == status
    assert parked(parking) == 3 and not parking.audit


# --- why a dead letter died ---


async def test_dead_letter_says_why_it_died(front: Installation) -> None:
    front.storage.set_config(1, max_receives=1, dead_letter_partition=9)
    grant_keys(front, "orders", "dead", (9,))
    await front.rest("/v1/queues/orders/messages", {"body": "x"})
    await front.rest("/v1/queues/orders/messages/receive", {"visibility_seconds": 7})
    first_ms = int(front.clock.now_s * 1000)
    front.clock.now_s += 10
    await front.rest("/v1/queues/orders/messages/receive")
    (letter,) = (await front.rest("/v1/queues/dead/messages/receive", {"visibility_seconds": 0})).json["messages"]
    death = {
        "reason": "max_receives",
        "receives": 1,
        "max_receives": 1,
        "first_received_ms": first_ms,
        "died_ms": first_ms + 7_000,
    }
    assert letter["death"] == death
    for asked, shown in (("All", False), ("Penstock.DeadLetterReason", True)):
        names = {"QueueUrl": QUEUE_URL.replace("orders", "dead"), "MessageSystemAttributeNames": [asked]}
        (found,) = (await front.sqs("ReceiveMessage", {**names, "VisibilityTimeout": 0})).json["Messages"]
        assert ("Penstock.DeadLetterReason" in found["Attributes"]) is shown
        if shown:
            assert json.loads(found["Attributes"]["Penstock.DeadLetterReason"]) == death


def test_reason_of_a_later_version_is_shown_as_other() -> None:
    assert death_json(DeadSource(1, 2, 3, 4, 5, 99))["reason"] == "other"


# --- acks ---

QUORUM, NONE, LEADER, ALL = Acks.QUORUM, Acks.NONE, Acks.LEADER, Acks.ALL


def acks_attribute(word: str) -> dict[str, object]:
    return {"MessageAttributes": {"Penstock.Acks": {"DataType": "String", "StringValue": word}}}


@pytest.mark.parametrize(
    ("of_queue", "of_message", "expected"),
    [
        (None, None, QUORUM),
        ("leader", None, LEADER),
        ("none", "all", ALL),
        (None, "none", NONE),
        ("all", "quorum", QUORUM),
    ],
)
async def test_send_asks_for_the_acks_of_its_message_or_its_queue(
    front: Installation, of_queue: str | None, of_message: str | None, expected: Acks
) -> None:
    front.add_queue("orders", (1,), attributes={"Penstock.Acks": of_queue} if of_queue else {})
    more = acks_attribute(of_message) if of_message else {}
    sent = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x", **more})
    assert sent.status == 200 and ("MD5OfMessageAttributes" in sent.json) is bool(of_message)
    field = {"acks": of_message} if of_message else {}
    assert (await front.rest("/v1/queues/orders/messages", {"body": "x", **field})).status == 200
    assert front.storage.acks == [expected, expected]


async def test_batch_is_stored_as_its_most_careful_message_asks(front: Installation) -> None:
    entries = [{"Id": word, "MessageBody": "x", **acks_attribute(word)} for word in ("none", "leader")]
    await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    batch = {"acks": "none", "messages": [{"body": "x"}, {"body": "y", "acks": "leader"}, {"body": "z"}]}
    await front.rest("/v1/queues/orders/messages", batch)
    assert front.storage.acks == [LEADER, LEADER]


async def test_acks_that_are_not_known_are_refused(front: Installation) -> None:
    sent = await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x", **acks_attribute("some")})
    assert sent.error == "InvalidParameterValueException"
    assert (await front.rest("/v1/queues/orders/messages", {"body": "x", "acks": "some"})).status == 400
    assert not front.storage.acks
