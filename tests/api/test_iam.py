"""Policies of keys, named policies and groups as the control plane stores them, and what it then allows."""

from __future__ import annotations

import io
import json
import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from api import clock
from api.accounts.actions import get_or_create_account
from api.accounts.models import AccessKey
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.iam import limits
from api.iam.actions import groups, keys, policies
from api.iam.models import KeyAccess, Policy
from api.iam.review import review_stored
from api.metadata.store import _KEYS, _key_row
from api.models import FeedChange
from api.people.models import AccountLife, AccountMembership, Person
from api.people.roles import Act
from api.queues import actions as queue_actions
from api.queues import spreading
from api.queues.models import Queue
from frontend.metadata.messages import KeyReply
from frontend.metadata.records import KeyRecord, PolicyRecord
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)
ALL = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The key of an account, which may do everything; the queue `orders`."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(queue_actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    found = new_caller()
    assert found.request("POST", "/v1/queues", {"name": "orders", "tags": {"env": "test"}}).status_code == 201
    return found


def document(*actions: str, effect: str = "Allow", resource: str = "*", **more: Any) -> dict[str, Any]:
    statement = {"Effect": effect, "Action": list(actions), "Resource": resource, **more}
    return {"Version": "2012-10-17", "Statement": [statement]}


def restricted(caller: Caller, policy: dict[str, Any]) -> Caller:
    made = caller.request("POST", "/v1/keys", {"name": "k", "policy": policy})
    assert made.status_code == 201 and made.json()["restricted"] is True, made.content
    return Caller(caller.account_id, made.json()["access_key_id"])


def record_of(access_key_id: str) -> KeyRecord:
    """As front ends get it."""
    with connection.cursor() as cursor:
        cursor.execute(_KEYS + " WHERE k.access_key_id = %s", [access_key_id])
        row = cursor.fetchone()
    record = msgspec.msgpack.decode(_key_row(row).reply, type=KeyReply).record
    assert record is not None
    return record


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# --- policies of keys ---


def test_policy_of_a_key_is_in_its_record_and_in_force(caller: Caller) -> None:
    key = restricted(caller, document("sqs:ListQueues", "sqs:GetQueueAttributes", "sqs:ListQueueTags"))
    assert [policy.name for policy in record_of(key.access_key_id).policies or ()] == ["key"]
    assert record_of(caller.access_key_id).policies is None
    assert key.request("GET", "/v1/queues").status_code == 200
    assert key.request("GET", "/v1/queues/orders").status_code == 200
    refused = key.request("DELETE", "/v1/queues/orders")
    assert code(refused) == (403, "access-denied")
    assert refused.json()["detail"] == (
        f"User: arn:aws:iam::{caller.account_id}:user/key/{key.access_key_id} is not authorized to perform: "
        f"sqs:deletequeue on resource: arn:aws:sqs:us-east-1:{caller.account_id}:orders because no identity-based "
        "policy allows the sqs:deletequeue action"
    )
    assert Queue.objects.get(name="orders").state == "active"


def test_policy_is_changed_taken_away_and_lifted(caller: Caller) -> None:
    key = restricted(caller, document("sqs:ListQueues"))
    path = f"/v1/keys/{key.access_key_id}"
    assert caller.request("PUT", path + "/policy", {"policy": ALL}).json()["policy"] == ALL
    assert key.request("GET", "/v1/keys").status_code == 200
    assert caller.request("DELETE", path + "/policy").json() == {"restricted": True, "policy": None, "attached": []}
    assert record_of(key.access_key_id).policies == []
    assert key.request("GET", "/v1/queues").status_code == 403, "a key without any policy left may do nothing"
    assert caller.request("PATCH", path, {"restricted": False}).json()["restricted"] is False
    assert record_of(key.access_key_id).policies is None
    assert key.request("GET", "/v1/keys").status_code == 200
    entries = AuditEntry.objects.filter(subject=f"key:{key.access_key_id}").order_by("id")
    assert list(entries.values_list("action", flat=True)) == [
        "key.create", "key.put_policy", "key.put_policy", "key.delete_policy", "key.free",
    ]  # fmt: skip


def test_each_change_of_what_a_key_may_do_is_announced(caller: Caller) -> None:
    key = restricted(caller, document("sqs:ListQueues"))
    policies.create_policy(OPERATOR, caller.account_id, "all", json.dumps(ALL))
    path = f"/v1/keys/{key.access_key_id}"
    for method, target, content in (
        ("PUT", path + "/policy", {"policy": ALL}),
        ("PUT", path + "/policies/all", None),
        ("PUT", "/v1/policies/all", {"policy": document("sqs:*")}),
        ("PATCH", path, {"tags": {"team": "blue"}}),
        ("DELETE", path + "/policies/all", None),
        ("DELETE", path + "/policy", None),
        ("PATCH", path, {"restricted": False}),
        ("POST", path + "/rotation", {}),
    ):
        before = AccessKey.objects.get(pk=key.access_key_id).version
        assert caller.request(method, target, content).status_code in (200, 201), target
        after = AccessKey.objects.get(pk=key.access_key_id).version
        assert after > before and FeedChange.objects.filter(kind="key", key=key.access_key_id, version=after).exists()


@pytest.mark.parametrize(
    ("policy", "pointer"),
    [
        ({"Version": "2012-10-17", "Statement": [{"Effect": "allow", "Action": "*", "Resource": "*"}]}, "Effect"),
        ({"Statement": [{"Effect": "Allow", "Action": "sqs:Send Message", "Resource": "*"}]}, "Action"),
        ({"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": "*"}}, "Principal"),
        ({"Statement": []}, "Statement"),
        ({}, "policy"),
        ({"Statement": {"Effect": "Allow", "Action": "*", "Resource": "x" * 7_000}}, "policy"),
    ],
)
def test_policy_that_cannot_be_understood_is_refused_by_member(
    caller: Caller, policy: dict[str, Any], pointer: str
) -> None:
    for method, path, content in (
        ("POST", "/v1/keys", {"name": "k", "policy": policy}),
        ("PUT", f"/v1/keys/{caller.access_key_id}/policy", {"policy": policy}),
        ("POST", "/v1/policies", {"name": "p", "policy": policy}),
    ):
        refused = caller.request(method, path, content)
        assert code(refused) == (400, "invalid-policy"), refused.content
        (error,) = refused.json()["errors"]
        assert error["pointer"].startswith("/policy") and pointer in error["pointer"]
    assert AccessKey.objects.count() == 1 and not KeyAccess.objects.exists() and not Policy.objects.exists()


@pytest.mark.parametrize("policy", [[], "x", 1, True, None])
def test_policy_of_another_type_is_refused(caller: Caller, policy: Any) -> None:
    refused = caller.request("PUT", f"/v1/keys/{caller.access_key_id}/policy", {"policy": policy})
    assert code(refused) == (400, "invalid-request") and not KeyAccess.objects.exists()


def test_condition_sees_what_the_front_end_vouches_for(caller: Caller) -> None:
    inside = restricted(caller, document("sqs:*", Condition={"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}))
    assert inside.request("GET", "/v1/queues").status_code == 403
    assert inside._replace(source_ip="203.0.113.9").request("GET", "/v1/queues").status_code == 200
    tagged = restricted(caller, document("sqs:*", Condition={"StringEquals": {"aws:ResourceTag/env": "test"}}))
    assert tagged.request("PATCH", "/v1/queues/orders", {"delay_seconds": 1}).status_code == 200
    assert tagged.request("POST", "/v1/queues", {"name": "new"}).status_code == 403


def test_tags_of_a_new_queue_are_asked_for_and_seen(caller: Caller) -> None:
    new = {"name": "new", "tags": {"env": "test"}}
    assert restricted(caller, document("sqs:CreateQueue")).request("POST", "/v1/queues", new).status_code == 403
    condition = {"StringEquals": {"aws:RequestTag/env": "test"}}
    key = restricted(caller, document("sqs:CreateQueue", "sqs:TagQueue", Condition=condition))
    assert key.request("POST", "/v1/queues", {"name": "other"}).status_code == 403
    assert key.request("POST", "/v1/queues", new).status_code == 201
    assert key.sqs("CreateQueue", QueueName="third", tags={"env": "live"}).status_code == 403


@pytest.mark.parametrize("name", [" orders ", "orders\n"])
def test_name_in_a_body_is_read_as_the_view_reads_it(caller: Caller, name: str) -> None:
    """Or a padded name would get past a Deny for the queue."""
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    statements = [*document("*")["Statement"], *document("*", effect="Deny", resource=arn)["Statement"]]
    key = restricted(caller, {"Version": "2012-10-17", "Statement": statements})
    assert key.request("POST", "/v1/queues", {"name": name}).status_code in (400, 403)


def test_queue_policy_of_the_own_account_is_asked_by_management_too(caller: Caller) -> None:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    set_policy = caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": json.dumps(policy)})
    assert set_policy.status_code == 200
    assert tries_to_name(caller, caller, "q1", "orders") == [403] * 4
    assert caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"Policy": ""}).status_code == 200
    assert tries_to_name(caller, caller, "q2", "orders") == [201, 200, 200, 200]
