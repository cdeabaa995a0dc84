"""A review tells all errors of a policy, and what in it does other than it seems to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.authz import PolicyKind, Remark, review
from tests.frontend.authz.scene import ACCOUNT, OTHER, QUEUE_ARN, document, statement

IDENTITY, RESOURCE = PolicyKind.IDENTITY, PolicyKind.RESOURCE
FIRST = "$.Statement[0]"


def remarks(text: str, kind: PolicyKind = IDENTITY, queue_arn: str | None = None) -> list[tuple[str, bool]]:
    return [(remark.path, remark.refused) for remark in review(text, kind, queue_arn)]


def test_good_policy_has_no_remarks() -> None:
    condition = {
        "IpAddress": {"aws:SourceIp": "10.0.0.0/8"},
        "DateLessThan": {"aws:EpochTime": "2030-01-01"},
        "NumericLessThan": {"aws:PrincipalTag/level": "3"},
        "ForAnyValue:StringLike": {"aws:TagKeys": "cost*"},
    }
    assert review(document(statement(Condition=condition, Action="sqs:Send*")), IDENTITY) == ()
    shared = statement(Principal={"AWS": OTHER}, Resource="arn:aws:sqs:*:*:orders")
    assert review(document(shared), RESOURCE, QUEUE_ARN) == ()


def test_all_errors_are_told_and_not_the_first_alone() -> None:
    wrong = document(
        statement("allow", Action="x", Sid="a-b"),
        statement(),
        statement(Resource="orders", Condition={"Bool": {"aws:SecureTransport": "yes"}, "Like": {"a:b": "c"}}),
    )
    assert sorted(remarks(wrong)) == [
        (f"{FIRST}.Effect", True),
        (f"{FIRST}.Sid", True),
        ("$.Statement[2].Condition.Like", True),
    ]
    later = document(statement(Action="x"), statement(Resource="orders", Condition={"Bool": {"aws:username": "yes"}}))
    assert remarks(later) == [
        (f"{FIRST}.Action", True),
        ("$.Statement[1].Resource", True),
        ('$.Statement[1].Condition.Bool["aws:username"]', True),
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Statement": []}'])
def test_text_that_is_no_policy_has_one_remark(text: str) -> None:
    (only,) = review(text, IDENTITY)
    assert only.refused


STATEMENTS: list[tuple[str, dict[str, Any]]] = [
    (".Action", {"Action": "s3:GetObject"}),
    (".Action", {"Action": "sqs:NoSuch"}),
    (".Action[1]", {"Action": ["sqs:SendMessage", "sqs:SendMessageBatch"]}),
    (".NotAction", {"Action": None, "NotAction": "sqs:SendMessage"}),
    (".NotResource", {"Resource": None, "NotResource": QUEUE_ARN}),
    (".Resource", {"Resource": "arn:aws:sqs:*:*:${aws:TagKeys}"}),
    (".Resource", {"Resource": "arn:aws:sqs:*:*:${no:such}"}),
    ('.Condition.StringEquals["no:such"]', {"Condition": {"StringEquals": {"no:such": "x"}}}),
    ('.Condition.StringEquals["aws:TagKeys"]', {"Condition": {"StringEquals": {"aws:TagKeys": "x"}}}),
    ('.Condition.NumericEquals["aws:SourceIp"]', {"Condition": {"NumericEquals": {"aws:SourceIp": "1"}}}),
    ('.Condition.DateLessThan["aws:PrincipalArn"]', {"Condition": {"DateLessThan": {"aws:PrincipalArn": "2030"}}}),
    ('.Condition["ForAllValues:StringEquals"]["aws:TagKeys"]',
     {"Condition": {"ForAllValues:StringEquals": {"aws:TagKeys": "x"}}}),
    ('.Condition.StringEquals["aws:username"][1]', {"Condition": {"StringEquals": {"aws:username": ["a", "b*"]}}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "members"), STATEMENTS)
def test_statement_that_does_other_than_it_seems_to_is_told(path: str, members: dict[str, Any]) -> None:
    assert remarks(document(statement(**members))) == [(FIRST + path, False)]


QUEUE_STATEMENTS: list[tuple[str, dict[str, Any]]] = [
    (".Principal", {"Principal": "*"}),
    (".Principal", {"Principal": {"AWS": ["AIDAEXAMPLEEXAMPLE123", OTHER]}}),
    (".Principal", {"Principal": {"Federated": "accounts.example.com"}}),
    (".NotPrincipal", {"Effect": "Deny", "NotPrincipal": "*"}),
    (".NotPrincipal", {"Effect": "Deny", "NotPrincipal": {"AWS": ACCOUNT}}),
    (".Resource", {"Principal": {"AWS": OTHER}, "Resource": f"{QUEUE_ARN}-eu"}),
    ('.Condition.StringEquals["aws:ResourceTag/x"]',
     {"Principal": {"AWS": OTHER}, "Condition": {"StringEquals": {"aws:ResourceTag/x": "y"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "members"), QUEUE_STATEMENTS)
def test_statement_of_a_queue_policy_that_does_other_than_it_seems_to_is_told(
    path: str, members: dict[str, Any]
) -> None:
    assert remarks(document(statement(**members)), RESOURCE, QUEUE_ARN) == [(FIRST + path, False)]


def test_variable_in_the_older_version_is_told() -> None:
    made = statement(
        Resource="arn:aws:sqs:*:*:${aws:username}", Condition={"StringEquals": {"aws:userid": "${aws:username}"}}
    )
    assert remarks(document(made, version="2008-10-17")) == [
        (f"{FIRST}.Resource", False),
        (f'{FIRST}.Condition.StringEquals["aws:userid"]', False),
    ]


def test_remark_about_everyone_names_signed_callers_alone() -> None:
    (remark,) = review(document(statement(Principal="*")), RESOURCE, QUEUE_ARN)
    assert remark.text == "opens it to everyone: every signed caller, of any account"


def test_remark_says_what_and_where() -> None:
    (only,) = review(json.dumps({"Statement": statement(Action="s3:*")}), IDENTITY)
    assert only == Remark("$.Statement.Action", "matches nothing: another service's action", False)


def test_broken_statement_has_its_errors_alone() -> None:
    """What a statement does is not told while it cannot be understood."""
    assert remarks(document(statement(Action=["s3:*", "x"]))) == [(f"{FIRST}.Action[1]", True)]
