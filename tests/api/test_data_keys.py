"""Data keys of queues are replaced when enough messages were sealed under them."""

from __future__ import annotations

import uuid

import pytest

from api import limits
from api.audit.models import AuditEntry
from api.queues.data_keys import replace_data_key
from api.queues.models import DataKeyGrant, Queue, QueueDataKey
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

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
