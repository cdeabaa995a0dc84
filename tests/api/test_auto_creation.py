"""Queues made by sends: allowed by the account, bounded by the hour, audited."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from api import limits
from api.accounts.models import Account
from api.audit.models import AuditEntry
from api.queues.attributes import QueueProblem
from api.queues.auto_creation import auto_create_and_wait
from api.queues.models import Queue
from frontend.authn.principal import Principal
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None, storage: ScriptedStorage) -> Caller:
    return new_caller()


def allow(caller: Caller, allowed: bool = True) -> Any:
    return caller.request("PATCH", "/v1/account", {"auto_create_queues": allowed})


def create(caller: Caller, name: str) -> Queue:
    return asyncio.run(auto_create_and_wait(Principal(caller.account_id, "key"), caller.account_id, name))


def refused(caller: Caller, name: str) -> str:
    with pytest.raises(QueueProblem) as problem:
        create(caller, name)
    return problem.value.code


def test_setting_is_off_until_it_is_set_and_audited(caller: Caller) -> None:
    assert caller.request("GET", "/v1/account").json()["auto_create_queues"] is False
    answer = allow(caller)
    assert (answer.status_code, answer.json()["auto_create_queues"]) == (200, True)
    entry = AuditEntry.objects.order_by("-id").first()
    told = {"auto_create_queues": True, "before": {"auto_create_queues": False}}
    assert entry is not None and (entry.action, entry.details) == ("account.configure", told)
    assert caller.request("PATCH", "/v1/account", {"auto_create_queues": "perhaps"}).status_code == 400


def test_queue_is_made_once_with_a_tag_and_a_line_in_the_trail(caller: Caller) -> None:
    allow(caller)
    for _ in range(2):
        assert create(caller, "orders").state == "active"
    assert create(caller, "orders.fifo").fifo
    assert Queue.objects.get(name="orders").tags == {"penstock:auto-created": "true"}
    made = AuditEntry.objects.filter(action="queue.auto_create").order_by("id")
    assert list(made.values_list("subject", flat=True)) == ["queue:orders", "queue:orders.fifo"]


def test_queue_is_not_made_where_the_account_does_not_allow_it(caller: Caller) -> None:
    assert refused(caller, "orders") == "QueueDoesNotExist"
    allow(caller)
    allow(caller, False)
    assert refused(caller, "orders") == "QueueDoesNotExist"
    assert not Queue.objects.exists()


def test_queues_of_an_hour_are_bounded(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUTO_CREATED_PER_HOUR_MAX", 2)
    allow(caller)
    create(caller, "a")
    create(caller, "b")
    assert refused(caller, "c") == "OverLimit"
    assert not Queue.objects.filter(name="c").exists()
    assert create(caller, "a").name == "a", "what is there is no new queue"
    Account.objects.update(auto_created_since=F("auto_created_since") - timedelta(hours=1))
    assert create(caller, "c").name == "c"
