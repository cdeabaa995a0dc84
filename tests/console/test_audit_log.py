"""The audit log of the console: its filters, its pages, its downloads, and who gets them."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from api.audit.models import AuditEntry
from console.views import audit_log
from tests.console.browsing import Browser, deny_in_account

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]


def note(ann: Browser, day: int, action: str, actor: str = "AKPS1", **details: Any) -> None:
    at = datetime(2026, 11, day, tzinfo=UTC)
    AuditEntry.objects.create(
        account_id=ann.account_id, at=at, actor=actor, request_id="", action=action, subject=f"q:{day}", details=details
    )


def days(page: Any) -> list[str]:
    return re.findall(r"q:([0-9]+)<", page.content.decode())


def test_filters_find_and_stay_in_the_address_from_page_to_page(ann: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "PAGE_ENTRIES", 2)
    for day in range(1, 6):
        note(ann, day, "queue.create")
    note(ann, 6, "refused.sqs:DeleteQueue")
    note(ann, 7, "queue.create", actor="AKPS2")
    asked = "actor=AKPS1&action=queue.&outcome=done&since=2026-11-02T00:00&until=2026-11-06T00:00"
    first = ann.get(ann.at(f"audit?{asked}"))
    text = html.unescape(first.content.decode())
    assert days(first) == ["5", "4"] and 'value="2026-11-02T00:00"' in text and "Newest" not in text
    older = re.search(r'href="[?]([^"]*before=[0-9]+)">Older', text)
    assert older is not None
    second = ann.get(ann.at(f"audit?{older[1]}"))
    assert days(second) == ["3", "2"] and "Older" not in second.content.decode()
    assert 'value="AKPS1"' in second.content.decode() and "Newest" in second.content.decode()
    assert days(ann.get(ann.at("audit?outcome=refused"))) == ["6"]
    assert days(ann.get(ann.at("audit?actor=AKPS2"))) == ["7"]


def test_person_is_found_by_the_address_and_by_a_click(ann: Browser) -> None:
    from api.people.models import Person

    person = f"person:{Person.objects.get(email=ann.email).pk}"
    note(ann, 1, "queue.create", actor=person)
    note(ann, 2, "queue.create", actor=f"person:{uuid.uuid4()}", acting_as=person)
    note(ann, 3, "queue.create")
    assert days(ann.get(ann.at(f"audit?action=queue.&actor={ann.email.upper()}"))) == ["2", "1"]
    text = html.unescape(ann.get(ann.at("audit?action=queue.")).content.decode())
    assert f"?action=queue.&actor={person.replace(':', '%3A')}" in text and f'<option value="{ann.email}">' in text


def test_time_that_is_none_is_told_and_finds_nothing(ann: Browser) -> None:
    note(ann, 1, "queue.create")
    for tail in ("audit?since=<b>", "audit/download?form=csv&since=x"):
        answer = ann.get(ann.at(tail))
        assert answer.status_code == 400 and b"From must be a time" in answer.content and not days(answer)
    assert ann.get(ann.at("audit/download?form=xml")).status_code == 404


def test_download_has_what_is_filtered_and_no_formula_and_is_an_entry(ann: Browser) -> None:
    note(ann, 1, "queue.create", actor="=1+1")
    note(ann, 2, "queue.create", actor="AKPS2")
    note(ann, 3, "refused.sqs:DeleteQueue", actor="=1+1")
    page = html.unescape(ann.get(ann.at("audit?actor=%3D1%2B1&outcome=done")).content.decode())
    csv_link, json_link = re.findall(r'href="([^"]*/audit/download[^"]*)"', page)
    rows = list(csv.DictReader(io.StringIO(ann.get(csv_link).getvalue().decode())))
    assert [(row["actor"], row["subject"]) for row in rows] == [("'=1+1", "q:1")]
    lines = ann.get(json_link).getvalue().decode().splitlines()
    assert [json.loads(line)["actor"] for line in lines] == ["=1+1"]
    exports = AuditEntry.objects.filter(account_id=ann.account_id, action="audit.export").order_by("id")
    assert [entry.details["form"] for entry in exports] == ["csv", "jsonl"]
    assert exports[0].details["asked"] == {"actor": "=1+1", "outcome": "done"}


def test_download_is_offered_to_those_who_may_export(ann: Browser, join: Joins) -> None:
    for role, is_offered in (("admin", True), ("developer", False), ("reader", False)):
        guest = join(ann, role)
        assert (b"audit/download" in guest.get(guest.at("audit")).content) is is_offered, role
        expected = 200 if is_offered else 403
        assert guest.get(guest.at("audit/download?form=csv")).status_code == expected, role
    other = join(ann, "admin")
    deny_in_account(other, "penstock:ExportAuditEntries")
    assert b"audit/download" not in other.get(other.at("audit")).content
    assert other.get(other.at("audit/download?form=csv")).status_code == 403
