"""Texts of policies as tokens: wildcards, variables, and the characters themselves."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.authz.policy_error import PolicyError
from frontend.authz.template import Token, Variable, Wild, merge, parse_template, resolve, split_at_colons

RUN, ONE = Wild.RUN, Wild.ONE


def tokens(text: str, *, wildcards: bool = True, variables: bool = True) -> list[Token]:
    return list(parse_template("$", text, wildcards=wildcards, variables=variables))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("a*b?", ["a", RUN, "b", ONE]),
        ("a**b", ["a", RUN, "b"]),
        ("${aws:username}", [Variable("aws:username", None)]),
        ("a${aws:username}*", ["a", Variable("aws:username", None), RUN]),
        ("${aws:PrincipalTag/a b}", [Variable("aws:PrincipalTag/a b", None)]),
        ("${aws:username, 'no one'}", [Variable("aws:username", "no one")]),
        ("${aws:username, ''}", [Variable("aws:username", "")]),
        ("${*}${?}${$}{x}", ["*?${x}"]),
        ("a${*}", ["a*"]),
        ("${", ["${"]),
        ("a${aws:username", ["a${aws:username"]),
        ("$aws:username}", ["$aws:username}"]),
        ("${a${b}", [Variable("a${b", None)]),
    ],
)
def test_text_is_cut_into_tokens(text: str, expected: list[Token]) -> None:
    assert tokens(text) == expected


def test_variables_are_plain_text_where_there_are_none() -> None:
    assert tokens("${aws:username}${?}", variables=False) == ["${aws:username}${", ONE, "}"]


def test_wildcards_are_plain_text_where_there_are_none() -> None:
    assert tokens("a*${*}?", wildcards=False) == ["a**?"]


@pytest.mark.parametrize(
    "text", ["${}", "${ }", "${aws:user name}", "${aws:username,'x'}", "${aws:username, x}", "${aws:username, 'x}",
             "${aws:username, 'a'b'}", "${, 'x'}"]
)  # fmt: skip
def test_variable_that_names_no_key_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        tokens(text)


def test_value_in_the_place_of_a_variable_is_plain_text() -> None:
    resolved = resolve(tokens("a${aws:username}?"), {"aws:username": "b*"}.get)
    assert resolved == ("ab*", ONE)


@pytest.mark.parametrize(
    ("value", "default", "expected"),
    [("x", "d", ("x",)), (None, "d", ("d",)), ("", "d", ()), (None, "", ()), (None, None, None)],
)
def test_default_stands_where_there_is_no_value(
    value: str | None, default: str | None, expected: tuple[Token, ...] | None
) -> None:
    assert resolve([Variable("k", default)], lambda key: value) == expected


@given(st.lists(st.sampled_from([RUN, ONE, "", "a", "b:c"]), max_size=8))
def test_merged_tokens_have_no_neighbours_of_a_kind(given_tokens: list[Token]) -> None:
    merged = merge(given_tokens)
    for one, other in pairwise(merged):
        assert not (isinstance(one, str) and isinstance(other, str)) and (one, other) != (RUN, RUN)
    before, after = (
        "".join(one.value if isinstance(one, Wild) else str(one) for one in some) for some in (given_tokens, merged)
    )
    assert re.sub(r"\*+", "*", before) == after


@given(st.text("ab:", max_size=12), st.integers(1, 6))
def test_text_is_split_at_its_first_colons(text: str, parts_max: int) -> None:
    parts = ["".join(map(str, part)) for part in split_at_colons([text], parts_max)]
    assert parts == text.split(":", parts_max - 1)


def test_wildcards_split_nothing() -> None:
    assert split_at_colons(["a:b", RUN, ":c:d"], 3) == [("a",), ("b", RUN), ("c:d",)]
