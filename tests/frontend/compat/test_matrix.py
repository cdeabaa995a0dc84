"""Each action of botocore's model has a test for its success, for each of its errors, and for each of its limits."""

from __future__ import annotations

import pytest

from tests.frontend.compat.bounds import LIMITS
from tests.frontend.compat.cases import CASES
from tests.frontend.compat.documented import (
    BOUNDS,
    DEFAULTS,
    GUIDE,
    NEVER,
    OPERATIONS,
    OURS,
    SERVERS,
    UNBOUNDED,
    Bound,
    asked_for,
    errors_of,
    members_of,
    prose_of,
    why_never,
)
from tests.frontend.compat.matrix import Row, marks, marks_in, rows

each_action = pytest.mark.parametrize("row", rows(), ids=lambda row: row.action)


def test_all_actions_of_the_model_have_a_row() -> None:
    assert [row.action for row in rows()] == list(OPERATIONS)
    assert len(rows()) == 23, "AWS has changed the API: read what is new, then change this number"


@each_action
def test_action_is_seen_to_succeed(row: Row) -> None:
    assert row.successes


@each_action
def test_every_error_of_the_model_is_asked_or_cannot_come(row: Row) -> None:
    for error, tests in row.errors.items():
        why = why_never(row.action, error)
        assert tests or why, f"no test sees {row.action} end in {error}: add a Case, or say in NEVER why it cannot"
        assert not (tests and why), f"NEVER says that {row.action} cannot end in {error}, but it does: {tests}"


@each_action
def test_every_limit_is_asked_at_below_and_above(row: Row) -> None:
    for what, tests in row.limits.items():
        assert tests, f"nothing asks {row.action} for {what}: add a Limit, or a test with @covers"


@pytest.mark.parametrize("action", OPERATIONS)
def test_every_member_is_bounded_or_said_not_to_be(action: str) -> None:
    bounded = {bound.of for bound in BOUNDS if bound.action == action}
    for member in members_of(action):
        assert (member in bounded) != (member in UNBOUNDED), f"{action}: has {member} a limit, or none?"
    assert bounded - {""} <= set(members_of(action))


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: f"{bound.action}: {bound.what}")
def test_limit_is_quoted_from_the_model_where_the_model_has_it(bound: Bound) -> None:
    assert bound.low <= bound.high
    assert bound.says in (GUIDE, SERVERS, OURS) or bound.says in prose_of(bound.action)


def test_nothing_is_said_twice_or_of_what_is_not_there() -> None:
    bounds = [(one.action, one.what) for one in BOUNDS]
    assert len(set(bounds)) == len(bounds)
    cards = [(one.action, one.what) for one in LIMITS]
    assert len(set(cards)) == len(cards) and set(cards) <= set(bounds)
    cases = [(one.action, one.what) for one in CASES]
    assert len(set(cases)) == len(cases) and {action for action, _ in (*cases, *DEFAULTS)} <= set(OPERATIONS)
    for never in NEVER:
        assert all(never.error in errors_of(action) for action in never.actions), never
        assert any(never.error in errors_of(action) for action in OPERATIONS), never
    for mark in marks():
        if mark.limit:
            assert (mark.action, mark.limit) in bounds, f"{mark.test} covers a limit that is not documented"
        elif mark.action == "*":
            assert asked_for(mark.error), mark
        else:
            assert mark.error in errors_of(mark.action), mark


def test_mark_is_read_from_the_source() -> None:
    source = '@other\n@covers("A", limit="b")\nasync def test_c() -> None: ...\ndef test_d() -> None: ...\n'
    assert marks_in(source, "tests/x.py") == [("A", "", "b", "tests/x.py::test_c")]
