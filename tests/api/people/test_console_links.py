"""One-time sign-in links: who is signed in, once, for ten minutes."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from api import clock
from api.accounts.actions import get_or_create_account, set_account_active
from api.accounts.models import Account
from api.audit.actions import OPERATOR
from api.people import limits
from api.people.actions import account_life
from api.people.actions.console_links import make_operator_link, make_owner_link, open_link
from api.people.errors import PeopleError
from api.people.models import AccountLife, AccountState, Operator, Person, PersonToken
from api.people.origin import RequestOrigin
from tests.api.people.visitor import PASSWORD, Visitor, mailed_token, refused

pytestmark = pytest.mark.django_db
ORIGIN = RequestOrigin("192.0.2.1", request_id="req-1")


def test_link_is_good_for_ten_minutes(db: None) -> None:
    token = make_owner_link("team").token
    stored = PersonToken.objects.get()
    assert token.encode() not in bytes(stored.token_hash)
    assert stored.expires_at - stored.created_at == timedelta(seconds=limits.CONSOLE_LINK_TOKEN_S)
    PersonToken.objects.update(expires_at=clock.now())
    with pytest.raises(PeopleError) as caught:
        open_link(ORIGIN, token)
    assert caught.value.code == "invalid-token"


def test_sign_up_with_the_address_of_a_stand_in_gives_its_password_to_nobody(visitor: Visitor) -> None:
    email = "operator@console.invalid"
    assert visitor.call("POST", "/v1/people", {"email": email, "password": PASSWORD}).status_code == 202
    make_operator_link()
    assert Operator.objects.get().person.email_confirmed_at is not None
    content = {"token": mailed_token(email), "password": PASSWORD}
    assert refused(visitor.call("POST", "/v1/people/confirmation", content)) == (400, "invalid-token")
    assert Person.objects.get(email=email).password == ""


def test_operator_resumes_an_account_that_was_switched_off_before_it_had_a_life(db: None) -> None:
    account = get_or_create_account(OPERATOR, "team")
    set_account_active(OPERATOR, account.pk, False)
    assert account_life.resume_account(OPERATOR, account.pk).state == AccountState.ACTIVE
    account.refresh_from_db()
    assert account.active and AccountLife.objects.get().title == "team"


def test_link_for_an_account_that_is_not_there_is_refused_and_makes_none(db: None) -> None:
    with pytest.raises(CommandError, match="there is no account 'nobody'"):
        call_command("console_link", "--account=nobody", "--json")
    assert not Account.objects.exists()


def test_link_is_asked_for_by_name_or_id(db: None) -> None:
    account = get_or_create_account(OPERATOR, "team")
    for named in ("team", account.pk):
        out = io.StringIO()
        call_command("console_link", f"--account={named}", "--json", stdout=out)
        assert f"account={account.pk}" in json.loads(out.getvalue())["url"]
