"""Groups of people, and the policies that they give."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam import selectors
from api.iam.actions import groups as actions
from api.iam.actions import policies
from api.iam.errors import IamError
from api.iam.holders import group_rows, members_in
from api.iam.models import PeopleGroup
from api.people.limits import MEMBERS_PER_ACCOUNT_MAX
from api.people.selectors import members_of
from console.error_notices import notice_of
from console.pages import operation_page, require_recent_sign_in, told
from console.views.policies import attachable_names
from console.visits import AccountVisit

_OPERATIONS = {
    "add": "groups.add_member",
    "remove": "groups.remove_member",
    "attach": "groups.attach_policy",
    "detach": "groups.detach_policy",
    "delete": "groups.delete",
}
_DONE = {
    "add": "The person is in the group, and has its policies.",
    "remove": "The person is out of the group and no longer has its policies.",
    "attach": "All members of the group have the policy.",
    "detach": "The group no longer gives this policy.",
}


@operation_page("groups.list", "GET", "POST")
def groups(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    refusal, name = None, ""
    if request.method == "POST":
        visit.require("groups.create")
        name = request.POST.get("name", "").strip()
        try:
            actions.create_group(visit.actor, visit.account_id, name)
            return told(group_url(visit, name), f"The group {name} is created.")
        except IamError as error:
            refusal = notice_of(error)
    shown = {
        "rows": group_rows(visit.account_id),
        "creates": visit.may_change_with("groups.create"),
        "refusal": refusal,
        "name": name,
    }
    return render(request, "console/access/groups.html", shown, status=refusal.status if refusal else 200)


@operation_page("groups.get", "GET", "POST")
def one_group(request: HttpRequest, visit: AccountVisit, group: str) -> HttpResponse:
    found = selectors.group_of(visit.account_id, group)
    if found is None:
        raise Http404
    refusal = None
    if request.method == "POST":
        what = request.POST.get("what", "")
        if what not in _OPERATIONS:
            raise Http404
        visit.require(_OPERATIONS[what], group)
        require_recent_sign_in(visit)
        try:
            return _change(request, visit, found, what)
        except IamError as error:
            refusal = notice_of(error)
    attached = selectors.attached_to_group(found)
    inside = members_in(found)
    ids = {one.pk for one in inside}
    everyone = members_of(visit.account_id, None, MEMBERS_PER_ACCOUNT_MAX) if visit.reads_members else []
    shown = {
        "group": found,
        "members": inside,
        "others": sorted((one for one in everyone if one.pk not in ids), key=lambda one: one.person.email),
        "attached": attached,
        "attachable": attachable_names(visit, attached),
        "updates": visit.may_change_with("groups.add_member", group),
        "attaches": visit.may_change_with("groups.attach_policy", group),
        "detaches": visit.may_change_with("groups.detach_policy", group),
        "deletes": visit.may_change_with("groups.delete", group),
        "refusal": refusal,
    }
    return render(request, "console/access/group.html", shown, status=refusal.status if refusal else 200)


def group_url(visit: AccountVisit, name: str = "") -> str:
    return f"/console/a/{visit.account_id}/groups" + (f"/{name}" if name else "")


def person_given(request: HttpRequest) -> uuid.UUID:
    """Raises IamError."""
    try:
        return uuid.UUID(request.POST.get("person", ""))
    except ValueError:
        raise IamError("not-found", "There is no such member.") from None


def _change(request: HttpRequest, visit: AccountVisit, group: PeopleGroup, what: str) -> HttpResponse:
    """Raises IamError."""
    who, name = (visit.actor, visit.account_id, group.name), request.POST.get("policy", "").replace("\0", "")
    if what == "delete":
        actions.delete_group(*who)
        return told(group_url(visit), f"The group {group.name} is deleted.", "warn")
    if what == "add":
        actions.add_member(*who, person_given(request))
    elif what == "remove":
        actions.remove_member(*who, person_given(request))
    elif what == "attach":
        policies.attach_to_group(*who, name)
    else:
        policies.detach_from_group(*who, name)
    return told(group_url(visit, group.name), _DONE[what])
