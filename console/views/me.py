"""The person: password, second factor, passkeys, sessions."""

from __future__ import annotations

import uuid
from functools import partial

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from api import clock
from api.idempotency.forms import DoneAlready
from api.people import selectors
from api.people.actions import factors, new_passwords, sessions
from api.people.errors import PeopleError
from console.error_notices import ErrorNotice, notice_of
from console.once import once
from console.pages import person_page, require_recent_sign_in, told
from console.visits import Visit

ME = "/console/me"
_CODES_SHOWN = "Recovery codes are shown once: if you do not have them, create new ones."


@person_page("GET")
def me(request: HttpRequest, visit: Visit) -> HttpResponse:
    return show_me(request, visit)


@person_page("POST")
def change_password(request: HttpRequest, visit: Visit) -> HttpResponse:
    current, new = request.POST.get("current", ""), request.POST.get("password", "")
    try:
        new_passwords.change_password(visit.origin, visit.session, current, new)
    except PeopleError as error:
        if error.code == "recent-authentication-required":
            raise
        return show_me(request, visit, refusal=notice_of(error))
    return told(ME, "The password is changed, and your other sessions have ended.")


@person_page("POST")
def begin_totp(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    return show_me(request, visit, totp=factors.begin_totp(visit.origin, visit.session))


@person_page("POST")
def confirm_totp(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    try:
        codes = factors.confirm_totp(visit.origin, visit.session, request.POST.get("code", "").strip())
    except PeopleError as error:
        if error.code == "second-factor-on":
            return told(ME, f"The authenticator was added already. {_CODES_SHOWN}", "warn")
        again = {"secret": request.POST.get("secret", "")}
        return show_me(request, visit, refusal=notice_of(error), totp=again)
    if not codes:
        return told(ME, "The authenticator is added. Your recovery codes stay as they are.")
    return show_me(request, visit, recovery_codes=codes)


@person_page("POST")
def renew_codes(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    try:
        codes = once(request, visit, partial(factors.renew_recovery_codes, visit.origin, visit.session), lambda _: "")
    except DoneAlready:
        return told(ME, f"The new recovery codes were created already, and no others are. {_CODES_SHOWN}", "warn")
    return show_me(request, visit, recovery_codes=codes)


@person_page("POST")
def remove_totp(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    factors.remove_totp(visit.origin, visit.session)
    return told(ME, "The authenticator is not asked for any more.", "warn")


@person_page("POST")
def end_session(request: HttpRequest, visit: Visit, session_id: uuid.UUID) -> HttpResponse:
    sessions.end_session(visit.origin, visit.person, session_id)
    if session_id == visit.session.pk:
        return HttpResponseRedirect("/console/sign-in")
    return told(ME, "The session has ended.")


@person_page("POST")
def end_other_sessions(request: HttpRequest, visit: Visit) -> HttpResponse:
    ended = sessions.end_all_sessions(visit.origin, visit.person, but=visit.session)
    return told(ME, f"{ended} other sessions have ended." if ended else "There was no other session.")


def show_me(request: HttpRequest, visit: Visit, refusal: ErrorNotice | None = None, **more: object) -> HttpResponse:
    """The person's page, with what `more` says."""
    shown = {
        "sessions": selectors.sessions_of(visit.person, clock.now()),
        "authenticator": selectors.has_authenticator(visit.person),
        "passkeys": selectors.passkeys_of(visit.person),
        "refusal": refusal,
        **more,
    }
    return render(request, "console/me.html", shown, status=refusal.status if refusal else 200)
