"""What people call an account, over REST."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.audit.actions import OPERATOR
from api.audit.models import AuditEntry
from api.iam.actions import keys
from api.people.limits import ACCOUNT_TITLE_CHARACTERS_MAX
from api.people.models import AccountLife
from tests.support.control_plane import Caller, new_caller

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller("shop")


def title(caller: Caller) -> str:
    return str(caller.request("GET", "/v1/account").json()["title"])


def rename(caller: Caller, value: Any) -> Any:
    return caller.request("PATCH", "/v1/account", {"title": value})


def renamings() -> list[dict[str, Any]]:
    rows = AuditEntry.objects.filter(action="account.rename").order_by("pk")
    return [{"actor": one.actor, "subject": one.subject, **one.details} for one in rows]


def test_title_is_read_changed_and_noted_with_what_was_there(caller: Caller) -> None:
    """An account that the command line made is called by its name until somebody names it."""
    assert title(caller) == "shop" and not AccountLife.objects.exists()
    for _ in range(2):
        changed = rename(caller, " Größe & Co ")
        assert (changed.status_code, changed.json()["title"]) == (200, "Größe & Co")
    assert title(caller) == "Größe & Co"
    shown = caller.request("GET", "/v1/account").json()
    assert (shown["name"], shown["active"]) == ("shop", True), "the name and the state stay"
    subject = f"account:{caller.account_id}"
    noted = {"actor": caller.access_key_id, "subject": subject, "title": "Größe & Co", "before": "shop"}
    assert renamings() == [noted]


@pytest.mark.parametrize(
    "wrong", ["", "  ", "a\nb", "a\0b", "x" * (ACCOUNT_TITLE_CHARACTERS_MAX + 1), 7, None, True, ["a"], {"a": "b"}]
)
def test_what_is_no_title_is_refused_by_name_and_nothing_is_changed(caller: Caller, wrong: Any) -> None:
    answer = caller.request("PATCH", "/v1/account", {"title": wrong, "deletion_grace_days": 3})
    assert answer.status_code == 400
    assert [one["pointer"] for one in answer.json()["errors"]] == ["/title"]
    shown = caller.request("GET", "/v1/account").json()
    assert (shown["title"], shown["deletion_grace_days"]) == ("shop", 0)


def test_longest_title_is_taken(caller: Caller) -> None:
    longest = "ü" * ACCOUNT_TITLE_CHARACTERS_MAX
    assert rename(caller, longest).json()["title"] == longest


@pytest.mark.parametrize(
    ("action", "reads", "changes"),
    [("penstock:GetAccount", True, False), ("penstock:UpdateAccount", False, True), ("sqs:*", False, False)],
)
def test_policy_decides_who_reads_and_changes_it(caller: Caller, action: str, reads: bool, changes: bool) -> None:
    policy = json.dumps({"Statement": {"Effect": "Allow", "Action": action, "Resource": "*"}})
    key = keys.make_key(OPERATOR, caller.account_id, keys.KeySpec("some", policy=policy)).key
    some = Caller(caller.account_id, key.access_key_id)
    assert (some.request("GET", "/v1/account").status_code == 200) == reads
    assert (rename(some, "Theirs").status_code == 200) == changes
    assert (title(caller) == "Theirs") == changes


def test_settings_and_title_are_one_change(caller: Caller) -> None:
    content = {"title": "Shop", "deletion_protection": True, "auto_create_queues": True}
    tag = caller.request("GET", "/v1/account")["ETag"]
    shown = caller.request("PATCH", "/v1/account", content, **{"If-Match": tag})
    assert shown.status_code == 200 and {name: shown.json()[name] for name in content} == content
    stale = caller.request("PATCH", "/v1/account", {"title": "Late"}, **{"If-Match": tag})
    assert stale.status_code == 412 and title(caller) == "Shop"


def test_title_of_another_account_is_not_shown_nor_touched(caller: Caller) -> None:
    other = new_caller("other")
    assert rename(other, "Theirs").status_code == 200
    assert (title(caller), title(other)) == ("shop", "Theirs")
