"""Operators' commands that make accounts and keys: none is made in passing, and an id is not taken for a name."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from api.accounts.actions import AccountError, get_or_create_account
from api.accounts.models import AccessKey, Account
from api.audit.actions import OPERATOR
from api.people.actions.account_life import rename_account
from api.people.actions.console_links import make_owner_link
from tests.support.control_plane import Caller
from tests.support.iam import caller as caller
from tests.support.iam import run


def test_key_is_made_for_the_account_whose_id_is_given(caller: Caller) -> None:
    made = run("create_key", "--account", caller.account_id, "--json")
    assert made["account_id"] == caller.account_id and "account_created" not in made
    assert Account.objects.count() == 1


def test_id_of_no_account_becomes_no_name(caller: Caller) -> None:
    for name in ("999999999999", "000000000000"):
        with pytest.raises(CommandError, match="there is no account"):
            call_command("create_key", "--account", name)
        with pytest.raises(AccountError, match="like an id"):
            get_or_create_account(OPERATOR, name)
    assert Account.objects.count() == 1
    assert get_or_create_account(OPERATOR, "99999999999").name == "99999999999", "eleven digits are a name"


def test_refused_key_leaves_no_account(transactional_db: None) -> None:
    for wrong in (
        "--scope=write",
        "--key-name=",
        "--expires=soon",
        "--expires=2020-01-01",
        "--expires=9999-12-31T23:59-14:00",
    ):
        with pytest.raises(CommandError):
            call_command("create_key", "--account=fresh", wrong)
    assert not Account.objects.exists()


def test_key_is_named_and_ends(caller: Caller) -> None:
    made = run("create_key", "--account=tests", "--key-name=nightly", "--expires=2126-12-01T06:30", "--json")
    key = AccessKey.objects.get(pk=made["access_key_id"])
    assert key.name == "nightly" and key.expires_at is not None
    assert key.expires_at.isoformat() == "2126-12-01T06:30:00+00:00"


def test_account_is_created_once_without_a_key(transactional_db: None) -> None:
    made = run("operate_accounts", "create", "shop")
    assert Account.objects.get().id == made["account_id"] and not AccessKey.objects.exists()
    for name in ("shop", made["account_id"]):
        with pytest.raises(CommandError, match=made["account_id"]):
            call_command("operate_accounts", "create", name)
    with pytest.raises(CommandError, match="printable"):
        call_command("operate_accounts", "create", "")


def test_list_of_accounts_has_their_titles(caller: Caller) -> None:
    assert [one["title"] for one in run("operate_accounts", "list")] == ["tests"]
    make_owner_link("tests")
    rename_account(OPERATOR, caller.account_id, "The shop")
    assert [(one["name"], one["title"]) for one in run("operate_accounts", "list")] == [("tests", "The shop")]


def test_policy_that_names_no_action_is_noted(caller: Caller) -> None:
    statement = {"Effect": "Allow", "Action": "sqs:Sendmessages", "Resource": "*"}
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=1)
    (note,) = run("create_key", "--account=tests", f"--policy={text}", "--json")["notes"]
    assert note.startswith("line 6 of the policy: $.Statement[0].Action: ") and "no such action" in note
    right = text.replace("Sendmessages", "SendMessage")
    assert "notes" not in run("create_key", "--account=tests", f"--policy={right}", "--json")
