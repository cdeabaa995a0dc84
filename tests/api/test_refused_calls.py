"""Refused calls in the audit trail: once at once, then counted; bounded; read and exported by those who may."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.utils import timezone

from api import limits
from api.audit import exporting, selectors
from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry, RefusalTally
from api.audit.refusals import Refusal, close_refusal_windows, note_refusals
from api.iam.actions import keys
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)
SEND_ONLY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}]}


@pytest.fixture
def owner(transactional_db: None, storage: ScriptedStorage) -> Caller:
    return new_caller()


def restricted(owner: Caller, policy: dict[str, Any], source_ip: str = "") -> Caller:
    made = keys.make_key(OPERATOR, owner.account_id, keys.KeySpec("k", policy=json.dumps(policy)))
    return Caller(owner.account_id, made.key.access_key_id, source_ip)


def refused(account_id: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(account_id=account_id, action__startswith="refused.").order_by("id"))


def window_ends() -> None:
    RefusalTally.objects.update(opened_at=timezone.now() - timedelta(seconds=limits.REFUSAL_WINDOW_S + 1))


def test_refused_call_stands_in_the_trail(owner: Caller) -> None:
    key = restricted(owner, SEND_ONLY, "10.1.2.3")
    assert key.request("DELETE", "/v1/queues/orders").status_code == 403
    (entry,) = refused(owner.account_id)
    assert (entry.action, entry.actor, entry.request_id) == ("refused.sqs:DeleteQueue", key.access_key_id, "req-1")
    assert entry.subject == f"arn:aws:sqs:us-east-1:{owner.account_id}:orders"
    assert entry.details == {"count": 1, "source": "10.1.2.3"}


def test_refused_call_of_sqs_stands_in_the_trail_and_changes_nothing(owner: Caller) -> None:
    key = restricted(owner, SEND_ONLY)
    assert key.sqs("CreateQueue", QueueName="new").status_code == 403
    assert [entry.action for entry in refused(owner.account_id)] == ["refused.sqs:CreateQueue"]
    assert not AuditEntry.objects.filter(action="queue.create").exists()


def test_flood_of_refusals_is_two_entries(owner: Caller) -> None:
    key = restricted(owner, SEND_ONLY)
    for _ in range(30):
        key.request("DELETE", "/v1/queues/orders")
    assert close_refusal_windows() == 0
    assert len(refused(owner.account_id)) == 1
    window_ends()
    assert close_refusal_windows() == 1
    assert [entry.details["count"] for entry in refused(owner.account_id)] == [1, 29]
    assert RefusalTally.objects.count() == 0 and close_refusal_windows() == 0
    key.request("DELETE", "/v1/queues/orders")
    assert len(refused(owner.account_id)) == 3


def test_kinds_of_a_caller_and_of_an_account_are_bounded(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSALS_PER_ACTOR_MAX", 3)
    monkeypatch.setattr(limits, "REFUSALS_PER_ACCOUNT_MAX", 6)
    note_refusals(Refusal(owner.account_id, "a", "sqs:DeleteQueue", f"arn:{number}") for number in range(10))
    note_refusals(Refusal(owner.account_id, f"b{number}", "sqs:DeleteQueue", "arn") for number in range(10))
    kinds = sorted(RefusalTally.objects.values_list("actor", "subject", "count"))
    assert kinds == [("*", "*", 7), ("a", "*", 6), ("a", "arn:0", 0), ("a", "arn:1", 0), ("a", "arn:2", 0),
                     ("b0", "arn", 0), ("b1", "arn", 0)]  # fmt: skip
    assert sum(entry.details["count"] for entry in refused(owner.account_id)) == 7
    note_refusals([Refusal("999999999999", "a", "sqs:DeleteQueue", "arn")])
    assert len(refused("999999999999")) == 1, "another account's share"


def test_name_that_no_row_holds_is_cut(owner: Caller) -> None:
    note_refusals([Refusal(owner.account_id, "a", "sqs:DeleteQueue", "arn:\0" + "x" * 500, "y" * 100)])
    (entry,) = refused(owner.account_id)
    assert (entry.subject, entry.details["source"]) == ("arn:" + "x" * 196, "y" * 45)


def test_front_ends_tell_what_they_refused(owner: Caller) -> None:
    row = [owner.account_id, owner.access_key_id, "sqs:SendMessage", "arn:aws:sqs:r:1:q", "::1", 5]
    front_end = Caller("", "")
    assert front_end.request("POST", "/internal/refused-calls", {"calls": [row, row]}).status_code == 200
    (entry,) = refused(owner.account_id)
    assert (entry.action, entry.details["count"]) == ("refused.sqs:SendMessage", 5)
    assert RefusalTally.objects.get().count == 5
    assert owner.request("POST", "/internal/refused-calls", {"calls": []}).status_code == 401
    for bad in ([[*row, 1]], [row[:-1]], [[*row[:-1], 0]], [["x" * 300, *row[1:]]]):
        assert front_end.request("POST", "/internal/refused-calls", {"calls": bad}).status_code == 400
    zero = [*row[:3], "a\0b", *row[4:]]
    assert front_end.request("POST", "/internal/refused-calls", {"calls": [zero]}).status_code == 200
    assert len(refused(owner.account_id)) == 1


# --- reading ---


def test_reading_and_exporting_the_trail_are_actions_of_their_own(owner: Caller) -> None:
    reader = restricted(
        owner, {"Statement": {"Effect": "Allow", "Action": "penstock:ListAuditEntries", "Resource": "*"}}
    )
    assert reader.request("GET", "/v1/audit-entries").status_code == 200
    assert reader.request("GET", "/v1/audit-entries/export").status_code == 403
    found = owner.request("GET", "/v1/audit-entries?action=refused.").json()["entries"]
    assert [entry["action"] for entry in found] == ["refused.penstock:ExportAuditEntries"]


def test_trail_is_read_by_pages_of_one_account(owner: Caller) -> None:
    other = new_caller("other")
    for name in ("a", "b", "c"):
        owner.request("POST", "/v1/queues", {"name": name})
    first = owner.request("GET", "/v1/audit-entries?page_size=2&action=queue.create").json()
    rest = owner.request(
        "GET", f"/v1/audit-entries?page_size=2&action=queue.create&page_token={first['next_page_token']}"
    ).json()
    assert [one["subject"] for one in first["entries"] + rest["entries"]] == ["queue:c", "queue:b", "queue:a"]
    assert rest["next_page_token"] is None
    assert {one["subject"] for one in other.request("GET", "/v1/audit-entries").json()["entries"]}.isdisjoint(
        {"queue:a", "queue:b", "queue:c"}
    )
    assert owner.request("GET", "/v1/audit-entries?page_token=eA").status_code == 400


def test_export_is_whole_and_stands_in_the_trail(owner: Caller) -> None:
    owner.request("POST", "/v1/queues", {"name": "a"})
    text = owner.request("GET", "/v1/audit-entries/export").getvalue().decode()
    entries = [json.loads(line) for line in text.splitlines()]
    assert [one["id"] for one in entries] == sorted(one["id"] for one in entries)
    assert "queue.create" in [one["action"] for one in entries]
    later = owner.request("GET", f"/v1/audit-entries/export?after={entries[-1]['id']}").getvalue().decode()
    assert [json.loads(line)["action"] for line in later.splitlines()] == ["audit.export"]
    for bad in ("form=xml", "after=x", "after=-1"):
        assert owner.request("GET", f"/v1/audit-entries/export?{bad}").status_code == 400


def test_export_as_csv_holds_no_formula(owner: Caller) -> None:
    """RELIABILITY S30."""
    for actor, subject in (("=1+1", "@SUM(A1)"), ("\uff1d1+1", "\n=1")):
        note_refusals([Refusal(owner.account_id, actor, "sqs:DeleteQueue", subject)])
    text = owner.request("GET", "/v1/audit-entries/export?form=csv").getvalue().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["actor"], row["subject"]) for row in rows[-2:]] == [
        ("'=1+1", "'@SUM(A1)"), ("'\uff1d1+1", "'\n=1"),
    ]  # fmt: skip


def noted(owner: Caller) -> dict[str, str]:
    """Entries of three days, two callers, one of them once for another, and a refusal; ids by what they are."""
    AuditEntry.objects.all().delete()
    now = datetime(2026, 11, 3, tzinfo=UTC)
    made = {}
    for name, actor, action, day, details in (
        ("old", "AKPS1", "queue.create", 1, {}), ("mine", "AKPS1", "queue.delete", 2, {}),
        ("as me", "person:op", "queue.pause", 2, {"acting_as": "AKPS1"}),
        ("refused", "AKPS2", "refused.sqs:DeleteQueue", 3, {}),
    ):  # fmt: skip
        at = now.replace(day=day)
        row = AuditEntry(account_id=owner.account_id, at=at, actor=actor, action=action, subject="q", details=details)
        row.save()
        made[str(row.pk)] = name
    return made


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", "old, mine, as me, refused"),
        ("actor=AKPS1", "old, mine, as me"),
        ("actor=AKPS", ""),
        ("outcome=refused", "refused"),
        ("outcome=done&actor=AKPS2", ""),
        ("since=2026-11-02T00:00:00Z", "mine, as me, refused"),
        ("since=2026-11-02&until=2026-11-03", "mine, as me"),
        ("until=2026-11-02T01:00:00%2B02:00", "old"),
        ("actor=AKPS1&action=queue.d&since=2026-11-02", "mine"),
    ],
)
def test_trail_and_its_export_are_asked_by_actor_outcome_and_time(owner: Caller, asked: str, found: str) -> None:
    names = noted(owner)
    listed = owner.request("GET", f"/v1/audit-entries?page_size=1&{asked}").json()
    shown = [names[str(one["id"])] for one in listed["entries"]]
    while token := listed["next_page_token"]:
        listed = owner.request("GET", f"/v1/audit-entries?page_size=1&page_token={token}&{asked}").json()
        shown += [names[str(one["id"])] for one in listed["entries"]]
    assert ", ".join(reversed(shown)) == found
    lines = owner.request("GET", f"/v1/audit-entries/export?form=jsonl&{asked}").getvalue().decode().splitlines()
    assert ", ".join(names[str(json.loads(line)["id"])] for line in lines) == found
    export = AuditEntry.objects.latest("id")
    assert export.details["entries"] == len(lines) and set(export.details["asked"]) == {
        part.partition("=")[0] for part in asked.split("&") if part
    }


@pytest.mark.parametrize("asked", ["outcome=x", "since=x", "until=9999-99-99", "since=0001-01-01T00:00:00%2B14:00"])
def test_senseless_question_about_the_trail_is_refused_by_name(owner: Caller, asked: str) -> None:
    for path in ("/v1/audit-entries", "/v1/audit-entries/export"):
        answer = owner.request("GET", f"{path}?{asked}")
        assert answer.status_code == 400
        assert [error["pointer"] for error in answer.json()["errors"]] == [f"/{asked.partition('=')[0]}"]


def test_export_is_bounded_and_goes_on(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    noted(owner)
    monkeypatch.setattr(exporting, "AUDIT_EXPORT_ENTRIES_MAX", 3)
    monkeypatch.setattr(selectors, "_ENTRIES_READ", 2)
    first = owner.request("GET", "/v1/audit-entries/export?form=csv")
    assert first.streaming and "attachment" in first["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(first.getvalue().decode())))
    assert [row["action"] for row in rows] == ["queue.create", "queue.delete", "queue.pause"]
    rest = owner.request("GET", f"/v1/audit-entries/export?outcome=refused&after={rows[-1]['id']}").getvalue()
    assert [json.loads(line)["actor"] for line in rest.decode().splitlines()] == ["AKPS2"]


def test_export_is_sent_as_it_is_read() -> None:
    read: list[str] = []

    def pieces() -> Iterator[str]:
        for piece in ("a", "b"):
            read.append(piece)
            yield piece

    async def sent() -> list[tuple[str, int]]:
        return [(piece, len(read)) async for piece in exporting.in_threads(pieces())]

    assert async_to_sync(sent)() == [("a", 1), ("b", 2)]


# --- retention ---


def test_old_entries_are_trimmed_and_the_trimming_is_an_entry(owner: Caller) -> None:
    AuditEntry.objects.update(at=timezone.now() - timedelta(days=91))
    count = AuditEntry.objects.count()
    note_refusals([Refusal(owner.account_id, "a", "sqs:DeleteQueue", "arn")])
    call_command("operate_audit", "--older-than-days=90", "--", "trim", stdout=io.StringIO())
    left = AuditEntry.objects.order_by("id")
    assert [entry.action for entry in left] == ["refused.sqs:DeleteQueue", "audit.trim"]
    assert left[1].details == {"older_than_days": 90, "removed": count}
    with pytest.raises(CommandError, match="90 days at least"):
        call_command("operate_audit", "--older-than-days=89", "--", "trim")


def test_operator_exports_the_trail_of_an_account(owner: Caller) -> None:
    said = io.StringIO()
    call_command("operate_audit", "--account=tests", "--", "export", stdout=said)
    assert [json.loads(line)["action"] for line in said.getvalue().splitlines()] == ["account.create", "key.create"]
    assert AuditEntry.objects.latest("id").action == "audit.export"
