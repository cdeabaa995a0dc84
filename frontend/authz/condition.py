"""One condition of a statement: an operator, a key, values; compiled to a function of the request. Pure.

| value of the key | plain operator | negated | IfExists | ForAllValues | ForAnyValue |
|---|---|---|---|---|---|
| missing | false | true | true | true | false |
| one | one of the policy's values fits | none fits | as without it | as a list of one | as a list of one |
| several | false | false | false | each passes | at least one passes |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import NamedTuple

from frontend.authz.condition_operators import NULL, Comparison, OperatorUse, SetOperator
from frontend.authz.condition_values import read_number, read_time_ns
from frontend.authz.context_keys import ReadKey
from frontend.authz.request_context import RequestContext

Check = Callable[[RequestContext], bool]


class Condition(NamedTuple):
    """`label` is what a simulation calls it: the operator and the key, as they are written."""

    label: str
    holds: Check


def compile_check(use: OperatorUse, read: ReadKey, given: Sequence[tuple[str, str]], variables: bool) -> Check:
    """`given` are values of the policy with their paths. Raises PolicyError."""
    fits = use.operator.compare(given, variables)
    if use.operator is NULL:
        return _null(read, fits)
    if use.set_operator is SetOperator.NONE:
        return _single(read, fits, use.operator.negated, use.operator.negated or use.if_exists)
    return _set(read, fits, use.operator.negated, use.set_operator)


def edges_s_of(use: OperatorUse, values: Sequence[str]) -> frozenset[int] | None:
    """The whole seconds at which a comparison of the time with these values may change its answer: each value itself,
    and the second behind it. None: the operator compares something else than times."""
    if use.operator.family == "Date":
        times_ns = [read_time_ns(text) for text in values]
        seconds = [None if at_ns is None else at_ns // 1_000_000_000 for at_ns in times_ns]
    elif use.operator.family == "Numeric":
        numbers = [read_number(text) for text in values]
        seconds = [None if number is None else floor(number) for number in numbers]
    else:
        return None
    if None in seconds:
        return None
    return frozenset(edge for second in seconds if second is not None for edge in (second, second + 1))


def _null(read: ReadKey, fits: Comparison) -> Check:
    """`"true"` holds where the key is absent, `"false"` where it is present."""

    def holds(request: RequestContext) -> bool:
        return fits("true" if read(request) is None else "false", request)

    return holds


def _single(read: ReadKey, fits: Comparison, negated: bool, if_missing: bool) -> Check:
    def holds(request: RequestContext) -> bool:
        value = read(request)
        if value is None:
            return if_missing
        return isinstance(value, str) and fits(value, request) is not negated

    return holds


def _set(read: ReadKey, fits: Comparison, negated: bool, set_operator: SetOperator) -> Check:
    quantifier = all if set_operator is SetOperator.FOR_ALL_VALUES else any

    def holds(request: RequestContext) -> bool:
        value = read(request)
        several = () if value is None else (value,) if isinstance(value, str) else value
        return quantifier(fits(one, request) is not negated for one in several)

    return holds
