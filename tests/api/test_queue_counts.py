"""How many queues an account has is counted beside the rows, by triggers; the quota `queues` goes by it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from api import clock
from api.audit.actions import OPERATOR
from api.queues import actions, lifecycle
from api.queues.models import Queue, QueueStatus
from api.queues.selectors import queue_count
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


def row(account_id: str, name: str, state: QueueStatus = QueueStatus.ACTIVE) -> Queue:
    now = clock.now()
    fields: dict[str, Any] = {"created_at": now, "modified_at": now, "next_attempt_at": now, "version": 1}
    return Queue(account_id=account_id, name=name, uuid=uuid.uuid4(), attributes={}, state=state, **fields)


def counted(account_id: str) -> int:
    """By the rows themselves."""
    return Queue.objects.filter(account_id=account_id).exclude(state=QueueStatus.DELETED).count()


def test_queue_counts_from_its_creation_until_it_is_gone(caller: Caller, storage: ScriptedStorage) -> None:
    assert queue_count(caller.account_id) == 0
    for name in ("a", "b", "c"):
        actions.create_queue(OPERATOR, caller.account_id, name, {}, {})
    actions.create_queue(OPERATOR, caller.account_id, "a", {}, {})
    assert queue_count(caller.account_id) == 3 == counted(caller.account_id)
    actions.delete_queue(OPERATOR, caller.account_id, "b")
    assert Queue.objects.get(name="b").state == QueueStatus.DELETED
    assert queue_count(caller.account_id) == 2 == counted(caller.account_id)
    assert queue_count(new_caller("other").account_id) == 0


def test_queue_that_is_kept_counts(caller: Caller, storage: ScriptedStorage) -> None:
    from api.accounts.models import Account

    Account.objects.filter(pk=caller.account_id).update(deletion_grace_days=7)
    actions.create_queue(OPERATOR, caller.account_id, "a", {}, {})
    actions.delete_queue(OPERATOR, caller.account_id, "a")
    assert Queue.objects.get(name="a").state == QueueStatus.KEPT
    assert queue_count(caller.account_id) == 1 == counted(caller.account_id)


def test_rows_that_are_written_in_bulk_are_counted_too(caller: Caller) -> None:
    other = new_caller("other").account_id
    rows = [row(caller.account_id, f"q{number}") for number in range(5)]
    gone = [row(caller.account_id, f"g{number}", QueueStatus.DELETED) for number in range(2)]
    Queue.objects.bulk_create([*rows, *gone, row(other, "q")])
    assert (queue_count(caller.account_id), queue_count(other)) == (5, 1)
    Queue.objects.filter(account_id=caller.account_id).update(state=QueueStatus.DELETED)
    assert queue_count(caller.account_id) == 0
    Queue.objects.filter(name__in=("q1", "g1")).update(state=QueueStatus.ACTIVE)
    Queue.objects.filter(name="q1").update(state=QueueStatus.KEPT)
    assert queue_count(caller.account_id) == 2 == counted(caller.account_id)
    Queue.objects.all().delete()
    assert (queue_count(caller.account_id), queue_count(other)) == (0, 0)


def test_creation_that_is_rolled_back_is_not_counted(caller: Caller) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        actions.create_queue(OPERATOR, caller.account_id, "a", {}, {})
        assert queue_count(caller.account_id) == 1
        raise RuntimeError
    assert queue_count(caller.account_id) == 0


def test_creation_counts_no_rows(caller: Caller, storage: ScriptedStorage) -> None:
    with CaptureQueriesContext(connection) as queries:
        actions.create_queue(OPERATOR, caller.account_id, "a", {}, {})
    assert not [one["sql"] for one in queries if "COUNT(" in one["sql"] and '"queue"' in one["sql"]]


def test_deletion_locks_the_account_before_the_queue(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger writes the account's count: who makes a queue holds that, and may want rows of other queues."""
    monkeypatch.setattr(actions, "send_hint", lambda *_: None)
    queue = actions.create_queue(OPERATOR, caller.account_id, "a", {}, {}).queue
    actions.delete_queue(OPERATOR, caller.account_id, "a")  # before it had a partition
    claim = lifecycle.claim_queue(queue.pk)
    assert claim is not None
    with CaptureQueriesContext(connection) as queries:
        assert lifecycle.complete_queue(claim, lifecycle.ReconcileResult([], []))
    locked = [one["sql"].partition("FROM ")[2].split()[0] for one in queries if "FOR UPDATE" in one["sql"]]
    assert locked == ['"account"', '"queue"'] and queue_count(caller.account_id) == 0
