"""The state of an alarm from the values of its last periods. Pure.

    OK                  fewer periods breach than make the alarm
    ALARM               so many of the periods breach the threshold
    INSUFFICIENT_DATA   nothing is known, and the alarm does not say what that means

Names are those of CloudWatch.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from typing import NamedTuple


class AlarmState(enum.StrEnum):
    OK = "OK"
    ALARM = "ALARM"
    NO_DATA = "INSUFFICIENT_DATA"


class Comparison(enum.StrEnum):
    ABOVE = "GreaterThanThreshold"
    AT_LEAST = "GreaterThanOrEqualToThreshold"
    BELOW = "LessThanThreshold"
    AT_MOST = "LessThanOrEqualToThreshold"


class MissingData(enum.StrEnum):
    """What a period without a value means."""

    MISSING = "missing"
    IGNORE = "ignore"
    BREACHING = "breaching"
    NOT_BREACHING = "notBreaching"


_BREACHES = {
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
}
COMPARED_IN_WORDS = {
    Comparison.ABOVE: "above",
    Comparison.AT_LEAST: "at least",
    Comparison.BELOW: "below",
    Comparison.AT_MOST: "at most",
}


class AlarmRule(NamedTuple):
    """ALARM where `breaching` of the last `periods` breach."""

    comparison: Comparison
    threshold: float
    periods: int
    breaching: int
    missing: MissingData


class Judgement(NamedTuple):
    state: AlarmState
    reason: str


def judge(rule: AlarmRule, values: Sequence[float | None], before: AlarmState) -> Judgement:
    """`values` of the last periods, the earliest first; None: nothing is known."""
    assert len(values) == rule.periods
    known = [value for value in values if value is not None]
    if not known and rule.missing in (MissingData.MISSING, MissingData.IGNORE):
        state = before if rule.missing is MissingData.IGNORE else AlarmState.NO_DATA
        return Judgement(state, f"No data for {_periods(rule.periods)}.")
    breaches = sum(_BREACHES[rule.comparison](value, rule.threshold) for value in known)
    if rule.missing is MissingData.BREACHING:
        breaches += len(values) - len(known)
    text = f"{breaches} of {_periods(rule.periods)} {'is' if 1 in (breaches, rule.periods) else 'are'} {said(rule)}"
    if known:
        text += f"; the last value is {known[-1]:g}"
    return Judgement(AlarmState.ALARM if breaches >= rule.breaching else AlarmState.OK, f"{text}.")


def said(rule: AlarmRule) -> str:
    return f"{COMPARED_IN_WORDS[rule.comparison]} {rule.threshold:g}"


def _periods(count: int) -> str:
    return "1 period" if count == 1 else f"{count} periods"
