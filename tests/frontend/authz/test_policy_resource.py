"""Which resources a pattern reaches."""

from __future__ import annotations

import pytest

from tests.frontend.authz.scene import ACCOUNT, ALICE, OTHER, REGION, allowed, asked, identity, queue, statement

BASE = f"arn:aws:sqs:{REGION}:{ACCOUNT}"
ORDERS = f"{BASE}:orders"


def reaches(pattern: str | list[str], resource_arn: str, version: str = "2012-10-17") -> bool:
    return allowed(asked(resource_arn=resource_arn), identity(statement(Resource=pattern), version=version))


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("*", [ORDERS, f"{BASE}:", f"{BASE}:a:b"], []),
        (ORDERS, [ORDERS], [f"{ORDERS}2", f"{BASE}:Orders", f"{BASE}:order"]),
        (f"{BASE}:*", [ORDERS, f"{BASE}:", f"{BASE}:a:b"], [f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders"]),
        (f"{BASE}:o*s", [ORDERS, f"{BASE}:os"], [f"{BASE}:order"]),
        (f"{BASE}:order?", [ORDERS], [f"{BASE}:order", f"{BASE}:orderss"]),
        (f"arn:aws:sqs:*:{ACCOUNT}:orders", [ORDERS, f"arn:aws:sqs:x:{ACCOUNT}:orders"], [f"{BASE}:x:orders"]),
        ("arn:*:sqs:us-*:*:orders", [ORDERS], [f"arn:aws:sns:{REGION}:{ACCOUNT}:orders"]),
        ("arn:aws:sqs:*:*:*:orders", [], [ORDERS]),
        ("arn:aws:sqs:us-east-*:orders", [], [ORDERS]),
        ("arn:aws:sqs", [ORDERS], [f"arn:aws:sns:{REGION}:{ACCOUNT}:orders"]),
        (f"arn:aws:sqs:{REGION}", [ORDERS], [f"arn:aws:sqs:eu-west-1:{ACCOUNT}:orders"]),
        (BASE, [ORDERS], []),
        ("arn:aws", [ORDERS], []),
        (["arn:aws:sqs:*:*:nothing", ORDERS], [ORDERS], [f"{BASE}:other"]),
        (["arn:aws:sqs:*:*:a*", "arn:aws:sqs:*:*:b*"], [f"{BASE}:b"], [ORDERS]),
        (f"{BASE}:${{aws:username}}-?", [f"{BASE}:alice-1"], [f"{BASE}:bob-1", f"{BASE}:alice-12"]),
        ("arn:aws:sqs:*:*:${aws:PrincipalTag/team}", [ORDERS], [f"{BASE}:order"]),
        (f"arn:aws:sqs:eu-*:{ACCOUNT}:${{aws:PrincipalTag/team}}", [f"arn:aws:sqs:eu-x:{ACCOUNT}:orders"], [ORDERS]),
        ("arn:aws:sqs:*:*:${aws:PrincipalTag/no}", [], [ORDERS, f"{BASE}:"]),
        ("arn:aws:sqs:*:*:${aws:PrincipalTag/no, 'orders'}", [ORDERS], [f"{BASE}:x"]),
        ("arn:aws:sqs:*:*:${*}", [f"{BASE}:*"], [ORDERS]),
    ],
)
def test_pattern_reaches(pattern: str | list[str], fitting: list[str], other: list[str]) -> None:
    assert [arn for arn in [*fitting, *other] if reaches(pattern, arn)] == fitting


@pytest.mark.parametrize("short", ["arn:aws:sqs:*", f"arn:aws:sqs:*:{ACCOUNT}"])
def test_short_arn_of_a_queue_policy_reaches_where_it_has_a_wildcard(short: str) -> None:
    assert allowed(asked(), queues=queue(statement(Resource=short, Principal="*")))


def test_all_but_some_resources() -> None:
    policy = identity(statement(Resource=None, NotResource=[ORDERS, "arn:aws:sqs:*:*:secret-*"]))
    reached = [
        name for name in ("orders", "secret-1", "public") if allowed(asked(resource_arn=f"{BASE}:{name}"), policy)
    ]
    assert reached == ["public"]
    assert not allowed(asked(), identity(statement(Resource=None, NotResource="*")))


def test_all_but_some_actions() -> None:
    policy = identity(statement(Action=None, NotAction=["sqs:Send*", "penstock:*"]))
    actions = ("sqs:SendMessage", "sqs:PurgeQueue", "penstock:PeekMessages")
    assert [action for action in actions if allowed(asked(action=action), policy)] == ["sqs:PurgeQueue"]
    assert not allowed(asked(), identity(statement(Action=None, NotAction="*")))


def test_deny_of_all_but_what_a_variable_names_reaches_everything_where_it_has_no_value() -> None:
    policy = identity(
        statement(Resource="*"),
        statement("Deny", Resource=None, NotResource="arn:aws:sqs:*:*:${aws:PrincipalTag/team}"),
    )
    assert allowed(asked(), policy)
    assert not allowed(asked(ALICE._replace(tags={})), policy)


@pytest.mark.parametrize("pattern", ["${aws:PrincipalType}", "${aws:username, 'none'}", "${aws:RequestedRegion}-*"])
def test_allow_of_all_but_what_a_variable_names_needs_one_that_has_a_value(pattern: str) -> None:
    """Without a value it would exclude nothing: see the refusals of test_policy_document.py."""
    policy = identity(statement(Resource=None, NotResource=f"arn:aws:sqs:*:*:{pattern}"))
    assert allowed(asked(), policy)


def test_value_of_a_variable_brings_no_wildcards() -> None:
    policy = identity(statement(Resource=f"{BASE}:${{aws:username}}"))
    caller = ALICE._replace(user_name="*")
    assert not allowed(asked(caller), policy)
    assert allowed(asked(caller, resource_arn=f"{BASE}:*"), policy)


def test_variables_are_plain_text_in_the_older_version() -> None:
    pattern = f"{BASE}:${{aws:username}}"
    assert reaches(pattern, f"{BASE}:${{aws:username}}", version="2008-10-17")
    assert not reaches(pattern, f"{BASE}:alice", version="2008-10-17")


def test_account_of_the_pattern_is_that_of_the_queue() -> None:
    assert not reaches(f"arn:aws:sqs:*:{OTHER}:*", ORDERS)
