"""Accounts as operators see them: searched, suspended, resumed. An operator acts as a member of one, with a banner on
every page."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.people.acting_rights import DENIED_IN_WORDS
from api.people.actions import account_life
from api.people.actions.acting import begin_acting, end_acting
from api.people.errors import PeopleError
from api.people.limits import ACTING_S_MAX
from api.people.operator_selectors import account_row, accounts_found
from api.people.selectors import members_of
from console.error_notices import ErrorNotice, notice_of
from console.pages import operator_page, require_recent_sign_in, told
from console.visits import Visit

PAGE_ACCOUNTS = 50
# As whom an operator can act.
MEMBERS_OFFERED_MAX = 200


@operator_page("GET")
def accounts(request: HttpRequest, visit: Visit) -> HttpResponse:
    text = request.GET.get("q", "").strip().replace("\0", "")[:100]
    after = request.GET.get("after", "")
    found = accounts_found(text, after if after.isascii() and after.isdigit() else "", PAGE_ACCOUNTS + 1)
    rows = found[:PAGE_ACCOUNTS]
    more = rows[-1].account.pk if len(found) > PAGE_ACCOUNTS else ""
    is_list = request.headers.get("HX-Target") == "account-list"
    template = "console/operators/account_list.html" if is_list else "console/operators/accounts.html"
    return render(request, template, {"rows": rows, "text": text, "more": more})


@operator_page("GET", "POST")
def one_account(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    if account_row(account_id) is None:
        raise Http404
    refusal: ErrorNotice | None = None
    if request.method == "POST":
        require_recent_sign_in(visit)
        try:
            return _change(request, visit, account_id)
        except PeopleError as error:
            refusal = notice_of(error)
    return account_page_of(request, account_id, refusal)


def account_page_of(request: HttpRequest, account_id: str, refusal: ErrorNotice | None = None) -> HttpResponse:
    row = account_row(account_id)
    if row is None:
        raise Http404
    shown = {
        "row": row,
        "members": members_of(account_id, None, MEMBERS_OFFERED_MAX),
        "acting_minutes": ACTING_S_MAX // 60,
        "acting_denied": DENIED_IN_WORDS,
        "refusal": refusal,
    }
    return render(request, "console/operators/account.html", shown, status=refusal.status if refusal else 200)


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
def stop_acting(request: HttpRequest, visit: Visit) -> HttpResponse:
    acting = visit.acting
    account_id = "" if acting is None else acting.member.account_id
    end_acting(visit.origin, visit.session)
    target = f"/console/operators/accounts/{account_id}" if account_id else "/console/operators/accounts"
    return told(target, "You act as yourself again.")


def _change(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    """Raises PeopleError."""
    here = f"/console/operators/accounts/{account_id}"
    if request.POST.get("what") == "resume":
        account_life.resume_account(visit.actor, account_id)
        return told(here, "The account is active again.")
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise PeopleError("invalid-request", "Give a reason: it is kept with the account.")
    account_life.suspend_account(visit.actor, account_id, reason)
    return told(here, "The account is suspended: its keys are refused.", "warn")
