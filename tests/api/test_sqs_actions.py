"""The SQS management actions through their internal endpoint, on a real database; every hint is taken at once."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from api.audit.models import AuditEntry
from api.internal.sqs import json_answer
from api.queues import actions
from api.queues.models import Queue, QueueDataKey
from tests.support.control_plane import Caller, copy_queue, new_caller
from tests.support.covers import covers
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)
DEAD_ARN = "arn:aws:sqs:us-east-1:123456789012:dead"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ScriptedStorage:
    """Every hint is taken at once, by a lifecycle over this storage."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    return scripted


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


def error(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def rest(name: str, seconds: int) -> None:
    """Moves the delete of a queue into the past."""
    Queue.objects.filter(name=name).update(deleted_at=timezone.now() - timedelta(seconds=seconds))


def test_create_queue_answers_when_the_queue_is_active(caller: Caller, storage: ScriptedStorage) -> None:
    answer = caller.sqs("CreateQueue", QueueName="orders", Attributes={"VisibilityTimeout": "5"}, tags={"team": "a"})
    assert (answer.status_code, answer.json()) == (200, {"name": "orders"})
    queue = Queue.objects.get(name="orders")
    assert (queue.state, queue.partitions, queue.tags) == ("active", [1], {"team": "a"})
    assert queue.attributes["VisibilityTimeout"] == "5"
    assert queue.attributes["MessageRetentionPeriod"] == "345600"
    assert list(storage.partitions) == [f"queue:{queue.uuid.hex}:0"]
    assert QueueDataKey.objects.get(queue=queue).version > 1


def test_create_queue_again_with_same_attributes_returns_it(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders", Attributes={"DelaySeconds": "5"})
    for attributes in ({"DelaySeconds": "5"}, {"DelaySeconds": "05"}, {"VisibilityTimeout": "30"}, {}):
        assert caller.sqs("CreateQueue", QueueName="orders", Attributes=attributes).status_code == 200
    assert Queue.objects.count() == 1
    assert storage.calls == ["create", "stats"]


def test_create_queue_again_with_a_default_that_was_not_set_returns_it(
    caller: Caller, storage: ScriptedStorage
) -> None:
    encrypted = {"KmsMasterKeyId": "alias/x"}
    assert caller.sqs("CreateQueue", QueueName="orders", Attributes=encrypted).status_code == 200
    for more in ({"KmsDataKeyReusePeriodSeconds": "300"}, {"RedriveAllowPolicy": '{"redrivePermission":"allowAll"}'}):
        answer = caller.sqs("CreateQueue", QueueName="orders", Attributes={**encrypted, **more})
        assert answer.status_code == 200, answer.content
    answer = caller.sqs("CreateQueue", QueueName="orders", Attributes={"KmsDataKeyReusePeriodSeconds": "301"})
    assert error(answer) == (400, "QueueNameExists")


def test_create_queue_with_another_value_names_the_attribute(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders")
    answer = caller.sqs("CreateQueue", QueueName="orders", Attributes={"VisibilityTimeout": "31"})
    assert error(answer) == (400, "QueueNameExists")
    assert "VisibilityTimeout" in answer.json()["message"]


def test_same_name_in_two_accounts_makes_two_queues(caller: Caller, storage: ScriptedStorage) -> None:
    other = new_caller("other")
    for who in (caller, other):
        assert who.sqs("CreateQueue", QueueName="orders").status_code == 200
    assert other.sqs("DeleteQueue", QueueName="orders").status_code == 200
    assert Queue.objects.get(account_id=caller.account_id).state == "active"
    assert error(other.sqs("SetQueueAttributes", QueueName="orders", Attributes={"DelaySeconds": "1"})) == (
        400,
        "QueueDoesNotExist",
    )


@covers("CreateQueue", limit="seconds that a deleted name rests")
def test_deleted_name_rests_for_a_minute(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders")
    first = Queue.objects.get(name="orders")
    assert caller.sqs("DeleteQueue", QueueName="orders").json() == {}
    assert (storage.partitions, QueueDataKey.objects.filter(queue=first).count()) == ({}, 0)
    assert error(caller.sqs("DeleteQueue", QueueName="orders")) == (400, "QueueDoesNotExist")
    rest("orders", 59)
    assert error(caller.sqs("CreateQueue", QueueName="orders")) == (400, "QueueDeletedRecently")
    rest("orders", 60)
    assert caller.sqs("CreateQueue", QueueName="orders").status_code == 200
    second = Queue.objects.get(name="orders", state="active")
    assert second.uuid != first.uuid
    assert second.version > first.version
    caller.sqs("DeleteQueue", QueueName="orders")
    rest("orders", 61)
    assert caller.sqs("CreateQueue", QueueName="orders").status_code == 200


def test_queue_url_of_another_account_is_not_found(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders")
    assert error(caller.sqs("DeleteQueue", QueueUrl="http://h/000000000000/orders")) == (400, "QueueDoesNotExist")
    assert caller.sqs("DeleteQueue", QueueUrl=f"http://h/{caller.account_id}/orders").status_code == 200


def test_set_attributes_reaches_storage_only_where_storage_enforces(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders")
    storage.calls.clear()
    assert caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"VisibilityTimeout": "9"}).json() == {}
    assert storage.calls == []
    caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"MessageRetentionPeriod": "600"})
    assert storage.calls == ["configure"]
    assert storage.configs[1].retention_ms == 600_000
    queue = Queue.objects.get(name="orders")
    assert (queue.attributes["VisibilityTimeout"], queue.generation, queue.observed_generation) == ("9", 2, 2)


def test_redrive_to_a_missing_or_unwilling_queue_is_refused(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="dead", Attributes={"RedriveAllowPolicy": '{"redrivePermission": "denyAll"}'})
    for target in ("dead", "nowhere"):
        arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:{target}"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
        answer = caller.sqs("CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": policy})
        assert error(answer) == (400, "InvalidParameterValueException")
    caller.sqs("SetQueueAttributes", QueueName="dead", Attributes={"RedriveAllowPolicy": ""})
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    assert caller.sqs("CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": policy}).status_code == 200


def test_refused_redrive_policy_is_shown_as_it_was_written(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders")
    caller.sqs("CreateQueue", QueueName="line.fifo", Attributes={"FifoQueue": "true"})
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}"
    for target, why in (
        ("nowhere", "Dead letter target does not exist."),
        ("line.fifo", "Dead-letter queue must be same type of queue as the source."),
    ):
        policy = f'{{"maxReceiveCount":"7" ,"deadLetterTargetArn":"{arn}:{target}"}}'
        for action, name in (("CreateQueue", "new"), ("SetQueueAttributes", "orders")):
            answer = caller.sqs(action, QueueName=name, Attributes={"RedrivePolicy": policy})
            assert answer.json() == {
                "code": "InvalidParameterValueException",
                "message": f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {why}",
            }


def test_list_queues_pages_through_a_prefix(caller: Caller, storage: ScriptedStorage) -> None:
    for name in ("b-1", "a-2", "a-1", "a-3", "A-0", "a_4"):
        caller.sqs("CreateQueue", QueueName=name)
    new_caller("other").sqs("CreateQueue", QueueName="a-foreign")
    caller.sqs("DeleteQueue", QueueName="a-3")
    assert caller.sqs("ListQueues").json() == {"names": ["A-0", "a-1", "a-2", "a_4", "b-1"]}
    page = caller.sqs("ListQueues", QueueNamePrefix="a", MaxResults=2).json()
    assert page["names"] == ["a-1", "a-2"]
    assert caller.sqs("ListQueues", QueueNamePrefix="a", MaxResults=2, NextToken=page["NextToken"]).json() == {
        "names": ["a_4"]
    }


@pytest.mark.parametrize(
    "params", [{"MaxResults": 0}, {"MaxResults": 1_001}, {"NextToken": "YQ"}, {"MaxResults": 1, "NextToken": "%"}]
)
def test_list_queues_with_bad_paging_is_refused(caller: Caller, params: dict[str, Any]) -> None:
    assert error(caller.sqs("ListQueues", **params)) == (400, "InvalidParameterValueException")


@covers("ListQueues", limit="names in an answer")
@covers("ListDeadLetterSourceQueues", limit="names in an answer")
def test_answer_has_a_thousand_names_at_most(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="dead")
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    caller.sqs("CreateQueue", QueueName="s0000", Attributes={"RedrivePolicy": policy})
    copy_queue("s0000", [f"s{number:04}" for number in range(1, 999)])
    for count in (999, 1_000, 1_001):
        expected = [f"s{number:04}" for number in range(min(count, 1_000))]
        assert caller.sqs("ListQueues", QueueNamePrefix="s").json() == {"names": expected}
        assert caller.sqs("ListDeadLetterSourceQueues", QueueName="dead").json() == {"names": expected}
        copy_queue("s0000", [f"s{count:04}"])


def test_sources_are_told_to_another_account_where_the_policy_of_the_queue_says_so(
    caller: Caller, storage: ScriptedStorage
) -> None:
    other = new_caller("neighbour")
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:dead"
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    caller.sqs("CreateQueue", QueueName="dead")
    caller.sqs("CreateQueue", QueueName="source", Attributes={"RedrivePolicy": redrive})
    asked = {"QueueName": "dead", "QueueOwner": caller.account_id}
    for who in (other, Caller(other.account_id, caller.access_key_id)):
        assert error(who.sqs("ListDeadLetterSourceQueues", **asked)) == (403, "AccessDeniedException")
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{other.account_id}:root"},
        "Action": "sqs:*",
        "Resource": arn,
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    caller.sqs("SetQueueAttributes", QueueName="dead", Attributes={"Policy": policy})
    assert other.sqs("ListDeadLetterSourceQueues", **asked).json() == {"names": ["source"]}
    of_its_own = other.sqs("ListDeadLetterSourceQueues", QueueName="dead")
    assert error(of_its_own) == (400, "QueueDoesNotExist")
    for action in ("ListQueueTags", "DeleteQueue"):  # no other action looks at it
        assert error(other.sqs(action, **asked)) == (400, "QueueDoesNotExist")
    assert caller.sqs("ListDeadLetterSourceQueues", QueueName="dead").json() == {"names": ["source"]}


def test_storage_down_makes_create_queue_retriable(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The desired state stays; the same request later finds the queue."""

    def down(call: str) -> None:
        raise OSError("no route")

    storage.before = down
    monkeypatch.setattr("api.limits.QUEUE_READY_WAIT_MS_MAX", 50)
    assert error(caller.sqs("CreateQueue", QueueName="orders")) == (503, "ServiceUnavailable")
    queue = Queue.objects.get(name="orders")
    assert (queue.state, queue.failures, queue.claim) == ("creating", 1, None)
    storage.before = lambda call: None
    Queue.objects.update(next_attempt_at=timezone.now())
    assert reconcile_queue(queue.pk, storage) is None
    assert caller.sqs("CreateQueue", QueueName="orders").status_code == 200


def test_every_action_leaves_one_audit_entry(caller: Caller, storage: ScriptedStorage) -> None:
    caller.sqs("CreateQueue", QueueName="orders")
    caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"DelaySeconds": "3"})
    caller.sqs("DeleteQueue", QueueName="orders")
    trail = AuditEntry.objects.filter(subject="queue:orders").order_by("id")
    assert list(trail.values_list("action", "actor", "request_id")) == [
        ("queue.create", caller.access_key_id, "req-1"),
        ("queue.active", "lifecycle", ""),
        ("queue.configure", caller.access_key_id, "req-1"),
        ("queue.delete", caller.access_key_id, "req-1"),
        ("queue.deleted", "lifecycle", ""),
    ]


def test_request_without_a_good_principal_is_refused(caller: Caller, storage: ScriptedStorage) -> None:
    from django.test import Client

    body = json.dumps(
        {"account_id": caller.account_id, "name": caller.access_key_id, "params": {"QueueName": "orders"}}
    ).encode()
    target = "/internal/sqs/CreateQueue"
    other = Caller("000000000000", caller.access_key_id)
    for headers in (
        {},
        caller.headers("POST", target, b"{}"),
        caller.headers("POST", "/internal/sqs/DeleteQueue", body),
        caller.headers("POST", target, body, age_ms=61_000),
        other.headers("POST", target, body),  # vouches for somebody else than the request names
    ):
        answer = Client().generic("POST", target, body, content_type="application/json", headers=headers)
        assert error(answer) == (401, "InvalidSecurity")
    assert Queue.objects.count() == 0


def test_unknown_action_or_method_is_refused(caller: Caller) -> None:
    assert error(caller.sqs("PurgeQueue")) == (404, "InvalidAction")
    assert error(caller.request("GET", "/internal/sqs/ListQueues")) == (404, "InvalidAction")


def test_sources_of_a_queue_are_found_by_an_index(caller: Caller, storage: ScriptedStorage) -> None:
    """An account may have very many queues, and every one that is made or deleted asks for its sources."""
    from django.db import connection

    from api.queues.redrive import sources_of

    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        plan = sources_of(caller.account_id, "dead").explain()
        cursor.execute("RESET enable_seqscan")
    assert "queue_by_target" in plan


@pytest.mark.parametrize(
    ("attribute", "policy", "code"),
    [
        ("RedrivePolicy", r'{"\ud800": 1}', "InvalidParameterValueException"),
        (
            "RedrivePolicy",
            f'{{"deadLetterTargetArn": "{DEAD_ARN}", "maxReceiveCount": "\\ud800"}}',
            "InvalidParameterValueException",
        ),
        ("RedriveAllowPolicy", r'{"\ud800": 1}', "InvalidAttributeValue"),
        ("Policy", r'{"\ud800": 1}', "InvalidAttributeValue"),
        ("Penstock.RetryPolicy", r'{"\ud800": 1}', "InvalidAttributeValue"),
    ],
)
def test_half_of_a_surrogate_pair_in_a_policy_is_refused(
    caller: Caller, attribute: str, policy: str, code: str
) -> None:
    answer = caller.sqs("CreateQueue", QueueName="orders", Attributes={attribute: policy})
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.content
    assert not Queue.objects.filter(name="orders").exists()


def test_answer_can_tell_of_any_text() -> None:
    assert json.loads(json_answer(400, {"message": "a \ud800 ü"}).content) == {"message": "a ? ü"}
