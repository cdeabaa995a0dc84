"""The policies of roles, whole, and what attached policies add to them."""

from __future__ import annotations

import json

import pytest

from api.people.roles import Act, MemberRole, act_to_give, may, may_with, role_policy
from frontend.authn.principal import person
from frontend.authz import CompiledPolicy, PolicyKind, compile_policy, evaluate

ACCOUNT = "123456789012"
ANN = person(ACCOUNT, "ann")
READS = {"GetAccount", "ListMembers", "ListKeys", "ListAuditEntries", "GetMetricData", "ListAlarms"}
READS |= {"sqs:GetQueueAttributes"}
WORKS = READS | {"PeekMessages", "PutAlarm", "MuteAlarm", "DeleteAlarm", "RemoveMessage", "sqs:SetQueueAttributes"}
MONEY = {
    f"billing:{name}"
    for name in (
        "GetUsage", "GetMeter", "ListInvoices", "GetInvoice", "ListBudgets", "PutBudget", "DeleteBudget", "GetBuyer",
        "PutBuyer", "DeleteBuyer", "ListPlans", "ListCredits",
    )
}  # fmt: skip
RUNS = WORKS | MONEY | {"ManageMembers", "CreateKey", "UpdateAccount"}
EXPECTED = {
    "owner": RUNS | {"CloseAccount", "ManageOwners"},
    "admin": RUNS,
    "developer": WORKS,
    "reader": READS,
    "billing": MONEY | {"GetAccount"},
    "guest": {"GetAccount"},
}


def policy(effect: str, action: str) -> CompiledPolicy:
    statement = {"Effect": effect, "Action": action, "Resource": "*"}
    return compile_policy(json.dumps({"Statement": statement}), PolicyKind.IDENTITY, "attached")


def allows(role: MemberRole, action: str) -> bool:
    service = action.partition(":")[0]
    arn = f"arn:aws:{service}:us-east-1:{ACCOUNT}:orders"
    return evaluate(ANN.asks(action, arn, 0, "us-east-1"), role_policy(role)).allowed


def test_each_role_may_do_what_the_page_says() -> None:
    for role in MemberRole:
        allowed = {act.value.removeprefix("penstock:") for act in Act if may(role, act)}
        assert allowed == EXPECTED[role.value]


@pytest.mark.parametrize(
    ("action", "roles"),
    [
        ("sqs:SendMessage", "owner admin developer"),
        ("sqs:DeleteQueue", "owner admin developer"),
        ("sqs:GetQueueAttributes", "owner admin developer reader"),
        ("sqs:ReceiveMessage", "owner admin developer"),
        ("penstock:PeekMessages", "owner admin developer"),
        ("penstock:CreateSchedule", "owner admin developer"),
        ("penstock:ListKeys", "owner admin developer reader"),
        ("penstock:CreateKey", "owner admin"),
        ("penstock:PutKeyPolicy", "owner admin"),
        ("penstock:AttachPolicy", "owner admin"),
        ("penstock:UpdateAccount", "owner admin"),
        ("penstock:RequestQuota", "owner admin"),
        ("penstock:GetDefinitions", "owner admin developer reader"),
        ("penstock:ImportDefinitions", "owner admin developer"),
        ("billing:PutBudget", "owner admin billing"),
    ],
)
def test_roles_reach_queues_and_keys_as_the_page_says(action: str, roles: str) -> None:
    assert {role.value for role in MemberRole if allows(role, action)} == set(roles.split())


def test_owners_give_all_roles_admins_all_but_owner_others_none() -> None:
    given = {role.value: {other.value for other in MemberRole if may(role, act_to_give(other))} for role in MemberRole}
    assert given == {
        "owner": {"owner", "admin", "developer", "reader", "billing", "guest"},
        "admin": {"admin", "developer", "reader", "billing", "guest"},
        "developer": set(),
        "reader": set(),
        "billing": set(),
        "guest": set(),
    }


def test_attached_policy_gives_more_and_takes_away() -> None:
    manages = policy("Allow", "penstock:ManageMembers")
    assert may_with("reader", Act.MANAGE_MEMBERS, [manages], ANN)
    assert not may_with("admin", Act.MANAGE_MEMBERS, [manages, policy("Deny", "penstock:Manage*")], ANN)
    assert may_with("admin", Act.READ_ACCOUNT, [policy("Deny", "penstock:Manage*")], ANN)


def test_attached_policy_makes_no_owner() -> None:
    everything = policy("Allow", "*")
    for act in (Act.CLOSE_ACCOUNT, Act.MANAGE_OWNERS):
        assert not may_with("admin", act, [everything], ANN)
        assert may_with("owner", act, [everything], ANN)
        assert not may_with("owner", act, [policy("Deny", act.value)], ANN)


def test_conditions_and_the_arn_of_the_account_count_for_acts() -> None:
    """A Deny that is about an address, the encryption or the account itself reaches what people do."""
    office, elsewhere = (person(ACCOUNT, "ann", address, True) for address in ("203.0.113.7", "198.51.100.7"))
    cases: list[tuple[dict[str, object], bool, bool]] = [
        ({"Condition": {"IpAddress": {"aws:SourceIp": "198.51.100.0/24"}}}, True, False),
        ({"Condition": {"NotIpAddress": {"aws:SourceIp": "203.0.113.0/24"}}}, True, False),
        ({"Condition": {"Bool": {"aws:SecureTransport": "false"}}}, True, True),
        ({"Condition": {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}}, False, False),
        ({"Resource": f"arn:aws:penstock:us-east-1:{ACCOUNT}:account"}, False, False),
        ({"Resource": f"arn:aws:penstock:eu-west-1:{ACCOUNT}:account"}, True, True),
    ]
    for more, at_office, outside in cases:
        statement = {"Effect": "Deny", "Action": "penstock:ManageMembers", "Resource": "*", **more}
        text = json.dumps({"Version": "2012-10-17", "Statement": statement})
        denied = [compile_policy(text, PolicyKind.IDENTITY, "attached")]
        found = [may_with("admin", Act.MANAGE_MEMBERS, denied, who) for who in (office, elsewhere)]
        assert found == [at_office, outside], more
    plain = policy_text({"Bool": {"aws:SecureTransport": "false"}})
    assert not may_with("admin", Act.MANAGE_MEMBERS, [plain], person(ACCOUNT, "ann", "203.0.113.7"))


def policy_text(condition: dict[str, object]) -> CompiledPolicy:
    statement = {"Effect": "Deny", "Action": "penstock:ManageMembers", "Resource": "*", "Condition": condition}
    return compile_policy(json.dumps({"Statement": statement}), PolicyKind.IDENTITY, "attached")
