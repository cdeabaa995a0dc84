"""The state of an alarm from the values of its periods: pure."""

from __future__ import annotations

import pytest

from api.alarms.judging import AlarmRule, AlarmState, Comparison, MissingData, judge

RULE = AlarmRule(Comparison.ABOVE, 10, 3, 2, MissingData.MISSING)
OK, ALARM, NO_DATA = AlarmState.OK, AlarmState.ALARM, AlarmState.NO_DATA


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([0, 11, 12], ALARM),
        ([11, 0, 12], ALARM),
        ([0, 0, 12], OK),
        ([10, 10, 10], OK),
        ([None, 11, 12], ALARM),
        ([None, None, 12], OK),
        ([None, None, None], NO_DATA),
    ],
)
def test_alarm_is_so_many_breaches_among_the_last_periods(values: list[float | None], state: AlarmState) -> None:
    assert judge(RULE, values, OK).state is state


@pytest.mark.parametrize(
    ("comparison", "below", "same", "above"),
    [
        (Comparison.ABOVE, OK, OK, ALARM),
        (Comparison.AT_LEAST, OK, ALARM, ALARM),
        (Comparison.BELOW, ALARM, OK, OK),
        (Comparison.AT_MOST, ALARM, ALARM, OK),
    ],
)
def test_comparisons(comparison: Comparison, below: AlarmState, same: AlarmState, above: AlarmState) -> None:
    rule = AlarmRule(comparison, 10, 1, 1, MissingData.MISSING)
    assert [judge(rule, [value], OK).state for value in (9, 10, 11)] == [below, same, above]


@pytest.mark.parametrize(
    ("missing", "before", "state"),
    [
        (MissingData.MISSING, ALARM, NO_DATA),
        (MissingData.IGNORE, ALARM, ALARM),
        (MissingData.IGNORE, OK, OK),
        (MissingData.BREACHING, OK, ALARM),
        (MissingData.NOT_BREACHING, ALARM, OK),
    ],
)
def test_what_a_period_without_a_value_means(missing: MissingData, before: AlarmState, state: AlarmState) -> None:
    assert judge(RULE._replace(missing=missing), [None] * 3, before).state is state


def test_missing_periods_that_breach_count_with_the_others() -> None:
    rule = RULE._replace(missing=MissingData.BREACHING)
    assert judge(rule, [None, 11, 0], OK).state is ALARM and judge(RULE, [None, 11, 0], OK).state is OK


def test_reason_names_the_breaches_and_the_last_value() -> None:
    assert judge(RULE, [0, 11, 12.5], OK).reason == "2 of 3 periods are above 10; the last value is 12.5."
