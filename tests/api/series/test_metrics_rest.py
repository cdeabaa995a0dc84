"""Metrics over REST: several queries in one call, bounds, own account, own action; text for Prometheus."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from api import clock
from api.billing.pricing.periods import floor_hour
from api.queues.models import Queue
from api.series import limits
from api.series.models import SeriesClock, SeriesCoverage, SeriesMinute, SeriesQueue
from tests.api.billing.usage import make_queue
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db
DATA = "/v1/metrics/data"


@pytest.fixture
def start() -> datetime:
    """Two hours ago, at a full hour: all since is known."""
    now = clock.now()
    begins = floor_hour(now) - timedelta(hours=2)
    SeriesCoverage.objects.bulk_create(
        [SeriesCoverage(minutes=1, at=begins + timedelta(minutes=minute), covered=1) for minute in range(120)]
    )
    SeriesClock.objects.create(complete_at=now)
    return begins


def queue_of(account: str, name: str, start: datetime) -> uuid.UUID:
    queue = make_queue(account, name)
    Queue.objects.filter(uuid=queue).update(created_at=start - timedelta(days=9))
    return queue


def ask(start: datetime, *queries: dict[str, Any], hours: float = 1) -> dict[str, Any]:
    shaped = [{"id": f"q{number}", "queue": "orders", **query} for number, query in enumerate(queries)]
    end = start + timedelta(hours=hours)
    return {"start": start.isoformat(), "end": end.isoformat(), "queries": shaped}


def test_several_queries_are_answered_in_one_call(caller: Caller, start: datetime) -> None:
    queue = queue_of(caller.account_id, "orders", start)
    SeriesMinute.objects.create(
        account_id=caller.account_id, queue_uuid=queue, at=start + timedelta(minutes=7), messages_sent=12,
        sent_bytes=36, waiting=12, in_flight=0, delayed=0, oldest_sent_ms=0,
    )  # fmt: skip
    sent = {"metric": "NumberOfMessagesSent", "period_s": 1800}
    depth = {"metric": "ApproximateNumberOfMessagesVisible", "statistic": "Maximum", "period_s": 3600}
    answer = caller.request("POST", DATA, ask(start, sent, depth, {"metric": "SentMessageSize"}))
    assert answer.status_code == 200, answer.json()
    first, second, third = answer.json()["results"]
    assert (first["id"], first["statistic"], first["unit"], first["values"]) == ("q0", "Sum", "Count", [12, 0])
    assert datetime.fromisoformat(first["timestamps"][1]) == start + timedelta(minutes=30)
    assert second["values"] == [12] and third["values"] == [3], "no size where nothing was sent"
    assert answer.json()["collected_up_to"]


def test_queue_of_another_account_is_none(caller: Caller, start: datetime) -> None:
    queue_of(new_caller("stranger").account_id, "orders", start)
    answer = caller.request("POST", DATA, ask(start, {"metric": "NumberOfMessagesSent"}))
    assert answer.status_code == 400 and "no queue orders" in answer.text


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"metric": "CPUUtilization"}, "must be one of NumberOfMessagesSent"),
        ({"metric": "NumberOfMessagesSent", "statistic": "Maximum"}, "Sum, Average"),
        ({"metric": "NumberOfMessagesSent", "period_s": 90}, "multiple of 60"),
        ({"metric": "NumberOfMessagesSent", "period_s": 30}, "60"),
        ({"metric": "NumberOfMessagesSent", "period": 60}, "not known"),
        ({"metric": "NumberOfMessagesSent", "id": "1"}, "id"),
    ],
)
def test_query_that_cannot_be_answered_is_refused_with_the_reason(
    caller: Caller, start: datetime, query: dict[str, Any], says: str
) -> None:
    queue_of(caller.account_id, "orders", start)
    answer = caller.request("POST", DATA, ask(start, query))
    assert answer.status_code == 400 and says in answer.text, answer.text


def test_bounds_of_one_call(caller: Caller, start: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_of(caller.account_id, "orders", start)
    query = {"metric": "NumberOfMessagesSent", "period_s": 60}
    many = ask(start, *[query] * (limits.METRIC_QUERIES_MAX + 1))
    assert caller.request("POST", DATA, many).status_code == 400
    assert caller.request("POST", DATA, ask(start, query, hours=-1)).status_code == 400
    assert caller.request("POST", DATA, ask(start, query, {**query, "id": "q0"})).status_code == 400
    monkeypatch.setattr(limits, "METRIC_STEPS_MAX", 100)
    assert caller.request("POST", DATA, ask(start, query)).status_code == 200
    refused = caller.request("POST", DATA, ask(start, query, query))
    assert refused.status_code == 400 and "too much for one call" in refused.text


def test_old_points_need_long_periods(caller: Caller, start: datetime) -> None:
    queue_of(caller.account_id, "orders", start)
    for days, period_s, status in ((2, 60, 400), (2, 300, 200), (10, 300, 400), (10, 3600, 200), (500, 3600, 400)):
        query = {"metric": "NumberOfMessagesSent", "period_s": period_s}
        answer = caller.request("POST", DATA, ask(start - timedelta(days=days), query))
        assert answer.status_code == status, (days, period_s, answer.text)


def test_points_begin_with_the_queue(caller: Caller, start: datetime) -> None:
    queue = queue_of(caller.account_id, "orders", start)
    Queue.objects.filter(uuid=queue).update(created_at=start + timedelta(minutes=50))
    query = {"metric": "NumberOfMessagesSent", "period_s": 300}
    (result,) = caller.request("POST", DATA, ask(start, query)).json()["results"]
    assert len(result["values"]) == 2


def test_metrics_are_listed_with_what_can_be_asked_of_them(caller: Caller) -> None:
    found = {one["name"]: one for one in caller.request("GET", "/v1/metrics").json()["metrics"]}
    assert found["ApproximateAgeOfOldestMessage"]["statistics"] == ["Maximum", "Average", "Minimum"]
    assert "NumberOfMessagesSent" in found


def test_prometheus_reads_the_queues_of_its_account(
    caller: Caller, start: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(caller.account_id, "orders", start)
    make_queue(caller.account_id, "other.fifo")
    stranger = new_caller("stranger")
    make_queue(stranger.account_id, "secret")
    sent_ms = int((clock.now() - timedelta(seconds=50)).timestamp() * 1000)
    SeriesQueue.objects.create(
        account_id=caller.account_id, queue_uuid=queue, messages_sent=7, waiting=3, oldest_sent_ms=sent_ms
    )
    answer = caller.request("GET", "/v1/metrics/prometheus")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'penstock_queue_messages_sent_total{queue="orders"} 7.0' in answer.text
    assert 'penstock_queue_messages_visible{queue="orders"} 3.0' in answer.text
    assert 'penstock_queue_messages_sent_total{queue="other.fifo"} 0.0' in answer.text
    age = next(
        line for line in answer.text.splitlines() if line.startswith("penstock_queue_oldest") and "orders" in line
    )
    assert 49 < float(age.split()[-1]) < 90
    assert "secret" not in answer.text and caller.account_id not in answer.text
    assert "other" not in caller.request("GET", "/v1/metrics/prometheus?prefix=ord").text
    monkeypatch.setattr(limits, "SCRAPED_QUEUES_MAX", 1)
    bounded = caller.request("GET", "/v1/metrics/prometheus").text
    assert "penstock_queues_left_out 1.0" in bounded and "other" not in bounded


@pytest.mark.parametrize(
    ("method", "path"), [("POST", DATA), ("GET", "/v1/metrics"), ("GET", "/v1/metrics/prometheus")]
)  # fmt: skip
def test_metrics_ask_for_their_own_action(method: str, path: str) -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": ["sqs:*", "penstock:GetAccount"], "Resource": "*"}],
    }
    assert restricted(policy).request(method, path, {} if method == "POST" else None).status_code == 403


def restricted(policy: dict[str, Any]) -> Caller:
    caller = new_caller()
    made = caller.request("POST", "/v1/keys", {"name": "scrape", "policy": policy})
    assert made.status_code == 201, made.text
    return caller._replace(access_key_id=made.json()["access_key_id"])
