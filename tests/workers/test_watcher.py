"""Workers find their work without the broker: by the database's announcements, and by looking."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from api import clock
from api.audit.actions import OPERATOR
from api.queues import actions, lifecycle
from api.queues.models import Queue
from api.queues.readiness import announcements
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers import limits
from workers.lifecycle.reconciling import reconcile_queue
from workers.watcher import Lane, Watcher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: False)
    return new_caller()


class Worker:
    """A watcher over a scripted storage, and what it has done."""

    def __init__(self) -> None:
        self.storage = ScriptedStorage()
        self.looks = 0
        self.watcher = Watcher(clock.now)
        self.watcher.add("lifecycle", 2, self.due, lambda row_id: reconcile_queue(row_id, self.storage))

    def due(self) -> tuple[list[int], object]:
        self.looks += 1
        return lifecycle.due_queues(limits.WATCH_GRACE_MS)  # type: ignore[return-value]

    def rest(self) -> None:
        """Return when it has not looked for a while."""
        seen = -1
        while seen != self.looks or not self.looks:
            seen = self.looks
            time.sleep(0.15)


@pytest.fixture
def worker(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(limits, "WATCH_GRACE_MS", 10)
    made = Worker()
    yield made
    announcements._listeners.clear()
    made.watcher.stop()


def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "never"
        time.sleep(0.005)


def create(caller: Caller, name: str = "orders") -> Queue:
    return actions.create_queue(OPERATOR, caller.account_id, name, {}, {}).queue


def state_of(queue: Queue) -> str:
    return Queue.objects.get(pk=queue.pk).state


def test_announced_queue_is_made_without_a_hint(
    caller: Caller, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WATCH_INTERVAL_MS", 3_600_000)
    announcements.hear_all(worker.watcher.wake)
    worker.watcher.start()
    worker.rest()
    queue = create(caller)
    until(lambda: state_of(queue) == "active")
    worker.rest()
    actions.delete_queue(OPERATOR, caller.account_id, "orders")
    until(lambda: state_of(queue) == "deleted")


def test_queue_that_was_not_announced_is_found_by_a_look(
    caller: Caller, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WATCH_INTERVAL_MS", 50)
    worker.watcher.start()
    until(lambda: worker.looks > 0)
    queue = create(caller)
    until(lambda: state_of(queue) == "active")


def test_failed_work_is_tried_again_when_the_row_says_so(
    caller: Caller, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing wakes the watcher, and the next look would be far away."""
    monkeypatch.setattr(limits, "WATCH_INTERVAL_MS", 3_600_000)
    monkeypatch.setattr("api.limits.LIFECYCLE_RETRY_MS_MIN", 100)
    failures = [1, 1]

    def fail(call: str) -> None:
        if failures:
            failures.pop()
            raise StorageError(ErrorCode.NO_QUORUM)

    worker.storage.before = fail
    queue = create(caller)
    time.sleep(0.02)
    worker.watcher.start()
    until(lambda: state_of(queue) == "active")
    assert not failures


@pytest.mark.parametrize("failure", [OperationalError("the server went away"), ValueError("a defect of ours")])
def test_look_that_fails_ends_no_watcher(
    caller: Caller, worker: Worker, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(limits, "WATCH_RETRY_S_MAX", 0.02)
    calls: list[int] = []
    honest = lifecycle.due_queues

    def due(age_ms: int) -> object:
        calls.append(1)
        if len(calls) < 4:
            raise failure
        return honest(age_ms)

    monkeypatch.setattr(lifecycle, "due_queues", due)
    queue = create(caller)
    worker.watcher.start()
    until(lambda: state_of(queue) == "active")
    assert len(calls) >= 4


def test_row_is_at_work_once_at_a_time_and_a_lane_takes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANE_ROWS_MAX", 3)
    go, begun = threading.Event(), []

    def work(row_id: int) -> None:
        begun.append(row_id)
        go.wait(5)

    lane = Lane("test", 2, lambda: ([], None), work, lambda: None)
    lane.submit([7, 7])
    lane.submit([7])
    lane.submit(range(100, 120))
    until(lambda: len(begun) == 2)
    assert begun.count(7) == 1
    go.set()
    until(lambda: len(begun) == 3 and not lane._taken)
    lane.submit([7])
    until(lambda: begun.count(7) == 2)
    lane.close()


def test_work_that_raises_leaves_the_lane_in_order() -> None:
    ended = threading.Event()
    lane = Lane("test", 1, lambda: ([], None), lambda row_id: 1 // row_id, ended.set)
    lane.submit([0])
    assert ended.wait(5) and not lane._taken
    lane.close()


def test_due_rows_are_those_that_owe_work_and_that_nobody_holds(caller: Caller) -> None:
    storage = ScriptedStorage()
    creating, reconciled, held, later = (create(caller, name) for name in "abcd")
    reconcile_queue(reconciled.pk, storage)
    long_ago, soon = clock.now() - timedelta(seconds=1), clock.now() + timedelta(seconds=30)
    Queue.objects.filter(pk__in=(creating.pk, held.pk)).update(next_attempt_at=long_ago)
    Queue.objects.filter(pk=later.pk).update(next_attempt_at=soon)
    lifecycle.claim_queue(held.pk)
    assert lifecycle.due_queues(500) == ([creating.pk], soon)


def test_clock_of_the_process_counts_for_nothing(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five days ahead, a worker would take over what others hold; five days behind, it would find nothing due."""

    def turn(by: timedelta) -> None:
        wrong = datetime.now(UTC) + by
        monkeypatch.setattr("django.utils.timezone.now", lambda: wrong)

    storage = ScriptedStorage()
    queue = create(caller)
    assert lifecycle.claim_queue(queue.pk) is not None
    turn(timedelta(days=5))
    assert lifecycle.claim_queue(queue.pk) is None, "held"
    turn(timedelta(days=-5))
    Queue.objects.filter(pk=queue.pk).update(next_attempt_at=datetime.now(UTC) - timedelta(seconds=1))
    assert lifecycle.due_queues(0)[0] == [queue.pk]
    reconcile_queue(queue.pk, storage)
    assert state_of(queue) == "active"


def test_lane_in_turns_takes_on_no_more_than_begins_at_once_and_in_order() -> None:
    """What waits inside it goes before everything that comes later."""
    begun: list[int] = []
    go = threading.Event()

    def work(row_id: int) -> None:
        begun.append(row_id)
        go.wait(5)

    lane = Lane("test", 2, lambda: ([], None), work, lambda: None, in_turns=True)
    lane.submit(range(100))
    until(lambda: len(begun) == 2)
    assert sorted(begun) == [0, 1]
    go.set()
    until(lambda: not lane._taken)
    assert sorted(begun) == [0, 1]
    lane.close()
