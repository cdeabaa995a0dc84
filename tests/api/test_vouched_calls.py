"""What a front end vouches for, at the control plane: the trail has the address and what was before a change, and a key
that ended is refused whatever a front end still believes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api import clock
from api.accounts.actions import set_account_active
from api.accounts.models import AccessKey
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.iam.actions import policies
from api.queues import actions as queue_actions
from api.queues import spreading
from tests.support.control_plane import Caller, new_caller
from tests.support.iam import ALL, compact, document, restricted
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The key of an account, which may do everything; the queue `orders`."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(queue_actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    found = new_caller()
    assert found.request("POST", "/v1/queues", {"name": "orders", "tags": {"env": "test"}}).status_code == 201
    return found


def test_trail_has_what_was_before_a_change(caller: Caller) -> None:
    policies.create_policy(OPERATOR, caller.account_id, "rights", compact(ALL))
    key = f"/v1/keys/{caller.access_key_id}"
    reader = f"/v1/keys/{restricted(caller, ALL).access_key_id}"
    queue = "/v1/queues/orders"
    tick = {"name": "tick", "cron": "0 6 * * *", "body": "secret"}
    assert caller.request("POST", f"{queue}/schedules", tick).status_code == 201
    schedule = f"{queue}/schedules/tick"
    hook = "/v1/webhooks/ops"
    assert caller.request("PUT", hook, {"url": "https://one.example/path"}).status_code < 300
    asked: list[tuple[str, str, Any, str, Any]] = [
        ("PUT", "/v1/policies/rights", {"policy": document("sqs:*")}, "policy.update", compact(ALL)),
        ("DELETE", "/v1/policies/rights", None, "policy.delete", compact(document("sqs:*"))),
        ("PATCH", reader, {"tags": {"team": "a"}}, "key.tag", {}),
        ("PATCH", reader, {"tags": {"team": "b"}}, "key.tag", {"team": "a"}),
        ("PATCH", queue, {"delay_seconds": 5}, "queue.configure", {"DelaySeconds": "0"}),
        ("PATCH", queue, {"delay_seconds": 7}, "queue.configure", {"DelaySeconds": "5"}),
        ("PATCH", "/v1/account", {"title": "Shop"}, "account.rename", "tests"),
        ("PATCH", "/v1/account", {"deletion_grace_days": 3}, "account.configure", {"deletion_grace_days": 0}),
        ("PUT", f"{key}/policy", {"policy": ALL}, "key.put_policy", None),
        ("PATCH", schedule, {"cron": "0 7 * * *"}, "schedule.update", {"cron": "0 6 * * *", "zone": "UTC"}),
        ("PATCH", schedule, {"body": "other"}, "schedule.update", {}),
        ("PUT", hook, {"url": "https://two.example/"}, "webhook.put", "https://one.example/..."),
    ]
    for method, target, content, action, before in asked:
        assert caller.request(method, target, content).status_code < 300, target
        entry = AuditEntry.objects.filter(action=action).latest("id")
        assert (entry.details["before"], entry.actor) == (before, caller.access_key_id), action


def test_trail_tells_where_a_change_came_from(caller: Caller) -> None:
    """Over REST and over the SQS protocol; nothing where the front end knows no address."""
    here = caller._replace(source_ip="203.0.113.9")
    assert here.request("POST", "/v1/groups", {"name": "leads"}).status_code == 201
    assert here.sqs("TagQueue", QueueName="orders", Tags={"env": "live"}).status_code == 200
    assert caller.request("DELETE", "/v1/groups/leads").status_code == 204
    rows = AuditEntry.objects.filter(action__in=("group.create", "queue.tag", "group.delete"), actor=here.access_key_id)
    found = [(row.action, row.details.get("source")) for row in rows.order_by("id")]
    assert found[-3:] == [("group.create", "203.0.113.9"), ("queue.tag", "203.0.113.9"), ("group.delete", None)]


def test_key_that_a_front_end_still_lets_through_is_refused_once_it_ended(caller: Caller) -> None:
    """A front end may not have heard yet: of a suspension, of a switched-off key; or its clock may be behind."""
    account, key = caller.account_id, AccessKey.objects.filter(pk=caller.access_key_id)

    def asked() -> list[int]:
        return [caller.request("GET", "/v1/keys").status_code, create().status_code]

    def create() -> Any:
        return caller.request("POST", "/v1/keys", {"name": "more"})

    assert asked() == [200, 201]
    set_account_active(OPERATOR, account, False)
    assert asked() == [403, 403]
    set_account_active(OPERATOR, account, True)
    key.update(expires_at=clock.now() - timedelta(seconds=1))
    assert asked() == [403, 403]
    key.update(expires_at=clock.now() + timedelta(hours=1), active=False)
    assert asked() == [403, 403]
    key.update(active=True)
    assert asked() == [200, 201]
    assert AccessKey.objects.filter(account_id=account, name="more").count() == 2
