"""What is read as a policy and what is refused, with the path of the member that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.authz import PolicyError, PolicyKind, PolicyProblem, compile_policy
from frontend.authz import policy_limits as limits
from frontend.authz.policy_document import VERSION_ABSENT, Effect, parse_document
from tests.frontend.authz.scene import ACCOUNT, document, statement

IDENTITY, RESOURCE = PolicyKind.IDENTITY, PolicyKind.RESOURCE
EVERYONE = {"Principal": "*"}


def refusal(text: str, kind: PolicyKind = IDENTITY) -> PolicyError:
    with pytest.raises(PolicyError) as raised:
        compile_policy(text, kind, "p")
    return raised.value


# --- JSON ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{} x", "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("{'Statement': []}", "not JSON"),
        ('{"Statement": NaN}', "NaN"),
        ('{"Statement": -Infinity}', "Infinity"),
        ('{"Statement": "\x00"}', "not JSON"),
        ('"text"', "must be an object"),
        ("[]", "must be an object"),
        ("null", "must be an object"),
        ("5", "must be an object"),
        ("true", "must be an object"),
        ("\ud800", "surrogate"),
        ("[" * 9, "deep"),
        ("[" * 30_000, "deep"),
        ('{"a":' * 9, "deep"),
    ],
)
def test_text_that_is_no_object_of_json_is_refused(text: str, said: str) -> None:
    error = refusal(text)
    assert error.path == "$" and said in error.text


def test_brackets_within_strings_are_not_depth() -> None:
    for text in ("[[[[[[[[[[", 'a"[[[[[[[[[', "\\[[[[[[[[[", '\\"[[[[[[[[['):
        compile_policy(document(statement(Condition={"StringEquals": {"aws:username": text}})), IDENTITY, "p")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"Version": "2012-10-17", "Version": "2012-10-17", "Statement": []}', "$.Version"),
        ('{"Statement": [{"Effect": "Deny", "Action": "*", "Effect": "Allow"}]}', "$.Statement[0].Effect"),
        (
            '{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*",'
            ' "Condition": {"Bool": {"aws:SecureTransport": "true"}, "Bool": {"aws:SecureTransport": "false"}}}}',
            "$.Statement.Condition.Bool",
        ),
        (
            '{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*",'
            ' "Condition": {"Bool": {"aws:SecureTransport": "true", "aws:SecureTransport": "false"}}}}',
            '$.Statement.Condition.Bool["aws:SecureTransport"]',
        ),
    ],
)  # fmt: skip
def test_member_that_stands_twice_is_refused(text: str, path: str) -> None:
    assert (refusal(text).path, refusal(text).text) == (path, "stands twice")


@pytest.mark.parametrize(
    "condition",
    [
        {"StringEquals": {"aws:username": "a", "AWS:UserName": "b"}},
        {"StringEquals": {"aws:username": "a"}, "stringequals": {"aws:userid": "b"}},
    ],
)
def test_condition_name_that_stands_twice_but_for_case_is_refused(condition: dict[str, Any]) -> None:
    assert "twice" in refusal(document(statement(Condition=condition))).text


# --- the document ---


@pytest.mark.parametrize("version", ["2012-10-17", "2008-10-17", None])
def test_version_is_one_of_two_or_absent(version: str | None) -> None:
    parsed = parse_document(document(statement(), version=version), IDENTITY)
    assert parsed.version == (version or VERSION_ABSENT)
    assert parsed.has_variables is (version == "2012-10-17")


@pytest.mark.parametrize("version", ["2012-10-18", "", " 2012-10-17", 2012, None, ["2012-10-17"], True])
def test_other_version_is_refused(version: Any) -> None:
    text = json.dumps({"Version": version, "Statement": [statement()]})
    assert refusal(text).path == "$.Version"


@pytest.mark.parametrize("name", ["Statements", "statement", "version", "", "Comment", "Sta\ntement"])
def test_unknown_member_of_a_document_is_refused(name: str) -> None:
    error = refusal(json.dumps({"Statement": [statement()], name: 1}))
    assert error.path.startswith("$") and "no such member" in error.text


def test_id_is_for_queue_policies() -> None:
    text = json.dumps({"Id": "any text ☃", "Statement": [statement(**EVERYONE)]})
    assert parse_document(text, RESOURCE).policy_id == "any text ☃"
    assert refusal(json.dumps({"Id": "x", "Statement": [statement()]})).path == "$.Id"
    for wrong in (5, None, ["x"], "x" * (limits.ID_CHARACTERS_MAX + 1), "\u0000"):
        error = refusal(json.dumps({"Id": wrong, "Statement": [statement(**EVERYONE)]}), RESOURCE)
        assert error.path == "$.Id"


def test_one_statement_may_stand_without_its_list() -> None:
    for text in (json.dumps({"Statement": statement()}), json.dumps({"Statement": [statement()]})):
        (only,) = parse_document(text, IDENTITY).statements
        assert (only.ordinal, only.effect) == (0, Effect.ALLOW)


@pytest.mark.parametrize("statements", [[], None, "x", 5, [[]], ["x"], [None], [statement(), 5]])
def test_statement_that_is_none_is_refused(statements: Any) -> None:
    assert refusal(json.dumps({"Statement": statements})).path.startswith("$.Statement")


def test_document_without_statement_is_refused() -> None:
    assert refusal("{}").path == "$.Statement"


# --- a statement ---

WRONG_MEMBERS: list[tuple[str, dict[str, Any]]] = [
    ("Effect", {"Effect": None}),
    ("Effect", {"Effect": "allow"}),
    ("Effect", {"Effect": "Maybe"}),
    ("Effect", {"Effect": ["Allow"]}),
    ("Effect", {"Effect": 1}),
    ("Effect", {"Effect": {}}),
    ("Action", {"Action": None}),
    ("Action", {"Action": []}),
    ("Action", {"Action": ""}),
    ("Action", {"Action": {}}),
    ("Action", {"Action": 5}),
    ("Action[1]", {"Action": ["sqs:*", 5]}),
    ("Action[0]", {"Action": [["sqs:*"]]}),
    ("Action", {"Action": "SendMessage"}),
    ("Action", {"Action": "sqs:"}),
    ("Action", {"Action": ":SendMessage"}),
    ("Action", {"Action": "sqs:Send Message"}),
    ("Action", {"Action": " sqs:SendMessage"}),
    ("Action", {"Action": "sqs:SendMessage\n"}),
    ("Action", {"Action": "s*:SendMessage"}),
    ("Action", {"Action": "*:*"}),
    ("Action", {"Action": "**"}),
    ("Action", {"Action": "sqs:Send:Message"}),
    ("Action", {"Action": "sqs:${aws:username}"}),
    ("NotAction", {"NotAction": "sqs:*"}),
    ("NotAction", {"Action": None, "NotAction": []}),
    ("Resource", {"Resource": None}),
    ("Resource", {"Resource": []}),
    ("Resource", {"Resource": ""}),
    ("Resource", {"Resource": 5}),
    ("Resource", {"Resource": "orders"}),
    ("Resource", {"Resource": "arn"}),
    ("Resource", {"Resource": "**"}),
    ("Resource", {"Resource": "ARN:aws:sqs:us-east-1:1:x"}),
    ("Resource", {"Resource": "arn:aws:s*s:us-east-1:1:x"}),
    ("Resource", {"Resource": "arn:aws:*"}),
    ("Resource", {"Resource": "arn:aws:sqs:${aws:RequestedRegion}:1:x"}),
    ("Resource", {"Resource": "arn:aws:sqs:*:*:${}"}),
    ("Resource", {"Resource": "arn:aws:sqs:*:*:${aws:username, none}"}),
    ("NotResource", {"NotResource": "*"}),
    ("NotResource", {"Resource": None, "NotResource": []}),
    ("NotResource", {"Resource": None, "NotResource": "arn:aws:sqs:*:*:${aws:username}"}),
    ("Principal", {"Principal": "*"}),
    ("NotPrincipal", {"NotPrincipal": "*"}),
    ("Sid", {"Sid": 5}),
    ("Sid", {"Sid": "with-dash"}),
    ("Sid", {"Sid": "ä"}),
    ("Sid", {"Sid": "x" * (limits.SID_CHARACTERS_MAX + 1)}),
    ("sid", {"sid": "x"}),
    ("Conditions", {"Conditions": {}}),
    ("Condition", {"Condition": []}),
    ("Condition", {"Condition": "x"}),
    ("Condition.StringEquals", {"Condition": {"StringEquals": {}}}),
    ("Condition.StringEquals", {"Condition": {"StringEquals": "x"}}),
    ("Condition.StringEquals", {"Condition": {"StringEquals": [{"aws:username": "x"}]}}),
    ("Condition.StringEqual", {"Condition": {"StringEqual": {"aws:username": "x"}}}),
    ('Condition[""]', {"Condition": {"": {"aws:username": "x"}}}),
    ('Condition["ForAll:StringEquals"]', {"Condition": {"ForAll:StringEquals": {"aws:username": "x"}}}),
    ('Condition[":StringEquals"]', {"Condition": {":StringEquals": {"aws:username": "x"}}}),
    ('Condition["ForAllValues:"]', {"Condition": {"ForAllValues:": {"aws:username": "x"}}}),
    ("Condition.NullIfExists", {"Condition": {"NullIfExists": {"aws:username": "true"}}}),
    ('Condition["ForAllValues:Null"]', {"Condition": {"ForAllValues:Null": {"aws:TagKeys": "true"}}}),
    ("Condition.BoolIfExistsIfExists", {"Condition": {"BoolIfExistsIfExists": {"aws:SecureTransport": "true"}}}),
    ("Condition.StringEquals.username", {"Condition": {"StringEquals": {"username": "x"}}}),
    ('Condition.StringEquals["aws:user name"]', {"Condition": {"StringEquals": {"aws:user name": "x"}}}),
    ('Condition.StringEquals["aws:username"]', {"Condition": {"StringEquals": {"aws:username": []}}}),
    ('Condition.StringEquals["aws:username"]', {"Condition": {"StringEquals": {"aws:username": None}}}),
    ('Condition.StringEquals["aws:username"]', {"Condition": {"StringEquals": {"aws:username": {}}}}),
    ('Condition.StringEquals["aws:username"][1]', {"Condition": {"StringEquals": {"aws:username": ["x", ["y"]]}}}),
    ('Condition.StringEquals["aws:username"]', {"Condition": {"StringEquals": {"aws:username": "\u0000"}}}),
    ('Condition.StringEquals["aws:username"]', {"Condition": {"StringEquals": {"aws:username": "\ud800"}}}),
    ('Condition.StringEquals["aws:username"]', {"Condition": {"StringEquals": {"aws:username": "\u0100"}}}),
]


@pytest.mark.parametrize(("path", "members"), WRONG_MEMBERS)
def test_wrong_member_of_a_statement_is_refused_by_its_path(path: str, members: dict[str, Any]) -> None:
    error = refusal(document(statement(Sid="first"), statement(**members)))
    assert error.path == f"$.Statement[1].{path}"
    assert error.problem is PolicyProblem.MALFORMED


def test_sids_of_a_document_are_all_different() -> None:
    assert refusal(document(statement(Sid="a"), statement(), statement(Sid="a"))).path == "$.Statement[2].Sid"
    compile_policy(document(statement(Sid=""), statement(Sid=""), statement()), IDENTITY, "p")


def test_sid_of_a_queue_policy_has_more_characters() -> None:
    parsed = parse_document(document(statement(Sid="__owner statement-1", **EVERYONE)), RESOURCE)
    assert parsed.statements[0].sid == "__owner statement-1"
    assert refusal(document(statement(Sid="ä", **EVERYONE)), RESOURCE).path == "$.Statement[0].Sid"


def test_values_of_a_condition_are_texts_numbers_or_truth_values() -> None:
    given = {"StringEquals": {"aws:username": ["x", 5, -1.50, 1e3, True, False]}}
    (only,) = parse_document(document(statement(Condition=given)), IDENTITY).statements
    assert [text.value for text in only.conditions[0].values] == ["x", "5", "-1.5", "1000.0", "true", "false"]


def test_characters_of_a_queue_policy_are_any_but_control_characters() -> None:
    for text, fine in (("snow ☃", True), ("tab\tline\r\n", True), ("\u0007", False), ("\u007f", False)):
        made = document(statement(Condition={"StringEquals": {"aws:username": text}}, **EVERYONE))
        if fine:
            compile_policy(made, RESOURCE, "p")
        else:
            assert "control character" in refusal(made, RESOURCE).text


# --- queue policies ---


def test_queue_policy_names_who() -> None:
    assert refusal(document(statement()), RESOURCE).path == "$.Statement[0].Principal"
    both = statement(Principal="*", NotPrincipal="*")
    assert refusal(document(both), RESOURCE).path == "$.Statement[0].NotPrincipal"


def test_allow_of_all_but_some_is_refused() -> None:
    made = statement(NotPrincipal={"AWS": ACCOUNT})
    assert refusal(document(made), RESOURCE).path == "$.Statement[0].NotPrincipal"
    compile_policy(document({**made, "Effect": "Deny"}), RESOURCE, "p")


@pytest.mark.parametrize(
    ("action", "fine"),
    [
        ("sqs:NoSuchAction", False),
        ("sqs:Frob*", False),
        ("s3:GetObject", False),
        ("s3:*", False),
        ("penstock:NoSuch", False),
        ("penstock:PeekMessages", True),
        ("sqs:SendMessageBatch", True),
        ("SQS:sendmessage", True),
        ("*", True),
    ],
)
def test_queue_policy_is_about_actions_on_queues(action: str, fine: bool) -> None:
    text = document(statement(Action=action, **EVERYONE))
    if fine:
        compile_policy(text, RESOURCE, "p")
    else:
        assert refusal(text, RESOURCE).path == "$.Statement[0].Action"
    identity_text = document(statement(Action=action))
    compile_policy(identity_text, IDENTITY, "p")


@pytest.mark.parametrize("pattern", ["arn:aws:sqs", "arn:aws:sqs:us-east-1", f"arn:aws:sqs:us-east-1:{ACCOUNT}"])
def test_short_arn_of_a_queue_policy_needs_a_wildcard(pattern: str) -> None:
    assert refusal(document(statement(Resource=pattern, **EVERYONE)), RESOURCE).path == "$.Statement[0].Resource"
    compile_policy(document(statement(Resource=pattern)), IDENTITY, "p")
    compile_policy(document(statement(Resource=f"{pattern}:*", **EVERYONE)), RESOURCE, "p")


# --- limits, at them and above them ---


def test_queue_policy_has_so_many_statements_at_most() -> None:
    most = limits.QUEUE_POLICY_STATEMENTS_MAX
    small = {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}
    compile_policy(document(*[small] * most), RESOURCE, "p")
    error = refusal(document(*[small] * (most + 1)), RESOURCE)
    assert error.problem is PolicyProblem.TOO_MANY
    assert error.text == "21 statements were found in the submitted policy, max allowed is 20"


def test_identity_policy_has_so_many_statements_at_most() -> None:
    most = limits.IDENTITY_POLICY_STATEMENTS_MAX
    small = {"Effect": "Deny", "Action": "*", "Resource": "*"}
    compile_policy(document(*[small] * most), IDENTITY, "p")
    assert refusal(document(*[small] * (most + 1))).problem is PolicyProblem.TOO_MANY


def test_queue_policy_has_so_many_principals_at_most_over_all_statements() -> None:
    most = limits.QUEUE_POLICY_PRINCIPALS_MAX
    accounts = [f"{number:012}" for number in range(most)]
    halves = [statement(Principal={"AWS": accounts[: most // 2]}), statement(Principal={"AWS": accounts[most // 2 :]})]
    compile_policy(document(*halves), RESOURCE, "p")
    error = refusal(document(*halves, statement(Principal={"Service": "sns.amazonaws.com"})), RESOURCE)
    assert error.problem is PolicyProblem.TOO_MANY and "51 principals" in error.text


def test_queue_policy_has_so_many_conditions_at_most_over_all_statements() -> None:
    most = limits.QUEUE_POLICY_CONDITIONS_MAX
    keys = {f"aws:PrincipalTag/t{number}": "x" for number in range(most - 1)}
    first = statement(Condition={"StringEquals": keys}, **EVERYONE)
    second = statement(Condition={"Bool": {"aws:SecureTransport": "true"}}, **EVERYONE)
    compile_policy(document(first, second), RESOURCE, "p")
    error = refusal(document(first, second, second), RESOURCE)
    assert error.problem is PolicyProblem.TOO_MANY and "11 conditions" in error.text


def test_statement_of_a_queue_policy_has_so_many_actions_at_most() -> None:
    most = limits.QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX
    compile_policy(document(statement(Action=["sqs:SendMessage"] * most, **EVERYONE)), RESOURCE, "p")
    error = refusal(document(statement(Action=["sqs:SendMessage"] * (most + 1), **EVERYONE)), RESOURCE)
    assert (error.problem, error.path) == (PolicyProblem.TOO_MANY, "$.Statement[0]")
    compile_policy(document(statement(Action=["sqs:SendMessage"] * (most + 1))), IDENTITY, "p")


@pytest.mark.parametrize("kind", list(PolicyKind))
def test_policy_has_so_many_patterns_with_a_floating_question_mark_at_most(kind: PolicyKind) -> None:
    most = limits.FLOATING_PATTERNS_MAX
    who = EVERYONE if kind is RESOURCE else {}
    still = ["?", "?a*", "*a?", "?*?", "**", "*a*"] * most
    floating = ["*a?*"] * (most - 1)
    full = statement(Resource="arn:aws:sqs:*:*:*?*", Condition={"StringLike": {"aws:userid": still + floating}}, **who)
    compile_policy(document(full), kind, "p")
    error = refusal(document(full, statement(Condition={"StringLike": {"aws:userid": "*?b*"}}, **who)), kind)
    assert error.problem is PolicyProblem.TOO_MANY and f"{most + 1} patterns" in error.text


VARIABLE, FLOATING = limits.WILDCARDS_OF_A_VARIABLE, limits.WILDCARDS_OF_A_FLOATING_PATTERN
READ = limits.WILDCARDS_OF_A_READ_VALUE


@pytest.mark.parametrize(
    ("operator", "value", "counts"),
    [
        ("StringLike", "a*", 1),
        ("StringNotLikeIfExists", "*a*?", 3),
        ("StringLike", "*a?b*", 3 + FLOATING),
        ("StringLike", "${aws:username}-*", 1 + VARIABLE),
        ("StringEquals", "${aws:username}", VARIABLE),
        ("StringEqualsIgnoreCase", "a*", 0),
        ("StringEquals", "team", 0),
        ("Bool", "true", 0),
        ("NumericEquals", "1", READ),
        ("IpAddress", "10.0.0.0/8", READ),
        ("ArnLike", "arn:aws:sqs:*:*:a", 2 + READ),
    ],
)
@pytest.mark.parametrize("kind", list(PolicyKind))
def test_policy_has_so_many_wildcards_on_keys_of_several_values_at_most(
    kind: PolicyKind, operator: str, value: str, counts: int
) -> None:
    most = limits.SEVERAL_VALUES_WILDCARDS_MAX
    who = EVERYONE if kind is RESOURCE else {}

    def text(key: str, wildcards: int) -> str:
        conditions = {
            f"ForAllValues:{operator}": {key: [value] * 2},
            "ForAnyValue:StringLike": {key: [f"{number}*" for number in range(wildcards)]},
        }
        return document(statement(Condition=conditions, **who))

    compile_policy(text("aws:tagkeys", most - 2 * counts), kind, "p")
    error = refusal(text("aws:tagkeys", most - 2 * counts + 1), kind)
    assert error.problem is PolicyProblem.TOO_MANY and f"{most + 1} wildcards" in error.text
    compile_policy(text("aws:username", most + 1), kind, "p")


def test_variable_that_is_plain_text_counts_as_no_wildcard() -> None:
    values = ["${aws:username}"] * limits.SEVERAL_VALUES_WILDCARDS_MAX
    condition = {"ForAllValues:StringEquals": {"aws:TagKeys": values}}
    compile_policy(document(statement(Condition=condition), version="2008-10-17"), IDENTITY, "p")


def test_queue_policy_counts_bytes_as_they_are_sent() -> None:
    most = limits.QUEUE_POLICY_BYTES_MAX
    text = document(statement(**EVERYONE))
    compile_policy(text + " " * (most - len(text)), RESOURCE, "p")
    error = refusal(text + " " * (most + 1 - len(text)), RESOURCE)
    assert error.problem is PolicyProblem.TOO_LARGE


def test_identity_policy_counts_characters_without_white_space() -> None:
    most = limits.IDENTITY_POLICY_CHARACTERS_MAX
    text = document(statement(Condition={"StringEquals": {"aws:username": "@"}}))
    filled = text.replace("@", "é" * (most - len("".join(text.split())) + 1))
    compile_policy(f"  {filled}\n\t", IDENTITY, "p")
    assert refusal(filled.replace("éé", "ééé", 1)).problem is PolicyProblem.TOO_LARGE


def test_text_of_any_length_is_not_parsed() -> None:
    error = refusal(" " * (limits.POLICY_TEXT_BYTES_MAX + 1))
    assert error.problem is PolicyProblem.TOO_LARGE


def test_error_reads_as_path_and_text() -> None:
    error = refusal(document(statement(Effect="allow")))
    assert str(error) == "$.Statement[0].Effect: must be Allow or Deny, in this spelling"


def test_first_wrong_statement_is_told_where_several_are_wrong() -> None:
    assert refusal(document(statement(Resource="x"), statement(Action="x"))).path == "$.Statement[0].Resource"
