"""Invitations: for one address, once, for a while, and only as long as who invited may."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from api import clock
from api.people import limits, rates
from api.people.models import AccountMembership, Invitation, PersonSession
from tests.api.people.visitor import Visitor, audit, enrol, join, mailed_token, new_visitor, refused

pytestmark = pytest.mark.django_db


def invite(who: Visitor, account: Visitor, email: str, role: str = "reader") -> Any:
    return who.call("POST", f"/v1/accounts/{account.account_id}/invitations", {"email": email, "role": role})


def accept(who: Visitor, token: str) -> Any:
    return who.call("POST", "/v1/invitations/acceptance", {"token": token})


def test_invited_address_joins_once(ann: Visitor, bob: Visitor) -> None:
    made = invite(ann, ann, "Bob@Example.com", "developer")
    assert made.status_code == 201 and made.json()["email"] == bob.email
    token = mailed_token(bob.email)
    assert token not in made.content.decode()
    joined = accept(bob, token).json()
    assert (joined["account_id"], joined["role"]) == (ann.account_id, "developer")
    assert refused(accept(bob, token)) == (400, "invalid-token")
    assert audit(ann.account_id)[-2:] == ["invitation.create", "member.add"]


def test_person_who_signs_up_later_joins(ann: Visitor) -> None:
    invite(ann, ann, "new@example.com")
    token = mailed_token("new@example.com")
    assert accept(enrol("new@example.com"), token).status_code == 201


def test_another_person_cannot_use_the_invitation(ann: Visitor, bob: Visitor) -> None:
    invite(ann, ann, "eve@example.com")
    token = mailed_token("eve@example.com")
    assert refused(accept(bob, token)) == (400, "invalid-token")
    assert accept(enrol("eve@example.com"), token).status_code == 201


@pytest.mark.parametrize(("left_s", "status"), [(60, 201), (0, 400)])
def test_invitation_expires(ann: Visitor, bob: Visitor, left_s: int, status: int) -> None:
    invite(ann, ann, bob.email)
    Invitation.objects.update(expires_at=clock.now() + timedelta(seconds=left_s))
    listed = ann.call("GET", f"/v1/accounts/{ann.account_id}/invitations").json()["invitations"]
    assert len(listed) == (status == 201)
    assert accept(bob, mailed_token(bob.email)).status_code == status


def test_invitation_takes_the_place_of_the_one_before(ann: Visitor, bob: Visitor) -> None:
    invite(ann, ann, bob.email, "admin")
    first = mailed_token(bob.email)
    invite(ann, ann, bob.email, "reader")
    assert refused(accept(bob, first)) == (400, "invalid-token")
    assert accept(bob, mailed_token(bob.email)).json()["role"] == "reader"


def test_withdrawn_invitation_is_good_no_more(ann: Visitor, bob: Visitor) -> None:
    path = f"/v1/accounts/{ann.account_id}/invitations/{invite(ann, ann, bob.email).json()['invitation_id']}"
    assert refused(bob.call("DELETE", path)) == (404, "not-found")
    assert refused(bob.call("DELETE", path.replace(ann.account_id, bob.account_id))) == (404, "not-found")
    assert ann.call("DELETE", path).status_code == 204
    assert refused(ann.call("DELETE", path)) == (404, "not-found")
    assert refused(accept(bob, mailed_token(bob.email))) == (400, "invalid-token")


def test_invitation_ends_with_the_right_of_who_invited(ann: Visitor, bob: Visitor) -> None:
    eve = enrol("eve@example.com")
    join(ann, bob, "admin")
    invite(bob, ann, eve.email)
    token = mailed_token(eve.email)
    AccountMembership.objects.filter(account_id=ann.account_id, person_id=bob.person_id).update(role="reader")
    assert refused(accept(eve, token)) == (400, "invalid-token")
    AccountMembership.objects.filter(account_id=ann.account_id, person_id=bob.person_id).update(role="admin")
    assert accept(eve, token).status_code == 201


def test_admin_neither_invites_nor_replaces_nor_withdraws_an_owner(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "admin")
    assert refused(invite(bob, ann, "eve@example.com", "owner")) == (403, "access-denied")
    made = invite(ann, ann, "eve@example.com", "owner").json()
    assert refused(invite(bob, ann, "eve@example.com", "reader")) == (403, "access-denied")
    path = f"/v1/accounts/{ann.account_id}/invitations/{made['invitation_id']}"
    assert refused(bob.call("DELETE", path)) == (403, "access-denied")
    assert Invitation.objects.get().role == "owner"


@pytest.mark.parametrize("role", ["developer", "reader", "billing", "guest"])
def test_other_roles_invite_no_one(ann: Visitor, bob: Visitor, role: str) -> None:
    join(ann, bob, role)
    assert refused(invite(bob, ann, "eve@example.com")) == (403, "access-denied")


def test_owner_is_invited_after_a_recent_authentication_only(ann: Visitor) -> None:
    old = clock.now() - timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX)
    PersonSession.objects.update(authenticated_at=old)
    assert refused(invite(ann, ann, "eve@example.com", "owner")) == (403, "recent-authentication-required")
    assert invite(ann, ann, "eve@example.com", "admin").status_code == 201


def test_member_is_not_invited_again(ann: Visitor, bob: Visitor) -> None:
    invite(ann, ann, bob.email)
    token = mailed_token(bob.email)
    AccountMembership.objects.create(
        account_id=ann.account_id, person_id=bob.person_id, role="reader", created_at=clock.now()
    )
    assert refused(invite(ann, ann, bob.email)) == (409, "already-member")
    assert refused(accept(bob, token)) == (409, "already-member")


def test_inviting_does_not_tell_whether_the_address_is_known(ann: Visitor, bob: Visitor) -> None:
    mail.outbox.clear()
    known, unknown = invite(ann, ann, bob.email), invite(ann, ann, "unknown@example.com")
    assert known.status_code == unknown.status_code == 201
    assert set(known.json()) == set(unknown.json())
    assert [one.subject for one in mail.outbox] == ["You are invited to an account"] * 2


def test_invitations_of_an_account_are_bounded(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INVITATIONS_PER_ACCOUNT_MAX", 2)
    for name in ("a", "b", "b"):
        assert invite(ann, ann, f"{name}@example.com").status_code == 201
    assert refused(invite(ann, ann, "c@example.com")) == (409, "over-limit")
    Invitation.objects.filter(email="a@example.com").update(expires_at=clock.now())
    assert invite(ann, ann, "c@example.com").status_code == 201


def test_invitations_are_limited_in_rate(ann: Visitor) -> None:
    for _ in range(rates.INVITATION_PER_ACCOUNT.burst):
        rates.charge(rates.INVITATION_PER_ACCOUNT, ann.account_id)
    assert refused(invite(ann, ann, "a@example.com")) == (429, "too-many-attempts")


@pytest.mark.parametrize("bound", ["MEMBERS_PER_ACCOUNT_MAX", "ACCOUNTS_PER_PERSON_MAX"])
def test_members_and_accounts_are_bounded(
    ann: Visitor, bob: Visitor, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    invite(ann, ann, bob.email)
    monkeypatch.setattr(limits, bound, 1)
    token = mailed_token(bob.email)
    assert refused(accept(bob, token)) == (409, "over-limit")
    monkeypatch.setattr(limits, bound, 2)
    assert accept(bob, token).status_code == 201


def test_title_cannot_break_the_mail(db: None) -> None:
    eve = new_visitor()
    eve.call("POST", "/v1/people", {"email": "eve@example.com", "password": "a good long one"})
    token = mailed_token("eve@example.com")
    payload = {"token": token, "password": "a good long one", "account_title": "a\r\nBcc: x@example.com"}
    assert refused(eve.call("POST", "/v1/people/confirmation", payload)) == (400, "invalid-request")


def test_member_who_may_not_invite_uses_no_rate_up(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "reader")
    path = f"/v1/accounts/{ann.account_id}/invitations"
    for number in range(limits.INVITATION_PER_ACCOUNT_BURST + 1):
        asked = bob.call("POST", path, {"email": f"g{number}@example.com", "role": "reader"})
        assert refused(asked) == (403, "access-denied"), number
    assert ann.call("POST", path, {"email": "cyd@example.com", "role": "reader"}).status_code == 201
