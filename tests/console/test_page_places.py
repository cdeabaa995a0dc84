"""What a page says of where it is: an address that is not there, and the tab and menu entry of one that is."""

from __future__ import annotations

import re

import pytest

from api.people.acting_rights import DENIED, DENIED_IN_WORDS
from console.templatetags.words import exact
from tests.console.browsing import Browser, owner

pytestmark = pytest.mark.django_db
NOT_YOURS = "None of your accounts has this id."
# What an act or action of policies is about, where the words for operators name it otherwise.
_IN_WORDS = {
    "Account": "settings of the account", "Audit": "audit log", "Buyer": "address on invoices", "Deleted": "keeps",
    "Encryption": "encryption keys",
}  # fmt: skip


def told(browser: Browser, path: str) -> str:
    answer = browser.get(path)
    assert answer.status_code == 404
    return re.sub(r"[A-Za-z0-9]{64}", "TOKEN", answer.content.decode())


def test_mistyped_path_is_told_from_an_account_of_others(ann: Browser) -> None:
    bob = owner("bob@example.com")
    for path in ("/console/nowhere", ann.at("quees"), bob.at("quees"), "/console/a/123456789012/quees"):
        text = told(ann, path)
        assert "There is no such page." in text and NOT_YOURS not in text and "sign in with another" not in text, path
    assert "There is nothing at this address" in told(ann, ann.at("keys/AKPSNONE"))
    assert "There is no such page." in told(ann, "/console/operators/"), "to all but operators"


def test_account_of_others_is_told_like_one_that_is_not_there(ann: Browser) -> None:
    bob = owner("bob@example.com")
    ann.get(ann.at())  # which shows what the sign-up left to tell
    foreign, absent = (told(ann, f"/console/a/{one}/queues") for one in (bob.account_id, "123456789012"))
    assert NOT_YOURS in foreign
    assert foreign.replace(bob.account_id, "X") == absent.replace("123456789012", "X")


@pytest.mark.parametrize(
    ("page", "tabs", "entry"),
    [
        ("people", ["People", "Groups"], "People"), ("groups", ["People", "Groups"], "People"),
        ("policies", ["Policies", "Simulator"], "Policies"), ("simulator", ["Policies", "Simulator"], "Policies"),
    ],
)  # fmt: skip
def test_tabs_are_those_of_the_entry_of_the_menu_that_is_lit(
    ann: Browser, page: str, tabs: list[str], entry: str
) -> None:
    text = ann.get(ann.at(page)).content.decode()
    row = re.search(r'<nav class="tabs".*?</nav>', text, re.DOTALL)
    assert row is not None and re.findall(r">(\w+)</a>", row[0]) == tabs
    assert re.findall(r'<a class="nav"[^>]* aria-current="page">(\w+)</a>', text) == [entry]


@pytest.mark.parametrize("action", DENIED)
def test_operators_are_told_all_that_they_cannot_do_as_a_member(action: str) -> None:
    nouns = re.findall(r"[A-Z][a-z]+", str(action).partition(":")[2])
    wanted = next((_IN_WORDS[noun] for noun in nouns if noun in _IN_WORDS), None)
    if wanted is None:
        wanted = {"Policies": "policies", "Policy": "policies"}.get(nouns[1], nouns[1].lower().rstrip("s"))
    assert wanted in DENIED_IN_WORDS, action


def test_time_that_is_ahead_is_shown_as_it_is() -> None:
    assert ">1970-01-01 00:00:01 UTC</time>" in str(exact(1_000))
    assert exact(None) == "–"
