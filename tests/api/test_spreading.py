"""A FIFO queue that holds scheduled messages gets no other partitions: both APIs say so before anything is closed."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from api.queues import spreading
from api.queues.models import Queue
from api.queues.spreading import scheduled_count
from storage_nodes.model import parse_node_list
from storage_nodes.protocol.errors import ErrorCode, StorageError
from tests.support.control_plane import Caller
from tests.support.scripted_storage import ScriptedStorage

FAST = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}

pytestmark = pytest.mark.django_db(transaction=True)


class Scheduled:
    """Stands where storage is asked: so many in each of the partitions it was asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, each: int) -> None:
        self.each = each
        self.asked: list[list[int]] = []
        monkeypatch.setattr(spreading, "scheduled_count", self.count)

    async def count(self, partitions: Sequence[int]) -> int:
        self.asked.append(list(partitions))
        return self.each * len(partitions)


def set_attributes(caller: Caller, **attributes: str) -> tuple[int, str]:
    answer = caller.sqs("SetQueueAttributes", QueueName="line.fifo", Attributes=attributes)
    return answer.status_code, answer.json().get("message", "")


def test_set_that_holds_scheduled_messages_is_not_replaced(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = Scheduled(monkeypatch, 2)
    caller.sqs("CreateQueue", QueueName="line.fifo", Attributes={"FifoQueue": "true"})
    before = Queue.objects.get()
    storage.calls.clear()
    status, message = set_attributes(caller, **FAST)
    assert status == 400 and "2 scheduled messages" in message and "cancel them or wait" in message
    change = {"partitions": 3, "throughput_limit": "group", "deduplication_scope": "group"}
    answer = caller.request("PATCH", "/v1/queues/line.fifo", change)
    assert answer.status_code == 400 and "2 scheduled messages" in answer.json()["detail"], answer.json()
    assert scheduled.asked == [[1], [1]] and storage.calls == []
    after = Queue.objects.get()
    assert (after.attributes, after.generation, after.layout) == (before.attributes, before.generation, before.layout)
    scheduled.each = 0
    assert set_attributes(caller, **FAST)[0] == 200
    assert Queue.objects.get().partitions == [1, 2, 3, 4, 5]
    scheduled.each = 1
    status, message = set_attributes(caller, **{"Penstock.Partitions": "2"})
    assert status == 400 and "4 scheduled messages" in message and scheduled.asked[-1] == [2, 3, 4, 5]


def test_change_that_replaces_nothing_is_not_asked_about(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = Scheduled(monkeypatch, 2)
    caller.sqs("CreateQueue", QueueName="line.fifo", Attributes={"FifoQueue": "true"})
    assert set_attributes(caller, DeduplicationScope="messageGroup")[0] == 200, "the partition stays"
    assert set_attributes(caller, VisibilityTimeout="9")[0] == 200
    caller.sqs("CreateQueue", QueueName="orders")
    change = {"Penstock.Partitions": "2"}
    assert caller.sqs("SetQueueAttributes", QueueName="orders", Attributes=change).status_code == 200
    assert scheduled.asked == [], "standard queues only grow"


def test_storage_that_cannot_be_asked_closes_nothing(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller.sqs("CreateQueue", QueueName="line.fifo", Attributes={"FifoQueue": "true"})

    monkeypatch.setattr(spreading, "scheduled_count", scheduled_count)
    assert set_attributes(caller, **FAST) == (503, "The control plane was not told of storage nodes.")

    async def fail(client: object, partition: int) -> None:
        raise StorageError(ErrorCode.NO_QUORUM)

    nodes = parse_node_list("1=127.0.0.1:1@a")
    monkeypatch.setattr(spreading, "environment", lambda: SimpleNamespace(cluster_id="pk-test", nodes=lambda: nodes))
    monkeypatch.setattr(spreading.StorageClient, "stats", fail)
    assert set_attributes(caller, **FAST) == (503, "The message store cannot be asked at the moment.")
    assert Queue.objects.get().partitions == [1]
