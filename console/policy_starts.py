"""Policies for common uses: a new one starts from one of them."""

from __future__ import annotations

from typing import NamedTuple

from console.policy_form import PolicyForm, StatementForm, text_of
from frontend.authz import PolicyKind

_QUEUES = "arn:aws:sqs:*:*:orders-*"
_LOOKING = "sqs:GetQueue*"


class PolicyStart(NamedTuple):
    key: str
    title: str
    text: str
    form: PolicyForm

    @property
    def policy(self) -> str:
        return text_of(self.form, PolicyKind.IDENTITY)


def _start(key: str, title: str, text: str, *statements: StatementForm) -> PolicyStart:
    return PolicyStart(key, title, text, PolicyForm(statements=statements))


STARTS = (
    _start(
        "send", "Send only", "Programs that send to some queues.",
        StatementForm("send", actions=f"sqs:SendMessage\n{_LOOKING}", resources=_QUEUES),
    ),
    _start(
        "receive", "Receive only", "Consumers: receive, delete, extend.",
        StatementForm(
            "receive",
            actions=f"sqs:ReceiveMessage\nsqs:DeleteMessage\nsqs:ChangeMessageVisibility\n{_LOOKING}",
            resources=_QUEUES,
        ),
    ),
    _start(
        "watch", "Read only", "Counts and settings, no bodies of messages.",
        StatementForm("watch", actions="sqs:GetQueue*\nsqs:List*\npenstock:Get*\npenstock:List*"),
    ),
    _start(
        "keep", "Prevent deletion", "A Deny for members: queues stay, messages are not purged.",
        StatementForm("keep", "Deny", actions="sqs:DeleteQueue\nsqs:PurgeQueue", resources="arn:aws:sqs:*:*:*"),
    ),
)  # fmt: skip


def start_of(key: str) -> PolicyStart:
    return next((one for one in STARTS if one.key == key), STARTS[0])
