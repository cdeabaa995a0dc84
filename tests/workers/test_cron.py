"""Ticks of schedules become messages: once each, sealed, due when they should be, whoever dies in between."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api import limits
from api.accounts.actions import set_account_active
from api.audit.actions import OPERATOR
from api.queues import actions
from api.queues.models import Queue
from api.quotas.actions import hold_queue, resume_sending, stop_sending
from api.schedules import firing as claims
from api.schedules.models import CronSchedule
from frontend.queues import key_uses
from storage_nodes.machines.queue.state.headers import source_of_release
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.records import HEADER_DUE, HEADER_GROUP, HEADER_RELEASED, decode_body
from storage_nodes.protocol.spreading import partition_of_group
from tests.support.control_plane import Caller, new_caller
from tests.support.frontend_plane import Clock
from tests.support.move_scene import Scene, StorageCluster
from workers.cron import firing
from workers.cron.firing import hand_over
from workers.lifecycle.reconciling import reconcile_queue

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Killed(BaseException):
    """The worker dies here: nothing after it runs."""


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


@pytest.fixture
def scene(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Scene:
    clock = Clock(NOON.timestamp())
    storage = StorageCluster(clock)
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, storage))
    monkeypatch.setattr("api.clock.now", lambda: datetime.fromtimestamp(clock.now_s, UTC))
    return Scene(caller, storage, clock)


def create(scene: Scene, queue: str = "orders", **changes: Any) -> CronSchedule:
    """`orders` gets a message at every full minute."""
    if not Queue.objects.filter(name=queue).exists():
        scene.create(queue)
    payload = {"name": "tick", "cron": "* * * * *", "body": "now", **changes}
    answer = scene.caller.request("POST", f"/v1/queues/{queue}/schedules", payload)
    assert answer.status_code == 201, answer.json()
    return CronSchedule.objects.latest("pk")


def pass_s(scene: Scene, seconds: float) -> None:
    scene.clock.now_s += seconds


def stored(scene: Scene) -> list[dict[bytes, bytes]]:
    """Headers of everything in the storage."""
    logs = scene.storage.contents().values()
    return [dict(decode_body(one.body).headers) for log in logs for one in log]


def due_times(scene: Scene) -> list[float]:
    """Of those that wait and of those that became due meanwhile."""
    return sorted(due_ms(headers) / 1000 - NOON.timestamp() for headers in stored(scene))


def due_ms(headers: dict[bytes, bytes]) -> int:
    return source_of_release(headers[HEADER_RELEASED])[1] if HEADER_RELEASED in headers else int(headers[HEADER_DUE])


def test_tick_is_handed_over_before_it_is_due_and_delivered_when_it_is(scene: Scene) -> None:
    schedule = create(scene, attributes={"a": {"value": "1"}}, group="g")
    assert hand_over(scene.storage) == 0
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60]
    assert hand_over(scene.storage) == 0
    assert scene.receive("orders") == []
    pass_s(scene, 4)
    (message,) = scene.receive("orders")
    assert message.content.body == "now" and message.content.attributes == {"a": ("String", b"1")}
    assert message.group == "g" and message.sender == f"schedule/{schedule.uuid.hex}"
    schedule.refresh_from_db()
    assert schedule.fired == 1 and schedule.last_tick_at == NOON + timedelta(seconds=60)
    assert schedule.next_tick_at == NOON + timedelta(seconds=120)


def test_schedule_of_every_two_seconds_loses_and_repeats_nothing(scene: Scene) -> None:
    create(scene, cron="*/2 * * * * *")
    for _ in range(30):
        hand_over(scene.storage)
        pass_s(scene, 2)
    assert due_times(scene) == [2.0 * n for n in range(1, len(due_times(scene)) + 1)]
    assert len(due_times(scene)) >= 30


@pytest.mark.parametrize("off_s", [86_400, -86_400])
def test_clock_of_the_worker_decides_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch, off_s: int) -> None:
    """The database's clock does: ahead by a day, a worker would leave a day of ticks out; behind, it would stop."""
    schedule = create(scene)
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 1
    honest = time.time()
    monkeypatch.setattr("time.time", lambda: honest + off_s)
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOON + timedelta(seconds=off_s))
    assert hand_over(scene.storage) == 0 and due_times(scene) == [60], "neither early nor again"
    pass_s(scene, 60)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60, 120]
    schedule.refresh_from_db()
    assert schedule.missed == 0 and schedule.next_tick_at == NOON + timedelta(seconds=180)


@pytest.mark.parametrize("queue", ["orders", "line.fifo"])
def test_worker_that_dies_after_the_send_leaves_one_message_a_tick(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    create(scene, queue, cron="*/2 * * * * *", group="g")
    pass_s(scene, 1)

    def die(claimed: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(firing, "note_handed_over", die)
        with pytest.raises(Killed):
            hand_over(scene.storage)
    first = due_times(scene)
    assert first == [2, 4, 6]
    assert hand_over(scene.storage) == 0, "its claim holds"
    pass_s(scene, 31)
    hand_over(scene.storage)
    assert due_times(scene) == [2.0 * n for n in range(1, 19)], "the same ticks again, and none of them twice"
    pass_s(scene, 60)
    bodies = [message.content.body for message in scene.receive(queue)]
    assert bodies and set(bodies) == {"now"}


def test_storage_that_does_not_answer_is_asked_again_and_no_tick_is_lost(scene: Scene) -> None:
    schedule = create(scene)
    pass_s(scene, 58)

    def fail(call: str, partition: int) -> None:
        raise StorageError(ErrorCode.NO_QUORUM)

    scene.storage.before = fail
    assert hand_over(scene.storage) == 0
    schedule.refresh_from_db()
    assert schedule.failures == 1 and schedule.last_error and schedule.fired == 0
    scene.storage.before = lambda call, partition: None
    assert hand_over(scene.storage) == 0, "not at once"
    pass_s(scene, 6)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60]
    schedule.refresh_from_db()
    assert schedule.failures == 0 and schedule.last_error == ""


def test_after_a_long_stand_still_one_late_tick_comes_and_the_rest_is_counted_as_a_gap(scene: Scene) -> None:
    schedule = create(scene)
    pass_s(scene, 6 * 3_600 + 30)
    assert hand_over(scene.storage) == 2
    assert due_times(scene) == [60, 6 * 3_600]
    schedule.refresh_from_db()
    assert schedule.missed == 1 and schedule.next_tick_at == NOON + timedelta(hours=6, minutes=1)


def test_more_schedules_than_one_claim_takes_are_handed_over_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        create(scene, name=f"tick-{number}")
    monkeypatch.setattr(limits, "CRON_CLAIMED_MAX", 2)
    pass_s(scene, 58)
    assert hand_over(scene.storage) == 5 and due_times(scene) == [60] * 5


def test_paused_and_deleted_schedules_send_nothing(scene: Scene) -> None:
    create(scene)
    create(scene, name="gone")
    assert scene.caller.request("POST", "/v1/queues/orders/schedules/tick/pause").status_code == 200
    assert scene.caller.request("DELETE", "/v1/queues/orders/schedules/gone").status_code == 204
    pass_s(scene, 58)
    assert hand_over(scene.storage) == 0
    assert scene.caller.request("POST", "/v1/queues/orders/schedules/tick/resume").status_code == 200
    assert hand_over(scene.storage) == 1


def test_ticks_count_for_the_data_key(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_uses, "DATA_KEY_USES_TOLD_MIN", 1)
    create(scene)
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 1
    assert Queue.objects.get(name="orders").data_keys.get().sealed == 1


def test_account_that_may_not_send_gets_no_ticks_until_it_may(scene: Scene) -> None:
    create(scene)
    stop_sending(OPERATOR, scene.caller.account_id, "spend cap")
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 0 and stored(scene) == []
    resume_sending(OPERATOR, scene.caller.account_id)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60]


def test_queue_that_is_stopped_gets_no_ticks_until_it_is_free(scene: Scene) -> None:
    create(scene)
    create(scene, "mails")
    stopped = Queue.objects.get(name="orders").uuid
    hold_queue(OPERATOR, scene.caller.account_id, stopped, "spend cap")
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60], "that of the other queue"
    hold_queue(OPERATOR, scene.caller.account_id, stopped)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60, 60]


def test_account_that_is_not_active_gets_no_ticks_until_it_is(scene: Scene) -> None:
    create(scene)
    set_account_active(OPERATOR, scene.caller.account_id, False)
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 0 and stored(scene) == []
    set_account_active(OPERATOR, scene.caller.account_id, True)
    assert hand_over(scene.storage) == 1 and due_times(scene) == [60]


def test_pause_while_a_worker_hands_over_is_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = create(scene)
    pass_s(scene, 58)

    def claim_then_pause(now: datetime | None) -> list[claims.CronClaim]:
        claimed = claims.claim_due(now)
        assert scene.caller.request("POST", "/v1/queues/orders/schedules/tick/pause").status_code == 200
        return claimed

    monkeypatch.setattr(firing, "claim_due", claim_then_pause)
    hand_over(scene.storage)
    schedule.refresh_from_db()
    assert schedule.enabled is False and schedule.next_tick_at == NOON + timedelta(seconds=60)


def test_message_that_cannot_be_read_stops_no_other_schedule(scene: Scene) -> None:
    broken = create(scene)
    create(scene, name="fine")
    CronSchedule.objects.filter(pk=broken.pk).update(content_sealed=b"\x01" + bytes(60))
    pass_s(scene, 58)
    assert hand_over(scene.storage) == 1
    broken.refresh_from_db()
    assert "cannot be read" in broken.last_error


def test_fifo_ticks_come_in_order_with_an_id_each(scene: Scene) -> None:
    schedule = create(scene, "line.fifo", cron="*/2 * * * * *", group="g")
    hand_over(scene.storage)
    pass_s(scene, 10)
    received = scene.receive("line.fifo")
    assert [one.content.dedup_id for one in received] == [
        f"{schedule.uuid}-{int((NOON.timestamp() + n) * 1000)}" for n in (2, 4)
    ]


def test_ticks_go_to_the_partition_of_their_group(scene: Scene) -> None:
    fast = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    scene.create("line.fifo", **fast)
    for number in range(6):
        create(scene, "line.fifo", name=f"tick-{number}", group=f"g{number}")
    pass_s(scene, 56)
    assert hand_over(scene.storage) == 6
    partitions = list(Queue.objects.get(name="line.fifo").partitions)
    for partition, log in scene.storage.contents().items():
        for one in log:
            group = dict(decode_body(one.body).headers)[HEADER_GROUP]
            assert partition_of_group(group, partitions) == partition
    assert sum(bool(log) for log in scene.storage.contents().values()) > 1
