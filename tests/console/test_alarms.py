"""Alarms on pages: made, changed, muted, deleted by those who may; read by others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from api import clock
from api.alarms.actions import note_values
from api.alarms.models import MetricAlarm
from api.audit.actions import OPERATOR
from api.iam.actions.policies import attach_to_member, create_policy
from api.people.models import Person
from tests.console.browsing import Browser, queue_row

pytestmark = pytest.mark.django_db
FORM = {
    "name": "backlog", "queue": "orders", "metric": "ApproximateNumberOfMessagesVisible", "statistic": "",
    "comparison": "GreaterThanThreshold", "threshold": "100", "period_s": "300", "periods": "3", "breaching": "2",
    "missing": "missing", "mail_to": "a@example.com, b@example.com",
}  # fmt: skip


def make(browser: Browser, **given: str) -> int:
    page = browser.at("alarms/new")
    status: int = browser.post(page, {**FORM, **given}, page).status_code
    return status


def text_of(browser: Browser, tail: str) -> str:
    return str(browser.get(browser.at(tail)).content.decode())


def test_alarm_is_set_changed_muted_and_deleted_by_its_pages(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    assert "No alarms yet" in text_of(ann, "alarms")
    assert 'value="orders"' in text_of(ann, "alarms/new?queue=orders")
    assert make(ann) == 302
    alarm = MetricAlarm.objects.get()
    assert (alarm.statistic, alarm.mail_to) == ("Average", ["a@example.com", "b@example.com"])
    text = text_of(ann, "alarms")
    assert "Average of ApproximateNumberOfMessagesVisible above 100 in 2 of 3 periods of 5 min" in text
    page = ann.at("alarm/backlog")
    assert ann.post(page, {**FORM, "threshold": "250.5"}, page).status_code == 302
    assert "above 250.5" in text_of(ann, "alarm/backlog")
    assert ann.post(f"{page}/mute", {"hours": "8"}, page).status_code == 302
    assert "Unmute" in text_of(ann, "alarm/backlog") and "Muted" in text_of(ann, "alarms")
    assert ann.post(f"{page}/mute", {"hours": "0"}, page).status_code == 302
    assert MetricAlarm.objects.get().muted_until is None
    assert ann.post(f"{page}/delete", {}, page).status_code == 302
    assert not MetricAlarm.objects.exists() and ann.get(page).status_code == 404


@pytest.mark.parametrize("start", ["age", "dead-letters", "errors", "throttled"])
def test_start_of_an_alarm_fills_a_form_that_can_be_sent_as_it_is(ann: Browser, start: str) -> None:
    queue_row(ann.account_id, "orders")
    page = text_of(ann, f"alarms/new?start={start}&queue=orders")
    current = re.findall(r'href="[?]start=([a-z-]+)&amp;queue=orders" aria-current="true"', page)
    assert current == [start]
    fields = dict(re.findall(r'name="(\w+)"[^>]* value="([^"]*)"', page))
    for select in re.findall(r'<select name="(\w+)">(.*?)</select>', page):
        chosen = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', select[1])
        fields[select[0]] = "" if chosen is None else chosen[1] or chosen[2]
    sent = {key: value for key, value in fields.items() if key in FORM} | {"name": "backlog", "mail_to": ""}
    assert ann.post(ann.at("alarms/new"), sent, ann.at("alarms/new")).status_code == 302
    alarm = MetricAlarm.objects.get()
    metrics = {"age": "ApproximateAgeOfOldestMessage", "dead-letters": "ApproximateNumberOfMessagesVisible"}
    metrics |= {"errors": "NumberOfErrors", "throttled": "NumberOfThrottledRequests"}
    assert alarm.metric == metrics[start] and alarm.threshold == (300 if start == "age" else 0)


def test_start_that_there_is_none_of_is_the_first(ann: Browser) -> None:
    page = text_of(ann, "alarms/new?start=evil")
    assert 'href="?start=age" aria-current="true"' in page and "evil" not in page


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"queue": "other"}, "no queue other"), ({"threshold": "much"}, "a number"), ({"threshold": "nan"}, "a number"),
        ({"periods": "x"}, "whole numbers"), ({"metric": "x"}, "no such metric"), ({"missing": "x"}, "Choose"),
        ({"mail_to": "no-address"}, "e-mail address"), ({"name": "a b"}, "letters"),
        ({"name": "\0"}, "letters"), ({"queue": "other\0"}, "no queue other"),
    ],
)  # fmt: skip
def test_form_comes_back_with_what_was_typed_and_why(ann: Browser, wrong: dict[str, str], says: str) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("alarms/new")
    answer = ann.post(page, {**FORM, **wrong}, page)
    text = answer.content.decode()
    assert answer.status_code == 400 and says in text and 'value="2"' in text
    assert not MetricAlarm.objects.exists()


def test_name_that_is_taken_replaces_no_alarm(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    make(ann)
    assert make(ann, threshold="1") == 400 and MetricAlarm.objects.get().threshold == 100


def test_state_stands_on_the_page_of_the_queue_and_on_the_overview(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    make(ann)
    now = clock.now()
    note_values(MetricAlarm.objects.get(), now - timedelta(minutes=1), [500.0] * 3, now)
    for tail in ("queues/orders/charts", "attention", "alarms"):
        assert 'class="badge bad">Alarm' in text_of(ann, tail) and "backlog" in text_of(ann, tail)
    assert "no data to alarm" in text_of(ann, "alarm/backlog")


def test_reader_sees_alarms_and_changes_none(ann: Browser, join: Callable[..., Browser]) -> None:
    queue_row(ann.account_id, "orders")
    make(ann)
    reader = join(ann, "reader")
    assert "backlog" in text_of(reader, "alarms") and "New alarm" not in text_of(reader, "alarms")
    text = text_of(reader, "alarm/backlog")
    assert "Mute" not in text and "Delete" not in text and "Change the alarm" not in text
    page = reader.at("alarm/backlog")
    assert reader.get(reader.at("alarms/new")).status_code == 403
    assert reader.post(page, FORM).status_code == 403
    for tail in ("/mute", "/delete"):
        assert reader.post(page + tail, {"hours": "8"}).status_code == 403
    assert MetricAlarm.objects.get().muted_until is None


def test_policy_that_denies_an_action_on_alarms_counts_on_pages(ann: Browser, join: Callable[..., Browser]) -> None:
    queue_row(ann.account_id, "orders")
    make(ann)
    guest = join(ann, "developer")
    page = guest.at("alarm/backlog")
    for action, tail in (("MuteAlarm", "/mute"), ("DeleteAlarm", "/delete")):
        assert f"/alarm/backlog{tail}" in text_of(guest, "alarm/backlog")
        deny_in_account(guest, f"penstock:{action}")
        assert guest.post(page + tail, {"hours": "8"}).status_code == 403
        assert f"/alarm/backlog{tail}" not in text_of(guest, "alarm/backlog")
    deny_in_account(guest, "penstock:PutAlarm")
    assert guest.post(page, FORM).status_code == 403 and guest.get(guest.at("alarms/new")).status_code == 403


def deny_in_account(browser: Browser, action: str) -> None:
    """A policy that is attached to the member."""
    name = f"no-{action.partition(':')[2].lower()}"
    statement = {"Effect": "Deny", "Action": action, "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    create_policy(OPERATOR, browser.account_id, name, document)
    attach_to_member(OPERATOR, browser.account_id, Person.objects.get(email=browser.email).pk, name)


def test_alarms_of_another_account_are_not_found(ann: Browser) -> None:
    from tests.console.browsing import owner

    queue_row(ann.account_id, "orders")
    make(ann)
    bob = owner("bob@example.com")
    assert bob.get(bob.at("alarm/backlog")).status_code == 404
    assert bob.get(ann.at("alarm/backlog")).status_code == 404
    assert bob.post(bob.at("alarm/backlog/delete"), {}).status_code == 404
