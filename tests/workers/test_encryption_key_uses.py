"""What workers seal and open under encryption keys of customers counts as their use, as what front ends do."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import DatabaseError
from django.utils import timezone

from api.encryption.models import EncryptionKeyUse
from api.queues import actions, redrive
from api.schedules.models import CronSchedule
from tests.support.control_plane import Caller, new_caller
from tests.support.frontend_plane import Clock
from tests.support.move_scene import Scene, StorageCluster, dead_letters, run, start
from tests.workers.test_cron import create
from workers import sealing
from workers.cron.firing import hand_over
from workers.lifecycle.reconciling import reconcile_queue
from workers.sealing import SharedEncryptionKeyUses

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


@pytest.fixture
def scene(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Scene:
    clock = Clock()
    storage = StorageCluster(clock)
    for module in (actions, redrive):
        monkeypatch.setattr(module, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, storage))
    return Scene(caller, storage, clock)


def key_for(scene: Scene, queue: str) -> str:
    """The id of a key that the queue is given."""
    made = scene.caller.request("POST", "/v1/encryption-keys", {"name": "mine"}).json()
    scene.caller.sqs("SetQueueAttributes", QueueName=queue, Attributes={"KmsMasterKeyId": made["id"]})
    return str(made["id"])


def uses(key_id: str) -> tuple[int, int]:
    """Messages sealed and opened."""
    rows = EncryptionKeyUse.objects.filter(key_id=key_id)
    return sum(row.sealed for row in rows), sum(row.opened for row in rows)


def test_moved_messages_count_for_the_key_that_opens_and_the_one_that_seals(scene: Scene) -> None:
    dead_letters(scene, count=2)
    key_id = key_for(scene, "orders")
    assert run(scene, start(scene)).moved == 2
    assert uses(key_id) == (2, 0), "they had failed before the queue had the key"
    scene.create("first", RedrivePolicy=scene.redrive("orders"))
    assert run(scene, start(scene, "orders", DestinationArn=scene.arn("first"))).moved == 2
    assert uses(key_id) == (2, 2)


def test_schedules_and_their_messages_count(scene: Scene) -> None:
    scene.create("orders")
    key_id = key_for(scene, "orders")
    create(scene)
    assert uses(key_id) == (1, 0), "what the schedule keeps is sealed, too"
    CronSchedule.objects.update(next_tick_at=timezone.now() - timedelta(seconds=1))
    assert hand_over(scene.storage) >= 1
    sealed, opened = uses(key_id)
    assert (sealed > 1, opened) == (True, 1)


def test_uses_that_the_database_does_not_take_are_told_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    key_id = scene.caller.request("POST", "/v1/encryption-keys", {"name": "mine"}).json()["id"]
    counted = SharedEncryptionKeyUses()
    counted.note(key_id, 2, 1)
    with monkeypatch.context() as away:
        away.setattr(sealing, "note_uses", lambda uses: (_ for _ in ()).throw(DatabaseError))
        with pytest.raises(DatabaseError):
            counted.tell()
    counted.tell()
    counted.tell()
    assert uses(key_id) == (2, 1)


def test_threads_lose_no_use_of_each_other() -> None:
    counted, key_id = SharedEncryptionKeyUses(), str(uuid.uuid4())
    threads = [threading.Thread(target=lambda: [counted.note(key_id, 1, 1) for _ in range(2_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.take(1) == {key_id: (8_000, 8_000)}
