"""Dead letters: the redrive policy reaches the storage, and what failed is read where it lies."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from api import limits
from api.queues.models import Queue
from storage_nodes.protocol.messages import QueueConfig
from tests.support.control_plane import new_caller
from tests.support.move_scene import Scene, dead_letters
from tests.support.move_scene import caller as caller
from tests.support.move_scene import scene as scene

pytestmark = pytest.mark.django_db(transaction=True)


# --- redrive policies reach the storage ---


def test_redrive_policy_tells_storage_where_to_move(scene: Scene) -> None:
    dead = scene.create("dead")
    scene.create("orders", RedrivePolicy=scene.redrive("dead", 3))
    account_id = dead.account_id
    expected = QueueConfig(345_600_000, max_receives=3, dead_letter_partition=dead.partitions[0], account_id=account_id)
    assert scene.config("orders") == expected
    scene.caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"RedrivePolicy": scene.redrive("dead", 5)})
    assert scene.config("orders").max_receives == 5
    scene.caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"RedrivePolicy": ""})
    assert scene.config("orders") == QueueConfig(retention_ms=345_600_000, account_id=account_id)


def test_fifo_queue_has_a_fifo_partition(scene: Scene) -> None:
    queue = scene.create("orders.fifo")
    expected = QueueConfig(retention_ms=345_600_000, fifo=True, account_id=queue.account_id)
    assert scene.config("orders.fifo") == expected
    assert Queue.objects.get(name="orders.fifo").fifo


def test_dead_letter_queue_deleted_and_made_again_is_told_to_its_sources(scene: Scene) -> None:
    account_id = scene.create("dead").account_id
    scene.create("orders", RedrivePolicy=scene.redrive("dead"))
    scene.caller.sqs("DeleteQueue", QueueName="dead")
    assert scene.config("orders") == QueueConfig(retention_ms=345_600_000, account_id=account_id)
    Queue.objects.filter(name="dead").update(deleted_at=timezone.now() - timedelta(minutes=2))
    again = scene.create("dead")
    assert scene.config("orders").dead_letter_partition == again.partitions[0]
    scene.send("orders", "late")
    scene.fail("orders")
    assert [message.content.body for message in scene.receive("dead")] == ["late"]


@pytest.mark.parametrize(("name", "target"), [("a.fifo", "dead"), ("a", "dead.fifo"), ("a", "a"), ("a", "nowhere")])
def test_dead_letter_queue_of_another_type_or_itself_is_refused(scene: Scene, name: str, target: str) -> None:
    for existing in ("dead", "dead.fifo", name):
        scene.create(existing)
    attributes = {"RedrivePolicy": scene.redrive(target)}
    answer = scene.caller.sqs("SetQueueAttributes", QueueName=name, Attributes=attributes)
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameterValueException")


def test_dead_letter_queue_of_another_account_is_refused(scene: Scene) -> None:
    other = new_caller("other")
    Scene(other, scene.storage, scene.clock).create("dead")
    arn = scene.arn("dead").replace(scene.caller.account_id, other.account_id)
    policy = scene.redrive("dead").replace(scene.arn("dead"), arn)
    answer = scene.caller.sqs("CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": policy})
    assert answer.json()["code"] == "InvalidParameterValueException"


# --- dead letters are read ---


def test_dead_letter_shows_where_it_came_from(scene: Scene) -> None:
    scene.create("dead")
    scene.create("orders", RedrivePolicy=scene.redrive("dead", 2))
    sent = scene.send("orders", "hello")
    sent_ms = int(scene.clock.now_s * 1000)
    scene.fail("orders", 2)
    (letter,) = scene.receive("dead")
    assert (letter.message_id, letter.content.body, letter.sent_ms) == (sent.message_id, "hello", sent_ms)
    assert (letter.dead_letter_source, letter.delivery) == (scene.arn("orders"), 3)
    assert scene.delete("dead", [letter.receipt_handle]) == [None]


def test_dead_letter_is_read_after_its_source_was_deleted(scene: Scene) -> None:
    dead_letters(scene)
    scene.caller.sqs("DeleteQueue", QueueName="orders")
    assert [message.content.body for message in scene.receive("dead")] == ["m0", "m1", "m2"]


@pytest.mark.parametrize("first", ["middle", "orders"])
def test_dead_letter_of_a_dead_letter_queue_is_read(scene: Scene, first: str) -> None:
    """In whichever order the chain is made, its end can read what its start sealed."""
    for name in ("end", "middle", "orders"):
        scene.create(name)
    for name in (first, "orders" if first == "middle" else "middle"):
        policy = scene.redrive("end" if name == "middle" else "middle")
        scene.caller.sqs("SetQueueAttributes", QueueName=name, Attributes={"RedrivePolicy": policy})
    scene.send("orders", "hello")
    scene.fail("orders")
    scene.fail("middle")
    assert [message.content.body for message in scene.receive("end")] == ["hello"]


def test_two_queues_that_are_each_others_dead_letter_queue_grant_keys_and_end(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.create(name)
    for name, target in (("a", "b"), ("b", "a")):
        scene.caller.sqs("SetQueueAttributes", QueueName=name, Attributes={"RedrivePolicy": scene.redrive(target)})
    scene.send("a", "hello")
    scene.fail("a")
    assert [message.content.body for message in scene.receive("b", visibility_s=1)] == ["hello"]


def test_keys_of_queues_long_gone_are_forgotten_and_their_number_is_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEY_GRANTS_MAX", 2)
    dead = scene.create("dead")
    for name in ("a", "b"):
        scene.create(name, RedrivePolicy=scene.redrive("dead"))
        scene.caller.sqs("DeleteQueue", QueueName=name)
    attributes = {"RedrivePolicy": scene.redrive("dead")}
    refused = scene.caller.sqs("CreateQueue", QueueName="c", Attributes=attributes)
    assert (refused.status_code, refused.json()["code"]) == (403, "OverLimit")
    assert not Queue.objects.filter(name="c").exists()
    Queue.objects.filter(name="a").update(deleted_at=timezone.now() - timedelta(days=61))
    scene.create("c", **attributes)
    assert set(dead.key_grants.values_list("owner_name", flat=True)) == {"b", "c"}
