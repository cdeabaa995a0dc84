"""Policies as a form: what the form holds comes back as the same policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.policy_form import (
    ConditionForm,
    NotForForm,
    PolicyForm,
    StatementForm,
    changed,
    form_of,
    read_form,
    text_of,
)
from console.policy_starts import STARTS
from frontend.authz import PolicyKind, compile_policy
from frontend.authz.policy_document import parse_document

IDENTITY: list[dict[str, Any]] = [
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}},
    {"Statement": [{"Sid": "a", "Effect": "Deny", "NotAction": ["sqs:Send*", "sqs:Get*"], "NotResource": "*"}]},
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": ["arn:aws:sqs:*:*:a", "arn:aws:sqs:*:*:b"],
             "Condition": {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "::1"]}, "Bool": {"aws:SecureTransport": True},
                           "NumericLessThan": {"aws:EpochTime": 1.50}}},
            {"Effect": "Deny", "Action": "sqs:PurgeQueue", "Resource": "*"},
        ],
    },
]  # fmt: skip
RESOURCE: list[dict[str, Any]] = [
    {"Version": "2012-10-17", "Id": "mine", "Statement": [
        {"Sid": "b", "Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"},
        {"Effect": "Deny", "NotPrincipal": {"AWS": ["123456789012", "arn:aws:iam::123456789012:user/x"]},
         "Action": "sqs:*", "Resource": "*"},
        {"Effect": "Allow", "Principal": {"AWS": "*", "Service": ["sns.amazonaws.com"]}, "Action": "sqs:SendMessage",
         "Resource": "*", "Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:*:t"}}},
    ]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "document"),
    [*((PolicyKind.IDENTITY, one) for one in IDENTITY), *((PolicyKind.RESOURCE, one) for one in RESOURCE)],
)
def test_policy_comes_back_from_the_form_as_it_was(kind: PolicyKind, document: dict[str, Any]) -> None:
    text = json.dumps(document)
    again = text_of(form_of(text, kind), kind)
    assert _meaning(again, kind) == _meaning(text, kind)


def _meaning(text: str, kind: PolicyKind) -> Any:
    """Without the places where things stand: a list of one is that one."""
    document = parse_document(text, kind)
    statements = [
        one._replace(
            path="",
            actions=tuple(text.value for text in one.actions),
            resources=tuple(text.value for text in one.resources),
            conditions=tuple(
                (entry.operator, entry.key, tuple(value.value for value in entry.values)) for entry in one.conditions
            ),
        )
        for one in document.statements
    ]
    return document.version, document.policy_id, statements


@pytest.mark.parametrize("value", ["", " a", "a\nb", "a\u2028b"])
def test_value_that_a_line_cannot_hold_stays_in_the_json(value: str) -> None:
    condition = {"StringEquals": {"aws:UserAgent": ["plain", value]}}
    statement = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*", "Principal": "*", "Condition": condition}
    with pytest.raises(NotForForm):
        form_of(json.dumps({"Version": "2012-10-17", "Statement": [statement]}), PolicyKind.RESOURCE)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"Statement": []}', '{"Statement": [{}], "Statement": [{}]}', "[" * 5_000]
)
def test_text_that_the_parser_refuses_is_no_form(text: str) -> None:
    with pytest.raises(NotForForm):
        form_of(text, PolicyKind.IDENTITY)


def test_conditions_with_one_key_are_one_list_of_values() -> None:
    rows = (
        ConditionForm("IpAddress", "aws:SourceIp", "10.0.0.1"),
        ConditionForm("IpAddress", "aws:SourceIp", "10.0.0.2"),
    )
    statement = StatementForm(actions="sqs:*", conditions=rows)
    made = json.loads(text_of(PolicyForm(statements=(statement,)), PolicyKind.IDENTITY))
    assert made["Statement"][0]["Condition"] == {"IpAddress": {"aws:SourceIp": ["10.0.0.1", "10.0.0.2"]}}


def test_fields_of_a_page_are_read_as_the_form() -> None:
    fields = {
        "version": "2012-10-17", "statements": "1", "s0_effect": "Deny", "s0_sid": " a ",
        "s0_action_member": "NotAction", "s0_actions": "sqs:SendMessage\r\nsqs:GetQueueUrl\r\n",
        "s0_resource_member": "x", "s0_resources": "*",
        "s0_conditions": "1", "s0_c0_operator": "Bool", "s0_c0_key": "aws:SecureTransport", "s0_c0_values": "false",
    }  # fmt: skip
    (statement,) = json.loads(text_of(read_form(fields), PolicyKind.IDENTITY))["Statement"]
    assert statement == {
        "Sid": "a", "Effect": "Deny", "NotAction": ["sqs:SendMessage", "sqs:GetQueueUrl"], "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }  # fmt: skip


@pytest.mark.parametrize("count", ["-1", "x", "99999999999", "1e3", "²"])
def test_count_of_fields_that_is_none_is_nothing(count: str) -> None:
    assert read_form({"statements": count}).statements == ()


def test_buttons_add_and_remove_statements_and_conditions() -> None:
    form = changed(changed(PolicyForm(), "add-statement"), "add-condition:1")
    assert [len(one.conditions) for one in form.statements] == [0, 1]
    assert [len(one.conditions) for one in changed(form, "remove-condition:1:0").statements] == [0, 0]
    assert len(changed(form, "remove-statement:0").statements[0].conditions) == 1
    for nothing in ("", "lint", "remove-statement:9", "remove-condition:1", "remove-condition:1:5", "add-condition:x"):
        assert changed(form, nothing) == form


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.key)
def test_start_is_a_policy_that_could_be_stored(start: Any) -> None:
    compile_policy(start.policy, PolicyKind.IDENTITY, start.key)
