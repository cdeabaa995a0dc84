"""The figure that a document puts beside a constant is the constant's value: `WAL_FILE_BYTES (64 MiB)`."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.tidy.repository import PACKAGES, python_files, text
from tests.tidy.test_docs import DOCUMENTS

CONSTANT = r"(?<![\w.])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"
UNITS = {
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "bytes": 1,
    "us": 0.001, "ms": 1, "s": 1_000, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000,
    "%": 1, "": 1,
}  # fmt: skip
QUANTITY = r"([\d,]*\d(?:\.\d+)?)(?: ?(" + "|".join(filter(None, UNITS)) + r"))?(?![\w.])"
# `NAME (8 MiB)`, `NAME = 30`, `NAME, 10 s`, `8 MiB (NAME)`.
BEHIND = re.compile(CONSTANT + r"(?: \(| = |, )" + QUANTITY)
BEFORE = re.compile(QUANTITY + r" \(" + CONSTANT + r"\)")
# What a constant counts in, by a part of its name; times in ms.
IN_MS = {"US": 0.001, "MS": 1, "S": 1_000}


@functools.cache
def values() -> dict[str, set[float]]:
    """Every module-level number that can be computed from other ones, by name; a name may stand in several modules."""
    found: dict[str, set[float]] = {}
    for name in python_files(*PACKAGES):
        known: dict[str, float] = {}
        for node in ast.parse(text(name)).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            value = _computed(node.value, known, found)
            if value is not None:
                known[node.targets[0].id] = value
                found.setdefault(node.targets[0].id, set()).add(value)
    return found


def _computed(node: ast.expr, known: dict[str, float], others: dict[str, set[float]]) -> float | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Name):
        alike = {known[node.id]} if node.id in known else others.get(node.id, set())
        return next(iter(alike)) if len(alike) == 1 else None
    if isinstance(node, ast.BinOp):
        left, right = _computed(node.left, known, others), _computed(node.right, known, others)
        if left is None or right is None:
            return None
        operators = {ast.Mult: left * right, ast.Add: left + right, ast.Sub: left - right}
        return operators.get(type(node.op))
    return None


def figures(prose: str) -> Iterator[tuple[str, float, str]]:
    """(constant, number, unit) of every figure that stands beside one."""
    for match in BEHIND.finditer(prose):
        yield match[1], float(match[2].replace(",", "")), match[3] or ""
    for match in BEFORE.finditer(prose):
        yield match[3], float(match[1].replace(",", "")), match[2] or ""


def is_value(constant: str, number: float, unit: str) -> bool:
    """True also where the value cannot be computed here."""
    factor = next((IN_MS[part] for part in constant.split("_") if part in IN_MS), 1.0)
    known = values().get(constant, set())
    return not known or any(abs(value * (factor if unit else 1) - number * UNITS[unit]) < 1e-6 for value in known)


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name != "CHANGELOG.md"])
def test_document_gives_constants_their_values(document: str) -> None:
    prose = " ".join(text(document).split())
    wrong = [f"{name}: {number:g} {unit}" for name, number, unit in figures(prose) if not is_value(name, number, unit)]
    assert not wrong, f"{document}: the code has other values; correct the document: {wrong}"


@pytest.mark.parametrize(
    ("prose", "is_right"),
    [
        ("WAL_FILE_BYTES (64 MiB)", True),
        ("WAL_FILE_BYTES (32 MiB)", False),
        ("0.6 s (PEER_TIMEOUT_MS)", True),
        ("6 s (PEER_TIMEOUT_MS)", False),
        ("PEER_TIMEOUT_MS = 600", True),
        ("DEDUP_IDS_MAX, 1,000,000;", True),
        ("DEDUP_IDS_MAX, 1,000;", False),
    ],
)
def test_figure_is_held_against_the_code(prose: str, is_right: bool) -> None:
    found = list(figures(prose))
    assert found and all(is_value(*figure) for figure in found) is is_right
