"""Policies that deny actions: pages and forms are refused, the queue that messages go to included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, deny, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]


def test_policy_about_one_queue_counts_on_its_pages_alone(ann: Browser, join: Joins, data_plane: Any) -> None:
    for name in ("orders", "payroll"):
        queue_row(ann.account_id, name)
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 0, "cursor": None}
    guest = join(ann, "developer")
    deny(guest, "penstock:PeekMessages", "payroll")
    for path in ("messages", "messages/list", "messages/body?id=a&message=b", "scheduled"):
        assert guest.get(guest.at(f"queues/payroll/{path}")).status_code == 403, path
    assert not data_plane.asked
    assert "/payroll/messages" not in guest.get(guest.at("queues/payroll")).content.decode(), "not offered"
    assert guest.get(guest.at("queues/orders/messages/list")).status_code == 200
    assert ann.get(ann.at("queues/payroll/messages/list")).status_code == 200


@pytest.mark.parametrize(
    ("action", "path"),
    [
        ("sqs:DeleteQueue", "delete"),
        ("sqs:PurgeQueue", "purge"),
        ("penstock:PauseQueue", "pause"),
        ("penstock:ResumeQueue", "resume"),
        ("sqs:SetQueueAttributes", "edit"),
        ("sqs:SetQueueAttributes", "tags"),
        ("sqs:SetQueueAttributes", "access"),
        ("sqs:SendMessage", "send"),
        ("penstock:ResendMessage", "messages/resend"),
        ("sqs:DeleteMessage", "messages/delete"),
        ("penstock:RemoveMessage", "messages/delete"),
        ("penstock:DeadLetterMessage", "messages/dead-letter"),
        ("penstock:CancelScheduledMessages", "scheduled/cancel"),
        ("penstock:RescheduleMessages", "scheduled/reschedule"),
        ("sqs:TagQueue", "tags"),
        ("sqs:StartMessageMoveTask", "moves"),
        ("penstock:CreateSchedule", "schedules"),
        ("penstock:UpdateSchedule", "schedules/nightly/edit"),
        ("penstock:DeleteSchedule", "schedules/nightly/delete"),
        ("penstock:PauseSchedule", "schedules/nightly/pause"),
        ("penstock:RemoveMessage", "moves"),
        ("penstock:RemoveMessage", "schedules"),
    ],
)
def test_action_that_a_policy_denies_is_refused(
    ann: Browser, join: Joins, data_plane: Any, action: str, path: str
) -> None:
    queue = queue_row(ann.account_id, "orders")
    guest = join(ann, "developer")
    deny(guest, action, "orders")
    form = {"typed": "orders", "key": "a", "value": "b", "label": "x", "message": "m", "body": "x"}
    assert guest.post(guest.at(f"queues/orders/{path}"), form).status_code == 403
    queue.refresh_from_db()
    assert queue.state == "active" and not queue.tags and not data_plane.asked


def test_queue_that_messages_go_to_is_weighed_as_well(ann: Browser, join: Joins, data_plane: Any) -> None:
    import json

    arn = f"arn:aws:sqs:us-east-1:{ann.account_id}:dead"
    queue_row(ann.account_id, "dead")
    queue_row(ann.account_id, "orders", RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
    queue_row(ann.account_id, "payroll")
    guest = join(ann, "developer")
    for queue in ("dead", "payroll"):
        deny(guest, "sqs:SendMessage", queue)
    resend = {"message": "m", "body": "x", "destination": "payroll"}
    assert guest.post(guest.at("queues/orders/messages/resend"), resend).status_code == 403
    assert guest.post(guest.at("queues/orders/messages/dead-letter"), {"message": "m"}).status_code == 403
    assert guest.post(guest.at("queues/dead/moves"), {"what": "count", "destination": "payroll"}).status_code == 403
    assert not data_plane.asked
    data_plane.answers["messages/resend"] = {"id": "a"}
    assert guest.post(guest.at("queues/orders/messages/resend"), {**resend, "destination": ""}).status_code == 302


def test_sqs_action_with_the_same_effect_is_weighed_as_well(ann: Browser, join: Joins, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 0, "cursor": None}
    guest = join(ann, "developer")
    deny(guest, "sqs:ReceiveMessage", "orders")
    assert guest.get(guest.at("queues/orders/messages/list")).status_code == 403 and not data_plane.asked


def test_counts_and_lists_are_weighed(ann: Browser, join: Joins, data_plane: Any) -> None:
    for name in ("orders", "payroll"):
        queue_row(ann.account_id, name)
    guest = join(ann, "developer")
    deny(guest, "sqs:GetQueueAttributes", "payroll")
    assert guest.get(guest.at("counts?names=orders,payroll")).status_code == 200
    assert data_plane.asked[-1][3]["queues"] == ["orders"]
    deny(guest, "sqs:ListQueues", "")
    assert guest.get(guest.at("queues")).status_code == 403 and guest.get(guest.at("jump?q=o")).status_code == 403
