"""Keys with policies, members and operators' commands, for the tests of rights."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from django.core.management import call_command
from django.db import connection

from api import clock
from api.metadata.store import _KEYS, _key_row
from api.people.models import AccountMembership, Person
from api.queues import actions as queue_actions
from api.queues import spreading
from frontend.metadata.messages import KeyReply
from frontend.metadata.records import KeyRecord
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

ALL = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


@pytest.fixture
def caller(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The key of an account, which may do everything; the queue `orders`."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(queue_actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    found = new_caller()
    assert found.request("POST", "/v1/queues", {"name": "orders", "tags": {"env": "test"}}).status_code == 201
    return found


def document(*actions: str, effect: str = "Allow", resource: str = "*", **more: Any) -> dict[str, Any]:
    statement = {"Effect": effect, "Action": list(actions), "Resource": resource, **more}
    return {"Version": "2012-10-17", "Statement": [statement]}


def restricted(caller: Caller, policy: dict[str, Any]) -> Caller:
    made = caller.request("POST", "/v1/keys", {"name": "k", "policy": policy})
    assert made.status_code == 201 and made.json()["restricted"] is True, made.content
    return Caller(caller.account_id, made.json()["access_key_id"])


def record_of(access_key_id: str) -> KeyRecord:
    """As front ends get it."""
    with connection.cursor() as cursor:
        cursor.execute(_KEYS + " WHERE k.access_key_id = %s", [access_key_id])
        row = cursor.fetchone()
    record = msgspec.msgpack.decode(_key_row(row).reply, type=KeyReply).record
    assert record is not None
    return record


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def member(account_id: str, role: str) -> AccountMembership:
    person = Person.objects.create(email=f"{role}@example.com", created_at=clock.now())
    return AccountMembership.objects.create(account_id=account_id, person=person, role=role, created_at=clock.now())


def run(*arguments: str) -> Any:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return json.loads(out.getvalue())
