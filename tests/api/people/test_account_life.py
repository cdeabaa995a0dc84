"""States of an account: every move, and what each state means for keys and members."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from api import clock
from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.people import limits
from api.people.actions import account_life
from api.people.actions.account_life import STATE_CHANGES, StateChange
from api.people.errors import PeopleError
from api.people.models import AccountLife, AccountState, PersonSession
from tests.api.people.visitor import Visitor, audit, join, refused

pytestmark = pytest.mark.django_db


def closing(who: Visitor, account: Visitor, method: str = "POST") -> Any:
    return who.call(method, f"/v1/accounts/{account.account_id}/closing")


def end_grace(account: Visitor, left_s: int = 0) -> None:
    AccountLife.objects.filter(pk=account.account_id).update(closes_at=clock.now() + timedelta(seconds=left_s))


@pytest.mark.parametrize("state", list(AccountState))
@pytest.mark.parametrize("move", list(StateChange))
def test_every_move_of_every_state(ann: Visitor, state: AccountState, move: StateChange) -> None:
    AccountLife.objects.update(state=state)
    Account.objects.update(active=state == AccountState.ACTIVE)
    life = AccountLife.objects.get()
    expected = STATE_CHANGES.get((state, move))
    if expected is None:
        with pytest.raises(PeopleError) as caught:
            account_life._move(OPERATOR, life, move)
        assert caught.value.code == "state-not-possible"
    else:
        account_life._move(OPERATOR, life, move)
    stored = AccountLife.objects.get()
    assert stored.state == (expected or state)
    assert Account.objects.get().active == (stored.state == AccountState.ACTIVE)
    if expected is not None:
        assert (stored.closes_at is not None) == (expected == AccountState.CLOSING)


def test_owner_closes_and_reopens_within_the_grace_period(ann: Visitor) -> None:
    closed = closing(ann, ann).json()
    assert closed["state"] == "closing"
    life = AccountLife.objects.get()
    assert life.closes_at is not None
    assert life.closes_at - life.state_since == timedelta(days=limits.CLOSING_GRACE_DAYS)
    assert not Account.objects.get().active
    end_grace(ann, left_s=60)
    assert account_life.finish_closing() == 0
    assert closing(ann, ann, "DELETE").json()["state"] == "active"
    assert Account.objects.get().active
    assert [action for action in audit(ann.account_id) if action.startswith("account.")] == [
        "account.create", "account.deactivate", "account.close", "account.activate", "account.reopen",
    ]  # fmt: skip


def test_account_is_closed_for_good_when_the_grace_period_is_over(ann: Visitor, bob: Visitor) -> None:
    closing(ann, ann)
    end_grace(ann)
    out = io.StringIO()
    call_command("people_upkeep", stdout=out)
    assert out.getvalue() == "accounts closed: 1, rows removed: 0\n"
    assert account_life.finish_closing() == 0
    assert refused(closing(ann, ann, "DELETE")) == (409, "state-not-possible")
    assert ann.call("GET", f"/v1/accounts/{ann.account_id}").json()["state"] == "closed"
    assert audit(ann.account_id)[-2:] == ["account.shred", "account.finish_closing"]
    assert bytes(Account.objects.get(pk=ann.account_id).account_key_wrapped) == b""
    assert bytes(Account.objects.get(pk=bob.account_id).account_key_wrapped) != b""
    assert bob.call("GET", f"/v1/accounts/{bob.account_id}").json()["state"] == "active"


@pytest.mark.parametrize("role", ["admin", "developer", "reader", "billing", "guest"])
def test_only_an_owner_closes_and_reopens(ann: Visitor, bob: Visitor, role: str) -> None:
    join(ann, bob, role)
    assert refused(closing(bob, ann)) == (403, "access-denied")
    closing(ann, ann)
    assert refused(closing(bob, ann, "DELETE")) == (403, "access-denied")


def test_closing_and_reopening_want_a_recent_authentication(ann: Visitor) -> None:
    old = clock.now() - timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX)
    PersonSession.objects.update(authenticated_at=old)
    for method in ("POST", "DELETE"):
        assert refused(closing(ann, ann, method)) == (403, "recent-authentication-required")


def test_operator_suspends_and_the_owner_cannot_take_it_back(ann: Visitor) -> None:
    out = io.StringIO()
    call_command("account_state", "suspend", ann.account_id, "--reason", "unpaid", stdout=out)
    assert out.getvalue() == f"{ann.account_id}: suspended\n"
    assert not Account.objects.get().active
    for method in ("POST", "DELETE"):
        assert refused(closing(ann, ann, method)) == (409, "state-not-possible")
    assert AccountLife.objects.get().reason == "unpaid"
    call_command("account_state", "resume", ann.account_id, stdout=out)
    assert Account.objects.get().active
    with pytest.raises(CommandError, match="The account is active: it can be told to suspend or close"):
        call_command("account_state", "resume", ann.account_id)
    with pytest.raises(CommandError, match="nothing here"):
        call_command("account_state", "suspend", "123456789012")


def test_refused_change_of_a_closing_account_names_what_an_operator_may_ask_for(ann: Visitor) -> None:
    call_command("operate_accounts", "close", ann.account_id, stdout=io.StringIO())
    with pytest.raises(CommandError, match=r"The account is closing: it can be told to suspend or reopen\.$"):
        call_command("operate_accounts", "close", ann.account_id)


@pytest.mark.parametrize(("length", "accepted"), [(limits.STATE_REASON_CHARACTERS_MAX, True), (201, False)])
def test_reason_is_bounded(ann: Visitor, length: int, accepted: bool) -> None:
    if accepted:
        account_life.suspend_account(OPERATOR, ann.account_id, "x" * length)
    else:
        with pytest.raises(PeopleError):
            account_life.suspend_account(OPERATOR, ann.account_id, "x" * length)


def test_members_of_an_account_that_is_not_active_change_nothing_but_may_leave(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "admin")
    call_command("account_state", "suspend", ann.account_id, stdout=io.StringIO())
    root = f"/v1/accounts/{ann.account_id}"
    expected = (409, "account-not-active")
    payload = {"email": "eve@example.com", "role": "reader"}
    assert refused(ann.call("POST", f"{root}/invitations", payload)) == expected
    assert refused(ann.call("PATCH", f"{root}/members/{bob.person_id}", {"role": "reader"})) == expected
    assert refused(ann.call("DELETE", f"{root}/members/{bob.person_id}")) == expected
    assert len(ann.call("GET", f"{root}/members").json()["members"]) == 2
    assert bob.call("DELETE", f"{root}/members/{bob.person_id}").status_code == 204


def test_keys_of_an_account_follow_its_state(ann: Visitor) -> None:
    from api.accounts.actions import create_key
    from api.accounts.models import AccessKey

    create_key(OPERATOR, ann.account_id, "key")
    before = AccessKey.objects.get().version
    closing(ann, ann)
    assert AccessKey.objects.get().version > before
