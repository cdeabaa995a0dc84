"""Charts of a queue and of the account: what they show, where nothing is known, and who sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest

from api import clock
from api.queues.models import Queue
from api.series.collecting import OF_ACCOUNT, minute_of
from api.series.models import SeriesClock, SeriesCoverage, SeriesMinute, SeriesQueue
from tests.console.browsing import Browser, queue_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def orders(ann: Browser) -> Any:
    """12 messages were sent a quarter of an hour ago; the last half hour is known."""
    queue = queue_row(ann.account_id, "orders")
    now = clock.now()
    Queue.objects.filter(pk=queue.pk).update(created_at=now - timedelta(days=9))
    SeriesCoverage.objects.bulk_create(
        [SeriesCoverage(minutes=1, at=minute_of(now - timedelta(minutes=back)), covered=1) for back in range(30)]
    )
    SeriesClock.objects.create(complete_at=now)
    for uuid in (queue.uuid, OF_ACCOUNT):
        SeriesMinute.objects.create(
            account_id=ann.account_id, queue_uuid=uuid, at=minute_of(now - timedelta(minutes=15)), messages_sent=12,
            waiting=12, in_flight=0, delayed=0, oldest_sent_ms=0,
        )  # fmt: skip
    oldest_ms = int((now - timedelta(hours=3)).timestamp() * 1000)
    SeriesQueue.objects.create(
        account_id=ann.account_id, queue_uuid=queue.uuid, messages_sent=12, waiting=12, oldest_sent_ms=oldest_ms
    )
    return queue


def charts_of(text: str) -> dict[str, list[list[float | None]]]:
    """By title: the columns."""
    found = re.findall(r'aria-label="([^"]+) over [^"]*" data-series="([^"]+)"', text)
    return {title: json.loads(unescape(data)) for title, data in found}


def test_chart_has_a_point_for_each_period_and_gaps_where_nothing_is_known(ann: Browser, orders: Any) -> None:
    text = ann.get(ann.at("queues/orders/charts?span=1h")).content.decode()
    times, sent, received, _ = charts_of(text)["Messages a minute"]
    assert len(times) in (59, 60) and sum(value or 0 for value in sent) == 12
    assert sent.count(None) in (29, 30, 31) and received.count(0) >= 29
    _, waiting, *_ = charts_of(text)["Messages held, at most"]
    assert waiting[-1] == 12, "a level holds"
    assert "Nothing in this time." in text, "no message went to a dead-letter queue"
    assert "<dt>Sent, 1 hour</dt><dd>12</dd>" in text


@pytest.mark.parametrize(("span", "points"), [("24h", 287), ("7d", 167), ("", 59), ("1y", 59)])
def test_span_stands_in_the_address(ann: Browser, orders: Any, span: str, points: int) -> None:
    page = ann.get(ann.at(f"queues/orders/metrics?span={span}")).content.decode()
    chosen = re.findall(r'span=(\w+)" aria-current', page)
    assert chosen == [span if points > 59 else "1h"]
    text = ann.get(ann.at(f"queues/orders/charts?span={span}")).content.decode()
    times = charts_of(text)["Messages a minute"][0]
    assert len(times) - points in (0, 1)


def test_queue_that_was_never_used_says_so(ann: Browser) -> None:
    queue_row(ann.account_id, "new")
    text = ann.get(ann.at("queues/new/charts")).content.decode()
    assert "Nothing was counted yet" in text and "data-series=" not in text


def test_charts_of_another_account_are_not_found(ann: Browser, orders: Any, join: Callable[..., Browser]) -> None:
    from tests.console.browsing import owner

    bob = owner("bob@example.com")
    assert bob.get(ann.at("queues/orders/charts")).status_code == 404
    assert bob.get(bob.at("queues/orders/charts")).status_code == 404


def test_who_may_not_read_metrics_sees_no_charts(
    ann: Browser, orders: Any, join: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = join(ann, "reader")
    assert reader.get(reader.at("queues/orders/charts")).status_code == 200
    from api.people.roles import Act
    from console.visits import AccountVisit

    may = AccountVisit.may
    monkeypatch.setattr(AccountVisit, "may", lambda self, act: act is not Act.READ_METRICS and may(self, act))
    for path in ("queues/orders/charts", "queues/orders/metrics"):
        assert reader.get(reader.at(path)).status_code == 403
    assert reader.get(reader.at("traffic")).content == b""
    assert "/metrics" not in reader.get(reader.at("queues/orders")).content.decode()


def test_overview_shows_the_traffic_of_all_queues_and_who_waits_for_longest(ann: Browser, orders: Any) -> None:
    assert "/traffic" in ann.get(ann.at()).content.decode()
    text = ann.get(ann.at("traffic")).content.decode()
    assert sum(value or 0 for value in charts_of(text)["Messages a minute"][1]) == pytest.approx(12 / 5, abs=0.01)
    assert "<dt>Sent</dt><dd>12</dd>" in text
    assert "orders" in text and "12 waiting, oldest 3 h" in text


def test_charts_read_their_series_together(
    ann: Browser, orders: Any, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    with django_assert_max_num_queries(12):
        text = ann.get(ann.at("traffic")).content.decode()
    assert "<dt>Sent</dt><dd>12</dd>" in text
    with django_assert_max_num_queries(12):
        assert "Dead letters" in ann.get(ann.at("queues/orders/charts?span=24h")).content.decode()
