"""What each operation of Penstock asks for: IAM actions, and on which resource. The one table. Pure.

Surface: other planes may import this module.

An operation is allowed when all of its demands are. Batch calls ask for the action of the single one, once. Operations
that SQS does not have need an action of their own, `penstock:...` or `billing:...`; those of queues need also the SQS
action with the same effect: a caller that is denied `sqs:ReceiveMessage` cannot read messages through the message
browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from frontend.authz.request_context import AWS_PARTITION

SQS, OWN, BILLING = "sqs", "penstock", "billing"


class Target(Enum):
    QUEUE = auto()  # the queue that is named; the one that is made
    DEAD_LETTER_QUEUE = auto()  # the queue that the named queue's RedrivePolicy names
    DESTINATION = auto()  # the queue that messages go to; without one, each queue that they came from
    LETTER_HOLDERS = auto()  # queues whose dead letters of the named queue cannot be read any more, as is asked
    ALL_QUEUES = auto()  # of the account: an ARN with an empty name
    ACCOUNT = auto()
    KEY = auto()  # an access key of the account
    POLICY = auto()  # a named policy of the account
    GROUP = auto()  # a group of people of the account
    ENCRYPTION_KEY = auto()  # a customer's encryption key of the account


class When(Enum):
    ALWAYS = auto()
    TAGS_ARE_SET = auto()
    TAGS_ARE_TAKEN_AWAY = auto()
    KEY_IS_NAMED = auto()  # the queue is given an encryption key of the account
    DEAD_LETTERS_ARE_SENT = auto()  # the queue is given a dead-letter queue


class Demand(NamedTuple):
    """`instead` is an action that serves as well, unless a Deny reaches `action`."""

    action: str
    target: Target = Target.QUEUE
    when: When = When.ALWAYS
    instead: str = ""


class Action(NamedTuple):
    """`cross_account` says that a queue policy can open it to another account."""

    name: str
    cross_account: bool = False


_GRANTABLE = (
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
)
_OWNERS = (
    "AddPermission",
    "CancelMessageMoveTask",
    "CreateQueue",
    "DeleteQueue",
    "ListMessageMoveTasks",
    "ListQueueTags",
    "ListQueues",
    "RemovePermission",
    "SetQueueAttributes",
    "StartMessageMoveTask",
    "TagQueue",
    "UntagQueue",
)
_PENSTOCK = (
    "AttachPolicy",
    "CancelEncryptionKeyDeletion",
    "CancelScheduledMessages",
    "CloseAccount",
    "CreateEncryptionKey",
    "CreateGroup",
    "CreateKey",
    "CreatePolicy",
    "CreateSchedule",
    "DeadLetterMessage",
    "DeleteAlarm",
    "DeleteGroup",
    "DeleteKey",
    "DeleteKeyPolicy",
    "DeletePolicy",
    "DeleteSchedule",
    "DeleteWebhook",
    "DetachPolicy",
    "DisableEncryptionKey",
    "EnableEncryptionKey",
    "EndDeletedQueue",
    "ExportAuditEntries",
    "GetAccount",
    "GetDefinitions",
    "GetEncryptionKey",
    "GetGroup",
    "GetKey",
    "GetKeyPolicy",
    "GetKeyQuotas",
    "GetMetricData",
    "GetPolicy",
    "GetQueueQuotas",
    "GetQuotas",
    "ImportDefinitions",
    "ListAlarms",
    "ListAuditEntries",
    "ListDeletedQueues",
    "ListEncryptionKeys",
    "ListGroups",
    "ListKeys",
    "ListMembers",
    "ListMetrics",
    "ListParkedGroups",
    "ListPolicies",
    "ListScheduledMessages",
    "ListSchedules",
    "ListWebhooks",
    "ManageMembers",
    "ManageOwners",
    "MuteAlarm",
    "PauseMessageMoveTask",
    "PauseQueue",
    "PauseSchedule",
    "PeekMessages",
    "PutAlarm",
    "PutKeyPolicy",
    "PutKeyQuotas",
    "PutQueueQuotas",
    "PutWebhook",
    "ReleaseParkedGroups",
    "RemoveMessage",
    "RequestQuota",
    "RescheduleMessages",
    "ResendMessage",
    "RestoreQueue",
    "ResumeMessageMoveTask",
    "ResumeQueue",
    "ResumeSchedule",
    "RotateEncryptionKey",
    "RotateKey",
    "RotateWebhook",
    "ScheduleEncryptionKeyDeletion",
    "SimulatePolicy",
    "TestWebhook",
    "UpdateAccount",
    "UpdateEncryptionKey",
    "UpdateGroup",
    "UpdateKey",
    "UpdatePolicy",
    "UpdateSchedule",
    "UseEncryptionKey",
)
_BILLING = (
    "DeleteBudget",
    "DeleteBuyer",
    "GetBuyer",
    "GetInvoice",
    "GetMeter",
    "GetUsage",
    "ListBudgets",
    "ListCredits",
    "ListInvoices",
    "ListPlans",
    "PutBudget",
    "PutBuyer",
)
# Old policies name these; the plain action stands for both.
_BATCH_NAMES = ("ChangeMessageVisibilityBatch", "DeleteMessageBatch", "SendMessageBatch")

ACTIONS: tuple[Action, ...] = (
    *(Action(f"{SQS}:{name}", cross_account=True) for name in _GRANTABLE),
    *(Action(f"{SQS}:{name}") for name in _OWNERS),
    *(Action(f"{OWN}:{name}") for name in _PENSTOCK),
    *(Action(f"{BILLING}:{name}") for name in _BILLING),
)
ACTION_NAMES = frozenset(action.name for action in ACTIONS)
# What the owner of a queue can let others do, as AddPermission names it. The plain action stands for its batch, too.
GRANTABLE_NAMES = frozenset(("*", *_GRANTABLE))
CROSS_ACCOUNT_ACTIONS = frozenset(action.name for action in ACTIONS if action.cross_account)
HISTORIC_NAMES = frozenset(f"{SQS}:{name}".lower() for name in _BATCH_NAMES)


def _sqs(name: str, target: Target = Target.QUEUE, when: When = When.ALWAYS) -> Demand:
    return Demand(f"{SQS}:{name}", target, when)


def _own(name: str, *also: Demand, target: Target = Target.QUEUE) -> tuple[Demand, ...]:
    return (Demand(f"{OWN}:{name}", target), *also)


def _billing(name: str) -> tuple[Demand, ...]:
    return (Demand(f"{BILLING}:{name}", Target.ACCOUNT),)


_SEND, _RECEIVE, _DELETE = (_sqs(name) for name in ("SendMessage", "ReceiveMessage", "DeleteMessage"))
_VISIBILITY, _READ_QUEUE = _sqs("ChangeMessageVisibility"), _sqs("GetQueueAttributes")
_CHANGE_QUEUE, _START_MOVE = _sqs("SetQueueAttributes"), _sqs("StartMessageMoveTask")
_LIST_MOVES = (_sqs("ListMessageMoveTasks"), _READ_QUEUE)
_CANCEL_MOVE = (_sqs("CancelMessageMoveTask"), _RECEIVE, _DELETE, _READ_QUEUE)
_MOVE = (_START_MOVE, _RECEIVE, _DELETE, _READ_QUEUE, _sqs("SendMessage", Target.DESTINATION))
_USE_KEY = Demand(f"{OWN}:UseEncryptionKey", Target.ENCRYPTION_KEY, When.KEY_IS_NAMED)
# Bodies of dead letters are chosen by who sends to the source. Who may change the target may let itself send to it.
_SEND_DEAD_LETTERS = Demand(
    "sqs:SendMessage", Target.DEAD_LETTER_QUEUE, When.DEAD_LETTERS_ARE_SENT, instead="sqs:SetQueueAttributes"
)
# Dead letters that nothing opens any more are as good as deleted. Who may delete the queue that holds them may do that.
_SHRED_LETTERS = Demand("sqs:PurgeQueue", Target.LETTER_HOLDERS, instead="sqs:DeleteQueue")
_CREATE = (_sqs("CreateQueue"), _sqs("TagQueue", when=When.TAGS_ARE_SET), _USE_KEY, _SEND_DEAD_LETTERS)

# SQS calls, by their names.
SQS_OPERATIONS: Mapping[str, tuple[Demand, ...]] = {
    **{
        name: (_sqs(name),)
        for name in (*_GRANTABLE, *_OWNERS)
        if not name.endswith(("MoveTask", "MoveTasks")) and name not in ("CreateQueue", "ListQueues")
    },
    "SendMessageBatch": (_SEND,),
    "DeleteMessageBatch": (_DELETE,),
    "ChangeMessageVisibilityBatch": (_VISIBILITY,),
    "CreateQueue": _CREATE,
    "SetQueueAttributes": (_CHANGE_QUEUE, _USE_KEY, _SEND_DEAD_LETTERS),
    "ListQueues": (_sqs("ListQueues", Target.ALL_QUEUES),),
    "StartMessageMoveTask": _MOVE,
    "CancelMessageMoveTask": _CANCEL_MOVE,
    "ListMessageMoveTasks": _LIST_MOVES,
}
# REST routes of messages, the message browser, parked groups and scheduled messages, by the action of their route; the
# websocket.
ROUTE_OPERATIONS: Mapping[str, tuple[Demand, ...]] = {
    "send": (_SEND,),
    "receive": (_RECEIVE,),
    "ack": (_DELETE,),
    "extend": (_VISIBILITY,),
    "release": (_VISIBILITY,),
    "subscribe": (_RECEIVE,),
    "peek": _own("PeekMessages", _RECEIVE),
    "find": _own("PeekMessages", _RECEIVE),
    "browser_delete": _own("RemoveMessage", _DELETE),
    "browser_dead_letter": _own("DeadLetterMessage", _DELETE, _sqs("SendMessage", Target.DEAD_LETTER_QUEUE)),
    "browser_resend": _own("ResendMessage", _RECEIVE, _DELETE, _sqs("SendMessage", Target.DESTINATION)),
    "browser_purge": (_sqs("PurgeQueue"),),
    "parked-groups": _own("ListParkedGroups", _READ_QUEUE),
    "release-groups": _own("ReleaseParkedGroups", _VISIBILITY),
    "list_scheduled": _own("ListScheduledMessages", _RECEIVE),
    "cancel_scheduled": _own("CancelScheduledMessages", _DELETE),
    "reschedule": _own("RescheduleMessages", _SEND),
}
# Management over REST, by the operation ids of docs/openapi.json; the queue that a send makes.
MANAGEMENT_OPERATIONS: Mapping[str, tuple[Demand, ...]] = {
    "queues.list": (_sqs("ListQueues", Target.ALL_QUEUES),),
    "queues.create": _CREATE,
    "queues.create_on_send": (_sqs("CreateQueue"),),
    "queues.get": (_READ_QUEUE, _sqs("ListQueueTags")),
    "queues.update": (
        _CHANGE_QUEUE,
        _sqs("TagQueue", when=When.TAGS_ARE_SET),
        _sqs("UntagQueue", when=When.TAGS_ARE_TAKEN_AWAY),
        _USE_KEY,
        _SEND_DEAD_LETTERS,
    ),
    "queues.delete": (_sqs("DeleteQueue"), _SHRED_LETTERS),
    "deleted_queues.list": _own("ListDeletedQueues", target=Target.ALL_QUEUES),
    "deleted_queues.restore": _own("RestoreQueue", _sqs("CreateQueue", Target.DESTINATION)),
    "deleted_queues.end": _own("EndDeletedQueue", _sqs("DeleteQueue")),
    "queues.sources": (_sqs("ListDeadLetterSourceQueues"),),
    "queues.get_quotas": _own("GetQueueQuotas", _READ_QUEUE),
    "queues.put_quotas": _own("PutQueueQuotas", _CHANGE_QUEUE),
    "queues.pause": _own("PauseQueue", _CHANGE_QUEUE),
    "queues.resume": _own("ResumeQueue", _CHANGE_QUEUE),
    "moves.list": _LIST_MOVES,
    "moves.get": _LIST_MOVES,
    "moves.start": _MOVE,
    "moves.cancel": _CANCEL_MOVE,
    "moves.pause": _own("PauseMessageMoveTask", *_CANCEL_MOVE),
    "moves.resume": _own("ResumeMessageMoveTask", *_MOVE),
    "schedules.list": _own("ListSchedules", _READ_QUEUE),
    "schedules.get": _own("ListSchedules", _READ_QUEUE),
    "schedules.create": _own("CreateSchedule", _SEND),
    "schedules.update": _own("UpdateSchedule", _SEND),
    "schedules.delete": _own("DeleteSchedule", _SEND),
    "schedules.pause": _own("PauseSchedule", _SEND),
    "schedules.resume": _own("ResumeSchedule", _SEND),
    "account.get": _own("GetAccount", target=Target.ACCOUNT),
    "account.update": _own("UpdateAccount", target=Target.ACCOUNT),
    "audit.list": _own("ListAuditEntries", target=Target.ACCOUNT),
    "audit.export": _own("ExportAuditEntries", target=Target.ACCOUNT),
    "definitions.get": _own("GetDefinitions", target=Target.ACCOUNT),
    "definitions.compare": _own("ImportDefinitions", target=Target.ACCOUNT),
    "definitions.import": _own("ImportDefinitions", target=Target.ACCOUNT),
    "quotas.list": _own("GetQuotas", target=Target.ACCOUNT),
    "quotas.requests": _own("GetQuotas", target=Target.ACCOUNT),
    "quotas.request": _own("GetQuotas", target=Target.ACCOUNT),
    "quotas.ask": _own("RequestQuota", target=Target.ACCOUNT),
    "alarms.list": _own("ListAlarms", target=Target.ACCOUNT),
    "alarms.events": _own("ListAlarms", target=Target.ACCOUNT),
    "alarms.get": _own("ListAlarms", target=Target.ACCOUNT),
    "alarms.put": _own("PutAlarm", target=Target.ACCOUNT),
    "alarms.mute": _own("MuteAlarm", target=Target.ACCOUNT),
    "alarms.delete": _own("DeleteAlarm", target=Target.ACCOUNT),
    "webhooks.list": _own("ListWebhooks", target=Target.ACCOUNT),
    "webhooks.get": _own("ListWebhooks", target=Target.ACCOUNT),
    "webhooks.deliveries": _own("ListWebhooks", target=Target.ACCOUNT),
    "webhooks.put": _own("PutWebhook", target=Target.ACCOUNT),
    "webhooks.rotate": _own("RotateWebhook", target=Target.ACCOUNT),
    "webhooks.test": _own("TestWebhook", target=Target.ACCOUNT),
    "webhooks.delete": _own("DeleteWebhook", target=Target.ACCOUNT),
    "metrics.list": _own("ListMetrics", target=Target.ACCOUNT),
    "metrics.data": _own("GetMetricData", target=Target.ACCOUNT),
    "metrics.scrape": _own("GetMetricData", target=Target.ACCOUNT),
    "keys.list": _own("ListKeys", target=Target.ACCOUNT),
    "keys.create": _own("CreateKey", target=Target.ACCOUNT),
    "keys.get": _own("GetKey", target=Target.KEY),
    "keys.delete": _own("DeleteKey", target=Target.KEY),
    "encryption_keys.list": _own("ListEncryptionKeys", target=Target.ACCOUNT),
    "encryption_keys.create": _own("CreateEncryptionKey", target=Target.ACCOUNT),
    "encryption_keys.get": _own("GetEncryptionKey", target=Target.ENCRYPTION_KEY),
    "encryption_keys.uses": _own("GetEncryptionKey", target=Target.ENCRYPTION_KEY),
    "encryption_keys.update": _own("UpdateEncryptionKey", target=Target.ENCRYPTION_KEY),
    "encryption_keys.enable": _own("EnableEncryptionKey", target=Target.ENCRYPTION_KEY),
    "encryption_keys.disable": _own("DisableEncryptionKey", target=Target.ENCRYPTION_KEY),
    "encryption_keys.rotate": _own("RotateEncryptionKey", target=Target.ENCRYPTION_KEY),
    "encryption_keys.schedule_deletion": _own("ScheduleEncryptionKeyDeletion", target=Target.ENCRYPTION_KEY),
    "encryption_keys.cancel_deletion": _own("CancelEncryptionKeyDeletion", target=Target.ENCRYPTION_KEY),
    "usage.get": _billing("GetUsage"),
    "meter.get": _billing("GetMeter"),
    "invoices.list": _billing("ListInvoices"),
    "invoices.get": _billing("GetInvoice"),
    "invoices.csv": _billing("GetInvoice"),
    "invoices.pdf": _billing("GetInvoice"),
    "notes.get": _billing("GetInvoice"),
    "notes.csv": _billing("GetInvoice"),
    "notes.pdf": _billing("GetInvoice"),
    "budgets.list": _billing("ListBudgets"),
    "budgets.get": _billing("ListBudgets"),
    "budgets.events": _billing("ListBudgets"),
    "budgets.put": _billing("PutBudget"),
    "budgets.delete": _billing("DeleteBudget"),
    "buyer.get": _billing("GetBuyer"),
    "buyer.put": _billing("PutBuyer"),
    "buyer.delete": _billing("DeleteBuyer"),
    "plans.list": _billing("ListPlans"),
    "credits.list": _billing("ListCredits"),
    "keys.update": _own("UpdateKey", target=Target.KEY),
    "keys.rotate": _own("RotateKey", target=Target.KEY),
    "keys.get_policy": _own("GetKeyPolicy", target=Target.KEY),
    "keys.put_policy": _own("PutKeyPolicy", target=Target.KEY),
    "keys.delete_policy": _own("DeleteKeyPolicy", target=Target.KEY),
    "keys.get_quotas": _own("GetKeyQuotas", target=Target.KEY),
    "keys.put_quotas": _own("PutKeyQuotas", target=Target.KEY),
    "keys.attach_policy": _own("AttachPolicy", target=Target.KEY),
    "keys.detach_policy": _own("DetachPolicy", target=Target.KEY),
    "policies.list": _own("ListPolicies", target=Target.ACCOUNT),
    "policies.create": _own("CreatePolicy", target=Target.ACCOUNT),
    "policies.get": _own("GetPolicy", target=Target.POLICY),
    "policies.update": _own("UpdatePolicy", target=Target.POLICY),
    "policies.delete": _own("DeletePolicy", target=Target.POLICY),
    "policies.simulate": _own("SimulatePolicy", target=Target.ACCOUNT),
    "groups.list": _own("ListGroups", target=Target.ACCOUNT),
    "groups.create": _own("CreateGroup", target=Target.ACCOUNT),
    "groups.get": _own("GetGroup", target=Target.GROUP),
    "groups.delete": _own("DeleteGroup", target=Target.GROUP),
    "groups.add_member": _own("UpdateGroup", target=Target.GROUP),
    "groups.remove_member": _own("UpdateGroup", target=Target.GROUP),
    "groups.attach_policy": _own("AttachPolicy", target=Target.GROUP),
    "groups.detach_policy": _own("DetachPolicy", target=Target.GROUP),
    "member_policies.list": _own("ListPolicies", target=Target.ACCOUNT),
    "member_policies.attach": _own("AttachPolicy", target=Target.ACCOUNT),
    "member_policies.detach": _own("DetachPolicy", target=Target.ACCOUNT),
}


# What an operation of the data plane asks for on the queue that it names.
QUEUE_ACTIONS: Mapping[str, tuple[str, ...]] = {
    operation: tuple(demand.action for demand in demands if demand.target is Target.QUEUE)
    for operation, demands in {**SQS_OPERATIONS, **ROUTE_OPERATIONS}.items()
}


# What people do with a session in an account, by operation id. Owners are managed by who may do `ManageOwners`.
PEOPLE_OPERATIONS: Mapping[str, tuple[Demand, ...]] = {
    "accounts.get": _own("GetAccount", target=Target.ACCOUNT),
    "accounts.close": _own("CloseAccount", target=Target.ACCOUNT),
    "accounts.reopen": _own("CloseAccount", target=Target.ACCOUNT),
    "members.list": _own("ListMembers", target=Target.ACCOUNT),
    "members.manage": _own("ManageMembers", target=Target.ACCOUNT),
    "members.manage_owners": _own("ManageOwners", target=Target.ACCOUNT),
}
_KINDS = {Target.KEY: "key", Target.POLICY: "policy", Target.GROUP: "group", Target.ENCRYPTION_KEY: "encryption-key"}


def resource_arn(target: Target, region: str, account_id: str, name: str = "") -> str:
    """`name` is that of the queue, policy or group, or the id of the key; of all queues and of the account it is not
    looked at."""
    if target is Target.ALL_QUEUES:
        return f"arn:{AWS_PARTITION}:{SQS}:{region}:{account_id}:"
    if target is Target.ACCOUNT:
        return f"arn:{AWS_PARTITION}:{OWN}:{region}:{account_id}:account"
    assert name
    kind = _KINDS.get(target)
    if kind is not None:
        return f"arn:{AWS_PARTITION}:{OWN}:{region}:{account_id}:{kind}/{name}"
    return f"arn:{AWS_PARTITION}:{SQS}:{region}:{account_id}:{name}"
