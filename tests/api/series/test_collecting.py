"""Minutes of the series: what is collected once, what writes nothing, what is known of minutes without a row."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import transaction

from api.queues.models import Queue, QueueStatus
from api.series import collecting, limits
from api.series.collecting import QueueLevels, note_levels, queues_to_look_at
from api.series.models import SeriesClock, SeriesCoverage, SeriesMinute, SeriesQueue
from api.series.selectors import account_levels, queues_named
from tests.api.billing.usage import make_queue
from tests.api.series.scene import NOON, QUEUE, after, hold, look, meter, values
from tests.support.control_plane import Caller

pytestmark = pytest.mark.django_db


def sent(account: str, first: float = 0, last: float = 10) -> dict[float, float]:
    return values(account, "NumberOfMessagesSent", after(first), after(last))


def test_what_grew_between_two_looks_is_of_the_minute_between_them(caller: Caller) -> None:
    account = caller.account_id
    look(after(0))
    meter(account, NOON, messages_sent=5)
    assert look(after(1.5)) == [QUEUE]
    meter(account, NOON, messages_sent=8, messages_deleted=2)
    look(after(2))
    assert sent(account, last=3) == {0: 0, 1: 8, 2: 0}
    assert values(account, "NumberOfMessagesDeleted", after(0), after(3)) == {0: 0, 1: 2, 2: 0}


def test_what_was_used_before_the_first_look_of_all_is_of_its_minute(caller: Caller) -> None:
    meter(caller.account_id, NOON, messages_sent=900)
    look(after(0))
    meter(caller.account_id, NOON, messages_sent=901)
    look(after(1.5))
    assert sent(caller.account_id, last=2) == {0: 900, 1: 1}


def test_queue_that_held_messages_before_the_first_look_of_all_is_looked_at(caller: Caller) -> None:
    queue = make_queue(caller.account_id, "old")
    look(after(0))
    assert [held.queue_uuid for held in queues_to_look_at([])] == [queue]
    note_levels([QueueLevels(caller.account_id, queue, 3, 0, 0, 0)], after(0))
    assert values(caller.account_id, "ApproximateNumberOfMessagesVisible", NOON, after(1), queue=queue) == {0: 3}
    look(after(1))
    note_levels([QueueLevels(caller.account_id, queue, 0, 0, 0, 0)], after(1))
    assert queues_to_look_at([]) == []


def test_partitions_and_front_ends_add_up(caller: Caller) -> None:
    look(after(0))
    meter(caller.account_id, NOON, messages_sent=5)
    meter(caller.account_id, NOON, source="one/2", messages_sent=6)
    look(after(0.5))
    assert sum(sent(caller.account_id).values()) == 11


def test_look_is_collected_once(caller: Caller) -> None:
    look(after(0))
    meter(caller.account_id, NOON, messages_sent=5)
    assert look(after(1)) == [QUEUE] and look(after(1)) is None
    assert sum(sent(caller.account_id).values()) == 5


def test_worker_that_dies_in_the_middle_leaves_it_to_the_next_one(caller: Caller) -> None:
    look(after(0))
    meter(caller.account_id, NOON, messages_sent=5)
    with pytest.raises(RuntimeError), transaction.atomic():
        look(after(1))
        raise RuntimeError
    assert look(after(1)) == [QUEUE] and look(after(2)) == []
    assert sum(sent(caller.account_id).values()) == 5
    assert SeriesQueue.objects.get(queue_uuid=QUEUE).messages_sent == 5


def test_queue_that_does_nothing_has_no_new_rows(caller: Caller) -> None:
    look(after(0))
    meter(caller.account_id, NOON, messages_sent=5)
    look(after(1))
    hold(caller.account_id, after(1), 5)
    rows = SeriesMinute.objects.count()
    for minute in range(2, 30):
        assert look(after(minute)) == []
        hold(caller.account_id, after(minute), 5)
    assert SeriesMinute.objects.count() == rows


def test_level_that_stays_is_written_now_and_then_and_an_empty_queue_is_not(caller: Caller) -> None:
    account = caller.account_id
    look(after(0))
    meter(account, NOON, messages_sent=5)
    look(after(0.5))
    hold(account, after(1), 5)
    hold(account, after(1) + timedelta(seconds=limits.LEVEL_WRITTEN_EVERY_S), 5)
    assert SeriesMinute.objects.filter(waiting=5).count() == 2
    hold(account, after(40), 0)
    hold(account, after(40) + timedelta(seconds=limits.LEVEL_WRITTEN_EVERY_S), 0)
    assert SeriesMinute.objects.filter(waiting=0).count() == 1


def test_minutes_between_complete_looks_are_known_and_others_are_gaps(caller: Caller) -> None:
    account = caller.account_id
    for minute in (0, 2, 30, 30.5):
        look(after(minute))
    look(after(31), missing="Storage nodes 2 have not closed their windows.")
    assert sorted(sent(account, last=40)) == [0, 1, 2, 30]
    meter(account, NOON, messages_sent=5)
    look(after(31.9), missing="Storage nodes 2 have not closed their windows.")
    assert sent(account, last=40)[31] == 5, "what is known is shown, however little it is"


def test_level_holds_until_the_next_row(caller: Caller) -> None:
    account = caller.account_id
    for minute in range(10):
        look(after(minute))
    meter(account, NOON, messages_sent=5)
    look(after(9.5))
    hold(account, after(2), 5, oldest=after(1))
    hold(account, after(6), 0)
    depth = values(account, "ApproximateNumberOfMessagesVisible", after(0), after(9))
    assert depth == {0: 0, 1: 0, 2: 5, 3: 5, 4: 5, 5: 5, 6: 0, 7: 0, 8: 0}
    age = values(account, "ApproximateAgeOfOldestMessage", after(0), after(9))
    assert (age[1], age[2], age[5], age[6]) == (0, 120, 300, 0)
    assert values(account, "ApproximateNumberOfMessagesVisible", after(4), after(6)) == {4: 5, 5: 5}


def test_hour_that_ends_begins_again_at_nothing(caller: Caller) -> None:
    account = caller.account_id
    look(after(39))
    meter(account, after(39), messages_sent=7)
    look(after(39.5))
    meter(account, after(41), messages_sent=2)
    look(after(41))
    assert sum(sent(account, last=50).values()) == 9


def test_what_one_tick_cannot_write_comes_with_the_next(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COLLECTED_QUEUES_MAX", 2)
    look(after(0))
    queues = [uuid.UUID(int=number) for number in range(1, 6)]
    for queue in queues:
        meter(caller.account_id, NOON, queue, messages_sent=1)
    seen = [set(look(after(minute)) or []) for minute in (1, 2, 3, 4)]
    assert [len(one) for one in seen] == [2, 2, 1, 0] and set.union(*seen) == set(queues)


def test_account_has_the_sum_of_its_queues_and_what_is_of_none(caller: Caller) -> None:
    account = caller.account_id
    look(after(0))
    meter(account, NOON, messages_sent=5)
    meter(account, NOON, uuid.UUID(int=8), messages_sent=6)
    meter(account, NOON, collecting.OF_ACCOUNT, requests=9)
    assert set(look(after(0.5)) or []) == {QUEUE, uuid.UUID(int=8)}
    found = [values(account, name, after(0), after(3), queue=collecting.OF_ACCOUNT)[0] for name in
             ("NumberOfMessagesSent", "NumberOfRequests")]  # fmt: skip
    assert found == [11, 9]


def test_accounts_do_not_mix(caller: Caller) -> None:
    look(after(0))
    meter(caller.account_id, NOON, messages_sent=5)
    look(after(0.5))
    assert sum(sent("999999999999").values()) == 0


def test_queues_that_hold_something_are_looked_at_after_those_that_were_used(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = caller.account_id
    held, used, idle = (make_queue(account, name) for name in ("held", "used", "idle"))
    SeriesQueue.objects.bulk_create(
        [SeriesQueue(account_id=account, queue_uuid=queue, waiting=waiting, looked_at=NOON)
         for queue, waiting in ((held, 4), (used, 0), (idle, 0))]
    )  # fmt: skip
    assert [queue.queue_uuid for queue in queues_to_look_at([used])] == [used, held]
    monkeypatch.setattr(collecting.limits, "LEVEL_PARTITIONS_MAX", 1)
    assert [queue.queue_uuid for queue in queues_to_look_at([used])] == [used]


def test_no_clock_no_reading_no_rows() -> None:
    assert collecting.collect(collecting.MeterReading(), NOON) is None
    assert SeriesClock.objects.get().looked_at is None and not SeriesCoverage.objects.exists()


def test_queue_that_was_used_is_asked_again_until_its_leaders_answer(caller: Caller) -> None:
    """A worker died, or a leader was silent, in the tick that collected its only burst."""
    account = caller.account_id
    queue = make_queue(account, "burst")
    look(after(0))
    note_levels([QueueLevels(account, queue, 0, 0, 0, 0)], after(0))
    assert queues_to_look_at([]) == []
    meter(account, NOON, queue, messages_sent=5)
    assert look(after(0.5)) == [queue]
    assert [one.queue_uuid for one in queues_to_look_at([])] == [queue]
    note_levels([QueueLevels(account, queue, 0, 0, 0, 0)], after(1))
    assert queues_to_look_at([]) == []


def test_levels_of_an_account_leave_out_deleted_queues_that_are_kept(caller: Caller) -> None:
    account = caller.account_id
    for name, waiting, oldest_ms in (("gone", 40, 1000), ("there", 3, 2000)):
        queue = make_queue(account, name)
        note = SeriesQueue(account_id=account, queue_uuid=queue, waiting=waiting, oldest_sent_ms=oldest_ms)
        SeriesQueue.objects.bulk_create([note])
    Queue.objects.filter(name="gone").update(state=QueueStatus.KEPT, kept_until=NOON)
    levels = account_levels(account, 1)
    assert (levels.waiting, levels.oldest_sent_ms, [one.name for one in levels.oldest]) == (3, 2000, ["there"])
    assert set(queues_named(account, ["gone", "there"])) == {"there"}


def test_errors_and_throttled_requests_of_a_queue_are_in_its_series(caller: Caller) -> None:
    look(after(0))
    meter(caller.account_id, NOON, source="front/1", errors=2, throttled=5)
    look(after(1.5))
    meter(caller.account_id, NOON, source="front/1", errors=3, throttled=5)
    look(after(2.5))
    for name, figures in (("NumberOfErrors", {1: 2, 2: 1}), ("NumberOfThrottledRequests", {1: 5, 2: 0})):
        found = values(caller.account_id, name, after(0), after(3))
        assert {minute: found.get(minute, 0) for minute in figures} == figures
