"""The worker's side of the series: leaders are asked, one tick at a time, and what they do not say is left out."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from api import clock
from api.billing.pricing.periods import floor_hour
from api.billing.provisional import note_reading
from api.series import limits
from api.series.collecting import HeldQueue
from api.series.models import SeriesCoverage, SeriesMinute, SeriesQueue, SeriesRollup
from storage_nodes.client import StorageClient
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import QueueStats
from tests.api.billing.usage import make_queue
from tests.api.series.scene import meter
from tests.support.control_plane import Caller
from workers.series import rounds
from workers.series.levels import read_levels
from workers.storage import StorageThread

ACCOUNT = "123456789012"


class Leaders:
    """In the place of a storage client: partition 9 has no leader."""

    async def stats(self, partition: int) -> QueueStats:
        if partition == 9:
            raise StorageError(ErrorCode.NOT_LEADER, "9")
        return QueueStats(partition, 1, 2, oldest_sent_ms=partition * 1000)


async def test_levels_are_those_of_all_partitions_together() -> None:
    queues = [HeldQueue(ACCOUNT, uuid.UUID(int=1), [3, 4]), HeldQueue(ACCOUNT, uuid.UUID(int=2), [5, 9])]
    (found,) = await read_levels(cast(StorageClient, Leaders()), queues)
    assert found[1:] == (uuid.UUID(int=1), 7, 2, 4, 3000), "a queue with a silent partition is left out"


async def test_leader_that_does_not_answer_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    class Slow(Leaders):
        async def stats(self, partition: int) -> QueueStats:
            if partition == 8:
                await asyncio.Event().wait()
            return await super().stats(partition)

    monkeypatch.setattr(limits, "LEVEL_S_MAX", 0.05)
    queues = [HeldQueue(ACCOUNT, uuid.UUID(int=one), [one]) for one in (7, 8)]
    assert [one.waiting for one in await read_levels(cast(StorageClient, Slow()), queues)] == [7]


class OneThread:
    """In the place of the storage thread."""

    def run(self, work: Callable[[Any], Awaitable[Any]], timeout_s: float) -> Any:
        import asyncio

        return asyncio.run(cast(Any, work(Leaders())))


@pytest.mark.django_db
def test_round_writes_what_happened_and_what_is_held(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "storage", lambda: cast(StorageThread, OneThread()))
    queue = make_queue(caller.account_id, "orders")
    from api.queues.models import Queue

    Queue.objects.filter(uuid=queue).update(partitions=[3])
    now = clock.now()
    note_reading(now - timedelta(seconds=40), 5, now - timedelta(seconds=40), "")
    assert rounds.collect_series() == 0
    meter(caller.account_id, floor_hour(now), queue, messages_sent=4)
    note_reading(now, 5, now, "")
    assert rounds.collect_series() == 1 and rounds.collect_series() == 0
    assert sum(row.messages_sent for row in SeriesMinute.objects.filter(queue_uuid=queue)) == 4
    found = SeriesQueue.objects.get(account_id=caller.account_id, queue_uuid=queue)
    assert (found.waiting, found.in_flight, found.delayed, found.oldest_sent_ms) == (3, 1, 2, 3000)


@pytest.mark.django_db
def test_round_of_rollups_does_what_is_due_up_to_a_slice(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now()
    start = floor_hour(now) - timedelta(hours=2)
    SeriesCoverage.objects.bulk_create(
        [SeriesCoverage(minutes=1, at=start + timedelta(minutes=minute), covered=1) for minute in range(60)]
    )
    SeriesMinute.objects.create(account_id=caller.account_id, queue_uuid=uuid.UUID(int=7), at=start, messages_sent=3)
    monkeypatch.setattr(limits, "ROLLED_AT_ONCE_MAX", 6)
    assert rounds.roll_series() == 6
    monkeypatch.setattr(limits, "ROLLED_AT_ONCE_MAX", 100)
    rounds.roll_series()
    assert rounds.roll_series() == 0
    assert {(row.minutes, row.messages_sent) for row in SeriesRollup.objects.all()} == {(5, 3), (60, 3)}
