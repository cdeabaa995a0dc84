"""Members of an account: who may change whom, the last owner, leaving."""

from __future__ import annotations

import json
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest

from api import clock
from api.audit.models import AuditEntry
from api.people import limits
from api.people.models import AccountMembership, Invitation, PersonSession
from tests.api.people.visitor import Visitor, audit, enrol, join, refused

pytestmark = pytest.mark.django_db


def path(account: Visitor, member: Visitor) -> str:
    return f"/v1/accounts/{account.account_id}/members/{member.person_id}"


def set_role(who: Visitor, account: Visitor, member: Visitor, role: str) -> Any:
    return who.call("PATCH", path(account, member), {"role": role})


def role_of(account: Visitor, member: Visitor) -> str | None:
    rows = AccountMembership.objects.filter(account_id=account.account_id, person_id=member.person_id)
    return rows.values_list("role", flat=True).first()


def test_person_is_in_several_accounts(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "reader")
    found = {one["account_id"]: one["role"] for one in bob.call("GET", "/v1/accounts").json()["accounts"]}
    assert found == {ann.account_id: "reader", bob.account_id: "owner"}
    assert bob.call("GET", f"/v1/accounts/{ann.account_id}").json()["title"] == "ann@example.com"


def test_account_of_others_is_not_found_whatever_is_asked(ann: Visitor, bob: Visitor) -> None:
    """The same answer as for an account that does not exist."""
    member = ann.person_id
    for account in (ann.account_id, "123456789012", "x", "a%00b"):
        root = f"/v1/accounts/{account}"
        asked: list[tuple[str, str, Any]] = [
            ("GET", root, None),
            ("POST", f"{root}/closing", None),
            ("DELETE", f"{root}/closing", None),
            ("GET", f"{root}/members", None),
            ("PATCH", f"{root}/members/{member}", {"role": "reader"}),
            ("DELETE", f"{root}/members/{member}", None),
            ("DELETE", f"{root}/members/{bob.person_id}", None),
            ("GET", f"{root}/invitations", None),
            ("POST", f"{root}/invitations", {"email": "x@example.com", "role": "reader"}),
            ("DELETE", f"{root}/invitations/{uuid.uuid4()}", None),
        ]
        for method, target, content in asked:
            assert refused(bob.call(method, target, content)) == (404, "not-found"), (method, target)
    assert role_of(ann, ann) == "owner"


def test_every_route_of_an_account_wants_a_session(ann: Visitor, visitor: Visitor) -> None:
    root = f"/v1/accounts/{ann.account_id}"
    asked = [
        ("GET", "/v1/accounts"), ("GET", root), ("POST", f"{root}/closing"), ("DELETE", f"{root}/closing"),
        ("GET", f"{root}/members"), ("PATCH", path(ann, ann)), ("DELETE", path(ann, ann)),
        ("GET", f"{root}/invitations"), ("POST", f"{root}/invitations"), ("POST", "/v1/invitations/acceptance"),
        ("GET", "/v1/people/me"), ("POST", "/v1/people/me/password"), ("POST", "/v1/people/me/totp"),
        ("DELETE", "/v1/people/me/totp"), ("POST", "/v1/people/me/totp/confirmation"),
        ("POST", "/v1/people/me/recovery-codes"), ("POST", "/v1/session/authentication"),
        ("GET", "/v1/people/me/passkeys"), ("DELETE", f"/v1/people/me/passkeys/{ann.person_id}"),
    ]  # fmt: skip
    for method, target in asked:
        assert refused(visitor.call(method, target)) == (401, "not-signed-in"), (method, target)


def test_page_token_of_members_is_of_one_account(ann: Visitor, bob: Visitor) -> None:
    from api.pages import PagedList
    from tests.api.test_page_tokens import changed, refused, with_token

    mine, theirs = (f"/v1/accounts/{who.account_id}/members" for who in (ann, bob))
    token = PagedList("", mine).token(ann.person_id)
    assert ann.call("GET", with_token(mine, token)).status_code == 200
    others = [PagedList("", theirs).token(ann.person_id), PagedList(ann.account_id, mine).token(ann.person_id)]
    for bad in (*changed(token), *others):
        assert refused(ann.call("GET", with_token(mine, bad))), bad


def test_members_are_listed_by_page_without_secrets(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "reader")
    first = bob.call("GET", f"/v1/accounts/{ann.account_id}/members?page_size=1").json()
    token = first["next_page_token"]
    second = bob.call("GET", f"/v1/accounts/{ann.account_id}/members?page_size=1&page_token={token}").json()
    assert second["next_page_token"] is None
    shown = first["members"] + second["members"]
    assert {(one["email"], one["role"]) for one in shown} == {(ann.email, "owner"), (bob.email, "reader")}
    assert set(shown[0]) == {"person_id", "email", "name", "role", "since"}
    bad = f"/v1/accounts/{ann.account_id}/members?page_token=eA"
    assert refused(ann.call("GET", bad)) == (400, "invalid-request")


@pytest.mark.parametrize(
    ("role", "reads"), [("admin", True), ("developer", True), ("reader", True), ("billing", False), ("guest", False)]
)
def test_role_decides_what_is_read(ann: Visitor, bob: Visitor, role: str, reads: bool) -> None:
    join(ann, bob, role)
    assert bob.call("GET", f"/v1/accounts/{ann.account_id}").status_code == 200
    assert (bob.call("GET", f"/v1/accounts/{ann.account_id}/members").status_code == 200) == reads
    listed = bob.call("GET", f"/v1/accounts/{ann.account_id}/invitations")
    assert (listed.status_code == 200) == (role == "admin")


@pytest.mark.parametrize("role", ["developer", "reader", "billing", "guest"])
def test_role_without_the_right_changes_no_member(ann: Visitor, bob: Visitor, role: str) -> None:
    join(ann, bob, role)
    for member in (ann, bob):
        assert refused(set_role(bob, ann, member, "reader")) == (403, "access-denied")
    assert refused(bob.call("DELETE", path(ann, ann))) == (403, "access-denied")
    assert (role_of(ann, ann), role_of(ann, bob)) == ("owner", role)
    told = AuditEntry.objects.filter(account_id=ann.account_id, action__startswith="refused.").order_by("id")
    assert [entry.action for entry in told] == ["refused.penstock:ManageOwners", "refused.penstock:ManageMembers"]
    assert {entry.actor for entry in told} == {f"person:{bob.person_id}"}


def test_admin_changes_all_but_owners(ann: Visitor, bob: Visitor) -> None:
    eve = enrol("eve@example.com")
    join(ann, bob, "admin")
    join(ann, eve, "reader")
    assert set_role(bob, ann, eve, "developer").json()["role"] == "developer"
    assert refused(set_role(bob, ann, eve, "owner")) == (403, "access-denied")
    assert refused(set_role(bob, ann, bob, "owner")) == (403, "access-denied")
    assert refused(set_role(bob, ann, ann, "reader")) == (403, "access-denied")
    assert refused(bob.call("DELETE", path(ann, ann))) == (403, "access-denied")
    assert bob.call("DELETE", path(ann, eve)).status_code == 204
    assert role_of(ann, eve) is None
    changed = AuditEntry.objects.get(action="member.change_role")
    assert (changed.actor, changed.subject) == (f"person:{bob.person_id}", f"person:{eve.person_id}")
    assert changed.details == {"source": bob.source, "before": "reader", "role": "developer"}


def test_account_keeps_one_owner(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "admin")
    assert refused(set_role(ann, ann, ann, "admin")) == (409, "last-owner")
    assert refused(ann.call("DELETE", path(ann, ann))) == (409, "last-owner")
    assert set_role(ann, ann, ann, "owner").status_code == 200
    assert set_role(ann, ann, bob, "owner").status_code == 200
    assert set_role(ann, ann, ann, "admin").status_code == 200
    assert refused(bob.call("DELETE", path(ann, bob))) == (409, "last-owner")
    assert set_role(bob, ann, ann, "owner").status_code == 200
    assert bob.call("DELETE", path(ann, bob)).status_code == 204
    assert role_of(ann, ann) == "owner"


def test_member_leaves_and_its_invitations_go_with_it(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "admin")
    payload = {"email": "eve@example.com", "role": "reader"}
    assert bob.call("POST", f"/v1/accounts/{ann.account_id}/invitations", payload).status_code == 201
    assert bob.call("DELETE", path(ann, bob)).status_code == 204
    assert refused(bob.call("GET", f"/v1/accounts/{ann.account_id}")) == (404, "not-found")
    assert not Invitation.objects.exists()
    assert audit(ann.account_id)[-1] == "member.leave"
    assert refused(ann.call("DELETE", path(ann, bob))) == (404, "not-found")


def test_changing_others_wants_a_recent_authentication_and_leaving_does_not(ann: Visitor, bob: Visitor) -> None:
    join(ann, bob, "admin")
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX))
    expected = (403, "recent-authentication-required")
    assert refused(set_role(ann, ann, bob, "reader")) == expected
    assert refused(ann.call("DELETE", path(ann, bob))) == expected
    assert bob.call("DELETE", path(ann, bob)).status_code == 204


@pytest.mark.parametrize("role", ["root", "", "Owner", 1, None, ["owner"]])
def test_unknown_role_is_refused(ann: Visitor, bob: Visitor, role: object) -> None:
    join(ann, bob, "reader")
    answer = ann.call("PATCH", path(ann, bob), {"role": role})
    assert refused(answer) == (400, "invalid-request")
    assert role_of(ann, bob) == "reader"


def test_policy_about_an_address_holds_where_members_are_managed(ann: Visitor, bob: Visitor) -> None:
    """The address of the request counts, for reading and for changing, and so does whether it came by TLS."""
    join(ann, bob, "admin")
    root = f"/v1/accounts/{ann.account_id}"
    attach(ann, bob, "by-address", {"IpAddress": {"aws:SourceIp": bob.source}})
    invitation = {"email": "cyd@example.com", "role": "reader"}
    assert bob.call("GET", f"{root}/invitations").status_code == 403
    assert bob.call("POST", f"{root}/invitations", invitation).status_code == 403
    bob.source = "192.0.2.77"
    assert bob.call("GET", f"{root}/invitations").status_code == 200
    assert bob.call("POST", f"{root}/invitations", invitation).status_code == 201
    attach(ann, bob, "encrypted", {"Bool": {"aws:SecureTransport": "false"}})
    assert bob.call("GET", f"{root}/invitations").status_code == 403
    assert bob.call("GET", f"{root}/invitations", **{"X-Forwarded-Proto": "https"}).status_code == 403, "nobody vouches"
    assert bob.call("GET", f"{root}/invitations", **vouched(f"{root}/invitations", bob.source)).status_code == 200


def attach(owner: Visitor, member: Visitor, name: str, condition: dict[str, object]) -> None:
    """A policy that denies to manage members where the condition holds."""
    from api.audit.actions import OPERATOR
    from api.iam.actions import policies

    statement = {"Effect": "Deny", "Action": "penstock:ManageMembers", "Resource": "*", "Condition": condition}
    text = json.dumps({"Version": "2012-10-17", "Statement": statement})
    policies.create_policy(OPERATOR, owner.account_id, name, text)
    policies.attach_to_member(OPERATOR, owner.account_id, uuid.UUID(member.person_id), name)


def vouched(target: str, source: str) -> dict[str, str]:
    """What a front end adds to a GET that came by TLS."""
    from api.people.origin import SOURCE_HEADER, SOURCE_MAC_HEADER, source_mac
    from api.secrets import internal_key

    said = f"{source} {time.time_ns() // 1_000_000}"
    mac = source_mac(internal_key(), "GET", target.encode(), said)
    return {SOURCE_HEADER: said, SOURCE_MAC_HEADER: mac, "X-Forwarded-Proto": "https"}


def test_parameter_that_an_operation_of_people_does_not_declare_is_refused(ann: Visitor, visitor: Visitor) -> None:
    root = f"/v1/accounts/{ann.account_id}"
    asked: list[tuple[Visitor, str, str, Any]] = [
        (ann, "GET", f"{root}/members?page_siz=1", None),
        (ann, "POST", f"{root}/invitations?x=1", {"email": "x@example.com", "role": "reader"}),
        (ann, "POST", f"{root}/closing?x=1", None),
        (visitor, "POST", "/v1/session?x=1", {"email": ann.email, "password": "correct horse battery"}),
    ]
    for who, method, target, content in asked:
        answer = who.call(method, target, content)
        assert refused(answer) == (400, "invalid-request"), target
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/" + target.partition("?")[2].split("=")[0]]
    assert not Invitation.objects.exists()
