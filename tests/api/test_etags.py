"""ETags: what has not changed is not sent again, and a change that came between is not overwritten."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest
from django.db import connection, transaction
from django.test import RequestFactory
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from api import clock, limits
from api.alarms.actions import mute_alarm
from api.alarms.models import MetricAlarm
from api.audit.actions import OPERATOR
from api.encryption.actions import create_encryption_key
from api.etags import tags_asked
from api.iam.actions import groups, keys, policies
from api.iam.models import Policy
from api.idempotency.models import IdempotentOutcome
from api.people.actions.account_life import rename_account
from api.webhooks.actions import put_webhook, rotate_webhook
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)

ALLOW_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
DENY_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}
OTHER = '"000000000000000000000000"'


def code(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"] == "application/problem+json", answer.content
    return answer.status_code, answer.json()["code"]


class Resource(NamedTuple):
    """One that can be read and changed: its path, a change of it, and one that another editor makes."""

    path: str
    method: str
    content: Any
    between: Callable[[], Any]
    removable: bool = True


Kind = Callable[[Caller], Resource]


def alarm(threshold: float = 5) -> dict[str, Any]:
    return {"queue": "orders", "metric": "NumberOfMessagesSent", "threshold": threshold}


@pytest.fixture
def caller(transactional_db: None, storage: ScriptedStorage) -> Caller:
    made = new_caller()
    assert made.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    return made


def account(caller: Caller) -> Resource:
    change = {"deletion_grace_days": 3}
    return Resource("/v1/account", "PATCH", change, partial(set_account, caller, {"auto_create_queues": True}), False)


def account_title(caller: Caller) -> Resource:
    rename = partial(rename_account, OPERATOR, caller.account_id, "Another")
    return Resource("/v1/account", "PATCH", {"title": "Mine"}, rename, False)


def set_account(caller: Caller, change: dict[str, object]) -> Any:
    return caller.request("PATCH", "/v1/account", change)


def queue(caller: Caller) -> Resource:
    tag = partial(caller.sqs, "TagQueue", QueueName="orders", Tags={"a": "b"})
    return Resource("/v1/queues/orders", "PATCH", {"delay_seconds": 4}, tag)


def policy(caller: Caller) -> Resource:
    policies.create_policy(OPERATOR, caller.account_id, "mine", json.dumps(ALLOW_ALL))
    other = partial(policies.update_policy, OPERATOR, caller.account_id, "mine", json.dumps(DENY_ALL))
    return Resource("/v1/policies/mine", "PUT", {"policy": ALLOW_ALL}, other)


def group(caller: Caller) -> Resource:
    policies.create_policy(OPERATOR, caller.account_id, "mine", json.dumps(ALLOW_ALL))
    groups.create_group(OPERATOR, caller.account_id, "people")
    attach = partial(policies.attach_to_group, OPERATOR, caller.account_id, "people", "mine")
    return Resource("/v1/groups/people", "DELETE", None, attach)


def new_key(caller: Caller) -> str:
    spec = keys.KeySpec("k", policy=json.dumps(ALLOW_ALL))
    return keys.make_key(OPERATOR, caller.account_id, spec).key.access_key_id


def key(caller: Caller) -> Resource:
    made = new_key(caller)
    tag = partial(keys.set_key_tags, OPERATOR, caller.account_id, made, {"a": "b"})
    return Resource(f"/v1/keys/{made}", "PATCH", {"restricted": True}, tag)


def key_policy(caller: Caller) -> Resource:
    made = new_key(caller)
    other = partial(keys.put_key_policy, OPERATOR, caller.account_id, made, json.dumps(DENY_ALL))
    return Resource(f"/v1/keys/{made}/policy", "PUT", {"policy": ALLOW_ALL}, other)


def key_quotas(caller: Caller) -> Resource:
    return quotas(caller, f"/v1/keys/{new_key(caller)}/quotas")


def queue_quotas(caller: Caller) -> Resource:
    return quotas(caller, "/v1/queues/orders/quotas")


def quotas(caller: Caller, path: str) -> Resource:
    other = partial(caller.request, "PUT", path, {"requests_per_s": 7})
    return Resource(path, "PUT", {"requests_per_s": 5}, other, False)


def encryption_key(caller: Caller) -> Resource:
    path = f"/v1/encryption-keys/{create_encryption_key(OPERATOR, caller.account_id, 'mine').pk}"
    return Resource(path, "PATCH", {"description": "new"}, partial(caller.request, "POST", f"{path}/rotation"), False)


def an_alarm(caller: Caller) -> Resource:
    path = "/v1/alarms/high"
    assert caller.request("PUT", path, alarm()).status_code == 201
    mute = partial(mute_alarm, OPERATOR, caller.account_id, "high", clock.now() + timedelta(hours=1))
    return Resource(path, "PUT", alarm(6), mute)


def budget(caller: Caller) -> Resource:
    path, content = "/v1/billing/budgets/cap", {"limit_minor": 1000, "alert_percents": [80], "effect": "alert"}
    assert caller.request("PUT", path, content).status_code == 201
    return Resource(path, "PUT", content, partial(caller.request, "PUT", path, {**content, "limit_minor": 2000}))


def buyer(caller: Caller) -> Resource:
    path, content = "/v1/billing/buyer", {"name": "Ann & Sons", "address": ["Harbour 7"]}
    assert caller.request("PUT", path, content).status_code == 201
    return Resource(path, "PUT", content, partial(caller.request, "PUT", path, {**content, "tax_id": "VAT 1"}))


def webhook(caller: Caller) -> Resource:
    put_webhook(OPERATOR, caller.account_id, "hook", "https://hooks.example.com/")
    rotate = partial(rotate_webhook, OPERATOR, caller.account_id, "hook", 60)
    return Resource("/v1/webhooks/hook", "PUT", {"url": "https://third.example.com/"}, rotate)


def schedule(caller: Caller) -> Resource:
    content = {"name": "tick", "cron": "0 0 1 1 *", "body": "x"}
    assert caller.request("POST", "/v1/queues/orders/schedules", content).status_code == 201
    path = "/v1/queues/orders/schedules/tick"
    return Resource(path, "PATCH", {"cron": "0 0 2 1 *"}, partial(caller.request, "POST", f"{path}/pause"))


KINDS = (
    account, account_title, queue, policy, group, key, key_policy, key_quotas, queue_quotas, encryption_key, an_alarm,
    budget, buyer, webhook, schedule,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_not_changed_is_not_sent_again(caller: Caller, kind: Kind) -> None:
    one = kind(caller)
    first = caller.request("GET", one.path)
    tag = first["ETag"]
    assert first.status_code == 200 and tag.startswith('"') and tag.endswith('"')
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = caller.request("GET", one.path, **{"If-None-Match": known})
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag), known
    assert caller.request("GET", one.path, **{"If-None-Match": OTHER}).content == first.content
    one.between()
    changed = caller.request("GET", one.path, **{"If-None-Match": tag})
    assert changed.status_code == 200 and changed["ETag"] != tag


@pytest.mark.parametrize("kind", KINDS)
def test_change_of_what_has_changed_since_is_refused(caller: Caller, kind: Kind) -> None:
    one = kind(caller)
    read = caller.request("GET", one.path)["ETag"]
    one.between()
    now = caller.request("GET", one.path)
    methods = {one.method, "DELETE"} if one.removable else {one.method}
    for method in methods:
        content = None if method == "DELETE" else one.content
        for stale in (read, OTHER, f"W/{now['ETag']}"):
            answer = caller.request(method, one.path, content, **{"If-Match": stale})
            assert code(answer) == (412, "precondition-failed"), stale
    assert caller.request("GET", one.path).content == now.content


@pytest.mark.parametrize("kind", KINDS)
def test_change_of_what_was_read_is_made_and_answered_with_its_new_tag(caller: Caller, kind: Kind) -> None:
    one = kind(caller)
    tag = caller.request("GET", one.path)["ETag"]
    if one.method != "DELETE":
        changed = caller.request(one.method, one.path, one.content, **{"If-Match": f"{OTHER}, {tag}"})
        assert changed.status_code == 200, changed.content
        assert changed["ETag"] == caller.request("GET", one.path)["ETag"]
        assert caller.request(one.method, one.path, one.content, **{"If-Match": "*"}).status_code == 200
    if one.removable:
        last = caller.request("GET", one.path)["ETag"]
        assert caller.request("DELETE", one.path, **{"If-Match": last}).status_code in (200, 202, 204)


def test_members_that_change_by_themselves_are_in_the_tag_but_refuse_no_change(caller: Caller) -> None:
    assert caller.request("PUT", "/v1/alarms/high", alarm()).status_code == 201
    tag = caller.request("GET", "/v1/alarms/high")["ETag"]
    MetricAlarm.objects.update(state="ALARM")
    assert caller.request("GET", "/v1/alarms/high", **{"If-None-Match": tag}).status_code == 200
    assert caller.request("PUT", "/v1/alarms/high", alarm(9), **{"If-Match": tag}).status_code == 200
    assert code(caller.request("PUT", "/v1/alarms/high", alarm(8), **{"If-Match": tag}))[0] == 412


def test_answer_to_a_creation_has_the_tag_for_the_next_change(caller: Caller) -> None:
    made = caller.request("POST", "/v1/queues", {"name": "fresh"})
    change = caller.request("PATCH", "/v1/queues/fresh", {"delay_seconds": 1}, **{"If-Match": made["ETag"]})
    assert change.status_code == 200
    again = caller.request("PATCH", "/v1/queues/fresh", {"delay_seconds": 2}, **{"If-Match": change["ETag"]})
    assert again.status_code == 200


@pytest.mark.parametrize(
    "path, content", [("/v1/alarms/high", alarm()), ("/v1/webhooks/h", {"url": "https://a.example/"})]
)
def test_put_of_what_is_only_to_be_created_or_only_to_be_changed(caller: Caller, path: str, content: Any) -> None:
    for any_tag in ("*", OTHER):
        assert code(caller.request("PUT", path, content, **{"If-Match": any_tag})) == (412, "precondition-failed")
    assert caller.request("GET", path).status_code == 404
    assert caller.request("PUT", path, content, **{"If-None-Match": "*"}).status_code == 201
    assert code(caller.request("PUT", path, content, **{"If-None-Match": "*"})) == (412, "precondition-failed")
    assert caller.request("PUT", path, content, **{"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/policies/none", "/v1/groups/none", "/v1/keys/none", "/v1/queues/none"])
def test_precondition_about_what_is_not_there_is_answered_as_without_it(caller: Caller, path: str) -> None:
    assert caller.request("DELETE", path, **{"If-Match": OTHER}).json() == caller.request("DELETE", path).json()
    assert caller.request("DELETE", path, **{"If-Match": OTHER}).status_code in (400, 404)


def test_resource_of_another_account_is_not_found_by_its_tag(caller: Caller) -> None:
    policies.create_policy(OPERATOR, caller.account_id, "mine", json.dumps(ALLOW_ALL))
    tag = caller.request("GET", "/v1/policies/mine")["ETag"]
    other = new_caller("other")
    assert other.request("DELETE", "/v1/policies/mine", **{"If-Match": tag}).status_code == 404
    assert Policy.objects.count() == 1


@pytest.mark.parametrize("given", ["", "x", '"x', 'x"', "W/x", '"a" "b"', '"a",', ",", '"é"', '"a\tb"', "*, *"])
def test_header_that_is_none_is_refused_by_name(caller: Caller, given: str) -> None:
    for method, header in (("GET", "If-None-Match"), ("PATCH", "If-Match")):
        for path, change in (("/v1/account", {}), ("/v1/queues/orders", {"delay_seconds": 1})):
            answer = caller.request(method, path, None if method == "GET" else change, **{header: given})
            assert code(answer) == (400, "invalid-request"), (method, path)
            assert [error["pointer"] for error in answer.json()["errors"]] == [f"/{header}"]
    many = ", ".join([OTHER] * (limits.ETAGS_ASKED_MAX + 1))
    assert code(caller.request("PATCH", "/v1/account", {}, **{"If-Match": many})) == (400, "invalid-request")


def test_operation_without_a_tag_refuses_a_precondition(caller: Caller) -> None:
    """A client that gives one relies on it."""
    for method, path, header in (
        ("POST", "/v1/groups", "If-Match"),
        ("POST", "/v1/queues/orders/pause", "If-Match"),
        ("PUT", "/v1/alarms/high/mute", "If-Match"),
        ("PATCH", "/v1/account", "If-None-Match"),
        ("DELETE", f"/v1/queues/orders/moves/{uuid.uuid4()}", "If-Match"),
    ):
        answer = caller.request(method, path, {}, **{header: OTHER})
        assert code(answer) == (400, "invalid-request"), path
        assert [error["pointer"] for error in answer.json()["errors"]] == [f"/{header}"]


@pytest.mark.parametrize("kind", KINDS)
def test_change_waits_for_another_one_before_it_looks(caller: Caller, kind: Kind) -> None:
    """Over two connections: the other change is made and not committed when the second one comes."""
    one = kind(caller)
    tag = caller.request("GET", one.path)["ETag"]
    made, go_on = threading.Event(), threading.Event()

    def change_slowly() -> None:
        try:
            with transaction.atomic():
                one.between()
                made.set()
                assert go_on.wait(20)
        finally:
            connection.close()

    def change() -> Any:
        try:
            return caller.request(one.method, one.path, one.content, **{"If-Match": tag})
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(change_slowly)
        try:
            assert made.wait(20)
            second = pool.submit(change)
            while not second.done() and not is_anybody_waiting():
                time.sleep(0.01)
        finally:
            go_on.set()
        first.result(20)
        assert code(second.result(20)) == (412, "precondition-failed")


def is_anybody_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def test_repeated_change_is_answered_although_its_tag_is_old(caller: Caller) -> None:
    tag = caller.request("GET", "/v1/account")["ETag"]
    headers = {"If-Match": tag, "Idempotency-Key": '"k"'}
    first = caller.request("PATCH", "/v1/account", {"deletion_grace_days": 3}, **headers)
    again = caller.request("PATCH", "/v1/account", {"deletion_grace_days": 3}, **headers)
    assert (first.status_code, again.status_code, again["ETag"]) == (200, 200, first["ETag"])
    assert again["Idempotent-Replayed"] == "true"


def test_failed_precondition_keeps_no_outcome(caller: Caller) -> None:
    headers = {"If-Match": OTHER, "Idempotency-Key": '"k"'}
    assert code(caller.request("PATCH", "/v1/account", {"deletion_grace_days": 3}, **headers))[0] == 412
    assert not IdempotentOutcome.objects.exists()


@pytest.mark.parametrize("given", ["x" + " " * 30_000 + "x", '"a"' + " " * 30_000 + "x", '"a" , ' * 5_000 + " x"])
def test_long_header_that_is_none_is_refused_at_once(given: str) -> None:
    """All callers share the processor of the control plane."""
    asked = Request(RequestFactory().get("/", headers={"If-Match": given}))
    began_s = time.process_time()
    with pytest.raises(ValidationError):
        tags_asked(asked, "If-Match")
    assert time.process_time() - began_s < 0.5
