"""The operators, each at, below and above what it compares with, for missing keys and for values it cannot read."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.authz import PolicyError, PolicyKind, compile_policy
from frontend.authz.condition_operators import OPERATORS
from frontend.authz.request_context import Caller
from tests.frontend.authz.scene import ALICE, NOW_MS, allowed, asked, document, identity, statement

TAG = "aws:PrincipalTag/value"


def with_value(value: str | None) -> Caller:
    return ALICE._replace(tags={} if value is None else {"value": value})


def holds(operator: str, wanted: Any, value: str | None, key: str = TAG, version: str = "2012-10-17") -> bool:
    policy = identity(statement(Condition={operator: {key: wanted}}), version=version)
    return allowed(asked(with_value(value)), policy)


def holding(operator: str, wanted: Any, values: list[str]) -> list[str]:
    return [value for value in values if holds(operator, wanted, value)]


# operator, values of the policy, values of the request that fit, those that do not
TEXTS = [
    ("StringEquals", "a", ["a"], ["A", "", "aa", "a "]),
    ("StringEquals", ["a", "b"], ["a", "b"], ["c"]),
    ("StringEquals", "a*", ["a*"], ["ab", "a"]),
    ("StringEquals", "", [""], ["a"]),
    ("StringEquals", 5, ["5"], ["5.0"]),
    ("StringEquals", True, ["true"], ["True"]),
    ("StringEqualsIgnoreCase", ["aB", "ß"], ["ab", "AB", "ss", "ß"], ["a", ""]),
    ("StringEqualsIgnoreCase", "a*", ["A*"], ["ab"]),
    ("StringLike", "a*", ["a", "ab", "a/b:c\n"], ["A", "ba"]),
    ("StringLike", "a?", ["ab"], ["a", "abc"]),
    ("StringLike", ["x", "*b*"], ["x", "abc"], ["y"]),
    ("StringLike", "a.b", ["a.b"], ["axb"]),
    ("StringLike", "${*}${?}", ["*?"], ["ab"]),
]
NUMBERS = [
    ("NumericEquals", "10", ["10", "10.0", "010", "+10"], ["9", "11", "10.1"]),
    ("NumericEquals", ["1", 2], ["1", "2"], ["3"]),
    ("NumericLessThan", "10", ["9", "9.99", "-10"], ["10", "10.01"]),
    ("NumericLessThanEquals", "10", ["9", "10", "10.0"], ["10.01", "11"]),
    ("NumericGreaterThan", "10", ["11", "10.01"], ["10", "9"]),
    ("NumericGreaterThanEquals", 10, ["10", "11"], ["9", "9.99", "-11"]),
    ("NumericLessThan", ["5", "10"], ["4", "9"], ["10"]),
]
TIMES = [
    ("DateEquals", "2026-11-18T11:06:40Z", ["2026-11-18T11:06:40Z", "1795000000", "2026-11-18T12:06:40+01:00"],
     ["2026-11-18T11:06:39Z", "1795000001"]),
    ("DateLessThan", "2026-11-18", ["2026-11-17T23:59:59Z", "0"], ["2026-11-18", "2026-11-18T00:00:00Z"]),
    ("DateLessThanEquals", "2026-11-18", ["2026-11-17", "2026-11-18T00:00:00Z"], ["2026-11-18T00:00:01Z"]),
    ("DateGreaterThan", "2026", ["2026-01-01T00:00:01Z", "1795000000"], ["2026-01-01", "2026", "99999"]),
    ("DateGreaterThanEquals", 1795000000, ["2026-11-18T11:06:40Z", "2027"], ["2026-11-18T11:06:39Z"]),
]  # fmt: skip
ADDRESSES = [
    ("IpAddress", "10.0.0.0/8", ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
     ["9.255.255.255", "11.0.0.0", "::1"]),
    ("IpAddress", "10.1.2.3", ["10.1.2.3"], ["10.1.2.2", "10.1.2.4"]),
    ("IpAddress", "0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "2001:db8::1"]),
    ("IpAddress", "::/0", ["::", "2001:db8::1"], ["10.1.2.3", "::ffff:10.1.2.3"]),
    ("IpAddress", "2001:db8::/32", ["2001:db8::", "2001:DB8:ffff::1", "2001:0db8::1"], ["2001:db9::", "10.1.2.3"]),
    ("IpAddress", ["10.1.2.3/32", "2001:db8::1"], ["10.1.2.3", "2001:db8:0::1"], ["10.1.2.4", "2001:db8::2"]),
]  # fmt: skip
ARNS = [
    ("ArnEquals", "arn:aws:sns:*:1:t?pic", ["arn:aws:sns:eu:1:topic", "arn:aws:sns::1:topic"],
     ["arn:aws:sns:eu:2:topic", "arn:aws:sns:eu:1:tpic", "arn:aws:SNS:eu:1:topic", "arn:aws:sns:eu:x:1:topic"]),
    ("ArnLike", "arn:aws:iam::1:user/*", ["arn:aws:iam::1:user/a", "arn:aws:iam::1:user/a/b:c"],
     ["arn:aws:iam::1:role/a", "arn:aws:iam:eu:1:user/a", "arn:aws:iam::1"]),
    ("ArnLike", "arn:*:*:*:*:*", ["arn:aws:sqs:eu:1:q"], ["x:aws:sqs:eu:1:q", "orders", "arn:aws:sqs:eu:1", ""]),
    ("ArnLike", "*:*:*:*:*:*", ["arn:aws:sqs:eu:1:q"], ["x:aws:sqs:eu:1:q"]),
    ("ArnLike", "arn:aws:sns:*:topic", [], ["arn:aws:sns:eu:1:topic"]),
]  # fmt: skip
OTHERS = [
    ("Bool", "true", ["true", "TRUE", "True"], ["false", "1", "yes", ""]),
    ("Bool", False, ["false"], ["true", ""]),
    ("Bool", ["true", "false"], ["true", "false"], ["x"]),
    ("BinaryEquals", "YWI=", ["YWI="], ["YWJj", "ab", "YWI"]),
]
ALL = [*TEXTS, *NUMBERS, *TIMES, *ADDRESSES, *ARNS[:-1], *OTHERS]
NEGATED = {
    "StringEquals": "StringNotEquals",
    "StringEqualsIgnoreCase": "StringNotEqualsIgnoreCase",
    "StringLike": "StringNotLike",
    "NumericEquals": "NumericNotEquals",
    "DateEquals": "DateNotEquals",
    "IpAddress": "NotIpAddress",
    "ArnEquals": "ArnNotEquals",
    "ArnLike": "ArnNotLike",
}


@pytest.mark.parametrize(("operator", "wanted", "fitting", "other"), ALL)
def test_operator_holds_for_what_fits(operator: str, wanted: Any, fitting: list[str], other: list[str]) -> None:
    assert holding(operator, wanted, [*fitting, *other]) == fitting


@pytest.mark.parametrize(("operator", "wanted", "fitting", "other"), [row for row in ALL if row[0] in NEGATED])
def test_negated_operator_holds_for_the_rest(operator: str, wanted: Any, fitting: list[str], other: list[str]) -> None:
    assert holding(NEGATED[operator], wanted, [*fitting, *other]) == other


@pytest.mark.parametrize("operator", [one.name for one in OPERATORS])
def test_every_operator_is_tried_here(operator: str) -> None:
    assert operator in {*(row[0] for row in ALL), *NEGATED.values(), "Null"}


SAMPLE = {"Numeric": "1", "Date": "2026", "Bool": "true", "Binary": "YQ==", "Ip": "10.0.0.0/8", "Arn": "arn:a:b:c:d:e"}


@pytest.mark.parametrize("operator", [one for one in OPERATORS if one.name != "Null"], ids=lambda one: one.name)
def test_missing_key_is_a_no_to_plain_operators_and_a_yes_to_negated_ones(operator: Any) -> None:
    wanted = SAMPLE.get(operator.family, "x")
    assert holds(operator.name, wanted, None) is operator.negated
    assert holds(f"{operator.name}IfExists", wanted, None)
    assert holds(f"ForAllValues:{operator.name}", wanted, None)
    assert holds(f"ForAllValues:{operator.name}IfExists", wanted, None)
    assert not holds(f"ForAnyValue:{operator.name}", wanted, None)
    assert not holds(f"ForAnyValue:{operator.name}IfExists", wanted, None)


@pytest.mark.parametrize("operator", [one for one in OPERATORS if one.family in SAMPLE], ids=lambda one: one.name)
@pytest.mark.parametrize("value", ["", "x", "1x", "10.0.0", "arn:", "\n", "☃", "{}"])
def test_value_of_a_request_that_cannot_be_read_fits_nothing(operator: Any, value: str) -> None:
    if operator.family == "Binary" and value == "":
        return  # no bytes, but bytes
    assert holds(operator.name, SAMPLE[operator.family], value) is operator.negated
    assert holds(f"{operator.name}IfExists", SAMPLE[operator.family], value) is operator.negated


@pytest.mark.parametrize(
    ("operator", "wrong"),
    [
        *(("Numeric" + name, value) for name in ("Equals", "NotEquals", "LessThan", "GreaterThanEquals")
          for value in ("", "x", "1x", True, "${aws:EpochTime}", "1e3")),
        *(("Date" + name, value) for name in ("Equals", "NotEquals", "LessThan", "GreaterThanEquals")
          for value in ("", "tomorrow", "2026-13", False, "${aws:CurrentTime}", "*")),
        *(("Bool", value) for value in ("", "yes", "1", 1, "${aws:SecureTransport}", "*")),
        *((name, value) for name in ("IpAddress", "NotIpAddress")
          for value in ("", "*", "10.0.0.0/33", "10.0.0", 10, True, "localhost", "${aws:SourceIp}")),
        *((name, value) for name in ("ArnEquals", "ArnNotEquals", "ArnLike", "ArnNotLike")
          for value in ("", "*", "arn:aws:sqs", "orders", 5)),
        ("BinaryEquals", "not base64"),
        *(("Null", value) for value in ("", "yes", 0, "${x:y}")),
    ],
)  # fmt: skip
def test_value_of_a_policy_that_cannot_be_read_is_refused(operator: str, wrong: Any) -> None:
    for used in (operator, *([] if operator == "Null" else [f"{operator}IfExists", f"ForAnyValue:{operator}"])):
        text = document(statement("Deny", Condition={used: {"aws:username": wrong}}))
        with pytest.raises(PolicyError) as raised:
            compile_policy(text, PolicyKind.IDENTITY, "p")
        assert raised.value.path.startswith("$.Statement[0].Condition")


def test_operator_names_ignore_case() -> None:
    assert holds("stringEQUALS", "a", "a") and holds("STRINGNOTEQUALSIFEXISTS", "a", None)
    assert holds("forallvalues:stringequals", "a", "a")


# --- Null ---


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        ("true", None, True),
        ("true", "x", False),
        ("false", None, False),
        ("false", "x", True),
        ("false", "", True),
        (True, None, True),
        ("TRUE", None, True),
        (["true", "false"], None, True),
        (["true", "false"], "x", True),
    ],
)
def test_null_says_whether_the_key_is_absent(wanted: Any, value: str | None, expected: bool) -> None:
    assert holds("Null", wanted, value) is expected


# --- several values ---


def for_keys(operator: str, wanted: list[str], keys: tuple[str, ...]) -> bool:
    policy = identity(statement(Condition={operator: {"aws:TagKeys": wanted}}))
    return allowed(asked(tag_keys=keys), policy)


@pytest.mark.parametrize(
    ("operator", "keys", "expected"),
    [
        ("ForAllValues:StringEquals", ("a", "b"), True),
        ("ForAllValues:StringEquals", ("a", "c"), False),
        ("ForAllValues:StringEquals", (), True),
        ("ForAllValues:StringNotEquals", ("c", "d"), True),
        ("ForAllValues:StringNotEquals", ("a", "c"), False),
        ("ForAllValues:StringNotEquals", (), True),
        ("ForAnyValue:StringEquals", ("a", "c"), True),
        ("ForAnyValue:StringEquals", ("c", "d"), False),
        ("ForAnyValue:StringEquals", (), False),
        ("ForAnyValue:StringNotEquals", ("a", "c"), True),
        ("ForAnyValue:StringNotEquals", ("a", "b"), False),
        ("ForAnyValue:StringNotEquals", (), False),
        ("ForAnyValue:StringEqualsIfExists", (), False),
        ("ForAllValues:StringEqualsIfExists", ("c",), False),
        ("StringEquals", ("a",), False),
        ("StringEquals", ("a", "b"), False),
        ("StringNotEquals", ("c",), False),
        ("StringEqualsIfExists", ("a",), False),
        ("StringEquals", (), False),
        ("StringNotEquals", (), True),
        ("StringEqualsIfExists", (), True),
    ],
)
def test_set_operator_is_for_keys_of_several_values(operator: str, keys: tuple[str, ...], expected: bool) -> None:
    assert for_keys(operator, ["a", "b"], keys) is expected


@pytest.mark.parametrize(("operator", "value", "expected"), [
    ("ForAllValues:StringEquals", "a", True), ("ForAllValues:StringEquals", "b", False),
    ("ForAnyValue:StringLike", "a", True), ("ForAnyValue:StringNotEquals", "a", False),
])  # fmt: skip
def test_set_operator_takes_one_value_for_a_list_of_one(operator: str, value: str, expected: bool) -> None:
    assert holds(operator, "a", value) is expected


# --- several conditions ---


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("name", ["alice", "bob"])
@pytest.mark.parametrize("team", ["orders", "none"])
def test_operators_and_keys_must_all_hold(tls: bool, name: str, team: str) -> None:
    condition = {
        "Bool": {"aws:SecureTransport": "true"},
        "StringEquals": {"aws:username": "alice", "aws:PrincipalTag/team": ["orders", "x"]},
    }
    caller = ALICE._replace(user_name=name, tags={"team": team})
    expected = tls and name == "alice" and team == "orders"
    assert allowed(asked(caller, secure_transport=tls), identity(statement(Condition=condition))) is expected


def test_empty_condition_is_none() -> None:
    assert allowed(asked(), identity(statement(Condition={})))


# --- variables ---


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "expected"),
    [
        ("StringEquals", "${aws:username}", "alice", True),
        ("StringEquals", "${AWS:USERNAME}", "alice", True),
        ("StringEquals", "x-${aws:username}-${aws:PrincipalType}", "x-alice-User", True),
        ("StringEqualsIgnoreCase", "X-${aws:username}", "x-ALICE", True),
        ("StringLike", "${aws:username}*", "alice2", True),
        ("StringLike", "${aws:username}", "alice2", False),
        ("StringEquals", ["${aws:PrincipalTag/no}", "b"], "b", True),
        ("StringEquals", "${aws:PrincipalTag/no}", "b", False),
        ("StringNotEquals", "${aws:PrincipalTag/no}", "b", True),
        ("StringNotLike", ["${aws:PrincipalTag/no}", "b"], "b", False),
        ("StringEquals", "${aws:PrincipalTag/no, 'b'}", "b", True),
        ("StringEquals", "a${aws:PrincipalTag/no, ''}", "a", True),
        ("StringEquals", "${aws:TagKeys}", "b", False),
        ("StringEquals", "${no:such}", "b", False),
        ("StringEquals", "${", "${", True),
        ("ArnEquals", "arn:aws:iam::*:user/${aws:username}", "arn:aws:iam::1:user/alice", True),
        ("ArnEquals", "arn:aws:iam::*:user/${aws:username}", "arn:aws:iam::1:user/bob", False),
        ("ArnEquals", "${aws:PrincipalArn}", ALICE.arn, True),
        ("ArnEquals", "${aws:username}", "arn:aws:iam::1:user/alice", False),
        ("ArnNotEquals", "arn:aws:iam::*:user/${aws:PrincipalTag/no}", "arn:aws:iam::1:user/alice", True),
    ],
)
def test_variable_stands_for_a_value_of_the_request(operator: str, wanted: Any, value: str, expected: bool) -> None:
    assert holds(operator, wanted, value) is expected


def test_value_of_a_variable_brings_no_wildcards() -> None:
    caller = with_value("anything")._replace(user_name="a*")
    policy = identity(statement(Condition={"StringLike": {TAG: "${aws:username}"}}))
    assert not allowed(asked(caller), policy)
    assert allowed(asked(caller._replace(tags={"value": "a*"})), policy)
    arn = identity(statement(Condition={"ArnLike": {TAG: "arn:aws:iam::1:user/${aws:username}"}}))
    assert not allowed(asked(caller._replace(tags={"value": "arn:aws:iam::1:user/ab"})), arn)


def test_variables_are_plain_text_in_the_older_version() -> None:
    assert holds("StringEquals", "${aws:username}", "${aws:username}", version="2008-10-17")
    assert not holds("StringEquals", "${aws:username}", "alice", version="2008-10-17")
    assert holds("StringLike", "${*}", "${anything}", version="2008-10-17")


def test_time_of_the_request_is_compared_in_seconds() -> None:
    for operator, wanted, expected in (
        ("DateEquals", "2026-11-18T11:06:40Z", True),
        ("DateGreaterThan", "2026-11-18T11:06:40Z", False),
        ("DateLessThan", "2026-11-18T11:06:41Z", True),
    ):
        for key in ("aws:CurrentTime", "aws:EpochTime"):
            policy = identity(statement(Condition={operator: {key: wanted}}))
            assert allowed(asked(now_ms=NOW_MS), policy) is expected
