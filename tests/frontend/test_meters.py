"""Counters and histograms of requests: what Prometheus sees is what was observed, however much of it was sorted."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

import pytest

from frontend.metering.meters import BUCKETS_S, OBSERVED_MAX, Meters


def shown(meters: Meters) -> dict[tuple[str, str, str], float]:
    """By name of the sample, outcome and bound."""
    return {
        (sample.name, sample.labels.get("outcome", ""), sample.labels.get("le", "")): sample.value
        for metric in meters.collect()
        for sample in metric.samples
    }


@pytest.mark.parametrize("count", [0, 1, OBSERVED_MAX - 1, OBSERVED_MAX, 2 * OBSERVED_MAX + 7])
def test_every_request_is_in_its_bucket(count: int) -> None:
    random, meters = Random(count), Meters()
    times_s = [random.choice((*BUCKETS_S, random.random() * 40)) for _ in range(count)]
    for seconds in times_s:
        meters.observe("sqs", "SendMessage", "ok", seconds)
        assert len(meters._observed.get(("sqs", "SendMessage", "ok"), ())) < OBSERVED_MAX
    meters.observe("sqs", "SendMessage", "OverLimit", 100.0)
    for _ in range(2):  # to be looked at changes nothing
        found = shown(meters)
        assert found.get(("penstock_requests_total", "ok", ""), 0) == count
        assert found["penstock_requests_total", "OverLimit", ""] == 1
        for at, bound_s in enumerate(BUCKETS_S):
            below = sum(bisect_left(BUCKETS_S, seconds) <= at for seconds in times_s)
            assert found["penstock_request_seconds_bucket", "", str(bound_s)] == below
        assert found["penstock_request_seconds_bucket", "", "+Inf"] == count + 1
        assert found["penstock_request_seconds_sum", "", ""] == pytest.approx(sum(times_s) + 100)


def test_counter_of_something_counted_elsewhere_is_read_when_somebody_looks() -> None:
    meters, seen = Meters(), [3]
    meters.counter("connections_refused", lambda: seen[0])
    assert shown(meters)["penstock_connections_refused_total", "", ""] == 3
    seen[0] = 5
    assert shown(meters)["penstock_connections_refused_total", "", ""] == 5
