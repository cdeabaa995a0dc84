"""Move tasks of REST: what a filter wants, with its id and history, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from api import limits
from api.accounts.actions import set_account_active
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.queues import moving
from api.queues.models import MessageMoveTask, Queue
from api.queues.selectors import letter_owners_of
from api.quotas.actions import stop_sending
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.control_plane import new_caller
from tests.support.move_scene import Killed, Scene, caller, dead_letters, listed, run, scene
from tests.support.settling import at_once
from workers.moves.slices import move_slice

__all__ = ["caller", "scene"]

pytestmark = pytest.mark.django_db(transaction=True)


def start(scene: Scene, source: str = "dead", **asked: Any) -> MessageMoveTask:
    answer = scene.caller.request("POST", f"/v1/queues/{source}/moves", asked)
    assert answer.status_code == 201, answer.json()
    return MessageMoveTask.objects.get(uuid=answer.json()["id"])


def shown(scene: Scene, task: MessageMoveTask, source: str = "dead") -> Any:
    answer = scene.caller.request("GET", f"/v1/queues/{source}/moves/{task.uuid}")
    assert answer.status_code == 200
    return answer.json()


def order(scene: Scene, task: MessageMoveTask, what: str, source: str = "dead") -> Any:
    return scene.caller.request("POST", f"/v1/queues/{source}/moves/{task.uuid}/{what}")


def bodies(scene: Scene, name: str) -> list[str]:
    return [message.content.body for message in scene.receive(name)]


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_everything_goes_back_with_its_id_and_history(scene: Scene, suffix: str) -> None:
    dead_letters(scene, suffix)
    before = {message.message_id: message for message in scene.receive("dead" + suffix, visibility_s=1)}
    scene.clock.now_s += 2
    task = run(scene, start(scene, "dead" + suffix))
    assert (task.status, task.moved, task.scanned, task.matched, task.skipped) == ("COMPLETED", 3, 3, 3, 0)
    back = scene.receive("orders" + suffix)
    assert [message.content.body for message in back] == ["m0", "m1", "m2"]
    for message in back:
        history, was = message.content.history, before[message.message_id]
        assert history is not None and message.delivery == 1 and message.dead_letter_source is None
        assert (history.queue, history.moves, history.task) == ("orders" + suffix, 1, str(task.uuid))
        assert (history.receives, history.message_id) == (was.delivery, was.message_id)
        assert history.sent_ms == 1_700_000_000_000
    assert bodies(scene, "dead" + suffix) == []


def test_what_dies_again_keeps_its_first_life(scene: Scene) -> None:
    dead_letters(scene, count=1)
    (first,) = scene.receive("dead", visibility_s=1)
    scene.clock.now_s += 2
    for lives in (1, 2):
        run(scene, start(scene))
        scene.fail("orders")
        (again,) = scene.receive("dead", visibility_s=1)
        scene.clock.now_s += 2
        history = again.content.history
        assert history is not None and again.message_id == first.message_id == history.message_id
        assert history.moves == lives and history.sent_ms == 1_700_000_000_000
    assert history.receives == 2 + 2, "once in orders and once in dead, twice over"


@pytest.mark.parametrize(
    ("asked", "moved"),
    [
        ({"body_contains": "m1"}, ["m1"]),
        ({"sources": ["orders"], "receives_min": 1}, ["m0", "m1", "m2", "m3"]),
        ({"sources": ["other"]}, []),
        ({"age_seconds_max": 3600}, []),
        ({"states": ["in_flight"]}, []),
    ],
)
def test_filter_says_what_moves_and_the_rest_is_as_it_was(
    scene: Scene, asked: dict[str, Any], moved: list[str]
) -> None:
    dead_letters(scene, count=4)
    before = scene.storage.messages(1)
    task = run(scene, start(scene, filter=asked))
    assert (task.status, task.moved, task.scanned) == ("COMPLETED", len(moved), 4)
    after = scene.storage.messages(1)
    assert len(after) == 4 - len(moved) and all(stored in before for stored in after)
    assert bodies(scene, "orders") == moved


def test_dry_run_counts_and_changes_nothing(scene: Scene) -> None:
    dead_letters(scene, count=4)
    before = scene.storage.messages(1)
    task = run(scene, start(scene, filter={"body_contains": "m"}, dry_run=True, messages_per_second=1))
    assert (task.status, task.matched, task.moved, task.scanned) == ("COMPLETED", 4, 0, 4)
    assert scene.storage.messages(1) == before
    assert {call for call, partition in scene.storage.calls if partition == 1} & {"remove", "delete"} == set()


def test_dry_run_counts_for_an_account_that_may_not_send_too(scene: Scene) -> None:
    dead_letters(scene)
    stop_sending(OPERATOR, scene.caller.account_id, "spend cap")
    assert run(scene, start(scene, dry_run=True)).status == "COMPLETED"
    assert run(scene, start(scene)).status == "RUNNING"


def test_task_of_an_account_that_is_not_active_waits(scene: Scene) -> None:
    dead_letters(scene)
    task = start(scene)
    set_account_active(OPERATOR, scene.caller.account_id, False)
    assert run(scene, task).status == "RUNNING" and bodies(scene, "orders") == []
    set_account_active(OPERATOR, scene.caller.account_id, True)
    assert run(scene, task).status == "COMPLETED"


def test_message_that_somebody_has_leased_is_left_and_counted(scene: Scene) -> None:
    dead_letters(scene)
    (held,) = scene.receive("dead", count=1, visibility_s=600)
    task = run(scene, start(scene))
    assert (task.status, task.moved, task.skipped, task.matched) == ("COMPLETED", 2, 1, 3)
    assert scene.delete("dead", [held.receipt_handle]) == [None]
    assert bodies(scene, "orders") == ["m1", "m2"]


def test_fifo_task_waits_before_a_leased_message_so_that_order_holds(scene: Scene) -> None:
    dead_letters(scene, ".fifo")
    (held,) = scene.receive("dead.fifo", count=1, visibility_s=100)
    task = start(scene, "dead.fifo")
    assert move_slice(task.pk, scene.storage) == limits.MOVE_RETRY_MS
    task.refresh_from_db()
    assert (task.status, task.moved, task.scanned) == ("RUNNING", 0, 0) and held.content.body == "m0"
    scene.clock.now_s += 101
    assert run(scene, task).status == "COMPLETED"
    assert bodies(scene, "orders.fifo") == ["m0", "m1", "m2"]


def test_task_ends_where_the_queue_ended_when_it_began(scene: Scene) -> None:
    """What it moved and died again must not go round."""
    dead_letters(scene, count=3)
    task = start(scene, messages_per_second=1)
    move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)
    scene.fail("orders")
    task = run(scene, task)
    assert (task.status, task.moved, task.returned) == ("COMPLETED", 3, 1)
    assert len(bodies(scene, "dead")) == 1


@pytest.mark.parametrize(("limit", "status"), [({"returned_max": 0}, "FAILED"), ({"returned_max": 1}, "COMPLETED")])
def test_task_stops_when_more_come_back_than_may(scene: Scene, limit: dict[str, int], status: str) -> None:
    dead_letters(scene, count=5)
    task = start(scene, messages_per_second=2, **limit)
    move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)
    task.refresh_from_db()
    assert task.moved == 2
    scene.receive("orders", count=1, visibility_s=1)
    scene.clock.now_s += 2
    scene.receive("orders", count=1, visibility_s=600)  # the first one moves to the dead-letter queue
    task = run(scene, task)
    assert (task.status, task.returned) == (status, 1)
    if status == "FAILED":
        assert task.failure_reason == "1 of 4 messages that were moved died again and came back."
        assert shown(scene, task)["failure_reason"] == task.failure_reason


def test_share_that_comes_back_stops_the_task_once_enough_were_moved(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.moves.scanning.PERCENT_OF_MIN", 4)
    dead_letters(scene, count=8)
    task = start(scene, messages_per_second=2, returned_percent_max=40)
    for status, moved, returned in (("RUNNING", 2, 0), ("FAILED", 4, 2)):
        MessageMoveTask.objects.update(next_attempt_at=timezone.now())
        move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)
        task.refresh_from_db()
        assert (task.status, task.moved, task.returned) == (status, moved, returned)
        scene.fail("orders")


def test_paused_task_rests_and_goes_on_where_it_was(scene: Scene) -> None:
    dead_letters(scene, count=6)
    task = start(scene, messages_per_second=2)
    move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)
    paused = order(scene, task, "pause")
    assert (paused.status_code, paused.json()["status"]) == (202, "paused")
    assert order(scene, task, "pause").json()["status"] == "paused", "once more changes nothing"
    MessageMoveTask.objects.update(next_attempt_at=timezone.now() - timedelta(minutes=1))
    assert move_slice(task.pk, scene.storage) is None and moving.overdue_moves() == []
    task.refresh_from_db()
    assert (task.moved, task.status) == (2, "RUNNING")
    (by_sqs,) = listed(scene)
    assert by_sqs["Status"] == "RUNNING" and by_sqs["TaskHandle"], "SQS knows no pause"
    now = timezone.now()
    MessageMoveTask.objects.update(paused_at=now - timedelta(hours=40), started_at=now - timedelta(hours=41))
    assert order(scene, task, "resume").json()["status"] == "running"
    task = run(scene, task)
    assert (task.status, task.moved) == ("COMPLETED", 6), "the hours of its pause do not count"
    assert sorted(bodies(scene, "orders")) == [f"m{number}" for number in range(6)]
    actions = AuditEntry.objects.filter(action__startswith="queue.move").order_by("pk").values_list("action", flat=True)
    assert list(actions) == [
        "queue.move.start", "queue.move.pause", "queue.move.resume", "queue.move.completed",
    ]  # fmt: skip


def test_pause_is_heard_between_two_batches_and_a_paused_task_can_be_cancelled(scene: Scene) -> None:
    dead_letters(scene, count=4)
    task = start(scene, messages_per_second=2)
    claim = moving.claim_move(task.pk)
    assert claim is not None
    order(scene, task, "pause")
    assert not moving.note_progress(claim, 1, moving.ScanProgress({"1": [1, 4, 4]}, 1, 1))
    task.refresh_from_db()
    assert (task.moved, task.claim, task.position) == (1, None, {"1": [1, 4, 4]})
    gone = scene.caller.request("DELETE", f"/v1/queues/dead/moves/{task.uuid}")
    assert gone.status_code == 202
    assert run(scene, task).status == "CANCELLED"
    for what in ("pause", "resume"):
        assert order(scene, task, what).status_code == 400


def test_message_that_left_while_its_copy_was_sent_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may stand in two places: the log names the move, for those who look for the second one."""
    dead_letters(scene)
    remove = scene.storage.remove

    async def late(partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        await remove(partition, offsets[:1], moved)
        return await remove(partition, offsets, moved)

    monkeypatch.setattr(scene.storage, "remove", late)
    with capture_logs() as logs:
        assert run(scene, start(scene)).moved == 3
    assert [line["messages"] for line in logs if line["event"] == "messages_left_during_move"] == [1]


@pytest.mark.parametrize("dies_at", ["send", "remove"])
@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_worker_killed_in_the_middle_loses_and_doubles_nothing(scene: Scene, suffix: str, dies_at: str) -> None:
    dead_letters(scene, suffix)
    task = start(scene, "dead" + suffix)

    def die(call: str, partition: int) -> None:
        if call == dies_at:
            raise Killed

    scene.storage.before = die
    with pytest.raises(Killed):
        move_slice(task.pk, scene.storage)
    scene.storage.before = lambda call, partition: None
    assert run(scene, task).status == "COMPLETED"
    assert bodies(scene, "orders" + suffix) == ["m0", "m1", "m2"]
    assert bodies(scene, "dead" + suffix) == []


def test_storage_that_fails_is_tried_again_from_where_the_task_stands(scene: Scene) -> None:
    dead_letters(scene, count=3)
    task = start(scene, messages_per_second=1)
    move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)

    def refuse(call: str, partition: int) -> None:
        raise StorageError(ErrorCode.NO_QUORUM)

    MessageMoveTask.objects.update(next_attempt_at=timezone.now())
    scene.storage.before = refuse
    assert move_slice(task.pk, scene.storage) == limits.MOVE_RETRY_MS
    scene.storage.before = lambda call, partition: None
    task = run(scene, task)
    assert (task.status, task.moved, task.scanned) == ("COMPLETED", 3, 3)


def test_message_that_cannot_be_read_stays_and_the_others_go(scene: Scene) -> None:
    dead_letters(scene)
    stored = scene.storage.messages(1)[1]
    scene.storage.replace_body(1, stored.offset, stored.body.replace(stored.body[60:64], b"????"))
    task = run(scene, start(scene))
    assert (task.status, task.moved, task.skipped) == ("COMPLETED", 2, 1)
    assert [one.offset for one in scene.storage.messages(1)] == [stored.offset]


def test_all_partitions_of_the_source_are_gone_through_and_watched(scene: Scene) -> None:
    dead_letters(scene, count=4)
    others = scene.storage.messages(1)[2:]
    scene.storage.provide(7)
    at_once(scene.storage.send(7, [one.body for one in others], False))
    at_once(scene.storage.remove(1, [one.offset for one in others]))
    Queue.objects.filter(name="dead").update(partitions=[1, 7])
    task = start(scene, messages_per_second=1)
    move_slice(task.pk, scene.storage, monotonic=lambda: 0.0)
    scene.fail("orders")
    task = run(scene, task)
    assert (task.status, task.moved, task.scanned, task.returned) == ("COMPLETED", 4, 4, 1)
    assert set(task.position) == {"1", "7"} and bodies(scene, "orders") == ["m1", "m2", "m3"]


def test_sample_before_the_rest(scene: Scene) -> None:
    dead_letters(scene, count=5)
    assert run(scene, start(scene, messages_max=2)).moved == 2
    assert run(scene, start(scene)).moved == 3
    assert sorted(bodies(scene, "orders")) == ["m0", "m1", "m2", "m3", "m4"]


# --- what is refused ---


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"filter": {"unknown": 1}}, "/filter"),
        ({"filter": {"body_contains": "x" * 257}}, "/filter"),
        ({"filter": {"ids": []}}, "/filter"),
        ({"filter": {"body_contains": "\x00"}}, "/filter"),
        ({"filter": "x"}, "/filter"),
        ({"dry_run": "perhaps"}, "/dry_run"),
        ({"returned_max": -1}, "/returned_max"),
        ({"returned_percent_max": 100}, "/returned_percent_max"),
        ({"regex": ".*"}, "/regex"),
    ],
)
def test_ask_out_of_bounds_is_refused(scene: Scene, asked: dict[str, Any], pointer: str) -> None:
    dead_letters(scene, count=0)
    answer = scene.caller.request("POST", "/v1/queues/dead/moves", asked)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
    assert not MessageMoveTask.objects.exists()


def test_audit_tells_the_conditions_by_name_only(scene: Scene) -> None:
    dead_letters(scene, count=0)
    start(scene, filter={"body_contains": "secret words"}, dry_run=True)
    details = AuditEntry.objects.get(action="queue.move.start").details
    assert details["filter"] == ["body_contains"] and "secret" not in str(details)


def test_tasks_of_another_account_are_not_there(scene: Scene) -> None:
    dead_letters(scene)
    task = start(scene)
    other = new_caller("other")
    path = f"/v1/queues/dead/moves/{task.uuid}"
    for method, target in (
        ("GET", path), ("DELETE", path), ("POST", path + "/pause"), ("POST", path + "/resume"),
        ("GET", path.replace("dead", "orders")),
    ):  # fmt: skip
        assert other.request(method, target).status_code == 404
    assert scene.caller.request("GET", path.replace("dead", "orders")).status_code == 404, "not a task of that queue"
    assert shown(scene, task)["status"] == "running"


def test_letters_go_back_to_a_queue_that_has_another_dead_letter_queue_by_now(scene: Scene) -> None:
    """So who starts the task is asked for the right to send to it, too (tests/api/test_dead_letter_rights.py)."""
    dead_letters(scene, count=1)
    scene.create("later", RedrivePolicy=scene.redrive("dead"))
    scene.caller.sqs("SetQueueAttributes", QueueName="orders", Attributes={"RedrivePolicy": ""})
    assert letter_owners_of(scene.caller.account_id, "dead") == ("later", "orders")
    task = run(scene, start(scene))
    assert (task.status, task.moved) == ("COMPLETED", 1)
    assert bodies(scene, "orders") == ["m0"] and bodies(scene, "later") == []


def test_letters_that_died_in_a_dead_letter_queue_too_go_back_to_where_they_died_last(scene: Scene) -> None:
    """Storage nodes keep the source of the last death only. The rights to all queues on the way are asked for."""
    scene.create("last")
    scene.create("dead", RedrivePolicy=scene.redrive("last"))
    scene.create("orders", RedrivePolicy=scene.redrive("dead"))
    scene.send("orders", "m0")
    for name in ("orders", "dead"):
        scene.fail(name)
    assert letter_owners_of(scene.caller.account_id, "last") == ("dead", "orders")
    task = run(scene, start(scene, "last"))
    assert (task.status, task.moved) == ("COMPLETED", 1)
    assert bodies(scene, "orders") == [] and bodies(scene, "dead") == ["m0"]
