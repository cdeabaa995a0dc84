"""Move tasks of an account that may not send, or to a queue that is stopped or held to a rate; and what counts for the
keys that they seal under."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from api.audit.actions import OPERATOR
from api.queues.models import MessageMoveTask, MoveStatus, Queue
from api.quotas.actions import hold_queue, hold_sends, resume_sending, stop_sending
from frontend.queues import key_uses
from tests.support.move_scene import Scene, caller, dead_letters, run, scene, start
from tests.workers import test_redrive
from workers.moves.slices import move_slice

__all__ = ["caller", "scene"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_a_move_task_seals_counts_for_the_data_key(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_uses, "DATA_KEY_USES_TOLD_MIN", 3)
    dead_letters(scene)
    run(scene, start(scene))
    key = Queue.objects.get(name="orders").data_keys.get()
    assert key.sealed == 3


def test_move_task_waits_while_its_account_may_not_send(scene: Scene) -> None:
    dead_letters(scene)
    stop_sending(OPERATOR, scene.caller.account_id, "spend cap")
    task = run(scene, start(scene))
    assert (task.status, task.moved, task.failures) == (MoveStatus.RUNNING, 0, 0)
    resume_sending(OPERATOR, scene.caller.account_id)
    task = run(scene, task)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 3)


def hold(scene: Scene, name: str, reason: str = "", sends_per_s: int = 0) -> None:
    hold_queue(OPERATOR, scene.caller.account_id, Queue.objects.get(name=name).uuid, reason, sends_per_s)


def start_of(kind: str, scene: Scene) -> MessageMoveTask:
    """Back to `orders`, where the messages died, or to it as a destination that is named; of SQS or of REST."""
    if kind.startswith("sqs"):
        given: dict[str, Any] = {"DestinationArn": scene.arn("orders")} if kind == "sqs to" else {}
        return start(scene, **given)
    return test_redrive.start(scene, **({"destination": "orders"} if kind == "rest to" else {}))


KINDS = pytest.mark.parametrize("kind", ["sqs back", "sqs to", "rest back", "rest to"])


@KINDS
def test_move_task_waits_while_nothing_may_be_sent_to_its_target(scene: Scene, kind: str) -> None:
    dead_letters(scene)
    hold(scene, "orders", "spend cap")
    task = run(scene, start_of(kind, scene))
    assert (task.status, task.moved, task.failures) == (MoveStatus.RUNNING, 0, 0)
    hold(scene, "orders")
    task = run(scene, task)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 3)


@KINDS
def test_stop_of_another_queue_and_of_the_source_keep_no_move_task(scene: Scene, kind: str) -> None:
    dead_letters(scene)
    scene.create("mails")
    for name in ("mails", "dead"):
        hold(scene, name, "spend cap")
    task = run(scene, start_of(kind, scene))
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 3)


def test_dry_run_counts_for_a_queue_that_is_stopped_too(scene: Scene) -> None:
    dead_letters(scene)
    hold(scene, "orders", "spend cap")
    task = run(scene, test_redrive.start(scene, dry_run=True))
    assert (task.status, task.matched) == (MoveStatus.COMPLETED, 3)


@KINDS
@pytest.mark.parametrize("what", ["queue", "account"])
def test_move_task_keeps_to_the_rate_of_what_is_throttled(scene: Scene, kind: str, what: str) -> None:
    dead_letters(scene)
    if what == "queue":
        hold(scene, "orders", sends_per_s=1)
    else:
        hold_sends(OPERATOR, scene.caller.account_id, 1)
    task = start_of(kind, scene)
    slept: list[float] = []
    pause_ms = 0
    for _ in range(20):
        MessageMoveTask.objects.filter(pk=task.pk).update(next_attempt_at=timezone.now())
        waits_ms = move_slice(task.pk, scene.storage, sleep=slept.append)
        if waits_ms is None:
            break
        pause_ms += waits_ms
    task.refresh_from_db()
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 3)
    assert 2_500 <= 1000 * sum(slept) + pause_ms <= 3_100
