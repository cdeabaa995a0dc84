"""Attacks of docs/security.md on the control plane that no other test has: members of others, and races."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.queues import actions
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.quotas.actions import set_quotas
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)
AT_ONCE = 6


@pytest.fixture
def owner(transactional_db: None, storage: ScriptedStorage) -> Caller:
    return new_caller()


def at_once(work: Any) -> list[Any]:
    """The outcomes of AT_ONCE threads that begin together, numbered from 0."""
    gate, outcomes = threading.Barrier(AT_ONCE), []

    def run(number: int) -> None:
        gate.wait()
        try:
            outcomes.append(work(number))
        except QueueProblem as problem:
            outcomes.append(problem.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.parametrize(
    "member", ["account_id", "account", "uuid", "queue_id", "partitions_open", "state", "version", "kept_until"]
)
def test_members_that_are_not_the_callers_to_set_change_nothing(owner: Caller, member: str) -> None:
    """S31."""
    other = new_caller("other")
    for value in (other.account_id, 1, None):
        assert owner.request("POST", "/v1/queues", {"name": "q", member: value}).status_code == 400
    assert not Queue.objects.exists()
    before = list(Account.objects.order_by("id").values())
    assert owner.request("PATCH", "/v1/account", {member: other.account_id, "active": False}).status_code in (200, 400)
    assert list(Account.objects.order_by("id").values()) == before


def test_queue_made_twice_at_once_is_one(owner: Caller) -> None:
    """S32."""
    outcomes = at_once(lambda _: actions.create_queue(OPERATOR, owner.account_id, "orders", {}, {}).created)
    assert sorted(outcomes) == [False] * (AT_ONCE - 1) + [True]
    assert Queue.objects.count() == 1


def test_quota_of_queues_holds_for_calls_at_once(owner: Caller) -> None:
    """S32."""
    set_quotas(OPERATOR, owner.account_id, {"queues": 2})
    outcomes = at_once(lambda n: actions.create_queue(OPERATOR, owner.account_id, f"q{n}", {}, {}).created)
    assert sorted(map(str, outcomes)) == ["OverLimit"] * (AT_ONCE - 2) + ["True"] * 2
    assert Queue.objects.count() == 2


def test_queue_deleted_twice_at_once_is_deleted_once(owner: Caller) -> None:
    """S32."""
    owner.request("POST", "/v1/queues", {"name": "orders"})
    outcomes = at_once(lambda _: actions.delete_queue(OPERATOR, owner.account_id, "orders").name)
    assert sorted(outcomes) == ["QueueDoesNotExist"] * (AT_ONCE - 1) + ["orders"]
