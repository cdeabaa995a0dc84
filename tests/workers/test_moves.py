"""Move tasks: dead letters go back to where they came from, also where a worker is killed or a queue is gone."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from api import limits
from api.queues import moving
from api.queues.models import MessageMoveTask, MoveStatus, Queue
from frontend.sqs.requests import AttributeIn
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.records import HEADER_TAG, decode_body
from tests.support.control_plane import copy_queue, new_caller
from tests.support.covers import covers
from tests.support.move_scene import Killed, Scene, dead_letters, listed, run, start
from tests.support.move_scene import caller as caller
from tests.support.move_scene import scene as scene
from workers.lifecycle.reconciling import resync
from workers.moves.slices import move_slice

pytestmark = pytest.mark.django_db(transaction=True)


# --- move tasks ---


def test_move_task_takes_letters_back_to_their_source(scene: Scene) -> None:
    dead_letters(scene)
    task = run(scene, start(scene))
    assert (task.status, task.moved, task.to_move) == ("COMPLETED", 3, 3)
    back = scene.receive("orders")
    assert [message.content.body for message in back] == ["m0", "m1", "m2"]
    assert all(message.dead_letter_source is None and message.delivery == 1 for message in back)
    assert scene.receive("dead") == []
    (shown,) = listed(scene)
    assert "TaskHandle" not in shown and "DestinationArn" not in shown
    assert (shown["Status"], shown["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 3)


def test_move_task_out_of_a_paused_queue_waits_for_its_resumption(scene: Scene) -> None:
    dead_letters(scene)
    change = {"Penstock.Paused": "true"}
    scene.caller.sqs("SetQueueAttributes", QueueName="dead", Attributes=change)
    task = run(scene, start(scene))
    assert (task.status, task.moved) == (MoveStatus.RUNNING, 0)
    scene.caller.sqs("SetQueueAttributes", QueueName="dead", Attributes={"Penstock.Paused": ""})
    task = run(scene, task)
    assert (task.status, task.moved) == (MoveStatus.COMPLETED, 3)


def test_move_task_to_another_queue_gives_new_ids(scene: Scene) -> None:
    dead_letters(scene)
    before = {message.message_id for message in scene.receive("dead", visibility_s=1)}
    scene.clock.now_s += 2
    scene.create("elsewhere")
    task = run(scene, start(scene, DestinationArn=scene.arn("elsewhere")))
    assert task.status == "COMPLETED"
    moved = scene.receive("elsewhere")
    assert [message.content.body for message in moved] == ["m0", "m1", "m2"]
    assert before.isdisjoint(message.message_id for message in moved)
    assert listed(scene)[0]["DestinationArn"] == scene.arn("elsewhere")


def test_message_that_is_moved_keeps_its_tag(scene: Scene) -> None:
    scene.create("dead")
    scene.create("orders", RedrivePolicy=scene.redrive("dead"))
    tag = AttributeIn(data_type="String", string_value="red")
    scene.send("orders", "m", message_attributes={"Penstock.Tag": tag})
    scene.receive("orders", visibility_s=1)
    scene.clock.now_s += 2
    assert scene.receive("orders") == []
    assert run(scene, start(scene)).status == "COMPLETED"
    (partition,) = Queue.objects.get(name="orders").partitions
    (stored,) = scene.storage.messages(partition)
    assert dict(decode_body(stored.body).headers)[HEADER_TAG] == b"red"


def test_fifo_move_keeps_the_group_its_order_and_the_old_id(scene: Scene) -> None:
    dead_letters(scene, ".fifo")
    letters = scene.receive("dead.fifo", visibility_s=1)
    ids = [letter.message_id for letter in letters]
    assert [letter.dedup_id for letter in letters] == ids
    scene.clock.now_s += 2
    assert run(scene, start(scene, "dead.fifo")).status == "COMPLETED"
    back = scene.receive("orders.fifo")
    assert [(message.content.body, message.group) for message in back] == [("m0", "g"), ("m1", "g"), ("m2", "g")]
    assert [message.dedup_id for message in back] == ids


def test_fifo_letter_that_kept_its_id_before_names_that_id_when_it_moves(scene: Scene) -> None:
    """A task of REST keeps ids, one of SQS makes new messages: the id that consumers saw is the one that is named."""
    dead_letters(scene, ".fifo", count=1)
    answer = scene.caller.request("POST", "/v1/queues/dead.fifo/moves", {})
    run(scene, MessageMoveTask.objects.get(uuid=answer.json()["id"]))
    scene.fail("orders.fifo")
    (letter,) = scene.receive("dead.fifo", visibility_s=1)
    assert letter.dedup_id == letter.message_id
    scene.clock.now_s += 2
    assert run(scene, start(scene, "dead.fifo")).status == "COMPLETED"
    (back,) = scene.receive("orders.fifo")
    assert back.dedup_id == letter.message_id


@pytest.mark.parametrize("dies_at", ["send", "delete"])
def test_worker_killed_in_the_middle_of_a_batch_loses_nothing_and_fifo_doubles_nothing(
    scene: Scene, dies_at: str
) -> None:
    dead_letters(scene, ".fifo")
    task = start(scene, "dead.fifo")

    def die(call: str, partition: int) -> None:
        if call == dies_at:
            raise Killed

    scene.storage.before = die
    with pytest.raises(Killed):
        move_slice(task.pk, scene.storage)
    scene.storage.before = lambda call, partition: None
    assert move_slice(task.pk, scene.storage) is None, "the claim of the dead worker still holds"
    MessageMoveTask.objects.update(next_attempt_at=timezone.now())
    assert move_slice(task.pk, scene.storage) == limits.MOVE_RETRY_MS, "its leases hold too: not empty yet"
    task.refresh_from_db()
    assert task.status == "RUNNING"
    scene.clock.now_s += 31
    assert run(scene, task).status == "COMPLETED"
    assert [message.content.body for message in scene.receive("orders.fifo")] == ["m0", "m1", "m2"]
    assert scene.receive("dead.fifo") == []


@pytest.mark.parametrize(("away_s", "copies"), [(31, 1), (301, 2)])
def test_letter_sent_again_to_a_standard_queue_is_dropped_or_shows_it_by_its_id(
    scene: Scene, away_s: int, copies: int
) -> None:
    """The worker came back within the five minutes that ids are remembered, or later."""
    dead_letters(scene, count=1)
    task = start(scene)

    def die(call: str, partition: int) -> None:
        if call == "delete":
            raise Killed

    scene.storage.before = die
    with pytest.raises(Killed):
        move_slice(task.pk, scene.storage)
    scene.storage.before = lambda call, partition: None
    scene.clock.now_s += away_s
    assert run(scene, task).status == "COMPLETED"
    found = scene.receive("orders")
    assert len(found) == copies and len({message.message_id for message in found}) == 1


def test_worker_that_lost_its_claim_notes_nothing(scene: Scene) -> None:
    dead_letters(scene)
    task = start(scene)
    late = moving.claim_move(task.pk)
    MessageMoveTask.objects.update(next_attempt_at=timezone.now())
    quick = moving.claim_move(task.pk)
    assert late is not None and quick is not None and not quick.leases_expired
    assert not moving.note_progress(late, 5)
    moving.end_move(late, moving.MoveStatus.COMPLETED)
    assert moving.note_progress(quick, 2)
    task.refresh_from_db()
    assert (task.moved, task.status) == (2, "RUNNING")


def test_rate_is_kept(scene: Scene) -> None:
    dead_letters(scene, count=7)
    task = start(scene, MaxNumberOfMessagesPerSecond=3)
    pauses = []
    while (pause_ms := move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)) is not None:
        pauses.append(pause_ms)
        task.refresh_from_db()
        assert task.next_attempt_at > timezone.now() + timedelta(milliseconds=pause_ms - 200)
        MessageMoveTask.objects.update(next_attempt_at=timezone.now())
    assert pauses == [1000, 1000, 333]
    assert listed(scene)[0]["MaxNumberOfMessagesPerSecond"] == 3


def test_task_with_a_maximum_moves_a_sample(scene: Scene) -> None:
    dead_letters(scene, count=5)
    made = scene.caller.request("POST", "/v1/queues/dead/moves", {"messages_max": 2, "messages_per_second": 1})
    assert (made.status_code, made.json()["messages_max"]) == (201, 2)
    task = run(scene, MessageMoveTask.objects.get())
    assert (task.status, task.moved, task.to_move) == ("COMPLETED", 2, 2)
    assert len(scene.receive("orders")) == 2 and len(scene.receive("dead")) == 3
    for bad in (0, 1_000_000_001, "x"):
        answer = scene.caller.request("POST", "/v1/queues/dead/moves", {"messages_max": bad})
        assert answer.json()["errors"][0]["pointer"] == "/messages_max"


def test_cancelled_task_stops_and_leaves_the_rest(scene: Scene) -> None:
    dead_letters(scene, count=5)
    task = start(scene, MaxNumberOfMessagesPerSecond=2)
    move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)
    (shown,) = listed(scene)
    answer = scene.caller.sqs("CancelMessageMoveTask", TaskHandle=shown["TaskHandle"])
    assert answer.json() == {"ApproximateNumberOfMessagesMoved": 2}
    assert [one["Status"] for one in listed(scene)] == ["CANCELLING"]
    assert run(scene, task).status == "CANCELLED"
    assert len(scene.receive("orders")) == 2 and len(scene.receive("dead")) == 3
    again = scene.caller.sqs("CancelMessageMoveTask", TaskHandle=shown["TaskHandle"])
    assert (again.status_code, again.json()["code"]) == (400, "InvalidParameterValueException")


def test_cancel_between_two_batches_is_heard_at_the_next(scene: Scene) -> None:
    dead_letters(scene, count=4)
    task = start(scene, MaxNumberOfMessagesPerSecond=2)
    handle = listed(scene)[0]["TaskHandle"]
    claim = moving.claim_move(task.pk)
    assert claim is not None
    scene.caller.sqs("CancelMessageMoveTask", TaskHandle=handle)
    assert not moving.note_progress(claim, 2)
    task.refresh_from_db()
    assert (task.status, task.moved) == ("CANCELLED", 2)


def test_letter_whose_source_is_gone_fails_the_task_and_stays(scene: Scene) -> None:
    dead_letters(scene)
    scene.create("others", RedrivePolicy=scene.redrive("dead"))
    scene.caller.sqs("DeleteQueue", QueueName="orders")
    task = run(scene, start(scene))
    assert (task.status, task.failure_reason) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert len(scene.receive("dead")) == 3, "given back at once"
    assert listed(scene)[0]["FailureReason"] == task.failure_reason


def test_message_sent_to_the_dead_letter_queue_itself_fails_the_task(scene: Scene) -> None:
    dead_letters(scene, count=1)
    scene.send("dead", "direct")
    task = run(scene, start(scene))
    assert (task.status, task.failure_reason) == ("FAILED", "CouldNotDetermineMessageSource")
    left = [message.content.body for message in scene.receive("dead")]
    assert "direct" in left and task.moved == 2 - len(left), "a standard queue gives either of them first"
    assert [message.content.body for message in scene.receive("orders")] == ["m0"] * task.moved


def test_storage_that_does_not_answer_is_tried_again_and_given_up_in_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters(scene)
    task = start(scene)
    monkeypatch.setattr(limits, "MOVE_FAILURES_MAX", 2)

    def refuse(call: str, partition: int) -> None:
        raise StorageError(ErrorCode.NO_QUORUM)

    scene.storage.before = refuse
    for status in ("RUNNING", "RUNNING", "FAILED"):
        MessageMoveTask.objects.update(next_attempt_at=timezone.now())
        assert move_slice(task.pk, scene.storage) == limits.MOVE_RETRY_MS
        task.refresh_from_db()
        assert task.status == status


@pytest.mark.parametrize("call", ["send", "delete"])
def test_storage_that_fails_in_the_middle_of_a_batch_ends_in_no_early_completion(scene: Scene, call: str) -> None:
    dead_letters(scene)
    task = start(scene)

    def refuse(made: str, partition: int) -> None:
        if made == call:
            raise StorageError(ErrorCode.NO_QUORUM)

    scene.storage.before = refuse
    assert move_slice(task.pk, scene.storage) == limits.MOVE_RETRY_MS
    scene.storage.before = lambda made, partition: None
    MessageMoveTask.objects.update(next_attempt_at=timezone.now())
    assert move_slice(task.pk, scene.storage) == limits.MOVE_RETRY_MS, "what it leased is still invisible"
    scene.clock.now_s += 31
    assert run(scene, task).status == "COMPLETED"
    assert [message.content.body for message in scene.receive("orders")] == ["m0", "m1", "m2"]
    assert scene.receive("dead") == []


@pytest.mark.parametrize(
    ("gone", "reason"),
    [("dead", "The source queue does not exist any more."), ("elsewhere", "AWS.SimpleQueueService.NonExistentQueue")],
)
def test_queue_deleted_while_its_letters_move_fails_the_task(scene: Scene, gone: str, reason: str) -> None:
    dead_letters(scene)
    scene.create("elsewhere")
    task = start(scene, DestinationArn=scene.arn("elsewhere"))
    scene.caller.sqs("DeleteQueue", QueueName=gone)
    assert run(scene, task).status == "FAILED"
    assert task.failure_reason == reason


@pytest.mark.parametrize(("over_s", "status"), [(-1, "COMPLETED"), (0, "COMPLETED"), (1, "FAILED")])
@covers("StartMessageMoveTask", limit="hours of a task")
def test_task_of_more_than_its_hours_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, over_s: int, status: str
) -> None:
    dead_letters(scene)
    task = start(scene)
    now = timezone.now() + timedelta(minutes=1)
    monkeypatch.setattr("api.clock.now", lambda: now)
    MessageMoveTask.objects.update(started_at=now - timedelta(hours=36, seconds=over_s))
    assert run(scene, task).status == status


def test_resync_finds_tasks_that_stand_still(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_letters(scene)
    task = start(scene)
    sent: list[int] = []
    monkeypatch.setattr("workers.lifecycle.reconciling.send_hint", lambda hint, pk: bool(sent.append(pk)) or True)
    assert resync() == 0, "young: its own hint is under way"
    MessageMoveTask.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=6))
    assert (resync(), sent) == (1, [task.pk])


def test_accounts_take_turns_with_their_moves(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with many tasks that have waited longer does not stand before one with a single task."""
    dead_letters(scene)
    first = start(scene)
    copies = copy_queue("dead", [f"dead-{number}" for number in range(20)])
    other = Scene(new_caller("other"), scene.storage, scene.clock)
    dead_letters(other)
    single = start(other)
    long_ago = timezone.now() - timedelta(hours=1)
    MessageMoveTask.objects.filter(pk=first.pk).update(next_attempt_at=long_ago)
    greedy = [first.pk]
    for _ in range(20):
        first.pk, first.uuid, first.next_attempt_at = None, uuid.uuid4(), long_ago
        first.source = copies.pop()
        first.save(force_insert=True)
        greedy.append(first.pk)
    due, _ = moving.due_moves(0)
    assert sorted(due) == sorted([*greedy, single.pk]) and due.index(single.pk) == 1


# --- what is refused ---


def refused(scene: Scene, action: str, **params: Any) -> tuple[int, str]:
    answer = scene.caller.sqs(action, **params)
    return answer.status_code, answer.json()["code"]


NOT_FOUND = (404, "ResourceNotFoundException")
INVALID = (400, "InvalidParameterValueException")


def test_start_is_refused_for_what_is_no_dead_letter_queue(scene: Scene) -> None:
    dead_letters(scene)
    scene.create("dead.fifo")
    for params, expected in (
        ({"SourceArn": scene.arn("nowhere")}, NOT_FOUND),
        ({"SourceArn": "x"}, NOT_FOUND),
        ({"SourceArn": scene.arn("orders")}, INVALID),
        ({"SourceArn": scene.arn("dead"), "DestinationArn": scene.arn("nowhere")}, NOT_FOUND),
        ({"SourceArn": scene.arn("dead"), "DestinationArn": scene.arn("dead")}, INVALID),
        ({"SourceArn": scene.arn("dead"), "DestinationArn": scene.arn("dead.fifo")}, INVALID),
        ({"SourceArn": scene.arn("dead"), "MaxNumberOfMessagesPerSecond": 0}, INVALID),
        ({"SourceArn": scene.arn("dead"), "MaxNumberOfMessagesPerSecond": 501}, INVALID),
    ):
        assert refused(scene, "StartMessageMoveTask", **params) == expected, params
    start(scene, MaxNumberOfMessagesPerSecond=500)
    assert refused(scene, "StartMessageMoveTask", SourceArn=scene.arn("dead")) == INVALID, "one runs already"


def test_tasks_of_another_account_are_not_there(scene: Scene) -> None:
    dead_letters(scene)
    start(scene)
    handle = listed(scene)[0]["TaskHandle"]
    other = Scene(new_caller("other"), scene.storage, scene.clock)
    assert refused(other, "CancelMessageMoveTask", TaskHandle=handle) == NOT_FOUND
    for action in ("ListMessageMoveTasks", "StartMessageMoveTask"):
        assert refused(other, action, SourceArn=scene.arn("dead")) == NOT_FOUND
    mine = other.caller._replace(account_id=other.caller.account_id)
    assert mine.sqs("ListMessageMoveTasks", SourceArn=other.arn("dead")).status_code == 404
    assert MessageMoveTask.objects.get().status == "RUNNING"


@pytest.mark.parametrize("handle", ["x", "", "e30=", "W10=", "bnVsbA==", "A" * 600, 7, None])
def test_handle_that_is_none_is_refused(scene: Scene, handle: object) -> None:
    assert refused(scene, "CancelMessageMoveTask", TaskHandle=handle) == INVALID


@pytest.mark.parametrize(
    ("source", "said"),
    [("nowhere", "The resource that you specified for the SourceArn parameter doesn't exist."),
     ("dead", "Task does not exist.")],
)  # fmt: skip
def test_handle_of_no_task_names_what_is_not_there(scene: Scene, source: str, said: str) -> None:
    dead_letters(scene)
    content = json.dumps({"taskId": str(uuid.uuid4()), "sourceArn": scene.arn(source)})
    answer = scene.caller.sqs("CancelMessageMoveTask", TaskHandle=base64.b64encode(content.encode()).decode())
    assert (answer.status_code, answer.json()) == (404, {"code": "ResourceNotFoundException", "message": said})


@covers("StartMessageMoveTask", limit="active tasks of an account")
def test_account_has_a_hundred_active_tasks(scene: Scene) -> None:
    dead_letters(scene)
    for number in (2, 3, 4):
        scene.create(f"dead{number}")
        scene.create(f"orders{number}", RedrivePolicy=scene.redrive(f"dead{number}"))
    task = start(scene)
    for source in copy_queue("dead", [f"full{number}" for number in range(97)]):
        copied = MessageMoveTask.objects.get(pk=task.pk)
        copied.pk, copied.uuid, copied.source = None, uuid.uuid4(), source
        copied.save(force_insert=True)
    for source in ("dead2", "dead3"):  # the 99th and the 100th
        start(scene, source)
    assert refused(scene, "StartMessageMoveTask", SourceArn=scene.arn("dead4")) == (403, "OverLimit")


def test_list_shows_the_newest_ten_at_most(scene: Scene) -> None:
    dead_letters(scene, count=0)
    tasks = [run(scene, start(scene)) for _ in range(12)]
    assert len(listed(scene)) == 1
    shown = [one["StartedTimestamp"] for one in listed(scene, MaxResults=10)]
    assert shown == sorted(shown, reverse=True) and len(shown) == 10
    assert MessageMoveTask.objects.count() == 10 and MessageMoveTask.objects.filter(pk=tasks[-1].pk).exists()
    for bad in (0, 11, "1"):
        assert refused(scene, "ListMessageMoveTasks", SourceArn=scene.arn("dead"), MaxResults=bad) == INVALID


@pytest.mark.parametrize("side", ["dead", "orders"])
def test_move_fails_while_the_encryption_key_of_a_side_is_disabled_and_loses_nothing(scene: Scene, side: str) -> None:
    made = scene.caller.request("POST", "/v1/encryption-keys", {"name": "mine"}).json()
    dead_letters(scene, count=2)
    scene.caller.sqs("SetQueueAttributes", QueueName=side, Attributes={"KmsMasterKeyId": made["id"]})
    scene.caller.request("POST", f"/v1/encryption-keys/{made['id']}/disable")
    task = run(scene, start(scene))
    assert (task.status, task.moved) == (MoveStatus.FAILED, 0)
    assert "KmsDisabled" in task.failure_reason
    scene.caller.request("POST", f"/v1/encryption-keys/{made['id']}/enable")
    assert run(scene, start(scene)).moved == 2
