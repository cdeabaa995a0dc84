"""The values of a metric from its steps: pure."""

from __future__ import annotations

import pytest

from api.series.limits import LEVEL_HELD_S
from api.series.metrics import METRICS, Statistic
from api.series.points import Held, SeriesStep, StepRow, points_of

FLOW, SIZE = METRICS["NumberOfMessagesSent"], METRICS["SentMessageSize"]
LEVEL, AGE = METRICS["ApproximateNumberOfMessagesVisible"], METRICS["ApproximateAgeOfOldestMessage"]


def minutes(count: int, *gaps: int) -> list[SeriesStep]:
    return [SeriesStep(number * 60, 60, 0 if number in gaps else 60) for number in range(count)]


def level(last: int) -> StepRow:
    return StepRow(0, 0, last, last, last, last)


@pytest.mark.parametrize(
    ("statistic", "expected"), [(Statistic.SUM, [7.0, 0.0]), (Statistic.AVERAGE, [7 / 5, 0.0])]
)  # fmt: skip
def test_flow_is_summed_and_averaged_a_minute(statistic: Statistic, expected: list[float]) -> None:
    rows = {0: StepRow(3), 240: StepRow(4)}
    found = points_of(FLOW, statistic, 300, minutes(10), rows)
    assert [point.at_s for point in found] == [0, 300] and [point.value for point in found] == expected


def test_average_of_a_flow_counts_the_minutes_that_are_known() -> None:
    (point,) = points_of(FLOW, Statistic.AVERAGE, 300, minutes(5, 3, 4), {0: StepRow(6)})
    assert point.value == 2


def test_period_of_which_nothing_is_known_has_no_value() -> None:
    found = points_of(FLOW, Statistic.SUM, 60, minutes(4, 1, 2), {120: StepRow(5)})
    assert [(point.at_s, point.value) for point in found] == [(0, 0), (120, 5), (180, 0)]


def test_size_is_that_of_a_message_and_none_where_none_was_sent() -> None:
    found = points_of(SIZE, Statistic.AVERAGE, 60, minutes(3), {0: StepRow(10, 1), 120: StepRow(90, 3)})
    assert [(point.at_s, point.value) for point in found] == [(0, 10), (120, 30)]


@pytest.mark.parametrize(
    ("statistic", "expected"), [(Statistic.AVERAGE, 6.0), (Statistic.MINIMUM, 2.0), (Statistic.MAXIMUM, 10.0)]
)  # fmt: skip
def test_level_holds_and_its_mean_is_over_time(statistic: Statistic, expected: float) -> None:
    (point,) = points_of(LEVEL, statistic, 240, minutes(4), {120: level(10)}, Held(-60, 2))
    assert point.value == expected


def test_level_that_nothing_repeats_is_that_of_an_empty_queue() -> None:
    (point,) = points_of(LEVEL, Statistic.MAXIMUM, 60, minutes(1), {}, Held(-LEVEL_HELD_S - 60, 5))
    assert point.value == 0


def test_age_grows_while_the_oldest_message_waits() -> None:
    found = points_of(AGE, Statistic.MAXIMUM, 60, minutes(3), {}, Held(-60, -30_000))
    assert [point.value for point in found] == [90, 150, 210]
