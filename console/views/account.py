"""The account itself: its settings, its closing."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.accounts import actions, selectors
from api.limits import DELETION_GRACE_DAYS_MAX
from api.people.actions import account_life, members
from api.people.errors import PeopleError
from api.people.limits import ACCOUNT_TITLE_CHARACTERS_MAX
from api.people.models import AccountMembership
from api.people.roles import Act
from api.people.selectors import membership_of
from console.pages import account_page, denied, person_page, require_recent_sign_in, show_refusal, told
from console.visits import AccountVisit, Visit, note_visit

_DAYS_DIGITS_MAX = 4


@account_page(Act.READ_ACCOUNT, "GET", "POST")
def settings(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    if request.method == "POST":
        if not visit.may(Act.CONFIGURE_ACCOUNT):
            return denied(request, visit, Act.CONFIGURE_ACCOUNT)
        if "title" in request.POST:
            account_life.rename_account(visit.actor, visit.account_id, request.POST["title"])
        elif "grace_days" in request.POST:
            days = request.POST["grace_days"].strip()
            whole = int(days) if days.isascii() and days.isdigit() and len(days) <= _DAYS_DIGITS_MAX else -1
            protects = request.POST.get("protection") == "true"
            actions.set_deletion_rules(visit.actor, visit.account_id, protects, whole)
        else:
            actions.set_auto_create(visit.actor, visit.account_id, request.POST.get("auto_create") == "true")
        return told(f"/console/a/{visit.account_id}/settings", "The settings are changed.")
    shown = {
        "row": selectors.account_of(visit.account_id),
        "life": visit.membership.account.life,
        "closes": visit.may(Act.CLOSE_ACCOUNT),
        "title_max": ACCOUNT_TITLE_CHARACTERS_MAX,
        "grace_days_max": DELETION_GRACE_DAYS_MAX,
    }
    return render(request, "console/access/settings.html", shown)


@person_page("POST")
def close(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    membership = _owned(request, visit, account_id)
    require_recent_sign_in(visit)
    if request.POST.get("typed", "").strip() != account_id:
        return show_refusal(request, PeopleError("invalid-request", "What you typed is not the id of the account."))
    account_life.close_account(visit.origin, visit.person, membership.account_id)
    return told(f"/console/a/{account_id}/settings", "The account is closing. Its keys are refused.", "warn")


@person_page("POST")
def reopen(request: HttpRequest, visit: Visit, account_id: str) -> HttpResponse:
    _owned(request, visit, account_id)
    require_recent_sign_in(visit)
    account_life.reopen_account(visit.origin, visit.person, account_id)
    return told(f"/console/a/{account_id}/settings", "The account is active again.")


def _owned(request: HttpRequest, visit: Visit, account_id: str) -> AccountMembership:
    """In a closing account nothing else may change, so this is no `account_page`. Raises PeopleError."""
    membership = membership_of(visit.person, account_id)
    if membership is None:
        raise PeopleError("not-found", "There is no such account, or you are no member of it.")
    note_visit(request, AccountVisit(visit, membership))
    members.require(membership, Act.CLOSE_ACCOUNT, visit.origin)
    return membership
