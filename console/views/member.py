"""One member of an account: the policies and groups beside the role."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam import selectors
from api.iam.actions import policies as actions
from api.iam.errors import IamError
from api.iam.holders import groups_of_member
from api.people.roles import Act
from api.people.selectors import member_of
from console.error_notices import notice_of
from console.pages import account_page, operation_page, require_recent_sign_in, told
from console.views.policies import attachable_names
from console.visits import AccountVisit
from frontend.authn import principal


@account_page(Act.READ_MEMBERS, "GET")
def one_member(request: HttpRequest, visit: AccountVisit, person_id: uuid.UUID) -> HttpResponse:
    return _page(request, visit, person_id)


@operation_page("member_policies.list", "POST")
def change_policies(request: HttpRequest, visit: AccountVisit, person_id: uuid.UUID) -> HttpResponse:
    what, name = request.POST.get("what", ""), request.POST.get("policy", "").replace("\0", "")
    if what not in ("attach", "detach"):
        raise Http404
    visit.require(f"member_policies.{what}")
    require_recent_sign_in(visit)
    act = actions.attach_to_member if what == "attach" else actions.detach_from_member
    try:
        act(visit.actor, visit.account_id, person_id, name)
    except IamError as error:
        return _page(request, visit, person_id, error)
    text = "The policy counts from now on." if what == "attach" else "The policy no longer counts."
    return told(f"/console/a/{visit.account_id}/people/{person_id}", text)


def _page(
    request: HttpRequest, visit: AccountVisit, person_id: uuid.UUID, error: IamError | None = None
) -> HttpResponse:
    member = member_of(visit.account_id, person_id)
    if member is None:
        raise Http404
    attached = selectors.attached_to_member(visit.account_id, person_id) or []
    shown = {
        "member": member,
        "attached": attached if visit.reads_policies else [],
        "attach_url": f"/console/a/{visit.account_id}/people/{person_id}/policies",
        "attachable": attachable_names(visit, attached),
        "attaches": visit.may_change_with("member_policies.attach"),
        "detaches": visit.may_change_with("member_policies.detach"),
        "groups": groups_of_member(member) if visit.reads_groups else [],
        "arn": principal.person(visit.account_id, str(person_id)).arn,
        "refusal": notice_of(error) if error else None,
    }
    return render(request, "console/access/person.html", shown, status=error.status if error else 200)
