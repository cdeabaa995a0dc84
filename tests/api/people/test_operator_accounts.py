"""What operators are shown of accounts."""

from __future__ import annotations

import uuid

import pytest

from api import clock
from api.people.models import AccountMembership
from api.people.operator_selectors import account_row, accounts_found
from api.queues.models import Queue, QueueStatus
from tests.api.people.visitor import Visitor, join

pytestmark = pytest.mark.django_db


def test_queues_and_members_are_counted_apart_and_deleted_queues_not(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "reader")
    for number, state in enumerate((QueueStatus.ACTIVE, QueueStatus.CREATING, QueueStatus.ACTIVE, QueueStatus.DELETED)):
        now = clock.now()
        times = {"created_at": now, "modified_at": now, "next_attempt_at": now}
        Queue.objects.create(
            account_id=ann.account_id,
            name=f"q{number}",
            uuid=uuid.uuid4(),
            attributes={},
            state=state,
            version=1,
            **times,
        )
    row = account_row(ann.account_id)
    assert row is not None and (row.queue_count, row.member_count, row.owner) == (3, 2, "ann@example.com")
    empty = account_row(bob.account_id)
    assert empty is not None and (empty.queue_count, empty.member_count) == (0, 1)


def test_owner_that_is_shown_has_been_one_for_the_longest_time(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "owner")
    AccountMembership.objects.filter(account_id=ann.account_id, person_id=bob.person_id).update(
        created_at=clock.now().replace(year=2000)
    )
    (row,) = accounts_found(ann.account_id, "", 10)
    assert row.owner == "bob@example.com"
