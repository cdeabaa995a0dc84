"""Move tasks of an account that may not send, and what counts for the keys that they seal under."""

from __future__ import annotations

import pytest

from api.audit.actions import OPERATOR
from api.queues.models import MoveStatus, Queue
from api.quotas.actions import resume_sending, stop_sending
from frontend.queues import key_uses
from tests.support.move_scene import Scene
from tests.workers.test_moves import caller, dead_letters, run, scene, start

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
