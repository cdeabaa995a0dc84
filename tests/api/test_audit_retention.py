"""Old entries of the audit trail go by the schedule, by a role that may remove nothing younger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from unittest.mock import patch

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.utils import DatabaseError
from django.utils import timezone
from pydantic import ValidationError

from api import limits
from api.audit.actions import remove_old_entries
from api.audit.models import AuditEntry
from api.settings.environment import Environment, environment
from workers.application import app
from workers.tasks import remove_old_audit_entries

pytestmark = pytest.mark.django_db(transaction=True)
ROLE = "audit_trimmer"
TASK = "workers.lifecycle.remove_old_audit_entries"


def entry(days: float) -> int:
    """The id of one of so many days ago."""
    at = timezone.now() - timedelta(days=days)
    return int(AuditEntry.objects.create(at=at, account_id="1" * 12, actor="a", action="x", subject="s").pk)


@pytest.fixture
def role(transactional_db: None) -> Iterator[str]:
    """One that has what the processes get, and is no owner."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE}")
    call_command("grant_application", ROLE)
    yield ROLE
    with connection.cursor() as cursor:
        cursor.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_entries_older_than_the_days_go_and_the_trail_says_so() -> None:
    entry(500), entry(401)
    kept = {entry(399), entry(1)}
    assert remove_old_entries(400) == 2
    said = AuditEntry.objects.get(action="audit.trim")
    assert (said.actor, said.details) == ("lifecycle", {"older_than_days": 400, "removed": 2})
    assert set(AuditEntry.objects.exclude(pk=said.pk).values_list("pk", flat=True)) == kept
    assert remove_old_entries(400) == 0
    assert AuditEntry.objects.filter(action="audit.trim").count() == 1, "nothing went: nothing is said"


def test_more_than_one_statement_removes_go_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_TRIM_ENTRIES_MAX", 2)
    for _ in range(5):
        entry(500)
    young = entry(1)
    assert remove_old_entries(400) == 5
    assert AuditEntry.objects.exclude(action="audit.trim").get().pk == young


def test_zero_days_keep_entries_for_good() -> None:
    old = entry(5_000)
    assert remove_old_entries(0) == 0
    assert AuditEntry.objects.get().pk == old


def test_task_keeps_entries_as_long_as_the_setting_says() -> None:
    entry(500)
    kept = environment().model_copy(update={"audit_days": 600})
    with patch("api.settings.environment.environment", return_value=kept):
        remove_old_audit_entries()
    assert AuditEntry.objects.count() == 1
    remove_old_audit_entries()
    assert AuditEntry.objects.get().action == "audit.trim"


def test_application_removes_what_is_old_and_nothing_else(role: str) -> None:
    entry(91)
    young = entry(89)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        assert remove_old_entries(90) == 1
    assert AuditEntry.objects.exclude(action="audit.trim").get().pk == young


@pytest.mark.parametrize("days", [89, 0, -1, None])
def test_application_cannot_ask_for_younger_ones(role: str, days: int | None) -> None:
    entry(89)
    with pytest.raises(DatabaseError, match="90 days"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        cursor.execute("SELECT audit_remove_old(%s, 1000)", (days,))
    assert AuditEntry.objects.count() == 1


def test_role_that_was_granted_nothing_cannot_ask_at_all() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE}")
        try:
            with pytest.raises(DatabaseError) as refused, transaction.atomic():
                cursor.execute(f"SET LOCAL ROLE {ROLE}")
                cursor.execute("SELECT audit_remove_old(90, 1000)")
        finally:
            cursor.execute(f"DROP ROLE {ROLE}")
    assert isinstance(refused.value.__cause__, psycopg.errors.InsufficientPrivilege)


@pytest.mark.parametrize(("given", "is_taken"), [("0", True), ("90", True), ("89", False), ("-1", False), ("x", False)])
def test_days_are_none_or_90_at_least(monkeypatch: pytest.MonkeyPatch, given: str, is_taken: bool) -> None:
    monkeypatch.setenv("PENSTOCK_AUDIT_DAYS", given)
    if is_taken:
        assert Environment().audit_days == int(given)
    else:
        with pytest.raises(ValidationError):
            Environment()


def test_schedule_asks_every_day() -> None:
    app.loader.import_default_modules()
    (found,) = [one for one in app.conf.beat_schedule.values() if one["task"] == TASK]
    assert TASK in app.tasks and app.amqp.router.route({}, TASK)["queue"].name == "lifecycle"
    assert found["schedule"].hour == {3} and found["schedule"].minute == {17}
    assert found["schedule"].day_of_month == set(range(1, 32))
