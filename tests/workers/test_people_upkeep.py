"""The upkeep of people and accounts on the schedule: accounts whose grace is over are closed, with what they held."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api import clock
from api.accounts.models import AccessKey
from api.audit.actions import OPERATOR
from api.people.actions import account_life
from api.people.models import AccountLife, AccountState
from api.queues.actions import create_queue
from api.queues.models import Queue
from tests.support.control_plane import Caller, new_caller
from workers.application import app
from workers.tasks import people_upkeep

TASK = "workers.lifecycle.people_upkeep"


@pytest.fixture(autouse=True)
def one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the test's transaction, which a task would close."""
    monkeypatch.setattr("django.db.close_old_connections", lambda: None)


def closing(caller: Caller, days_left: int) -> None:
    """An account with a queue, that was closed by an operator."""
    create_queue(OPERATOR, caller.account_id, "orders", {}, {})
    account_life.close_by_operator(OPERATOR, caller.account_id, "asked by mail")
    closes_at = clock.now() + timedelta(days=days_left)
    AccountLife.objects.filter(pk=caller.account_id).update(closes_at=closes_at)


def states() -> dict[str, tuple[str, str]]:
    """By account: its state and that of its queue."""
    lives = {life.pk: life.state for life in AccountLife.objects.all()}
    return {queue.account_id: (lives[queue.account_id], queue.state) for queue in Queue.objects.all()}


def test_schedule_closes_accounts_whose_grace_is_over_with_their_queues(caller: Caller) -> None:
    later = new_caller("later")
    closing(caller, 0)
    closing(later, 1)
    for _ in range(2):
        people_upkeep()
        assert states() == {
            caller.account_id: (AccountState.CLOSED, "deleting"),
            later.account_id: (AccountState.CLOSING, "creating"),
        }
    assert [key.account_id for key in AccessKey.objects.all()] == [later.account_id]


def test_account_that_cannot_be_closed_holds_up_no_other_one(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    second = new_caller("second")
    closing(caller, -1)
    closing(second, 0)
    shred = account_life.shred_account

    def fail_first(actor: Any, account_id: str) -> None:
        if account_id == caller.account_id:
            raise RuntimeError("a bug")
        shred(actor, account_id)

    monkeypatch.setattr(account_life, "shred_account", fail_first)
    people_upkeep()
    assert states()[caller.account_id] == (AccountState.CLOSING, "creating"), "tried again as a whole"
    assert states()[second.account_id] == (AccountState.CLOSED, "deleting")


@pytest.mark.parametrize("task", [TASK, "workers.lifecycle.forget_old_keys"])
def test_schedule_has_the_upkeep(task: str) -> None:
    app.loader.import_default_modules()
    (entry,) = [one for one in app.conf.beat_schedule.values() if one["task"] == task]
    assert task in app.tasks and app.amqp.router.route({}, task)["queue"].name == "lifecycle"
    assert entry["schedule"] <= 3600
