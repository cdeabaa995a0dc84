"""What each role may do in an account: identity policies, weighed by the same evaluator as those of keys.

Views and actions ask `may`. Policies that are attached to a member, or to a group of it, are weighed with the role's:
they can give more, and a Deny in them takes away.
"""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Sequence
from functools import cache

from api.settings.environment import environment
from frontend.authn.principal import Principal, person
from frontend.authz import CompiledPolicy, PolicyKind, compile_policy, evaluate, join_policies
from frontend.authz.actions import Target, resource_arn


class MemberRole(enum.StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    READER = "reader"
    BILLING = "billing"
    # Whom policies alone open something.
    GUEST = "guest"


class Act(enum.StrEnum):
    """The values are actions of policies."""

    READ_ACCOUNT = "penstock:GetAccount"
    CLOSE_ACCOUNT = "penstock:CloseAccount"
    READ_MEMBERS = "penstock:ListMembers"
    MANAGE_MEMBERS = "penstock:ManageMembers"
    # To make an owner, and to change or remove one.
    MANAGE_OWNERS = "penstock:ManageOwners"
    READ_QUEUES = "sqs:GetQueueAttributes"
    MANAGE_QUEUES = "sqs:SetQueueAttributes"
    # Bodies and attributes of messages.
    READ_MESSAGES = "penstock:PeekMessages"
    CHANGE_MESSAGES = "penstock:RemoveMessage"
    READ_METRICS = "penstock:GetMetricData"
    READ_ALARMS = "penstock:ListAlarms"
    MANAGE_ALARMS = "penstock:PutAlarm"
    MUTE_ALARMS = "penstock:MuteAlarm"
    DELETE_ALARMS = "penstock:DeleteAlarm"
    READ_KEYS = "penstock:ListKeys"
    MANAGE_KEYS = "penstock:CreateKey"
    READ_AUDIT = "penstock:ListAuditEntries"
    CONFIGURE_ACCOUNT = "penstock:UpdateAccount"
    # Money: what the account used and owes. The billing role has these and the account itself.
    READ_USAGE = "billing:GetUsage"
    READ_METER = "billing:GetMeter"
    LIST_INVOICES = "billing:ListInvoices"
    READ_INVOICES = "billing:GetInvoice"
    READ_BUDGETS = "billing:ListBudgets"
    MANAGE_BUDGETS = "billing:PutBudget"
    DELETE_BUDGETS = "billing:DeleteBudget"
    READ_BUYER = "billing:GetBuyer"
    MANAGE_BUYER = "billing:PutBuyer"
    DELETE_BUYER = "billing:DeleteBuyer"
    READ_PLANS = "billing:ListPlans"
    READ_CREDITS = "billing:ListCredits"


_ANYBODY = person("0" * 12, "any")
_READING: list[str] = [
    Act.READ_ACCOUNT,
    Act.READ_MEMBERS,
    "sqs:GetQueue*",
    "sqs:List*",
    "penstock:Get*",
    "penstock:List*",
    "penstock:SimulatePolicy",
]
_OF_OWNERS: list[str] = [Act.CLOSE_ACCOUNT, Act.MANAGE_OWNERS]
# Keys and policies: who may make them can give every right to anybody.
_OF_ADMINS: list[str] = [
    Act.MANAGE_MEMBERS,
    "penstock:*Key",
    "penstock:*EncryptionKeyDeletion",
    "penstock:*KeyPolicy",
    "penstock:*KeyQuotas",
    "penstock:*Policy",
    "penstock:*Group",
    "penstock:UpdateAccount",
    "penstock:EndDeletedQueue",
    "penstock:ExportAuditEntries",
    "penstock:RequestQuota",
    "billing:*",
]


def _statement(effect: str, actions: list[str]) -> dict[str, object]:
    return {"Effect": effect, "Action": actions, "Resource": "*"}


STATEMENTS: dict[MemberRole, list[dict[str, object]]] = {
    MemberRole.OWNER: [_statement("Allow", ["*"])],
    MemberRole.ADMIN: [{"Effect": "Allow", "NotAction": _OF_OWNERS, "Resource": "*"}],
    MemberRole.DEVELOPER: [
        _statement("Allow", [*_READING, "sqs:*", "penstock:UseEncryptionKey"]),
        {"Effect": "Allow", "NotAction": [*_OF_OWNERS, *_OF_ADMINS, "sqs:*"], "Resource": "*"},
    ],
    MemberRole.READER: [_statement("Allow", _READING)],
    MemberRole.BILLING: [_statement("Allow", [Act.READ_ACCOUNT, "billing:*"])],
    MemberRole.GUEST: [_statement("Allow", [Act.READ_ACCOUNT])],
}


@cache
def role_policy(role: MemberRole) -> CompiledPolicy:
    text = json.dumps({"Version": "2012-10-17", "Statement": STATEMENTS[role]})
    return compile_policy(text, PolicyKind.IDENTITY, f"role/{role.value}")


def may(role: str, act: Act) -> bool:
    """By the role alone."""
    return gives(role, act.value)


def gives(role: str, action: str) -> bool:
    """Does the role allow this action of policies, by itself?"""
    return _is_allowed(action, role_policy(MemberRole(role)))


def roles_that_may(act: Act) -> list[MemberRole]:
    return [role for role in MemberRole if may(role, act)]


def may_with(role: str, act: Act, attached: Sequence[CompiledPolicy], who: Principal) -> bool:
    """By the role and the policies that are attached, whose conditions look at from where the member asks. What is the
    owners' alone no attached policy gives."""
    joined = join_policies([role_policy(MemberRole(role)), *attached]) if attached else None
    if joined is not None and not _is_allowed(act.value, joined, who):
        return False
    return may(role, act) if act in _OF_OWNERS or not attached else True


def act_to_give(role: str) -> Act:
    """What it takes to give the role, to change it or to take it away."""
    return Act.MANAGE_OWNERS if role == MemberRole.OWNER else Act.MANAGE_MEMBERS


def _is_allowed(action: str, policy: CompiledPolicy, who: Principal = _ANYBODY) -> bool:
    region = environment().region
    arn = resource_arn(Target.ACCOUNT, region, who.account_id)
    return evaluate(who.asks(action, arn, time.time_ns() // 1_000_000, region), policy).allowed
