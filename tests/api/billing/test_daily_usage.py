"""The sums of days are those of the hours, after every kind of write, and months are read from them."""

from __future__ import annotations

import random
import uuid
from collections import Counter, defaultdict
from datetime import timedelta

import pytest

from api.billing import limits
from api.billing.models import DailyUsage, HourlyUsage, UsageHours
from api.billing.pricing.meters import UsageMeter
from api.billing.pricing.periods import DAY, HOUR, Interval, whole_days
from api.billing.selectors import quantities_of, settled_usage
from tests.api.billing.usage import MONTH, PERIOD, QUEUE, row, settle_rows

SENT = UsageMeter.MESSAGES_SENT


def sums_of_hours() -> dict[tuple[object, ...], tuple[int, int]]:
    sums: Counter[tuple[object, ...]] = Counter()
    bits: defaultdict[tuple[object, ...], int] = defaultdict(int)
    for one in HourlyUsage.objects.all():
        key = (one.account_id, one.day, one.queue_uuid, one.partition_id, one.origin)
        assert one.day == one.hour.replace(hour=0)
        sums[key] += one.messages_sent
        bits[key] |= 1 << one.hour.hour
    return {key: (held, sums[key]) for key, held in bits.items()}


def sums_of_days() -> dict[tuple[object, ...], tuple[int, int]]:
    return {
        (one.account_id, one.day, one.queue_uuid, one.partition_id, one.origin): (one.hour_bits, int(one.messages_sent))
        for one in DailyUsage.objects.all()
    }


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_days_are_the_sums_of_their_hours_after_any_merges(account: str, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        first, count = chance.randrange(60), chance.randrange(1, 30)
        rows = {
            (hour, queue, origin): row(
                account, hour, queue_uuid=uuid.UUID(int=queue), origin=origin, messages_sent=chance.randrange(9)
            )
            for hour in range(first, first + count)
            for queue, origin in ((1, "client"), (2, "client"), (2, "cron"))
            if chance.random() < 0.5
        }
        settle_rows(list(rows.values()), first, count, recount=chance.random() < 0.6)
        assert sums_of_days() == sums_of_hours()
    settle_rows([], 48, 60, recount=True)
    assert sums_of_days() == sums_of_hours()
    settle_rows([], 0, 100, recount=True)
    assert not DailyUsage.objects.exists() and not UsageHours.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(("begin", "end"), [(0, 72), (5, 70), (23, 49), (3, 9), (24, 48), (20, 30), (0, 25)])
def test_span_is_read_from_days_and_the_hours_at_its_ends(account: str, begin: int, end: int) -> None:
    settle_rows([row(account, hour, messages_sent=1 << (hour % 60)) for hour in range(72)], 0, 72)
    span = Interval(MONTH + begin * HOUR, MONTH + end * HOUR)
    expected = sum(one.messages_sent for one in settled_usage(account, span))
    assert sum(one.quantities[SENT] for one in quantities_of(account, span)) == expected
    assert {one.queue_uuid for one in quantities_of(account, span)} == {QUEUE}


@pytest.mark.django_db
def test_sums_that_no_hour_could_hold_do_not_stop_a_merge(account: str) -> None:
    sent, stored = limits.HOUR_COUNTER_MAX, limits.HOUR_STORED_BYTE_MS_MAX
    settle_rows([row(account, hour, sent_bytes=sent, stored_byte_ms=stored) for hour in range(24)], 0, 24)
    day = DailyUsage.objects.get()
    assert int(day.sent_bytes) == 24 * sent and int(day.stored_byte_ms) == 24 * stored


def test_whole_days_of_an_interval() -> None:
    assert whole_days(Interval(*PERIOD)) == Interval(*PERIOD)
    assert whole_days(Interval(MONTH + HOUR, MONTH + 3 * DAY)) == Interval(MONTH + DAY, MONTH + 3 * DAY)
    assert whole_days(Interval(MONTH + HOUR, MONTH + 2 * DAY - HOUR)) is None
    assert whole_days(Interval(MONTH, MONTH + DAY - timedelta(seconds=1))) is None
