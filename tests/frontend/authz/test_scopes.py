"""Scopes of keys are policies: what each allows, on which queues, and that they are recognised."""

from __future__ import annotations

import json

import pytest

from frontend.authz import NO_POLICY, PolicyKind, RequestContext, compile_policy, evaluate
from frontend.authz.actions import ACTIONS
from frontend.authz.request_context import key_caller
from frontend.authz.scopes import QUEUE_PATTERNS_MAX, SCOPES, KeyScopes, ScopeError, scope_policy, scopes_of

ACCOUNT = "123456789012"


def allowed(scopes: list[str], queues: list[str], queue: str, account_id: str = ACCOUNT) -> set[str]:
    policy = compile_policy(scope_policy(ACCOUNT, scopes, queues), PolicyKind.IDENTITY, "key")
    caller = key_caller(ACCOUNT, "k")
    arn = f"arn:aws:sqs:eu-west-1:{account_id}:{queue}"
    asked = [RequestContext(caller, action.name, arn, 0, "eu-west-1") for action in ACTIONS]
    return {one.action for one in asked if evaluate(one, policy, NO_POLICY).allowed}


@pytest.mark.parametrize("scope", SCOPES)
def test_scope_allows_its_actions_on_its_queues_alone(scope: str) -> None:
    assert allowed([scope], ["orders", "jobs-*"], "orders") == set(SCOPES[scope])
    assert allowed([scope], ["orders", "jobs-*"], "jobs-1.fifo") == set(SCOPES[scope])
    assert allowed([scope], ["orders", "jobs-*"], "orders2") == set()
    assert allowed([scope], [], "anything") == set(SCOPES[scope])
    assert allowed([scope], [], "anything", "999999999999") == set()


def test_send_only_key_cannot_receive() -> None:
    assert allowed(["send"], [], "orders") == {"sqs:GetQueueUrl", "sqs:SendMessage"}


def test_scopes_together_allow_what_each_allows() -> None:
    assert allowed(["send", "receive"], [], "q") == {*SCOPES["send"], *SCOPES["receive"]}


def test_no_scope_gives_rights_to_give_rights() -> None:
    given = {action for actions in SCOPES.values() for action in actions}
    forbidden = {"sqs:AddPermission", "sqs:RemovePermission", "sqs:SetQueueAttributes"}
    assert not given & forbidden and all(action.startswith("sqs:") for action in given)


def test_scopes_are_recognised_in_the_policy_that_they_stand_for() -> None:
    text = scope_policy(ACCOUNT, ["send", "look"], ["a", "b*"])
    assert scopes_of(ACCOUNT, text) == KeyScopes(("send", "look"), ("a", "b*"))
    assert scopes_of("999999999999", text) is None
    changed = json.loads(text)
    changed["Statement"][0]["Action"].append("sqs:DeleteQueue")
    others = (json.dumps(changed, separators=(",", ":")), "", "{}", "[]", "1", '{"Statement":[]}', '{"Statement":[1]}')
    assert [scopes_of(ACCOUNT, other) for other in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("scopes", "queues", "member"),
    [
        ([], [], "scopes"),
        (["all"], [], "scopes"),
        (["send", "send"], [], "scopes"),
        (["send"], ["a", "a"], "queues"),
        (["send"], [f"q{number}" for number in range(QUEUE_PATTERNS_MAX + 1)], "queues"),
        (["send"], [""], "queues"),
        (["send"], ["a:b"], "queues"),
        (["send"], ["${aws:username}"], "queues"),
        (["send"], ["a\n"], "queues"),
        (["send"], ["x" * 81], "queues"),
    ],
)
def test_what_is_no_scope_is_refused(scopes: list[str], queues: list[str], member: str) -> None:
    with pytest.raises(ScopeError) as refused:
        scope_policy(ACCOUNT, scopes, queues)
    assert refused.value.member == member
