"""Sizes: a function of at most 70 lines, a file of at most 600 (by habit 40 and 300)."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.repository import python_files, statements, text

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600


def long_functions(source: str) -> list[str]:
    found = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(f"{node.name} (line {node.lineno}): {lines} lines")
    return found


def test_files_stay_within_their_length() -> None:
    found = [f"{name}: {count} lines" for name in python_files() if (count := text(name).count("\n")) > FILE_LINES_MAX]
    advice = f"over {FILE_LINES_MAX} lines; move one of the file's nouns to a file of its own:\n"
    assert not found, advice + "\n".join(found)


def test_functions_stay_within_their_length() -> None:
    found = [f"{name}: {line}" for name in python_files() for line in long_functions(text(name))]
    advice = f"over {FUNCTION_LINES_MAX} lines; keep the branches in the top function, move the plain work below it:\n"
    assert not found, advice + "\n".join(found)


@pytest.mark.parametrize(("lines", "long"), [(FUNCTION_LINES_MAX, False), (FUNCTION_LINES_MAX + 1, True)])
def test_long_function_is_found(lines: int, long: bool) -> None:
    source = "def f():\n" + "    pass\n" * (lines - 1)
    assert bool(long_functions(source)) == long


AROUND = ("class C:", "if x:", "if x: y\nelse:", "try: x\nexcept E:", "try: x\nfinally:", "match x:\n case 1:")


@pytest.mark.parametrize("around", AROUND)
def test_long_function_is_found_wherever_it_stands(around: str) -> None:
    source = f"{around}\n  def f():\n" + "    pass\n" * FUNCTION_LINES_MAX
    assert long_functions(source)
