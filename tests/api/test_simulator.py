"""The simulator of policies: what would be decided, and by which statement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_plane import Caller, new_caller
from tests.support.iam import caller as caller
from tests.support.iam import code, document, member, restricted

pytestmark = pytest.mark.django_db(transaction=True)


def simulated(caller: Caller, **asked: Any) -> list[dict[str, Any]]:
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    answer = caller.request("POST", "/v1/policies/simulate", {"resources": [arn], **asked})
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_simulator_tells_the_decision_and_the_statement_that_decided(caller: Caller) -> None:
    statements = [
        {"Sid": "send", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"},
        {"Sid": "never", "Effect": "Deny", "Action": "sqs:DeleteQueue", "Resource": "*"},
    ]
    key = restricted(caller, {"Version": "2012-10-17", "Statement": statements})
    actions = ["SQS:sendmessage", "sqs:DeleteQueue", "sqs:ReceiveMessage"]
    send, delete, receive = simulated(caller, access_key_id=key.access_key_id, actions=actions)
    assert (send["action"], send["decision"]) == ("sqs:SendMessage", "allowed")
    assert send["statement"] == {"policy": "key", "ordinal": 0, "sid": "send"}
    assert (delete["decision"], delete["statement"]["sid"]) == ("explicit_deny", "never")
    assert (receive["decision"], receive["statement"]) == ("implicit_deny", None)
    assert [one["mismatch"] for one in receive["statements"]] == ["action", "action"]


def test_simulator_weighs_given_policies_people_and_the_queue(caller: Caller) -> None:
    condition = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    given = [document("sqs:SendMessage", Condition=condition)]
    asked = {"policies": given, "actions": ["sqs:SendMessage"]}
    inside = {"source_ip": "203.0.113.1"}
    assert simulated(caller, **asked, request_context=inside)[0]["decision"] == "allowed"
    assert simulated(caller, **asked)[0]["decision"] == "implicit_deny"
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:orders"
    closed = {"Statement": {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn}}
    denied = simulated(caller, **asked, request_context=inside, queue_policy=closed)[0]
    assert (denied["decision"], denied["statement"]["policy"]) == ("explicit_deny", "queue_policy")
    reader = member(caller.account_id, "reader")
    names = ["sqs:GetQueueUrl", "sqs:SendMessage"]
    found = simulated(caller, person_id=str(reader.person_id), actions=names)
    assert [one["decision"] for one in found] == ["allowed", "implicit_deny"]
    assert found[0]["statement"]["policy"] == "role/reader"


@pytest.mark.parametrize(
    "change",
    [
        {"actions": []}, {"actions": ["sqs:NoSuch"]}, {"actions": ["sqs:SendMessage"] * 51}, {"actions": "sqs:*"},
        {"resources": ["orders"]}, {"resources": []}, {"policies": [{}]}, {"queue_policy": {}}, {"more": 1},
        {"request_context": {"source_ip": "x"}}, {"request_context": {"time": "soon"}}, {"person_id": "x"},
        {"request_context": {"secure_transport": "yes"}}, {"access_key_id": 1},
    ],
)  # fmt: skip
def test_simulator_refuses_what_it_does_not_understand(caller: Caller, change: dict[str, Any]) -> None:
    asked = {"actions": ["sqs:SendMessage"], "resources": ["arn:aws:sqs:us-east-1:1:q"], **change}
    assert code(caller.request("POST", "/v1/policies/simulate", asked))[0] == 400


@pytest.mark.parametrize(("given", "meant"), [("SendMessage", "sqs:SendMessage"), ("sqs:Foo", "sqs:SendMessage")])
def test_simulator_names_the_action_that_was_meant(caller: Caller, given: str, meant: str) -> None:
    asked = {"actions": [given], "resources": ["*"]}
    assert meant in caller.request("POST", "/v1/policies/simulate", asked).json()["detail"]


def test_simulator_tells_nothing_of_another_account(caller: Caller) -> None:
    other = new_caller("other")
    key = restricted(other, document("sqs:SendMessage"))
    asked = {"actions": ["sqs:SendMessage"], "resources": [f"arn:aws:sqs:us-east-1:{other.account_id}:orders"]}
    refused = caller.request("POST", "/v1/policies/simulate", {**asked, "access_key_id": key.access_key_id})
    assert refused.status_code == 404
    (result,) = caller.request("POST", "/v1/policies/simulate", asked).json()["results"]
    assert result["decision"] == "implicit_deny" and result["statements"] == []
