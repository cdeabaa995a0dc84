"""Keys of an account: made, shown once, revoked."""

from __future__ import annotations

from datetime import timedelta

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.accounts import actions, selectors
from api.accounts.actions import AccountError, NewKey
from api.limits import KEYS_PER_ACCOUNT_MAX
from api.people.roles import Act
from console.error_notices import notice_of
from console.pages import account_page, told
from console.visits import AccountVisit

LIVES_DAYS = (1, 7, 30, 90, 365)


@account_page(Act.READ_KEYS, "GET")
def keys(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    return _page(request, visit)


@account_page(Act.MANAGE_KEYS, "POST")
def new_key(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The secrets are in this answer and nowhere else: no redirect."""
    days = request.POST.get("days", "")
    expires_at = clock.now() + timedelta(days=int(days)) if days in map(str, LIVES_DAYS) else None
    try:
        made = actions.create_key(visit.actor, visit.account_id, request.POST.get("name", "").strip(), expires_at)
    except AccountError as error:
        return _page(request, visit, error=error)
    return _page(request, visit, made)


@account_page(Act.MANAGE_KEYS, "POST")
def revoke(request: HttpRequest, visit: AccountVisit, access_key_id: str) -> HttpResponse:
    if not actions.delete_key(visit.actor, visit.account_id, access_key_id):
        raise Http404
    return told(f"/console/a/{visit.account_id}/keys", f"The key {access_key_id} opens nothing from now on.", "warn")


def _page(
    request: HttpRequest, visit: AccountVisit, made: NewKey | None = None, error: AccountError | None = None
) -> HttpResponse:
    shown = {
        "keys": selectors.keys_of(visit.account_id, "", KEYS_PER_ACCOUNT_MAX),
        "made": made,
        "lives": LIVES_DAYS,
        "now": clock.now(),
        "refusal": notice_of(error) if error else None,
    }
    return render(request, "console/access/keys.html", shown, status=400 if error else 200)
