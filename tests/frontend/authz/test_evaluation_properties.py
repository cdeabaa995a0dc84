"""What must hold for any policies and any request: a Deny wins in any order, an Allow more takes nothing away."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.authz import (
    NO_POLICY,
    CompiledPolicy,
    PolicyError,
    PolicyKind,
    RequestContext,
    compile_policy,
    evaluate,
    join_policies,
    load_policy,
    review,
    simulate,
)
from frontend.authz.request_context import CallerKind
from tests.frontend.authz.oracle.edges import draw
from tests.frontend.authz.oracle.pairs import Pair

pairs = st.integers(0, 2**32).map(lambda seed: draw(random.Random(seed)))
few = settings(max_examples=150)


def compiled(pair: Pair) -> tuple[RequestContext, CompiledPolicy, CompiledPolicy] | None:
    """None where a document of the pair is refused, as some are on purpose."""
    try:
        own = [compile_policy(json.dumps(one), PolicyKind.IDENTITY, f"p{at}") for at, one in enumerate(pair.identity)]
        resource = NO_POLICY
        if pair.resource is not None:
            resource = compile_policy(json.dumps(pair.resource), PolicyKind.RESOURCE, "queue")
    except PolicyError:
        return None
    return pair.request, join_policies(own), resource


def with_statement(policy: CompiledPolicy, kind: PolicyKind, **members: Any) -> CompiledPolicy:
    made = {"Effect": "Allow", "Action": "*", "Resource": "*", **members}
    return join_policies([policy, compile_policy(json.dumps({"Statement": made}), kind, "more")])


@few
@given(pairs, st.randoms(use_true_random=False))
def test_order_of_statements_decides_nothing(pair: Pair, chance: random.Random) -> None:
    found = compiled(pair)
    if found is None:
        return
    request, own, resource = found
    shuffled = [CompiledPolicy(chance.sample(one.statements, len(one.statements))) for one in (own, resource)]
    one, other = evaluate(request, own, resource), evaluate(request, *shuffled)
    assert (one.allowed, one.reason) == (other.allowed, other.reason)


@few
@given(pairs)
def test_deny_of_everything_leaves_nothing(pair: Pair) -> None:
    found = compiled(pair)
    if found is None:
        return
    request, own, resource = found
    assert not evaluate(request, with_statement(own, PolicyKind.IDENTITY, Effect="Deny"), resource).allowed
    if request.caller.kind is not CallerKind.ROOT:  # it could not repair the policy otherwise
        denied = with_statement(resource, PolicyKind.RESOURCE, Effect="Deny", Principal="*")
        assert not evaluate(request, own, denied).allowed


@few
@given(pairs)
def test_allow_more_takes_no_right_away_and_deny_more_gives_none(pair: Pair) -> None:
    found = compiled(pair)
    if found is None:
        return
    request, own, resource = found
    before = evaluate(request, own, resource).allowed
    for effect, keeps in (("Allow", True), ("Deny", False)):
        wider = with_statement(own, PolicyKind.IDENTITY, Effect=effect, Action="sqs:*Message")
        queues = with_statement(resource, PolicyKind.RESOURCE, Effect=effect, Principal="*", Action="sqs:*Message")
        for changed in ((wider, resource), (own, queues), (wider, queues)):
            if before is keeps:
                assert evaluate(request, *changed).allowed is before


def widened(document: Any) -> Any:
    """Every pattern of the Allow statements reaches more; those of the Deny statements are as they were."""
    statements = document["Statement"]
    made = []
    for one in statements if isinstance(statements, list) else [statements]:
        wider = dict(one)
        if one["Effect"] == "Allow":
            for name in ("Action", "Resource"):
                if isinstance(one.get(name), str) and not one[name].endswith("*"):
                    wider[name] = f"{one[name]}*"
        made.append(wider)
    return {**document, "Statement": made}


@few
@given(pairs)
def test_wider_patterns_of_allow_take_no_right_away(pair: Pair) -> None:
    found = compiled(pair)
    if found is None or not evaluate(*found).allowed:
        return
    wider = pair._replace(
        identity=[widened(one) for one in pair.identity], resource=pair.resource and widened(pair.resource)
    )
    again = compiled(wider)
    assert again is not None and evaluate(*again).allowed


@few
@given(pairs)
def test_queue_without_a_policy_is_closed_to_other_accounts(pair: Pair) -> None:
    """Without a queue policy nothing of a queue is open to another account."""
    found = compiled(pair)
    if found is None:
        return
    request, own, _ = found
    if request.caller.account_id != request.resource_account_id:
        assert not evaluate(request, own, NO_POLICY).allowed


@few
@given(pairs)
def test_simulation_agrees_with_the_decision(pair: Pair) -> None:
    found = compiled(pair)
    if found is None:
        return
    decision, outcomes = simulate(*found)
    assert decision == evaluate(*found)
    matching = {outcome.place: outcome.denies for outcome in outcomes if outcome.mismatch is None}
    if decision.statement is not None:
        assert matching[decision.statement] is not decision.allowed
    if decision.allowed and found[0].caller.kind is not CallerKind.ROOT:
        assert not any(matching.values())


# --- documents of any shape ---

_WORDS = (
    "Version", "Id", "Statement", "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource",
    "NotResource", "Condition", "2012-10-17", "2008-10-17", "Allow", "Deny", "*", "AWS", "Service", "Federated",
    "sqs:*", "sqs:SendMessage", "arn:aws:sqs:*:*:*", "arn:aws:sqs:us-east-1:111122223333:orders", "111122223333",
    "StringEquals",
    "NumericLessThan", "DateEquals", "IpAddress", "ArnLike", "Null", "Bool", "ForAllValues:StringLike", "aws:SourceIp",
    "aws:username", "aws:TagKeys", "${aws:username}", "${", "true", "2026-11-18", "10.0.0.0/8", "\x00", "\ud800", "☃",
    "",
)  # fmt: skip
words = st.sampled_from(_WORDS) | st.text(max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


def some_of(chance: random.Random, document: Any, strange: Any) -> Any:
    """The document with one member or value of it, chosen by chance, in another's place."""
    if isinstance(document, dict) and document and chance.random() < 0.9:
        name = chance.choice(sorted(document))
        changed = {**document, name: some_of(chance, document[name], strange)}
        if chance.random() < 0.1:
            changed[chance.choice(_WORDS)] = changed.pop(name)
        return changed
    if isinstance(document, list) and document and chance.random() < 0.8:
        at = chance.randrange(len(document))
        return [*document[:at], some_of(chance, document[at], strange), *document[at + 1 :]]
    return strange


def check_is_refused_or_evaluated(text: str, request: RequestContext) -> None:
    for kind in PolicyKind:
        try:
            policy = compile_policy(text, kind, "p")
        except PolicyError as error:
            assert error.path.startswith("$") and error.text
            assert any(remark.refused for remark in review(text, kind))
            assert load_policy(text, kind, "p").unreadable is not None
        else:
            assert not any(remark.refused for remark in review(text, kind))
            simulate(request, *((policy, NO_POLICY) if kind is PolicyKind.IDENTITY else (NO_POLICY, policy)))


@settings(max_examples=150)
@given(values, pairs)
def test_document_of_any_shape_is_refused_or_evaluated(document: Any, pair: Pair) -> None:
    check_is_refused_or_evaluated(json.dumps(document), pair.request)


@settings(max_examples=150)
@given(pairs, values, st.randoms(use_true_random=False))
def test_document_that_is_nearly_right_is_refused_or_evaluated(pair: Pair, strange: Any, chance: random.Random) -> None:
    for document in (*pair.identity, pair.resource):
        check_is_refused_or_evaluated(json.dumps(some_of(chance, document, strange)), pair.request)


@given(st.text())
def test_text_of_any_kind_is_refused(text: str) -> None:
    for kind in PolicyKind:
        with pytest.raises(PolicyError):
            compile_policy(text, kind, "p")


def test_chance_makes_policies_that_are_read() -> None:
    """The properties above say something: most of what is drawn is a policy, and some of it allows."""
    found = [compiled(draw(random.Random(seed))) for seed in range(300)]
    read = [one for one in found if one is not None]
    assert len(read) > 240
    assert sum(evaluate(*one).allowed for one in read) > 30
