"""What an operator who acts as a member may not do, whatever the member may.

Nothing that outlasts the visit: no keys, no rights for people, keys, groups or other accounts, no alarms and budgets,
which mail on, no schedules, which send on (those that are there can be muted and paused), no address on invoices.
Nothing that destroys for good what the account chose to keep, no export of the trail, and no change of the account's
settings, which guard its queues: an operator has commands for these, and the trail says then that the operator did it.
"""

from __future__ import annotations

import json
from functools import cache

from api.people.roles import Act
from frontend.authz import CompiledPolicy, PolicyKind, compile_policy

DENIED = (
    Act.CLOSE_ACCOUNT,
    Act.MANAGE_OWNERS,
    Act.MANAGE_MEMBERS,
    Act.CONFIGURE_ACCOUNT,
    "penstock:EndDeletedQueue",
    "penstock:ExportAuditEntries",
    "penstock:CreateKey",
    "penstock:RotateKey",
    "penstock:UpdateKey",
    "penstock:DeleteKey",
    "penstock:PutKeyQuotas",
    "penstock:PutKeyPolicy",
    "penstock:DeleteKeyPolicy",
    "penstock:CreatePolicy",
    "penstock:UpdatePolicy",
    "penstock:DeletePolicy",
    "penstock:AttachPolicy",
    "penstock:DetachPolicy",
    "penstock:CreateGroup",
    "penstock:UpdateGroup",
    "penstock:DeleteGroup",
    "penstock:UpdateEncryptionKey",
    "penstock:ScheduleEncryptionKeyDeletion",
    "penstock:PutWebhook",
    "penstock:RotateWebhook",
    "penstock:DeleteWebhook",
    "penstock:PutAlarm",
    "penstock:DeleteAlarm",
    "penstock:CreateSchedule",
    "penstock:UpdateSchedule",
    "penstock:DeleteSchedule",
    "billing:PutBudget",
    "billing:DeleteBudget",
    "billing:PutBuyer",
    "billing:DeleteBuyer",
    "sqs:AddPermission",
    "sqs:RemovePermission",
)
# The same for operators to read.
DENIED_IN_WORDS = (
    "Not possible then: to create or change keys, policies, groups, members, owners, permissions, webhooks, alarms, "
    "budgets, schedules, settings of the account, or the address on invoices; to change or delete encryption keys; to "
    "export the audit log; to delete for good what the account keeps, or to close it. Alarms can be muted and "
    "schedules paused."
)


@cache
def acting_policy() -> CompiledPolicy:
    """Weighed with the member's own."""
    statement = {"Effect": "Deny", "Action": DENIED, "Resource": "*"}
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return compile_policy(text, PolicyKind.IDENTITY, "acting")
