"""What policies may cost: they are weighed for every request of a key, and in a simulation many times."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest

from api.iam import limits
from api.iam.actions import keys
from frontend.authz import parse_document
from frontend.authz.policy_limits import FLOATING_PATTERNS_MAX, SEVERAL_VALUES_WILDCARDS_MAX
from tests.support.control_plane import Caller

pytestmark = pytest.mark.django_db


def policy_where(condition: dict[str, Any]) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*", "Condition": condition}
    return {"Version": "2012-10-17", "Statement": statement}


def slow_policy(patterns: int) -> dict[str, Any]:
    """Each pattern takes a step for every character of what it is compared with."""
    return policy_where({"StringLike": {"aws:UserAgent": [f"*{number}x?y*" for number in range(patterns)]}})


def test_slow_patterns_of_all_policies_of_a_key_are_bounded_together(caller: Caller) -> None:
    half = FLOATING_PATTERNS_MAX // 2
    made = caller.request("POST", "/v1/keys", {"name": "k", "policy": slow_policy(half)})
    key = f"/v1/keys/{made.json()['access_key_id']}"
    for name in ("first", "second"):
        asked = {"name": name, "policy": slow_policy(half)}
        assert caller.request("POST", "/v1/policies", asked).status_code == 201
    assert caller.request("PUT", f"{key}/policies/first").status_code == 200
    refusals = (
        caller.request("PUT", f"{key}/policies/second"),
        caller.request("PUT", f"{key}/policy", {"policy": slow_policy(half + 1)}),
        caller.request("PUT", "/v1/policies/first", {"policy": slow_policy(half + 1)}),
    )
    for refused in refusals:
        assert (refused.status_code, refused.json()["code"]) == (403, "over-limit"), refused.content
    assert caller.request("GET", f"{key}/policy").json()["attached"] == ["first"]
    assert caller.request("PUT", "/v1/policies/first", {"policy": slow_policy(half)}).status_code == 200


def many_patterns(patterns: int) -> dict[str, Any]:
    """Each is compared with each tag key of a request."""
    return policy_where({"ForAllValues:StringLike": {"aws:TagKeys": [f"{number}*" for number in range(patterns)]}})


def test_patterns_of_tag_keys_of_all_policies_of_a_key_are_bounded_together(caller: Caller) -> None:
    half = SEVERAL_VALUES_WILDCARDS_MAX // 2
    made = caller.request("POST", "/v1/keys", {"name": "k", "policy": many_patterns(half)})
    key = f"/v1/keys/{made.json()['access_key_id']}"
    for name, count in (("fits", half), ("does not", half + 1)):
        assert (
            caller.request("POST", "/v1/policies", {"name": name[:4], "policy": many_patterns(count)}).status_code
            == 201
        )
    refused = caller.request("PUT", f"{key}/policies/does")
    assert (refused.status_code, refused.json()["code"]) == (403, "over-limit"), refused.content
    assert caller.request("PUT", f"{key}/policies/fits").status_code == 200


def test_document_with_too_many_patterns_of_tag_keys_is_not_stored(caller: Caller) -> None:
    asked = many_patterns(SEVERAL_VALUES_WILDCARDS_MAX + 1)
    refused = caller.request("POST", "/v1/policies", {"name": "slow", "policy": asked})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid-policy"), refused.content
    assert "101 wildcards in conditions on keys of several values" in refused.json()["detail"]
    asked["Statement"] |= {"Principal": "*"}
    params = {"QueueName": "q", "Attributes": {"Policy": json.dumps(asked)}}
    refused = caller.sqs("CreateQueue", **params)
    assert (refused.status_code, refused.json()["code"]) == (403, "OverLimit"), refused.content


def test_change_of_a_policy_that_many_keys_have_reads_its_text_once(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert caller.request("POST", "/v1/policies", {"name": "shared", "policy": slow_policy(1)}).status_code == 201
    for _ in range(3):
        made = caller.request("POST", "/v1/keys", {"name": "k"}).json()
        assert caller.request("PUT", f"/v1/keys/{made['access_key_id']}/policies/shared").status_code == 200
    reading = Mock(side_effect=parse_document)
    monkeypatch.setattr(keys, "parse_document", reading)
    assert caller.request("PUT", "/v1/policies/shared", {"policy": slow_policy(2)}).status_code == 200
    assert reading.call_count == 1


def test_simulation_that_takes_too_long_is_refused(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIMULATION_S_MAX", 0.05)
    asked = {
        "policies": [slow_policy(FLOATING_PATTERNS_MAX)] * 20,
        "actions": ["sqs:SendMessage"] * limits.SIMULATED_ACTIONS_MAX,
        "resources": [f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"] * limits.SIMULATED_RESOURCES_MAX,
        "request_context": {"user_agent": "x" * 512},
    }
    refused = caller.request("POST", "/v1/policies/simulate", asked)
    assert (refused.status_code, refused.json()["code"]) == (403, "over-limit"), json.dumps(refused.json())
    one = {**asked, "policies": [slow_policy(1)], "actions": ["sqs:SendMessage"], "resources": asked["resources"][:1]}
    assert caller.request("POST", "/v1/policies/simulate", one).status_code == 200
