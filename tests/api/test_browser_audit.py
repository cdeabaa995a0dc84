"""What the front end asks the control plane to note: rows of the audit trail, of the caller's own queues only."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone

from api.accounts.models import Account
from api.audit.models import AuditEntry
from api.queues.models import Queue, QueueStatus
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db(transaction=True)

ENTRY = {"action": "message.delete", "queue": "orders", "message_id": "m-1", "partition": 3, "offset": 70}


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    made = new_caller()
    now = timezone.now()
    Queue.objects.create(
        account=Account.objects.get(id=made.account_id), name="orders", uuid="0" * 31 + "1", attributes={},
        state=QueueStatus.ACTIVE, partitions=[3], created_at=now, modified_at=now, next_attempt_at=now, version=1,
    )  # fmt: skip
    return made


def note(caller: Caller, entry: Any, **headers: str) -> Any:
    return caller.request("POST", "/internal/audit", entry, **headers)


def written() -> list[AuditEntry]:
    noted = Q(action__startswith="message.") | Q(action__startswith="parked_groups.")
    return list(AuditEntry.objects.filter(noted).order_by("pk"))


def test_entry_is_written_with_actor_queue_and_message(caller: Caller) -> None:
    answer = note(caller, {**ENTRY, "action": "message.dead_letter", "reason": "poison", "target": "dead"})
    assert (answer.status_code, answer.json()) == (200, {})
    (row,) = written()
    assert (row.account_id, row.actor, row.request_id) == (caller.account_id, caller.access_key_id, "req-1")
    assert (row.action, row.subject) == ("message.dead_letter", "queue:orders")
    assert row.details == {"message_id": "m-1", "partition": 3, "offset": 70, "reason": "poison", "target": "dead"}


def test_release_of_parked_groups_is_written_with_their_names(caller: Caller) -> None:
    entry = {"action": "parked_groups.release", "queue": "orders", "groups": ["g1", "g2"]}
    assert note(caller, entry).status_code == 200
    assert note(caller, {**entry, "action": "parked_groups.release.failed", "reason": "x"}).status_code == 200
    assert [(row.account_id, row.actor, row.action, row.subject, row.details) for row in written()] == [
        (caller.account_id, caller.access_key_id, action, "queue:orders", {"groups": ["g1", "g2"], **more})
        for action, more in (("parked_groups.release", {}), ("parked_groups.release.failed", {"reason": "x"}))
    ]


@pytest.mark.parametrize(
    "change",
    [{"groups": ["g"] * 11}, {"groups": [""]}, {"groups": ["g" * 129]}, {"groups": "g"}, {"message_id": "m-1"}],
)
def test_release_that_is_none_is_refused_and_not_written(caller: Caller, change: dict[str, object]) -> None:
    entry = {"action": "parked_groups.release", "queue": "orders", "groups": []}
    assert note(caller, {**entry, **change}).status_code == 400
    assert note(caller, {**ENTRY, "groups": []}).status_code == 400
    assert not written()


@pytest.mark.parametrize(
    "change",
    [
        {"action": "message.read"},
        {"queue": "nowhere"},
        {"queue": "x" * 86},
        {"body": "content"},
        {"message_id": "x" * 37},
        {"partition": -1},
        {"offset": 2**63},
        {"reason": "x" * 201},
        {"reason": 7},
    ],
)
def test_entry_that_is_none_is_refused_and_not_written(caller: Caller, change: dict[str, object]) -> None:
    assert note(caller, {**ENTRY, **change}).status_code == 400
    assert not written()


def test_queue_of_another_account_is_not_there(caller: Caller) -> None:
    answer = note(new_caller("other"), ENTRY)
    assert (answer.status_code, answer.json()["code"]) == (400, "QueueDoesNotExist")
    assert not written()


def test_purge_by_another_account_stands_in_the_trail_of_the_owner(caller: Caller) -> None:
    other = new_caller("other")
    entry = {"action": "queue.purge", "queue": "orders", "owner": caller.account_id}
    assert note(other, entry).status_code == 200
    row = AuditEntry.objects.get(action="queue.purge")
    assert (row.account_id, row.actor, row.subject, row.details.get("owner")) == (
        caller.account_id, other.access_key_id, "queue:orders", None,
    )  # fmt: skip
    assert note(other, {**entry, "owner": "0" * 13}).status_code == 400
    assert note(other, {**ENTRY, "owner": caller.account_id}).status_code == 400, "of messages each has its own alone"


def test_who_is_no_front_end_writes_nothing(caller: Caller) -> None:
    assert note(caller, ENTRY, **{"X-Penstock-Principal-Mac": "0" * 64}).status_code == 401
    assert caller.request("GET", "/internal/audit").status_code == 404
    assert not written()


def test_action_of_an_operator_who_acts_as_a_member_has_both_names_and_the_address(caller: Caller) -> None:
    from django.test import Client

    from api.secrets import internal_key
    from frontend.authn.principal import person
    from frontend.authn.vouching import vouch

    who = person(caller.account_id, "op", "203.0.113.9", True, acting_as="ann", request_id="req-7")
    body, target = json.dumps(ENTRY).encode(), "/internal/audit"
    headers = dict(vouch(internal_key(), "POST", target.encode(), body, who, time.time_ns() // 1_000_000))
    answer = Client().generic("POST", target, body, content_type="application/json", headers=headers)
    assert answer.status_code == 200
    (row,) = written()
    assert (row.actor, row.request_id) == ("person:op", "req-7")
    assert (row.details["acting_as"], row.details["source"]) == ("person:ann", "203.0.113.9")
