"""REST settings beyond SQS: what storage is told, what the queue shows, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.queues import actions
from storage_nodes.protocol.messages import QueueConfig, RetryKind
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None, storage: ScriptedStorage) -> Caller:
    caller = new_caller()
    assert caller.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    return caller


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def config(storage: ScriptedStorage) -> QueueConfig:
    (config,) = storage.configs.values()
    return config


def test_pause_is_answered_when_storage_follows_and_is_audited(caller: Caller, storage: ScriptedStorage) -> None:
    paused = caller.request("POST", "/v1/queues/orders/pause")
    assert (paused.status_code, paused.json()["paused"], config(storage).paused) == (200, True, True)
    assert caller.request("GET", "/v1/queues/orders").json()["paused"] is True
    entry = AuditEntry.objects.order_by("-id").first()
    assert entry is not None
    told = {"attributes": {"Penstock.Paused": "true"}, "before": {"Penstock.Paused": None}}
    assert (entry.action, entry.details) == ("queue.configure", told)
    again = caller.request("POST", "/v1/queues/orders/pause")
    assert (again.status_code, again.json()["paused"]) == (200, True)
    resumed = caller.request("POST", "/v1/queues/orders/resume")
    assert (resumed.status_code, resumed.json()["paused"], config(storage).paused) == (200, False, False)


def test_pause_of_a_queue_that_is_not_there_is_refused(caller: Caller) -> None:
    assert code(caller.request("POST", "/v1/queues/other/pause")) == (404, "queue-does-not-exist")
    assert code(new_caller("other").request("POST", "/v1/queues/orders/resume")) == (404, "queue-does-not-exist")


def test_pause_that_storage_does_not_follow_is_not_answered_as_done(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.limits.QUEUE_READY_WAIT_MS_MAX", 10)
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: None)
    assert code(caller.request("POST", "/v1/queues/orders/pause")) == (503, "service-unavailable")
    assert not config(storage).paused


def test_queue_is_made_paused_and_resumed_by_a_change(caller: Caller, storage: ScriptedStorage) -> None:
    caller.request("POST", "/v1/queues", {"name": "later", "paused": True})
    assert storage.configs[2].paused
    assert caller.request("PATCH", "/v1/queues/later", {"paused": False}).json()["paused"] is False
    assert not storage.configs[2].paused


RETRY = {"kind": "linear", "delay_ms": 100, "max_ms": 2000, "jitter": 0.25}


def test_retry_policy_reaches_storage_and_is_taken_away_by_null(caller: Caller, storage: ScriptedStorage) -> None:
    set_up = caller.request("PATCH", "/v1/queues/orders", {"retry_policy": RETRY})
    assert (set_up.status_code, set_up.json()["retry_policy"]) == (200, RETRY)
    found = config(storage)
    assert (found.retry_kind, found.retry_delay_ms, found.retry_max_ms) == (RetryKind.LINEAR, 100, 2_000)
    assert found.retry_jitter_permille == 250
    taken = caller.request("PATCH", "/v1/queues/orders", {"retry_policy": None})
    assert (taken.json()["retry_policy"], config(storage)) == (None, QueueConfig(account_id=caller.account_id))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "cubic"},
        {"delay_ms": 0},
        {"max_ms": 99},
        {"max_ms": 43_200_001},
        {"jitter": 1.5},
        {"jitter": "x"},
    ],
)
def test_retry_policy_that_is_not_right_is_refused(caller: Caller, wrong: dict[str, object]) -> None:
    answer = caller.request("PATCH", "/v1/queues/orders", {"retry_policy": {**RETRY, **wrong}})
    assert code(answer) == (400, "invalid-request")
    assert answer.json()["errors"][0]["pointer"] == f"/retry_policy/{next(iter(wrong))}"


def test_uncounted_release_is_set_and_shown(caller: Caller) -> None:
    assert caller.request("GET", "/v1/queues/orders").json()["uncounted_release"] is False
    answer = caller.request("PATCH", "/v1/queues/orders", {"uncounted_release": True})
    assert answer.json()["uncounted_release"] is True


def test_acks_of_a_queue_are_set_shown_and_taken_away(caller: Caller) -> None:
    assert caller.request("PATCH", "/v1/queues/orders", {"acks": "all"}).json()["acks"] == "all"
    assert caller.request("PATCH", "/v1/queues/orders", {"acks": None}).json()["acks"] is None
    assert code(caller.request("PATCH", "/v1/queues/orders", {"acks": "some"})) == (400, "invalid-request")


def test_groups_are_parked_on_fifo_queues_only(caller: Caller, storage: ScriptedStorage) -> None:
    made = caller.request("POST", "/v1/queues", {"name": "orders.fifo", "park_groups": True})
    assert (made.status_code, made.json()["park_groups"], storage.configs[2].park_groups) == (201, True, True)
    assert code(caller.request("PATCH", "/v1/queues/orders", {"park_groups": True})) == (400, "invalid-attribute-name")


def test_dedup_window_of_a_change_reaches_storage(caller: Caller, storage: ScriptedStorage) -> None:
    change = {"Penstock.DeduplicationWindow": "60"}
    actions.set_queue_attributes(OPERATOR, caller.account_id, "orders", change)
    assert config(storage).dedup_window_ms == 60_000
