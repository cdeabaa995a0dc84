"""Rollups: sums, means over time, once; and what is removed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from api.series import limits
from api.series.metrics import METRICS, MetricKind, Statistic
from api.series.models import SeriesCoverage, SeriesMinute, SeriesQueue, SeriesRollup
from api.series.reading import MetricQuery, MetricSpan, SeriesReader
from api.series.rolling import Bucket, buckets_due, remove_old, roll_up
from tests.api.series.scene import LONG_AGO, NOON, QUEUE, after, hold, look, meter, values
from tests.support.control_plane import Caller

pytestmark = pytest.mark.django_db


def scene(account: str) -> None:
    """Ten minutes: 1, 2, .. 10 messages sent; 10 waiting from the third minute to the seventh."""
    look(after(0))
    total = 0
    for minute in range(10):
        total += minute + 1
        meter(account, NOON, messages_sent=total, sent_bytes=total * 10)
        look(after(minute + 0.5))
    hold(account, after(2), 10, oldest=after(1))
    hold(account, after(7), 0)
    look(after(10))


def test_bucket_is_the_sum_of_its_minutes_and_the_mean_over_its_time(caller: Caller) -> None:
    scene(caller.account_id)
    assert roll_up(Bucket(5, after(0))) and roll_up(Bucket(5, after(5)))
    first, second = SeriesRollup.objects.filter(queue_uuid=QUEUE).order_by("at")
    assert (first.messages_sent, second.messages_sent) == (15, 40)
    assert (first.waiting_mean, first.waiting_low, first.waiting_high, first.waiting) == (6, 0, 10, 10)
    assert (second.waiting_mean, second.waiting_low, second.waiting_high, second.waiting) == (4, 0, 10, 0)
    assert (first.age_s_low, first.age_s_high, second.age_s_high) == (0, 240, 360)
    assert first.age_s_mean == pytest.approx((60 + 240) / 2 * 3 / 5)


def test_rolled_points_are_those_of_the_minutes(caller: Caller) -> None:
    account = caller.account_id
    scene(account)
    names = ("NumberOfMessagesSent", "SentMessageSize", "ApproximateNumberOfMessagesVisible")
    fine = [values(account, name, after(0), after(10), 300) for name in names]
    assert fine[0] == {0: 15, 5: 40} and fine[1] == {0: 10, 5: 10} and fine[2] == {0: 6, 5: 4}
    roll_up(Bucket(5, after(0)))
    SeriesMinute.objects.filter(at__lt=after(5)).delete()
    assert [values(account, name, after(0), after(10), 300) for name in names] == fine


def test_metrics_that_are_read_together_are_those_read_alone(
    caller: Caller, django_assert_num_queries: Callable[..., Any]
) -> None:
    scene(caller.account_id)
    roll_up(Bucket(5, after(0)))
    SeriesMinute.objects.filter(at__lt=after(5)).delete()
    span = MetricSpan(after(1), after(10))
    asked = [MetricQuery(QUEUE, LONG_AGO, metric, one, 300) for metric in METRICS.values() for one in metric.statistics]
    alone = [SeriesReader(caller.account_id, span, after(10)).points(query) for query in asked]
    seen = {query.metric.kind for query, found in zip(asked, alone, strict=True) if any(one.value for one in found)}
    assert seen == set(MetricKind), "there is something to compare"
    together = SeriesReader(caller.account_id, span, after(10))
    together.read_together(QUEUE, METRICS.values(), 300)
    with django_assert_num_queries(0):
        assert [together.points(query) for query in asked] == alone
        flows = [query for query in asked if query.statistic is Statistic.SUM]
        totals = [sum(point.value for point in together.points(query)) for query in flows]
        assert [together.total(query) for query in flows] == totals and 55 in totals


def test_bucket_is_rolled_up_once(caller: Caller) -> None:
    scene(caller.account_id)
    assert roll_up(Bucket(5, after(0))) and not roll_up(Bucket(5, after(0)))
    assert SeriesRollup.objects.filter(queue_uuid=QUEUE).count() == 1


def test_buckets_are_due_in_order_once_they_are_over(caller: Caller) -> None:
    assert list(buckets_due(NOON)) == []
    scene(caller.account_id)
    due = list(buckets_due(after(12)))
    assert due == [Bucket(5, after(0)), Bucket(5, after(5))]
    roll_up(due[0])
    assert list(buckets_due(after(12))) == [Bucket(5, after(5))]
    assert Bucket(60, after(-20)) in list(buckets_due(after(50)))


def test_bucket_without_a_look_is_a_gap(caller: Caller) -> None:
    scene(caller.account_id)
    roll_up(Bucket(5, after(100)))
    assert SeriesCoverage.objects.get(minutes=5).covered == 0
    assert values(caller.account_id, "NumberOfMessagesSent", after(100), after(105), 300) == {}


def test_level_holds_over_buckets_without_a_row(caller: Caller) -> None:
    account = caller.account_id
    for minute in range(60):
        look(after(minute))
    meter(account, after(20), messages_sent=3)
    look(after(20.5))
    hold(account, after(21), 3)
    for first in range(0, 60, 5):
        roll_up(Bucket(5, after(first)))
    SeriesMinute.objects.all().delete()
    depth = values(account, "ApproximateNumberOfMessagesVisible", after(0), after(60), 300, "Maximum")
    assert depth == {first: 0.0 if first < 20 else 3.0 for first in range(0, 60, 5)}


def test_old_rows_go_and_young_ones_stay(caller: Caller) -> None:
    account = caller.account_id
    scene(account)
    roll_up(Bucket(5, after(0)))
    roll_up(Bucket(60, after(-20)))
    remove_old(after(30))
    assert SeriesMinute.objects.count() == 20 and SeriesRollup.objects.count() == 4
    assert not SeriesQueue.objects.filter(queue_uuid=QUEUE).exists(), "there is no such queue"
    assert SeriesQueue.objects.count() == 1, "the account is there"
    remove_old(NOON + timedelta(hours=limits.MINUTES_KEPT_HOURS, minutes=30))
    assert not SeriesMinute.objects.exists() and not SeriesCoverage.objects.filter(minutes=1).exists()
    remove_old(NOON + timedelta(days=limits.FIVE_MINUTES_KEPT_DAYS, minutes=30))
    assert {row.minutes for row in SeriesRollup.objects.all()} == {60}
    remove_old(NOON + timedelta(days=limits.HOURS_KEPT_DAYS, minutes=30))
    assert not SeriesRollup.objects.exists()
