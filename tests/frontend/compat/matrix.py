"""The matrix: what SQS documents of each action, and the tests that ask it. `test_matrix.py` finds an empty cell.

successes   cases that end well
errors      of the model: cases, limits and marked tests that end so; or why it can never come
limits      of `documented.py`: a card in `bounds.py`, or a marked test where time or the other planes decide
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.frontend.compat.bounds import LIMITS
from tests.frontend.compat.cases import CASES
from tests.frontend.compat.documented import BOUNDS, OPERATIONS, QUERY_CODES, Bound, asked_for, errors_of, why_never
from tests.frontend.compat.scene import Limit

TESTS = Path(__file__).resolve().parents[2]


class Mark(NamedTuple):
    """A test that says `@covers(...)`."""

    action: str
    error: str
    limit: str
    test: str


class Row(NamedTuple):
    """An action. Of each error and limit the tests that ask it."""

    action: str
    successes: list[str]
    errors: dict[str, list[str]]
    limits: dict[str, list[str]]

    @property
    def never(self) -> list[str]:
        return [error for error in self.errors if why_never(self.action, error)]


@cache
def rows() -> tuple[Row, ...]:
    return tuple(_row(action) for action in OPERATIONS)


def bound_of(limit: Limit) -> Bound:
    (found,) = (one for one in BOUNDS if (one.action, one.what) == (limit.action, limit.what))
    return found


@cache
def marks() -> tuple[Mark, ...]:
    """Of all tests of the repository."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text()
        if "@covers(" in source:
            found += marks_in(source, str(path.relative_to(TESTS.parent)))
    return tuple(found)


def marks_in(source: str, path: str) -> list[Mark]:
    return [
        _mark(decorator, f"{path}::{node.name}")
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "covers"
    ]


def _mark(call: ast.Call, test: str) -> Mark:
    words = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return Mark(ast.literal_eval(call.args[0]), words.get("error", ""), words.get("limit", ""), test)


def _row(action: str) -> Row:
    mine = [case for case in CASES if case.action == action]
    return Row(
        action,
        [case.what for case in mine if not case.code and not case.entry_code],
        {error: _asks_of_error(action, error) for error in errors_of(action)},
        {bound.what: _asks_of_limit(bound) for bound in BOUNDS if bound.action == action},
    )


def _asks_of_error(action: str, error: str) -> list[str]:
    code = QUERY_CODES.get(error, error)
    found = [case.what for case in CASES if case.action == action and code in (case.code, case.entry_code)]
    found += [f"limit: {one.what}" for one in LIMITS if one.action == action and code in (one.code, one.below)]
    for mark in marks():
        everywhere = mark.action == "*" and action in asked_for(error)
        if mark.error == error and (everywhere or mark.action == action):
            found.append(mark.test)
    return found


def _asks_of_limit(bound: Bound) -> list[str]:
    found = [limit.what for limit in LIMITS if (limit.action, limit.what) == (bound.action, bound.what)]
    return found + [mark.test for mark in marks() if (mark.action, mark.limit) == (bound.action, bound.what)]
