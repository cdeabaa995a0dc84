"""Named policies and groups: what they give to keys and members, and take away."""

from __future__ import annotations

import json
import uuid

import pytest

from api.accounts.actions import get_or_create_account
from api.audit.actions import OPERATOR
from api.iam.actions import groups, policies
from api.iam.models import KeyAccess
from api.people.roles import Act
from tests.support.control_plane import Caller, new_caller
from tests.support.iam import ALL, code, document, member, restricted
from tests.support.iam import caller as caller

pytestmark = pytest.mark.django_db(transaction=True)


def test_named_policies_are_made_listed_changed_and_deleted(caller: Caller) -> None:
    for name in ("b", "a"):
        assert caller.request("POST", "/v1/policies", {"name": name, "policy": ALL}).status_code == 201
    assert code(caller.request("POST", "/v1/policies", {"name": "a", "policy": ALL})) == (409, "already-exists")
    first = caller.request("GET", "/v1/policies?page_size=1").json()
    assert [one["name"] for one in first["policies"]] == ["a"] and first["next_page_token"]
    assert caller.request("PUT", "/v1/policies/a", {"policy": document("sqs:*")}).json()["policy"] == document("sqs:*")
    assert new_caller("other").request("GET", "/v1/policies/a").status_code == 404
    for name in ("simulate", "", "a b", "a/b", "x" * 65, 1, None):
        assert code(caller.request("POST", "/v1/policies", {"name": name, "policy": ALL})) == (400, "invalid-request")
    assert caller.request("DELETE", "/v1/policies/a").status_code == 204
    assert caller.request("GET", "/v1/policies/a").status_code == 404


def test_attached_policy_stays_until_it_is_detached(caller: Caller) -> None:
    policies.create_policy(OPERATOR, caller.account_id, "all", json.dumps(ALL))
    path = f"/v1/keys/{restricted(caller, ALL).access_key_id}/policies/all"
    assert caller.request("PUT", path).json() == {"attached": ["all"]}
    assert code(caller.request("DELETE", "/v1/policies/all")) == (409, "policy-attached")
    assert caller.request("DELETE", path).json() == {"attached": []}
    assert caller.request("DELETE", "/v1/policies/all").status_code == 204


def test_policy_of_another_account_cannot_be_attached(caller: Caller) -> None:
    policies.create_policy(OPERATOR, new_caller("other").account_id, "theirs", json.dumps(ALL))
    assert caller.request("PUT", f"/v1/keys/{caller.access_key_id}/policies/theirs").status_code == 404
    assert not KeyAccess.objects.exists(), "nothing of it was done"


def test_group_gives_its_policies_to_its_members(caller: Caller) -> None:
    from api.people.actions.members import is_allowed

    reader = member(caller.account_id, "reader")
    policies.create_policy(OPERATOR, caller.account_id, "members", json.dumps(document("penstock:ManageMembers")))
    assert caller.request("POST", "/v1/groups", {"name": "leads"}).status_code == 201
    assert caller.request("PUT", "/v1/groups/leads/policies/members").json()["attached"] == ["members"]
    assert not is_allowed(reader, Act.MANAGE_MEMBERS)
    shown = caller.request("PUT", f"/v1/groups/leads/members/{reader.person_id}").json()
    assert shown["members"] == [str(reader.person_id)]
    assert is_allowed(reader, Act.MANAGE_MEMBERS)
    assert caller.request("PUT", f"/v1/groups/leads/members/{uuid.uuid4()}").status_code == 404
    assert caller.request("DELETE", "/v1/groups/leads").status_code == 204
    assert not is_allowed(reader, Act.MANAGE_MEMBERS)


def test_policy_of_a_member_takes_away_what_the_role_gives(caller: Caller) -> None:
    from api.people.actions.members import is_allowed

    admin = member(caller.account_id, "admin")
    denied = json.dumps(document("penstock:Manage*", effect="Deny"))
    policies.create_policy(OPERATOR, caller.account_id, "no-members", denied)
    assert is_allowed(admin, Act.MANAGE_MEMBERS)
    path = f"/v1/members/{admin.person_id}/policies"
    assert caller.request("PUT", f"{path}/no-members").json() == {"attached": ["no-members"]}
    assert not is_allowed(admin, Act.MANAGE_MEMBERS) and is_allowed(admin, Act.READ_ACCOUNT)
    assert (
        caller.request("DELETE", f"{path}/no-members").json() == caller.request("GET", path).json() == {"attached": []}
    )


def test_member_of_another_account_is_not_found(caller: Caller) -> None:
    stranger = member(get_or_create_account(OPERATOR, "other").id, "owner")
    policies.create_policy(OPERATOR, caller.account_id, "all", json.dumps(ALL))
    groups.create_group(OPERATOR, caller.account_id, "leads")
    for path in (f"/v1/members/{stranger.person_id}/policies/all", f"/v1/groups/leads/members/{stranger.person_id}"):
        assert caller.request("PUT", path).status_code == 404
