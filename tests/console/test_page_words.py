"""Small parts that many pages share: filters of figures, marks of the menu, bars in words."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from console.bars import BarValue, bar_chart
from console.templatetags.words import browser, detail, sentence, took
from tests.console.browsing import Browser
from tests.console.test_billing import see_open_usage

_WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("ms", "shown"), [(None, "–"), (0, "0 ms"), (9_999, "9,999 ms"), (10_000, "10 s"), (61_000, "1 min 1 s")]
)
def test_time_that_work_took_is_in_the_unit_that_people_read(ms: Any, shown: str) -> None:
    assert took(ms) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [("orders", "orders"), (False, "false"), (None, "null"), ({"A": "é"}, '{"A": "é"}'), ([50, 100], "[50, 100]")],
)
def test_detail_of_an_audit_entry_is_text_or_json(value: Any, shown: str) -> None:
    assert detail(value) == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("A queue exists", "A queue exists."), ("Done.", "Done."), ("Why?", "Why?")]
)
def test_refusal_is_a_sentence(text: str, shown: str) -> None:
    assert sentence(text) == shown


def test_chart_of_bars_says_which_is_the_highest() -> None:
    chart = bar_chart([BarValue("1 Nov", 3, 0, "0.03 USD"), BarValue("2 Nov", 2, 5, "0.07 USD")])
    assert chart is not None and chart.highest == "0.07 USD, 2 Nov"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("queues", "Queues"), ("new-queue", "Queues"), ("alarms", "Alarms"), ("alarms/new", "Alarms"),
        ("webhooks", "Alarms"), ("people", "People"), ("groups", "People"), ("policies", "Policies"),
        ("new-policy", "Policies"), ("simulator", "Policies"), ("keys", "Keys"), ("encryption-keys", "Encryption keys"),
    ],
)  # fmt: skip
def test_menu_marks_the_one_entry_that_a_page_belongs_to(ann: Browser, path: str, label: str) -> None:
    text = ann.get(ann.at(path)).content.decode()
    assert re.findall(r'<a class="nav"[^>]* aria-current="page">([^<]*)</a>', text) == [label]


@pytest.mark.django_db
def test_requests_of_a_person_are_shown_with_the_address(ann: Browser) -> None:
    from api.people.models import AccountMembership

    member = AccountMembership.objects.get(account_id=ann.account_id)
    for one in (member.person_id, uuid.uuid4()):
        see_open_usage(ann.account_id, 3, f"ab/1/person:{one}")
    text = ann.get(ann.at("billing/usage?by=key")).content.decode()
    rows = dict(re.findall(r'<td class="mono">person:([0-9a-f-]+)</td><td class="wrap">([^<]*)</td>', text))
    assert rows.pop(str(member.person_id)) == ann.email and list(rows.values()) == ["–"]


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (f"Mozilla/5.0 (X11; Linux x86_64) {_WEBKIT} Chrome/130.0.0.0 Safari/537.36", "Chrome on Linux"),
        (f"Mozilla/5.0 (Windows NT 10.0) {_WEBKIT} Chrome/130.0.0.0 Safari/537.36 Edg/130.0", "Edge on Windows"),
        ("Mozilla/5.0 (Android 15; Mobile; rv:132.0) Gecko/132.0 Firefox/132.0", "Firefox on Android"),
        (f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) {_WEBKIT} Safari/604.1", "Safari on iPhone"),
        ("curl/8.5.0", "curl"),
        ("<b>" + "x" * 100, "<b>" + "x" * 37),
        ("", ""),
    ],
)
def test_session_names_browser_and_system(user_agent: str, name: str) -> None:
    assert browser(user_agent) == name
