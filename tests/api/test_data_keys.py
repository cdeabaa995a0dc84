"""Data keys of queues are replaced when enough messages were sealed under them, and forgotten long after."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from api import limits
from api.audit.models import AuditEntry
from api.queues.data_keys import replace_data_key
from api.queues.models import DataKeyGrant, Queue, QueueDataKey
from api.schedules.models import CronSchedule
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import QueueStats
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import forget_old_keys

pytestmark = pytest.mark.django_db(transaction=True)
FRONT_END = Caller("", "")


@pytest.fixture
def owner(transactional_db: None, storage: ScriptedStorage) -> Caller:
    found = new_caller()
    for name in ("dead", "orders"):
        assert found.request("POST", "/v1/queues", {"name": name}).status_code == 201
    assert found.request("PATCH", "/v1/queues/orders", {"dead_letter_queue": {"name": "dead"}}).status_code == 200
    return found


def tell(queue: Queue, version: int, messages: int) -> None:
    uses = [[queue.uuid.hex, version, messages], [uuid.UUID(int=1).hex, 1, 5]]
    assert FRONT_END.request("POST", "/internal/data-keys/used", {"uses": uses}).status_code == 200


def versions(queue: Queue) -> list[int]:
    return list(queue.data_keys.order_by("version").values_list("version", flat=True))


def test_key_is_replaced_when_enough_messages_were_sealed_and_not_before(owner: Caller) -> None:
    queue = Queue.objects.get(name="orders")
    (first,) = versions(queue)
    before = queue.version
    tell(queue, first, limits.DATA_KEY_MESSAGES_MAX - 1)
    assert versions(queue) == [first]
    tell(queue, first, 1)
    assert versions(queue)[0] == first and len(versions(queue)) == 2
    queue.refresh_from_db()
    assert queue.version > before
    assert AuditEntry.objects.get(action="queue.replace_data_key").details == {"version": versions(queue)[1]}


def test_dead_letter_queue_gets_the_new_key_with_it(owner: Caller) -> None:
    queue = Queue.objects.get(name="orders")
    tell(queue, versions(queue)[0], limits.DATA_KEY_MESSAGES_MAX)
    granted = DataKeyGrant.objects.filter(queue__name="dead").order_by("version")
    assert list(granted.values_list("version", flat=True)) == versions(queue)


def test_key_that_was_replaced_is_not_replaced_again_by_late_counts(owner: Caller) -> None:
    queue = Queue.objects.get(name="orders")
    first = versions(queue)[0]
    for _ in range(3):
        tell(queue, first, limits.DATA_KEY_MESSAGES_MAX)
    assert len(versions(queue)) == 2 and not replace_data_key(queue.pk)


def replaced(queue: Queue, days_ago: float) -> int:
    """The key of the queue was replaced then. Its former version."""
    (first,) = versions(queue)
    tell(queue, first, limits.DATA_KEY_MESSAGES_MAX)
    replaced_at = timezone.now() - timedelta(days=days_ago)
    assert QueueDataKey.objects.filter(replaced_at__isnull=False).update(replaced_at=replaced_at) == 1
    return first


@pytest.mark.parametrize(("days", "goes"), [(0.1, True), (-0.1, False)])
def test_version_that_was_replaced_long_ago_is_forgotten_with_its_grants(
    owner: Caller, storage: ScriptedStorage, days: float, goes: bool
) -> None:
    queue = Queue.objects.get(name="orders")
    first = replaced(queue, limits.DATA_KEY_REPLACED_DAYS + days)
    told = {one.name: one.version for one in Queue.objects.all()}
    assert forget_old_keys(storage) == (1 if goes else 0)
    assert (first not in versions(queue), len(versions(queue))) == (goes, 1 if goes else 2)
    granted = DataKeyGrant.objects.filter(queue__name="dead").order_by("version")
    assert list(granted.values_list("version", flat=True)) == versions(queue)
    heard = {one.name for one in Queue.objects.all() if one.version > told[one.name]}
    assert heard == ({"orders", "dead"} if goes else set()), "front ends hear of it"
    assert forget_old_keys(storage) == 0


def test_version_stays_while_a_scheduled_message_may_need_it(
    owner: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One can be rescheduled again and again; where storage cannot be asked there may be one."""
    queue = Queue.objects.get(name="orders")
    replaced(queue, 10 * limits.DATA_KEY_REPLACED_DAYS)

    async def holds(partition: int) -> QueueStats:
        return QueueStats(0, 0, 1, scheduled=1)

    async def is_away(partition: int) -> QueueStats:
        raise StorageError(ErrorCode.UNKNOWN_PARTITION, str(partition))

    for stats in (holds, is_away):
        monkeypatch.setattr(storage, "stats", stats)
        assert forget_old_keys(storage) == 0 and len(versions(queue)) == 2


@pytest.mark.parametrize(("days_before", "kept"), [(1, True), (-2, False)])
def test_version_stays_while_a_schedule_is_sealed_under_it(
    owner: Caller, storage: ScriptedStorage, days_before: int, kept: bool
) -> None:
    content = {"name": "nightly", "cron": "0 2 * * *", "body": "x"}
    assert owner.request("POST", "/v1/queues/orders/schedules", content).status_code == 201
    queue = Queue.objects.get(name="orders")
    days = limits.DATA_KEY_REPLACED_DAYS + 10
    replaced(queue, days)
    CronSchedule.objects.update(created_at=timezone.now() - timedelta(days=days + days_before))
    assert forget_old_keys(storage) == (0 if kept else 1)


def test_queue_that_goes_gets_no_key(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.queues.actions.send_hint", lambda hint, queue_id: False)
    queue = Queue.objects.get(name="orders")
    owner.request("DELETE", "/v1/queues/orders")
    tell(queue, versions(queue)[0], limits.DATA_KEY_MESSAGES_MAX)
    assert QueueDataKey.objects.filter(queue=queue).count() == 1


def test_report_counts_where_a_key_cannot_be_replaced(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that is refused is told again, and counted twice. The dead letters must stay readable."""
    monkeypatch.setattr(limits, "KEY_GRANTS_MAX", 1)
    queue = Queue.objects.get(name="orders")
    (first,) = versions(queue)
    tell(queue, first, limits.DATA_KEY_MESSAGES_MAX)
    assert versions(queue) == [first]
    assert queue.data_keys.get().sealed == limits.DATA_KEY_MESSAGES_MAX
    monkeypatch.undo()
    tell(queue, first, 1)
    assert len(versions(queue)) == 2


def test_report_of_sealed_messages_is_read_strictly(owner: Caller) -> None:
    for bad in ([["x", 1, 1]], [[uuid.uuid4().hex, -1, 1]], [[uuid.uuid4().hex, 1]], {"a": 1}):
        assert FRONT_END.request("POST", "/internal/data-keys/used", {"uses": bad}).status_code == 400
    assert owner.request("POST", "/internal/data-keys/used", {"uses": []}).status_code == 401
    assert FRONT_END.request("POST", "/internal/data-keys/used", {"uses": []}).status_code == 200
