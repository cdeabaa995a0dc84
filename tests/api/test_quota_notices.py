"""What front ends tell of the use of quotas, and what of it the audit trail gets; docs/quotas.md."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api import clock, limits
from api.audit.models import AuditEntry
from api.quotas.models import QuotaNotice
from api.quotas.selectors import notices_of
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


def audit(account_id: str) -> list[tuple[str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(account_id=account_id, action__startswith="quota.").order_by("pk")
    return [(row.action, row.details) for row in rows]


def singles(account_id: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Of queues and keys."""
    rows = AuditEntry.objects.filter(account_id=account_id, action__startswith="quota.").order_by("pk")
    return [(row.action, row.subject, row.details) for row in rows if not row.subject.startswith("quota:")]


def test_use_that_front_ends_tell_is_noted_once_an_hour(caller: Caller) -> None:
    told = {"name": "requests_per_s", "level": "warning", "percent": 85}
    for _ in range(3):
        assert caller.request("POST", "/internal/quotas", told).status_code == 200
    assert caller.request("POST", "/internal/quotas", {**told, "level": "exceeded"}).status_code == 200
    assert audit(caller.account_id) == [("quota.warning", {"percent": 85}), ("quota.exceeded", {"percent": 85})]


def test_use_of_one_queue_or_key_is_noted_once_an_hour_for_each(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("slow", "other"):
        assert caller.request("POST", "/v1/queues", {"name": name}).status_code == 201
    key = caller.access_key_id
    told = {"name": "queue_requests_per_s", "level": "exceeded", "percent": 130}
    for subject in ("queue:slow", "queue:slow", "queue:other"):
        assert caller.request("POST", "/internal/quotas", {**told, "subject": subject}).status_code == 200
    of_key = {"name": "key_bytes_per_s", "level": "warning", "percent": 81, "subject": f"key:{key}"}
    for _ in range(2):
        assert caller.request("POST", "/internal/quotas", of_key).status_code == 200
    assert singles(caller.account_id) == [
        ("quota.exceeded", "queue:slow", {"quota": "queue_requests_per_s", "percent": 130}),
        ("quota.exceeded", "queue:other", {"quota": "queue_requests_per_s", "percent": 130}),
        ("quota.warning", f"key:{key}", {"quota": "key_bytes_per_s", "percent": 81}),
    ]
    assert notices_of(caller.account_id) == {}, "what is told of the account's own use is apart"
    later = clock.now() + timedelta(hours=1, seconds=1)
    monkeypatch.setattr(clock, "now", lambda: later)
    caller.request("POST", "/internal/quotas", {**told, "subject": "queue:slow"})
    assert len(singles(caller.account_id)) == 4
    assert QuotaNotice.objects.count() == 1, "rows of queues and keys stand for their hour only"


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("queue_requests_per_s", "queue:none"), ("queue_requests_per_s", "queue:"), ("key_requests_per_s", "key:AKPS"),
        ("requests_per_s", "queue:slow"), ("key_requests_per_s", "queue:slow"), ("queue_requests_per_s", "slow"),
        ("queue_requests_per_s", "queue:theirs"), ("queue_requests_per_s", "queue:slow\0"), ("nothing", "queue:slow"),
    ],
)  # fmt: skip
def test_use_of_what_the_account_does_not_have_is_not_noted(
    caller: Caller, storage: ScriptedStorage, name: str, subject: str
) -> None:
    other = new_caller("other")
    assert caller.request("POST", "/v1/queues", {"name": "slow"}).status_code == 201
    assert other.request("POST", "/v1/queues", {"name": "theirs"}).status_code == 201
    told = {"name": name, "level": "exceeded", "percent": 130, "subject": subject}
    assert caller.request("POST", "/internal/quotas", told).status_code == 200
    assert singles(caller.account_id) == [] and singles(other.account_id) == []
    assert not QuotaNotice.objects.exists()


def test_notes_of_queues_and_keys_of_one_account_are_bounded(
    caller: Caller, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SINGLE_NOTICES_MAX", 2)
    for number in range(3):
        assert caller.request("POST", "/v1/queues", {"name": f"q{number}"}).status_code == 201
        told = {"name": "queue_requests_per_s", "level": "warning", "percent": 90, "subject": f"queue:q{number}"}
        caller.request("POST", "/internal/quotas", told)
    assert len(singles(caller.account_id)) == 2
    caller.request("POST", "/internal/quotas", {"name": "requests_per_s", "level": "warning", "percent": 90})
    assert ("quota.warning", {"percent": 90}) in audit(caller.account_id), "the account's own has its own place"


@pytest.mark.parametrize("change", [{"level": "x"}, {"percent": -1}, {"percent": "5"}, {"more": 1}, {"name": 5}])
def test_use_that_does_not_parse_is_refused(caller: Caller, change: dict[str, Any]) -> None:
    told = {"name": "requests_per_s", "level": "warning", "percent": 85, **change}
    assert caller.request("POST", "/internal/quotas", told).status_code == 400
    assert audit(caller.account_id) == []


def test_use_of_a_quota_that_is_none_is_not_noted(caller: Caller) -> None:
    told = {"name": "nothing", "level": "warning", "percent": 85}
    assert caller.request("POST", "/internal/quotas", told).status_code == 200 and audit(caller.account_id) == []
