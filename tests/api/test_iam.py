"""Policies and scopes of keys as the control plane stores them, what it then allows, and the life of keys."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from api import clock
from api.accounts.models import AccessKey
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.iam import limits
from api.iam.actions import keys, policies
from api.iam.models import KeyAccess, Policy
from api.iam.review import review_stored
from api.models import FeedChange
from api.people.models import AccountLife
from api.queues.models import Queue
from frontend.metadata.records import PolicyRecord
from tests.support.control_plane import Caller
from tests.support.iam import ALL, code, compact, document, member, record_of, restricted, run
from tests.support.iam import caller as caller

pytestmark = pytest.mark.django_db(transaction=True)


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
    listing, everything = compact(document("sqs:ListQueues")), compact(ALL)
    told = [entry.details for entry in entries]
    assert told[2:] == [
        {"policy": everything, "before": listing}, {"before": everything}, {"before": "", "detached": []},
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
        ("PATCH", path, {"active": False}),
        ("PATCH", path, {"active": True}),
        ("PATCH", path, {"name": "other"}),
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
    said = restricted(caller, document("sqs:*", Condition={"StringLike": {"aws:UserAgent": "terraform/*"}}))
    assert said.request("GET", "/v1/queues").status_code == 403
    assert said._replace(user_agent="terraform/1").request("GET", "/v1/queues").status_code == 200
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
    statement = {"Effect": "Deny", "Principal": "*", "Action": ["sqs:DeleteQueue", "sqs:SendMessage"], "Resource": arn}
    text = json.dumps({"Version": "2012-10-17", "Statement": statement})
    asked = {"QueueName": "orders", "Attributes": {"Policy": text}}
    assert caller.sqs("SetQueueAttributes", **asked).status_code == 200
    assert caller.request("DELETE", "/v1/queues/orders").status_code == 403
    schedule = {"name": "s", "cron": "* * * * *", "body": "x"}
    assert caller.request("POST", "/v1/queues/orders/schedules", schedule).status_code == 403
    # The root of the account has a way back.
    assert caller.sqs("SetQueueAttributes", **{**asked, "Attributes": {"Policy": ""}}).status_code == 200
    assert caller.request("POST", "/v1/queues/orders/schedules", schedule).status_code == 201


def test_move_asks_at_its_source_and_at_each_destination(caller: Caller) -> None:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:"
    for name in ("source", "target"):
        caller.request("POST", "/v1/queues", {"name": name})
    redrive = json.dumps({"deadLetterTargetArn": arn + "orders", "maxReceiveCount": 3})
    assert (
        caller.sqs("SetQueueAttributes", QueueName="source", Attributes={"RedrivePolicy": redrive}).status_code == 200
    )
    on_source = document("*", resource=arn + "orders")["Statement"]
    send = document("sqs:SendMessage", resource=arn + "target")["Statement"]
    key = restricted(caller, {"Version": "2012-10-17", "Statement": on_source})
    start = {"SourceArn": arn + "orders", "DestinationArn": arn + "target"}
    assert key.sqs("StartMessageMoveTask", **start).status_code == 403
    assert key.request("POST", "/v1/queues/orders/moves", {"destination": "target"}).status_code == 403
    caller.request("PUT", f"/v1/keys/{key.access_key_id}/policy", {"policy": {"Statement": [*on_source, *send]}})
    assert key.sqs("StartMessageMoveTask", SourceArn=arn + "orders").status_code == 403, "it goes back to `source`"
    assert key.sqs("StartMessageMoveTask", **start).status_code == 200


def test_policies_of_a_key_are_bounded_together(caller: Caller) -> None:
    big = json.dumps(document("sqs:*", resource="arn:aws:sqs:*:*:" + "x" * 5_500))
    for number in range(4):
        policies.create_policy(OPERATOR, caller.account_id, f"p{number}", big)
    path = f"/v1/keys/{restricted(caller, ALL).access_key_id}/policies"
    answers = [caller.request("PUT", f"{path}/p{number}").status_code for number in range(4)]
    assert answers == [200, 200, 403, 403] and 2 * len(big) < limits.KEY_POLICIES_CHARACTERS_MAX < 3 * len(big)


# --- life of keys ---


def test_rotated_key_goes_on_for_its_grace_and_the_new_one_has_its_policies(caller: Caller) -> None:
    key = restricted(caller, document("sqs:ListQueues"))
    policies.create_policy(OPERATOR, caller.account_id, "all", json.dumps(ALL))
    caller.request("PUT", f"/v1/keys/{key.access_key_id}/policies/all")
    path = f"/v1/keys/{key.access_key_id}/rotation"
    for bad in (-1, limits.ROTATION_GRACE_S_MAX + 1, "60", 1.5, True):
        assert code(caller.request("POST", path, {"grace_seconds": bad})) == (400, "invalid-request"), bad
    made = caller.request("POST", path, {"grace_seconds": 60})
    assert made.status_code == 201 and made["Cache-Control"] == "no-store"
    new, old = made.json(), AccessKey.objects.get(pk=key.access_key_id)
    assert new["name"] == old.name and new["bearer_token"] and new["expires_at"] is None
    assert old.expires_at is not None and timedelta(0) < old.expires_at - clock.now() <= timedelta(seconds=60)
    assert record_of(new["access_key_id"]).policies == record_of(key.access_key_id).policies
    assert len(record_of(new["access_key_id"]).policies or ()) == 2


def test_rotation_gives_a_key_that_expires_no_longer_span(caller: Caller) -> None:
    ends = timezone.now() + timedelta(hours=1)
    made = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("short", ends)).key
    new = keys.rotate_key(OPERATOR, caller.account_id, made.access_key_id, limits.ROTATION_GRACE_S_MAX)
    assert new.key.expires_at is not None and new.key.expires_at - clock.now() <= timedelta(hours=1)
    made.refresh_from_db()
    assert made.expires_at == ends, "the grace period makes it no longer"


def test_key_that_ends_with_the_last_year_is_rotated(caller: Caller) -> None:
    last = {"name": "never", "expires_at": "9999-12-31T23:59:59.999999Z"}
    key_id = caller.request("POST", "/v1/keys", last).json()["access_key_id"]
    assert caller.request("POST", f"/v1/keys/{key_id}/rotation", {}).json()["expires_at"].startswith("9999-12-31T23:59")


def test_key_that_is_rotated_again_within_its_grace_passes_its_own_span_on(caller: Caller) -> None:
    lasting = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("lasting")).key
    ends = timezone.now() + timedelta(days=30)
    ending = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("ending", ends)).key
    for _ in range(3):
        assert keys.rotate_key(OPERATOR, caller.account_id, lasting.access_key_id, 60).key.expires_at is None
        new = keys.rotate_key(OPERATOR, caller.account_id, ending.access_key_id, 60).key
        assert new.expires_at is not None and timedelta(days=29) < new.expires_at - clock.now() <= timedelta(days=30)
    lasting.refresh_from_db()
    assert lasting.expires_at is not None and lasting.expires_at - clock.now() <= timedelta(seconds=60)


def test_rotation_locks_the_account_before_the_key(caller: Caller) -> None:
    """As attaching a policy does: with another order the two wait for each other."""
    with CaptureQueriesContext(connection) as captured:
        keys.rotate_key(OPERATOR, caller.account_id, caller.access_key_id, 60)
    locks = [query["sql"] for query in captured if "FOR UPDATE" in query["sql"]]
    assert ['FROM "account"' in sql for sql in locks[:2]] == [True, False], locks


def test_tags_are_of_restricted_keys(caller: Caller) -> None:
    path = f"/v1/keys/{caller.access_key_id}"
    assert code(caller.request("PATCH", path, {"tags": {"a": "b"}})) == (400, "invalid-request")
    key = restricted(caller, ALL)
    path = f"/v1/keys/{key.access_key_id}"
    assert caller.request("PATCH", path, {"tags": {"team": "blue"}}).json()["tags"] == {"team": "blue"}
    assert record_of(key.access_key_id).tags == {"team": "blue"}
    for bad in (
        {"": "x"},
        {"k" * 129: "x"},
        {"k": "v" * 257},
        {"k": 1},
        {"k": "\0"},
        [],
        {f"k{n}": "" for n in range(51)},
    ):
        assert caller.request("PATCH", path, {"tags": bad}).status_code in (400, 403), bad


# --- operators ---


def test_create_key_command_takes_a_policy(transactional_db: None) -> None:
    made = run("create_key", "--account", "demo", "--json", f"--policy={json.dumps(document('sqs:SendMessage'))}")
    (policy,) = record_of(made["access_key_id"]).policies or ()
    assert policy == PolicyRecord("key", json.dumps(document("sqs:SendMessage"), separators=(",", ":")))
    for bad in ("", "{", '{"Statement": [], "Statement": []}', '{"Statement": {"Effect": "Allow"}}'):
        with pytest.raises(CommandError, match="refused"):
            call_command("create_key", "--account", "nobody", f"--policy={bad}")
    assert AccessKey.objects.count() == 1, "nothing was stored"


def test_operator_lists_revokes_and_rotates_keys(caller: Caller) -> None:
    (listed,) = run("operate_keys", "list", "tests")
    assert listed["access_key_id"] == caller.access_key_id and "secret" not in json.dumps(listed)
    assert run("operate_keys", "list", caller.account_id) == [listed]
    new = run("operate_keys", "rotate", caller.access_key_id, "--grace", "0")
    assert new["secret_access_key"] and AccessKey.objects.get(pk=caller.access_key_id).expires_at <= timezone.now()
    states = {key["access_key_id"]: key["state"] for key in run("operate_keys", "list", "tests")}
    assert states == {caller.access_key_id: "expired", new["access_key_id"]: "active"}
    run("operate_keys", "revoke", new["access_key_id"])
    assert not AccessKey.objects.filter(pk=new["access_key_id"]).exists()
    for arguments in (("list", "nobody"), ("revoke", "AKPS"), ("rotate", caller.access_key_id, "--grace", "-1")):
        with pytest.raises(CommandError):
            call_command("operate_keys", *arguments)


def test_operator_suspends_resumes_and_closes_an_account_without_people(caller: Caller) -> None:
    assert run("operate_accounts", "list")[0]["state"] == "active"
    assert run("operate_accounts", "suspend", "tests", "--reason", "unpaid")["state"] == "suspended"
    assert not record_of(caller.access_key_id).active
    (listed,) = run("operate_accounts", "list")
    assert (listed["state"], listed["reason"], listed["keys"], listed["queues"]) == ("suspended", "unpaid", 1, 1)
    assert run("operate_accounts", "resume", caller.account_id)["state"] == "active"
    assert record_of(caller.access_key_id).active
    assert run("operate_accounts", "close", "tests")["closes_at"]
    assert not record_of(caller.access_key_id).active
    assert run("operate_accounts", "reopen", "tests")["state"] == "active"
    assert AccountLife.objects.get().title == "tests"
    with pytest.raises(CommandError):
        call_command("operate_accounts", "resume", "tests")


def test_review_lists_stored_policies_that_are_not_understood(caller: Caller) -> None:
    key = restricted(caller, ALL)
    policies.create_policy(OPERATOR, caller.account_id, "fine", json.dumps(ALL))
    assert review_stored() == [] and run("review_policies") == []
    KeyAccess.objects.filter(pk=key.access_key_id).update(policy='{"Statement": 1}')
    queue = Queue.objects.get(name="orders")
    queue.attributes["Policy"] = '{"Statement": [{"Effect": "Maybe"}]}'
    queue.save(update_fields=["attributes"])
    found = run("review_policies")
    assert [(one["holder"], one["member"][:11]) for one in found] == [
        (f"key:{key.access_key_id}", "$.Statement"), ("queue:orders", "$.Statement"),
    ]  # fmt: skip
    assert key.request("GET", "/v1/queues").status_code == 403, "it denies until it is stored again"
    assert [one["name"] for one in run("review_policies", "--account", "tests")] == ["fine"]


# --- uses of keys ---


def tell_uses(uses: Any, account_id: str = "") -> Any:
    return Caller(account_id, "").request("POST", "/internal/keys/used", {"uses": uses})


def test_uses_that_front_ends_saw_are_shown_and_never_go_back(caller: Caller) -> None:
    """Two front ends tell of the same key in any order; a clock that is ahead shows no use of tomorrow."""
    AccessKey.objects.filter(pk=caller.access_key_id).update(last_used_at=None)
    for at_ms, shown in ((1_700_000_000_000, 1_700_000_000), (1_600_000_000_000, 1_700_000_000)):
        assert tell_uses({caller.access_key_id: at_ms, "AKPSUNKNOWN": at_ms}).status_code == 200
        used_at = AccessKey.objects.get(pk=caller.access_key_id).last_used_at
        assert used_at is not None and int(used_at.timestamp()) == shown
    version = AccessKey.objects.get(pk=caller.access_key_id).version
    assert tell_uses({caller.access_key_id: 2**48}).status_code == 200
    key = AccessKey.objects.get(pk=caller.access_key_id)
    assert key.last_used_at is not None and key.last_used_at <= clock.now() and key.version == version


def test_uses_are_a_front_end_s_to_tell(caller: Caller) -> None:
    assert tell_uses({caller.access_key_id: 1}, caller.account_id).status_code == 401
    for bad in ([], {"a": -1}, {"a": "1"}, {"a": 2**63}, {"x" * 65: 1}):
        assert tell_uses(bad).status_code == 400, bad


def test_person_who_acts_through_a_page_has_the_rights_of_the_role(caller: Caller) -> None:
    for role, status in (("reader", 403), ("developer", 200)):
        person = Caller(caller.account_id, f"person:{member(caller.account_id, role).person_id}")
        assert person.sqs("TagQueue", QueueName="orders", Tags={"a": "b"}).status_code == status
    assert Caller(caller.account_id, "person:x").sqs("ListQueues").status_code == 403


# --- scopes ---


def test_key_with_scopes_is_a_key_with_their_policy(caller: Caller) -> None:
    made = caller.request("POST", "/v1/keys", {"name": "k", "scopes": ["send"], "queues": ["orders"]})
    assert (made.status_code, made.json()["scopes"], made.json()["queues"]) == (201, ["send"], ["orders"])
    assert made.json()["restricted"] is True
    record = record_of(made.json()["access_key_id"])
    assert record.policies is not None and "sqs:SendMessage" in record.policies[0].text
    key = Caller(caller.account_id, made.json()["access_key_id"])
    assert code(key.request("DELETE", "/v1/queues/orders")) == (403, "access-denied")
    caller.request("PUT", f"/v1/keys/{key.access_key_id}/policy", {"policy": document("sqs:*")})
    assert caller.request("GET", f"/v1/keys/{key.access_key_id}").json()["scopes"] is None


def test_scopes_that_make_no_policy_are_refused(caller: Caller) -> None:
    count = AccessKey.objects.count()
    for bad in (
        {"scopes": ["everything"]},
        {"scopes": []},
        {"scopes": ["send"], "queues": ["a b"]},
        {"scopes": ["send"], "policy": document("*")},
        {"queues": ["orders"]},
    ):
        assert caller.request("POST", "/v1/keys", {"name": "k", **bad}).status_code == 400, bad
    assert AccessKey.objects.count() == count


def test_operator_makes_a_key_with_scopes(caller: Caller) -> None:
    said = io.StringIO()
    call_command("create_key", "--account=tests", "--scope=receive", "--queue=orders", "--json", stdout=said)
    key = Caller(caller.account_id, json.loads(said.getvalue())["access_key_id"])
    assert caller.request("GET", f"/v1/keys/{key.access_key_id}").json()["scopes"] == ["receive"]
    with pytest.raises(CommandError, match="scopes must be some of"):
        call_command("create_key", "--account=tests", "--scope=all")
