"""Schedules: when ticks come, clocks that change included, and what callers may do with them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from api import limits
from api.audit.models import AuditEntry
from api.queues import actions
from api.queues.models import Queue
from api.queues.moving import record_of, view_of
from api.schedules.cron import CronError, check_cron, check_zone, next_tick
from api.schedules.firing import claim_due, due_ticks, note_handed_over
from api.schedules.models import CronSchedule
from frontend.crypto.envelope import key_names, open_envelope
from tests.support.control_plane import Caller, new_caller
from tests.support.scripted_storage import ScriptedStorage
from workers.lifecycle.reconciling import reconcile_queue

PATH = "/v1/queues/orders/schedules"
SCHEDULE = {"name": "nightly", "cron": "30 2 * * *", "time_zone": "Europe/Paris", "body": "do it"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ticks(cron: str, zone: str, after: str, count: int) -> list[str]:
    """In UTC, without the year."""
    found: list[str] = []
    moment = at(after)
    for _ in range(count):
        moment = next_tick(check_cron(cron), zone, moment)
        assert moment.tzinfo is UTC
        found.append(f"{moment:%m-%d %H:%M:%S}")
    return found


# --- when ---


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("*/20 * * * *", "2026-01-01T00:00:00Z", ["01-01 00:20:00", "01-01 00:40:00", "01-01 01:00:00"]),
        ("*/20 * * * * *", "2026-01-01T00:00:00.5Z", ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01:00"]),
        ("15 30 9 * * mon-fri", "2026-01-02T10:00:00Z", ["01-05 09:30:15", "01-06 09:30:15"]),
        ("0 0 1 * mon", "2026-05-01T00:00:00Z", ["05-04 00:00:00", "05-11 00:00:00", "05-18 00:00:00"]),
        ("0 0 31 * *", "2026-01-31T00:00:00Z", ["03-31 00:00:00", "05-31 00:00:00"]),
        ("0 0 L * *", "2026-02-01T00:00:00Z", ["02-28 00:00:00", "03-31 00:00:00"]),
        ("0 9 * * mon#1", "2026-01-01T00:00:00Z", ["01-05 09:00:00", "02-02 09:00:00"]),
        ("0 0 29 feb *", "2026-01-01T00:00:00Z", ["02-29 00:00:00"]),
    ],
)
def test_ticks_come_when_the_expression_says(cron: str, after: str, expected: list[str]) -> None:
    assert ticks(cron, "UTC", after, len(expected)) == expected


def test_daily_time_that_does_not_exist_comes_when_clocks_go_forward() -> None:
    assert ticks("30 2 * * *", "Europe/Paris", "2026-03-27T12:00:00Z", 4) == [
        "03-28 01:30:00", "03-29 01:00:00", "03-30 00:30:00", "03-31 00:30:00",
    ]  # fmt: skip


def test_daily_time_that_comes_twice_counts_once_when_clocks_go_back() -> None:
    assert ticks("30 2 * * *", "Europe/Paris", "2026-10-24T12:00:00Z", 3) == [
        "10-25 00:30:00", "10-26 01:30:00", "10-27 01:30:00",
    ]  # fmt: skip
    assert ticks("0,30 1-3 * * *", "Europe/Paris", "2026-10-24T23:45:00Z", 4) == [
        "10-25 00:00:00", "10-25 00:30:00", "10-25 02:00:00", "10-25 02:30:00",
    ]  # fmt: skip


@pytest.mark.parametrize("night", ["2026-03-29T00:00:00Z", "2026-10-25T00:00:00Z"])
def test_expression_of_every_hour_keeps_its_pace_through_both_changes(night: str) -> None:
    for cron, zone in (("*/20 * * * *", "Europe/Paris"), ("*/20 * * * *", "Australia/Lord_Howe")):
        found = ticks(cron, zone, night, 18)
        assert found == [f"{at(night) + timedelta(minutes=20 * n):%m-%d %H:%M:%S}" for n in range(1, 19)]


def test_day_that_a_zone_leaves_out_has_one_tick_at_the_change() -> None:
    """Samoa had no 30 December 2011."""
    assert ticks("0 0 * * *", "Pacific/Apia", "2011-12-28T12:00:00Z", 3) == [
        "12-29 10:00:00", "12-30 10:00:00", "12-31 10:00:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "* * * * * * *", "@daily", "60 * * * *", "H * * * *", "* * * * R", "R(1-5) * * * *", "x",
     "* * * foo *", "1,,2 * * * *", "* * * * * ;", "9" * 300, "*/0 * * * *", "5-1-2 * * * *"],
)  # fmt: skip
def test_senseless_expressions_are_refused(cron: str) -> None:
    with pytest.raises(CronError):
        check_cron(cron)


@pytest.mark.parametrize("cron", ["60 * * * *", "60 0 6 * * *"])
def test_refused_expression_is_told_the_fields_there_are(cron: str) -> None:
    with pytest.raises(CronError, match=r"minute \(0-59\), .*; of six the first is the second \(0-59\)"):
        check_cron(cron)


def test_expression_that_names_no_time_is_refused() -> None:
    with pytest.raises(CronError, match="no time that comes"):
        next_tick(check_cron("0 0 30 2 *"), "UTC", at("2026-01-01T00:00:00Z"))


@pytest.mark.parametrize("zone", ["", "Europe/Nowhere", "../etc/passwd", "CET+1", "localtime", "Factory"])
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(CronError):
        check_zone(zone)


# --- which are due ---


def test_ticks_that_are_near_are_due_and_later_ones_are_not() -> None:
    now = at("2026-01-01T00:00:18Z")
    due, following, skips = due_ticks("*/2 * * * * *", "UTC", at("2026-01-01T00:00:18Z"), now)
    assert [f"{tick:%S}" for tick in due] == ["18", "20", "22"] and f"{following:%S}" == "24" and not skips


def test_of_missed_ticks_the_first_comes_and_the_rest_do_not() -> None:
    now = at("2026-01-01T12:00:30Z")
    due, following, skips = due_ticks("* * * * *", "UTC", at("2026-01-01T00:01:00Z"), now)
    assert [f"{tick:%H:%M}" for tick in due] == ["00:01", "12:00"]
    assert f"{following:%H:%M}" == "12:01" and skips


def test_ticks_that_are_a_little_late_all_come() -> None:
    now = at("2026-01-01T00:01:00Z")
    due, _, skips = due_ticks("*/10 * * * * *", "UTC", at("2026-01-01T00:00:10Z"), now)
    assert [f"{tick:%M:%S}" for tick in due] == ["00:10", "00:20", "00:30", "00:40", "00:50", "01:00"] and not skips


# --- what callers do ---


@pytest.fixture
def owner(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """Whose queues `orders` and `line.fifo` are active."""
    scripted = ScriptedStorage()
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    caller = new_caller()
    for name in ("orders", "line.fifo"):
        attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        answer = caller.sqs("CreateQueue", QueueName=name, Attributes=attributes)
        assert answer.status_code == 200, answer.json()
    return caller


def create(owner: Caller, path: str = PATH, **changes: Any) -> Any:
    return owner.request("POST", path, {**SCHEDULE, **changes})


def test_schedule_is_created_shown_listed_and_deleted(owner: Caller) -> None:
    created = create(owner, attributes={"a": {"value": "1"}}, group="g")
    assert created.status_code == 201
    shown = created.json()
    assert (shown["cron"], shown["time_zone"], shown["group"], shown["enabled"]) == (
        "30 2 * * *", "Europe/Paris", "g", True,
    )  # fmt: skip
    assert shown["fired"] == 0 and shown["last_at"] is None
    assert at(shown["next_at"]) == next_tick("30 2 * * *", "Europe/Paris", timezone.now())
    assert "body" not in shown
    assert owner.request("GET", PATH + "/nightly").json() == shown
    create(owner, name="second")
    first_page = owner.request("GET", PATH + "?page_size=1").json()
    assert [one["name"] for one in first_page["schedules"]] == ["nightly"]
    rest = owner.request("GET", f"{PATH}?page_size=1&page_token={first_page['next_page_token']}").json()
    assert [one["name"] for one in rest["schedules"]] == ["second"] and rest["next_page_token"] is None
    assert owner.request("DELETE", PATH + "/nightly").status_code == 204
    assert owner.request("GET", PATH + "/nightly").status_code == 404
    assert owner.request("DELETE", PATH + "/nightly").status_code == 404
    actions = AuditEntry.objects.filter(account_id=owner.account_id, action__startswith="schedule.")
    assert list(actions.order_by("pk").values_list("action", flat=True)) == [
        "schedule.create", "schedule.create", "schedule.delete",
    ]  # fmt: skip


def test_message_of_a_schedule_stands_nowhere_in_clear(owner: Caller) -> None:
    secret = "nobody may read this"
    create(owner, body=secret, attributes={"secret": {"value": secret}})
    row = CronSchedule.objects.get()
    stored = " ".join(str(value) for value in row.__dict__.values())
    assert secret not in stored and secret.encode() not in bytes(row.content_sealed)
    audit = str(list(AuditEntry.objects.filter(account_id=owner.account_id).values()))
    assert secret not in audit


def test_pause_and_resume_take_the_ticks_between_out(owner: Caller) -> None:
    create(owner, cron="* * * * * *")
    assert owner.request("POST", PATH + "/nightly/pause").json()["enabled"] is False
    CronSchedule.objects.update(next_tick_at=timezone.now() - timedelta(hours=1))
    paused = owner.request("GET", PATH + "/nightly").json()
    assert paused["next_at"] is None
    handed_over = timezone.now().replace(microsecond=0) + timedelta(seconds=4)
    CronSchedule.objects.update(last_tick_at=handed_over)
    resumed = owner.request("POST", PATH + "/nightly/resume").json()
    assert resumed["enabled"] is True and at(resumed["next_at"]) == handed_over + timedelta(seconds=1)
    again = owner.request("POST", PATH + "/nightly/resume").json()
    assert again["next_at"] == resumed["next_at"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cron": "no"}, "invalid-parameter-value"),
        ({"cron": "0 0 30 2 *"}, "invalid-parameter-value"),
        ({"time_zone": "Mars/Base"}, "invalid-parameter-value"),
        ({"name": "no/name"}, "invalid-parameter-value"),
        ({"body": "\u0000"}, "invalid-request"),
        ({"body": "\u0001"}, "invalid-message-contents"),
        ({"body": ""}, "invalid-request"),
        ({"attributes": {"AWS.x": {"value": "1"}}}, "invalid-parameter-value"),
        ({"attributes": {"Penstock.DelaySeconds": {"type": "Number", "value": "5"}}}, "invalid-parameter-value"),
        ({"attributes": {"b": {"type": "Binary", "value": "???"}}}, "serialization"),
        ({"group": "no group"}, "invalid-parameter-value"),
    ],
)
def test_senseless_schedules_are_refused(owner: Caller, changes: dict[str, Any], code: str) -> None:
    answer = create(owner, **changes)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not CronSchedule.objects.exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"timezone": "Europe/Paris"}, "/timezone"),
        ({"attributes": {"a": {"value": "1", "kind": "String"}}}, "/attributes/a/kind"),
    ],
)
def test_unknown_member_is_refused_by_name(owner: Caller, changes: dict[str, Any], named: str) -> None:
    answer = create(owner, **changes)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")
    (error,) = answer.json()["errors"]
    assert error["pointer"] == named and error["detail"].startswith("is not known here: ")
    assert not CronSchedule.objects.exists()


def test_name_is_unique_within_a_queue_and_number_is_bounded(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    create(owner)
    assert create(owner).status_code == 409
    assert create(owner, path="/v1/queues/line.fifo/schedules", group="g").status_code == 201
    monkeypatch.setattr(limits, "SCHEDULES_PER_QUEUE_MAX", 1)
    assert create(owner, name="second").status_code == 403


def test_fifo_queue_wants_a_group(owner: Caller) -> None:
    path = "/v1/queues/line.fifo/schedules"
    assert create(owner, path=path).status_code == 400
    assert create(owner, path=path, group="g").status_code == 201


def test_schedules_of_another_account_or_of_no_queue_do_not_exist(owner: Caller) -> None:
    create(owner, attributes={"b": {"type": "Binary", "value": base64.b64encode(b"x").decode()}})
    other = new_caller("others")
    for method, path in (
        ("GET", PATH), ("POST", PATH), ("GET", PATH + "/nightly"), ("DELETE", PATH + "/nightly"),
        ("POST", PATH + "/nightly/pause"), ("POST", PATH + "/nightly/resume"),
    ):  # fmt: skip
        assert other.request(method, path, SCHEDULE if (method, path) == ("POST", PATH) else None).status_code == 404
    Queue.objects.update(state="deleting")
    for path in (PATH, PATH + "/nightly"):
        assert owner.request("GET", path).status_code == 404
    assert CronSchedule.objects.count() == 1


# --- changes ---


def content_of(row: CronSchedule) -> Any:
    """What the next tick would send."""
    found = record_of(row.queue)
    assert found is not None
    sealed = bytes(row.content_sealed)
    opened = open_envelope(view_of(found).opening_key(key_names(sealed)), sealed)
    assert opened.sender == f"schedule/{row.uuid.hex}"
    return opened.content


def test_schedule_gets_another_expression_zone_message_and_group(owner: Caller) -> None:
    before = create(owner, attributes={"a": {"value": "1"}}).json()
    CronSchedule.objects.update(last_error="did not work", failures=3)
    change = {"cron": "0 9 * * mon", "time_zone": "Asia/Tokyo", "body": "other", "group": "g"}
    changed = owner.request("PATCH", PATH + "/nightly", change)
    shown = changed.json()
    assert changed.status_code == 200 and shown["created_at"] == before["created_at"]
    assert (shown["cron"], shown["time_zone"], shown["group"]) == ("0 9 * * MON", "Asia/Tokyo", "g")
    assert at(shown["next_at"]) == next_tick("0 9 * * MON", "Asia/Tokyo", timezone.now())
    assert shown["last_error"] is None and "body" not in shown
    content = content_of(CronSchedule.objects.get())
    assert content.body == "other" and not content.attributes
    entry = AuditEntry.objects.get(account_id=owner.account_id, action="schedule.update")
    assert entry.subject == "queue:orders" and entry.details == {
        "schedule": "nightly", "cron": "0 9 * * MON", "zone": "Asia/Tokyo", "group": "g", "message": "replaced",
        "before": {"cron": "30 2 * * *", "zone": "Europe/Paris", "group": ""},
    }  # fmt: skip


def test_part_that_is_left_out_stays_and_no_change_leaves_no_trace(owner: Caller) -> None:
    before = create(owner, attributes={"a": {"value": "1"}}, group="g").json()
    sealed = bytes(CronSchedule.objects.get().content_sealed)
    for change in ({}, {"cron": "30 2 * * *"}, {"group": "g"}):
        assert owner.request("PATCH", PATH + "/nightly", change).json() == before
    assert not AuditEntry.objects.filter(action="schedule.update").exists()
    cleared = owner.request("PATCH", PATH + "/nightly", {"group": None}).json()
    assert cleared["group"] is None and cleared["next_at"] == before["next_at"]
    assert bytes(CronSchedule.objects.get().content_sealed) == sealed
    described = owner.request("PATCH", PATH + "/nightly", {"body": "x", "attributes": {"b": {"value": "2"}}})
    assert described.status_code == 200
    assert list(content_of(CronSchedule.objects.get()).attributes) == ["b"]


def test_worker_that_has_the_old_expression_does_not_set_the_schedule_back(owner: Caller) -> None:
    create(owner, cron="* * * * * *")
    handed_over = timezone.now().replace(microsecond=0) + timedelta(seconds=4)
    CronSchedule.objects.update(last_tick_at=handed_over)
    changed = owner.request("PATCH", PATH + "/nightly", {"cron": "*/2 * * * * *"}).json()
    assert at(changed["next_at"]) > handed_over
    CronSchedule.objects.update(next_tick_at=timezone.now())
    (claim,) = claim_due()
    changed = owner.request("PATCH", PATH + "/nightly", {"cron": "0 0 1 1 *"}).json()
    note_handed_over([claim])
    assert owner.request("GET", PATH + "/nightly").json()["next_at"] == changed["next_at"]


def test_paused_schedule_stays_paused_when_it_is_changed(owner: Caller) -> None:
    create(owner, enabled=False)
    changed = owner.request("PATCH", PATH + "/nightly", {"cron": "0 1 * * *"}).json()
    assert (changed["enabled"], changed["next_at"], changed["cron"]) == (False, None, "0 1 * * *")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cron": "no"}, "invalid-parameter-value"),
        ({"cron": "0 0 30 2 *"}, "invalid-parameter-value"),
        ({"time_zone": "Mars/Base"}, "invalid-parameter-value"),
        ({"body": "\u0001"}, "invalid-message-contents"),
        ({"body": ""}, "invalid-request"),
        ({"attributes": {"a": {"value": "1"}}}, "invalid-parameter-value"),
        ({"body": "x", "attributes": {"AWS.x": {"value": "1"}}}, "invalid-parameter-value"),
        ({"group": "no group"}, "invalid-parameter-value"),
        ({"name": "other"}, "invalid-request"),
        ({"enabled": False}, "invalid-request"),
    ],
)
def test_senseless_changes_are_refused_and_change_nothing(owner: Caller, change: dict[str, Any], code: str) -> None:
    create(owner)
    before = CronSchedule.objects.values().get()
    answer = owner.request("PATCH", PATH + "/nightly", {"cron": "1 1 * * *", "group": "g"} | change)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert CronSchedule.objects.values().get() == before


def test_schedule_of_a_fifo_queue_keeps_a_group_and_others_change_none(owner: Caller) -> None:
    path = "/v1/queues/line.fifo/schedules"
    create(owner, path=path, group="g")
    assert owner.request("PATCH", path + "/nightly", {"group": None}).status_code == 400
    assert owner.request("PATCH", path + "/nightly", {"group": "h"}).json()["group"] == "h"
    assert owner.request("PATCH", path + "/missing", {"group": "h"}).status_code == 404
    assert new_caller("others").request("PATCH", path + "/nightly", {"group": "i"}).status_code == 404
