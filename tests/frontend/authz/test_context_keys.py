"""What each condition key of a request is, and where it is missing."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.authz.context_keys import CONTEXT_KEYS, KeyValue, find_key
from frontend.authz.policy_limits import CALLER_TEXT_CHARACTERS_MAX
from frontend.authz.request_context import ANONYMOUS, Caller, federated_caller, service_caller
from tests.frontend.authz.scene import ACCOUNT, ALICE, CLERK, NOW_MS, QUEUE_ARN, REGION, ROOT, allowed, asked, statement
from tests.frontend.authz.scene import identity as identity_policy
from tests.frontend.authz.scene import queue as queue_policy

KIOSK, SNS = federated_caller(ACCOUNT, "kiosk"), service_caller("sns.amazonaws.com")


def value(name: str, caller: Caller = ALICE, **more: Any) -> KeyValue:
    key = find_key(name)
    assert key is not None
    return key.read(asked(caller, **more))


CALLERS = (ALICE, CLERK, KIOSK, ROOT, ANONYMOUS, SNS)
OF_CALLERS = [
    ("aws:PrincipalType", ("User", "AssumedRole", "FederatedUser", "Account", "Anonymous", "Service")),
    ("aws:PrincipalAccount", (ACCOUNT, ACCOUNT, ACCOUNT, ACCOUNT, "anonymous", None)),
    (
        "aws:PrincipalArn",
        (
            f"arn:aws:iam::{ACCOUNT}:user/teams/alice",
            f"arn:aws:iam::{ACCOUNT}:role/shop/clerk",
            f"arn:aws:sts::{ACCOUNT}:federated-user/kiosk",
            f"arn:aws:iam::{ACCOUNT}:root",
            None,
            None,
        ),
    ),
    ("aws:username", ("alice", None, None, None, None, None)),
    (
        "aws:userid",
        ("AIDAALICE0000000", "AROACLERK0000000:monday", f"{ACCOUNT}:kiosk", ACCOUNT, "anonymous", None),
    ),
    ("aws:PrincipalTag/team", ("orders", None, None, None, None, None)),
    ("aws:PrincipalServiceNamesList", (None, None, None, None, None, ("sns.amazonaws.com",))),
    ("aws:MultiFactorAuthPresent", (None, "false", "false", None, None, None)),
]


@pytest.mark.parametrize(("name", "values"), OF_CALLERS)
def test_key_of_the_caller(name: str, values: tuple[KeyValue, ...]) -> None:
    assert tuple(value(name, caller) for caller in CALLERS) == values


SOURCE = f"arn:aws:sns:{REGION}:{ACCOUNT}:news"
OF_REQUESTS: list[tuple[str, dict[str, Any], KeyValue]] = [
    ("aws:CurrentTime", {}, "2026-11-18T11:06:40Z"),
    ("aws:EpochTime", {"now_ms": 1_999}, "1"),
    ("aws:RequestedRegion", {}, REGION),
    ("aws:ResourceAccount", {}, ACCOUNT),
    ("aws:SourceIp", {}, None),
    ("aws:SourceIp", {"source_ip": "10.1.2.3"}, "10.1.2.3"),
    ("aws:SecureTransport", {}, "false"),
    ("aws:SecureTransport", {"secure_transport": True}, "true"),
    ("aws:UserAgent", {}, None),
    ("aws:UserAgent", {"user_agent": ""}, ""),
    ("aws:Referer", {"referer": "x"}, "x"),
    ("aws:SourceArn", {}, None),
    ("aws:SourceArn", {"source_arn": SOURCE}, SOURCE),
    ("aws:SourceAccount", {"source_account_id": ACCOUNT}, ACCOUNT),
    ("aws:TagKeys", {}, None),
    ("aws:TagKeys", {"tag_keys": ("a", "b")}, ("a", "b")),
    ("aws:RequestTag/team", {"request_tags": {"team": "x"}}, "x"),
    ("aws:RequestTag/team", {}, None),
    ("aws:ResourceTag/team", {"resource_tags": {"team": "x"}}, "x"),
    ("aws:ResourceTag/team", {"resource_tags": {"other": "x"}}, None),
]


@pytest.mark.parametrize(("name", "given", "expected"), OF_REQUESTS)
def test_key_of_the_request(name: str, given: dict[str, Any], expected: KeyValue) -> None:
    assert value(name, **given) == expected


def test_keys_of_temporary_credentials() -> None:
    caller = CLERK._replace(mfa_present=True, mfa_at_ms=NOW_MS - 5_999, token_issued_ms=NOW_MS - 60_000)
    assert value("aws:MultiFactorAuthPresent", caller) == "true"
    assert value("aws:MultiFactorAuthAge", caller) == "5"
    assert value("aws:TokenIssueTime", caller) == "2026-11-18T11:05:40Z"
    assert value("aws:MultiFactorAuthAge") is None and value("aws:TokenIssueTime") is None


def test_texts_that_a_caller_makes_up_are_compared_by_their_beginning() -> None:
    long = "x" * CALLER_TEXT_CHARACTERS_MAX
    assert value("aws:UserAgent", user_agent=long) == value("aws:UserAgent", user_agent=f"{long}y") == long
    assert value("aws:Referer", referer=f"{long}y") == long


def test_every_key_is_tried_here() -> None:
    tried = {name for name, _ in OF_CALLERS} | {name for name, _, _ in OF_REQUESTS}
    tried |= {"aws:MultiFactorAuthAge", "aws:TokenIssueTime"}
    assert {key.name for key in CONTEXT_KEYS} <= tried


def test_keys_that_every_request_has_are_there_for_every_caller() -> None:
    for key in CONTEXT_KEYS:
        if key.always:
            assert all(key.read(asked(caller)) is not None for caller in CALLERS)


def test_names_of_keys_ignore_case() -> None:
    assert value("AWS:UserName") == value("aws:username") == "alice"
    assert value("AWS:PRINCIPALTAG/team") == "orders"


@pytest.mark.parametrize(
    "name", ["aws:nosuch", "username", "aws:PrincipalTag", "aws:PrincipalTag/", "aws:OtherTag/x", "sqs:x"]
)
def test_other_names_are_no_keys(name: str) -> None:
    assert find_key(name) is None
    policy = identity_policy(statement(Condition={"Null": {name if ":" in name else "x:y": "true"}}))
    assert allowed(asked(), policy)


def test_tag_is_found_as_it_is_written_before_other_cases() -> None:
    tags = {"TEAM": "2", "team": "1", "Team": "3"}
    assert value("aws:ResourceTag/team", resource_tags=tags) == "1"
    assert value("aws:ResourceTag/tEAM", resource_tags=tags) == "2"
    assert value("aws:ResourceTag/team", resource_tags={"Team": "3"}) == "3"


def test_tag_may_have_slashes_and_colons() -> None:
    assert value("aws:ResourceTag/a/b:c", resource_tags={"a/b:c": "x"}) == "x"


def test_queue_policy_does_not_see_the_tags_of_its_queue() -> None:
    condition = {"StringEquals": {"aws:ResourceTag/team": "x"}}
    request = asked(resource_tags={"team": "x"}, resource_arn=QUEUE_ARN)
    assert allowed(request, identity_policy(statement(Condition=condition)))
    assert not allowed(request, queues=queue_policy(statement(Condition=condition, Principal="*")))
    denied = queue_policy(
        statement(Principal="*"), statement("Deny", Condition={"Null": {"AWS:resourcetag/team": "true"}}, Principal="*")
    )
    assert not allowed(request, queues=denied)


def test_queue_policy_sees_the_tags_of_the_queue_in_no_variable_either() -> None:
    tags = {"resource_tags": {"team": "x"}}
    name = "${aws:ResourceTag/team, 'none'}"
    same = {"StringEquals": {"aws:RequestedRegion": "${AWS:resourcetag/team}"}}
    asking = {**tags, "region": "x"}
    assert allowed(asked(**asking), identity_policy(statement(Condition=same)))
    assert not allowed(asked(**asking), queues=queue_policy(statement(Principal="*", Condition=same)))
    other = {"StringNotEquals": {"aws:RequestedRegion": "${aws:ResourceTag/team}"}}
    assert allowed(asked(**asking), queues=queue_policy(statement(Principal="*", Condition=other)))
    default = {"StringEquals": {"aws:RequestedRegion": name}}
    assert allowed(asked(**tags, region="none"), queues=queue_policy(statement(Principal="*", Condition=default)))
    arn = QUEUE_ARN.rpartition(":")[0]
    of_tag = statement(Principal="*", Resource=f"{arn}:${{aws:ResourceTag/team}}")
    named = {"resource_arn": f"{arn}:x", **tags}
    assert not allowed(asked(**named), queues=queue_policy(of_tag))
