"""Patterns match as the plain definition says, and in steps that grow no faster than pattern and text."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.authz import wildcard
from frontend.authz.template import Wild, merge, parse_template
from frontend.authz.wildcard import Matcher, compile_pattern


def pattern(text: str) -> Matcher:
    return compile_pattern(parse_template("$", text, wildcards=True, variables=False))


def plainly(wanted: str, text: str) -> bool:
    """The definition, as a table of which beginnings of the pattern match which beginnings of the text."""
    row = [True, *(False for _ in text)]
    for part in wanted:
        above = row
        row = [above[0] and part == "*"]
        for at, character in enumerate(text):
            fits = above[at + 1] or row[at] if part == "*" else above[at] and part in ("?", character)
            row.append(fits)
    return row[-1]


# Short pieces between runs: where one ends, the next may begin.
patterns = st.lists(st.text("ab?", max_size=3), min_size=1, max_size=5).map("*".join)


@pytest.mark.parametrize(
    ("wanted", "fitting", "other"),
    [
        ("", [""], ["a"]),
        ("*", ["", "a", "line\nfeed", "a/b:c"], []),
        ("?", ["a", "\n", "☃"], ["", "ab"]),
        ("a", ["a"], ["A", "", "aa"]),
        ("a*", ["a", "ab", "a*"], ["", "ba"]),
        ("*a", ["a", "ba"], ["ab", ""]),
        ("*a*", ["a", "bab"], ["", "b"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("a**a", ["aa", "aba"], ["a"]),
        ("?*", ["a", "ab"], [""]),
        ("*?", ["a", "ab"], [""]),
        ("*?*?*", ["ab", "abc"], ["a"]),
        ("a?c*e?g", ["abcefg", "aXcdeYg"], ["abceg", "abcdeg"]),
        ("*b?d*", ["abcd", "bcdbxd", "bbcd"], ["abd", "bcb"]),
        ("*ab*b*", ["abb", "xab-b"], ["aab", "abx"]),
        ("*ab*ba*", ["abba"], ["aba", "abab"]),
        ("*a?*?b*", ["aabb", "a--b"], ["aab", "abb"]),
        ("*aab*aab", ["aaabaab", "xaab-aab"], ["aab", "aabab"]),
        (".+[a]$", [".+[a]$"], ["xxa"]),
        ("a.c", ["a.c"], ["abc"]),
        ("\\d", ["\\d"], ["1"]),
    ],
)
def test_pattern_matches_the_whole_text(wanted: str, fitting: list[str], other: list[str]) -> None:
    matches = pattern(wanted)
    assert [text for text in [*fitting, *other] if matches(text)] == fitting


@settings(max_examples=300)
@given(patterns, st.text("ab", max_size=12))
def test_pattern_matches_as_the_definition_says(wanted: str, text: str) -> None:
    assert pattern(wanted)(text) == plainly(wanted, text)


@given(st.text("ab?*", max_size=8))
def test_pattern_matches_itself(wanted: str) -> None:
    assert pattern(wanted)(wanted)


@given(st.text("ab?*", max_size=8), st.integers(0, 8), st.text("ab", max_size=10))
def test_wider_pattern_matches_all_that_the_narrower_does(wanted: str, at: int, text: str) -> None:
    wider = f"{wanted[:at]}*{wanted[at + 1 :]}"
    assert pattern(wider)(text) or not pattern(wanted)(text)


# --- steps ---


def steps(matches: Matcher, text: str) -> int:
    """Lines that the matcher runs, whatever they take: a measure that no load on the machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != wildcard.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        matches(text)
    finally:
        sys.settrace(before)
    return count


def hostile(size: int) -> list[tuple[str, str]]:
    """Patterns that take a matcher that tries again a time of a higher power, and texts that nearly match."""
    return [
        ("*a" * size + "b", "a" * (2 * size)),
        ("*?" * size + "b", "a" * (2 * size)),
        ("*a?" * size + "b", "a" * (3 * size)),
        ("*" + "a?" * size + "b", "a" * (4 * size)),
        ("*" + "a" * size + "?b*", "a" * (4 * size)),
        ("*" + "ab" * size + "?*c", "ab" * (2 * size)),
        ("?" * size + "*" + "?" * size, "a" * (2 * size)),
        ("*" * size + "b", "a" * (2 * size)),
        ("a*" * size + "?", "a" * (2 * size)),
    ]


@pytest.mark.parametrize("case", range(len(hostile(1))))
def test_steps_grow_no_faster_than_pattern_and_text(case: int) -> None:
    for size in (16, 256):
        wanted, text = hostile(size)[case]
        assert steps(pattern(wanted), text) <= 12 * (len(wanted) + len(text)) + 64


@settings(max_examples=100)
@given(st.text("ab?*", max_size=60), st.text("ab", max_size=200))
def test_steps_are_few_for_any_pattern(wanted: str, text: str) -> None:
    assert steps(pattern(wanted), text) <= 12 * (len(wanted) + len(text)) + 64


def test_steps_are_counted() -> None:
    """The measure sees what it is to measure: a text without the piece is gone through to its end."""
    assert steps(pattern("*a?b*"), "a" * 500) > 500


def test_pattern_of_tokens_takes_wild_characters_as_text() -> None:
    matches = compile_pattern(merge(["a*", Wild.ONE, "?"]))
    assert matches("a*x?") and not matches("abx?") and not matches("a*xy")
