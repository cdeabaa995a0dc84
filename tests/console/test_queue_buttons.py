"""Buttons on the pages of a queue: each is shown to those alone who may press it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, queue_row
from tests.console.test_single_queues import give

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]

# (action that a policy denies, page, what stands on it where the action is allowed)
BUTTONS = (
    ("sqs:TagQueue", "tags", "Set the tag"),
    ("sqs:UntagQueue", "tags", ">Remove</button>"),
    ("sqs:AddPermission", "access", "Permit another account"),
    ("sqs:RemovePermission", "access", ">Remove</button>"),
    ("penstock:GetQueueQuotas", "", "Quotas …"),
    ("penstock:CreateSchedule", "schedules", "New schedule"),
    ("penstock:UpdateSchedule", "schedules", "Edit the schedule nightly"),
    ("penstock:PauseSchedule", "schedules", ">Pause</button>"),
    ("penstock:DeleteSchedule", "schedules", "Delete this schedule?"),
    ("penstock:CancelScheduledMessages", "scheduled", "Cancel this message?"),
    ("penstock:RescheduleMessages", "scheduled", "Change the time"),
    ("sqs:StartMessageMoveTask", "moves", "Move messages back"),
    ("sqs:StartMessageMoveTask", "messages", "Move back …"),
    ("sqs:DeleteMessage", "messages", "Delete the chosen messages"),
    ("penstock:DeadLetterMessage", "messages", "To the dead-letter queue"),
)


@pytest.fixture
def developer(ann: Browser, join: Joins, data_plane: Any, storage: Any) -> Browser:
    """Of an account whose queue `orders` has all that its pages can show."""
    from api.queues.models import Queue

    arn = f"arn:aws:sqs:us-east-1:{ann.account_id}"
    queue_row(ann.account_id, "dead")
    to_dead = {"deadLetterTargetArn": f"{arn}:dead", "maxReceiveCount": 1}
    queue_row(ann.account_id, "orders", RedrivePolicy=json.dumps(to_dead))
    to_orders = {"deadLetterTargetArn": f"{arn}:orders", "maxReceiveCount": 1}
    queue_row(ann.account_id, "source", RedrivePolicy=json.dumps(to_orders))
    Queue.objects.filter(account_id=ann.account_id, name="orders").update(tags={"team": "a"})
    one = {"id": "m", "schedule_id": "s", "deliver_at_ms": 1_900_000_000_000, "body": "x"}
    data_plane.answers["scheduled"] = {"messages": [one], "next_cursor": None}
    permission = {"label": "partner", "accounts": "123456789012", "actions": "SendMessage"}
    schedule = {"name": "nightly", "cron": "0 4 * * *", "body": "x"}
    for tail, form in (("access", permission), ("schedules", schedule)):
        assert ann.post(ann.at(f"queues/orders/{tail}"), form).status_code == 302
    return join(ann, "developer")


@pytest.mark.parametrize(("action", "tail", "text"), BUTTONS)
def test_button_is_not_shown_where_its_action_is_denied(developer: Browser, action: str, tail: str, text: str) -> None:
    page = developer.at(f"queues/orders/{tail}".rstrip("/"))
    assert text in developer.get(page).content.decode()
    give(developer, action, effect="Deny")
    answer = developer.get(page)
    assert answer.status_code == 200 and text not in answer.content.decode()
