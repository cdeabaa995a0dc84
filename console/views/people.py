"""Members of an account and invitations to it."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.people import selectors
from api.people.actions import invitations, members
from api.people.errors import ActDenied, PeopleError
from api.people.limits import MEMBERS_PER_ACCOUNT_MAX
from api.people.roles import Act, MemberRole
from console.error_notices import notice_of
from console.pages import account_page, require_recent_sign_in, told
from console.visits import AccountVisit

ROLES_IN_WORDS = {
    MemberRole.OWNER: "Everything, including owners and closing the account",
    MemberRole.ADMIN: "Queues, messages, keys, settings and members, but no owners",
    MemberRole.DEVELOPER: "Queues and messages; sees members and keys",
    MemberRole.READER: "Sees queues, counts, members and the audit log; no message bodies",
    MemberRole.BILLING: "Sees the account and its bills; no queues, members or keys",
    MemberRole.GUEST: "Sees that the account exists; policies open the pages of single queues",
}


@account_page(Act.READ_MEMBERS, "GET")
def people(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    return _page(request, visit)


@account_page(Act.MANAGE_MEMBERS, "POST")
def invite(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    role, email = request.POST.get("role", ""), request.POST.get("email", "").strip()
    try:
        given = _role(role)
        if given == MemberRole.OWNER:
            require_recent_sign_in(visit)
        invitations.invite(visit.origin, visit.person, visit.account_id, email, given)
    except PeopleError as error:
        if error.code == "recent-authentication-required" or isinstance(error, ActDenied):
            raise
        return _page(request, visit, error, email)
    return told(_url(visit), f"An invitation is on its way to {email}.")


@account_page(Act.MANAGE_MEMBERS, "POST")
def withdraw(request: HttpRequest, visit: AccountVisit, invitation_id: uuid.UUID) -> HttpResponse:
    invitations.withdraw(visit.origin, visit.person, visit.account_id, invitation_id)
    return told(_url(visit), "The invitation is withdrawn.")


@account_page(Act.MANAGE_MEMBERS, "POST")
def change_role(request: HttpRequest, visit: AccountVisit, person_id: uuid.UUID) -> HttpResponse:
    require_recent_sign_in(visit)
    role = _role(request.POST.get("role", ""))
    member = members.change_role(visit.origin, visit.person, visit.account_id, person_id, role)
    return told(_url(visit), f"{member.person.email} is {member.role} now.")


@account_page(Act.READ_MEMBERS, "POST")
def remove(request: HttpRequest, visit: AccountVisit, person_id: uuid.UUID) -> HttpResponse:
    leaves = person_id == visit.person.pk
    if not leaves:
        require_recent_sign_in(visit)
    members.remove_member(visit.origin, visit.person, visit.account_id, person_id)
    return told("/console/", "You have left the account.") if leaves else told(_url(visit), "The member is removed.")


def _role(text: str) -> MemberRole:
    try:
        return MemberRole(text)
    except ValueError:
        raise PeopleError("invalid-request", "There is no such role.") from None


def _url(visit: AccountVisit) -> str:
    return f"/console/a/{visit.account_id}/people"


def _page(request: HttpRequest, visit: AccountVisit, error: PeopleError | None = None, email: str = "") -> HttpResponse:
    found = selectors.members_of(visit.account_id, None, MEMBERS_PER_ACCOUNT_MAX)
    shown = {
        "members": [(one, visit.manages_members and visit.may_give(one.role)) for one in found],
        "invitations": selectors.invitations_of(visit.account_id, clock.now()) if visit.manages_members else [],
        "roles": [(role.value, text) for role, text in ROLES_IN_WORDS.items()],
        "givable": [role.value for role in MemberRole if visit.may_give(role)],
        "refusal": notice_of(error) if error else None,
        "email": email,
    }
    return render(request, "console/access/people.html", shown, status=error.status if error else 200)
