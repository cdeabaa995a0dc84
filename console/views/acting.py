"""An operator acts as a member of an account, with a banner on every page."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse

from api.people.actions.acting import begin_acting, end_acting
from api.people.errors import PeopleError
from console.error_notices import ErrorNotice, notice_of
from console.pages import operator_page, told
from console.views.operators import account_page_of
from console.visits import Visit


@operator_page("POST")
def act_as(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    try:
        person_id = uuid.UUID(request.POST.get("person", ""))
    except ValueError:
        return account_page_of(request, account_id, ErrorNotice(400, "Choose a member of the account."))
    try:
        reason = request.POST.get("reason", "").strip()
        begin_acting(visit.origin, visit.session, account_id, person_id, reason)
    except PeopleError as error:
        if error.code == "recent-authentication-required":
            raise
        return account_page_of(request, account_id, notice_of(error))
    return told(f"/console/a/{account_id}/", "What you do here is in the audit log of the account.", "warn")


@operator_page("POST")
def end(request: HttpRequest, visit: Visit) -> HttpResponse:
    acting = visit.acting
    account_id = "" if acting is None else acting.member.account_id
    end_acting(visit.origin, visit.session)
    target = f"/console/operators/accounts/{account_id}" if account_id else "/console/operators/accounts"
    return told(target, "You act as yourself again.")
