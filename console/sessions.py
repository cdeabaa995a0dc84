"""The session of a browser: the token of a person's session, in a cookie that no script reads.

The cookie is read by pages alone; the REST API wants the header `Session-Token`, so a page of another site can make
neither act. A sign-in always makes another session and ends the one before: a planted token gains nothing.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import rotate_token
from django.utils.http import url_has_allowed_host_and_scheme

from api import clock
from api.people import limits
from api.people.actions.sessions import NewSession, end_session, note_session_seen
from api.people.models import PersonSession
from api.people.origin import origin_of
from api.people.selectors import session_by_token

COOKIE = "penstock_session"
CHALLENGE_COOKIE = "penstock_challenge"
PASSKEY_COOKIE = "penstock_passkey"
HOME = "/console/"
_PATH = "/console"


def session_of(request: HttpRequest) -> PersonSession | None:
    """The live session of the cookie."""
    now = clock.now()
    found = session_by_token(request.COOKIES.get(COOKIE, ""), now)
    if found is not None:
        note_session_seen(found, now)
    return found


def begin(request: HttpRequest, response: HttpResponse, new: NewSession) -> HttpResponse:
    _end_former(request)
    rotate_token(request)
    age_s = limits.SESSION_AGE_S_MAX
    response.set_cookie(COOKIE, new.token, max_age=age_s, path=_PATH, httponly=True, samesite="Lax")
    response.delete_cookie(CHALLENGE_COOKIE, path=_PATH)
    response.delete_cookie(PASSKEY_COOKIE, path=_PATH)
    return response


def end(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    _end_former(request)
    response.delete_cookie(COOKIE, path=_PATH)
    return response


def keep_challenge(response: HttpResponse, token: str) -> HttpResponse:
    """Between the password and the code."""
    age_s = limits.CHALLENGE_TOKEN_S
    response.set_cookie(CHALLENGE_COOKIE, token, max_age=age_s, path=_PATH, httponly=True, samesite="Lax")
    return response


def keep_passkey_token(response: HttpResponse, token: str) -> HttpResponse:
    """Between the challenge and what a passkey has signed: only the browser that was asked can answer."""
    age_s = limits.PASSKEY_CHALLENGE_S
    response.set_cookie(PASSKEY_COOKIE, token, max_age=age_s, path=_PATH, httponly=True, samesite="Strict")
    return response


def next_of(request: HttpRequest) -> str:
    """Where to go after this: a page of the console; its first page for anything else."""
    asked = request.POST.get("next") or request.GET.get("next") or ""
    is_plain = "//" not in asked and "\\" not in asked
    is_here = is_plain and asked.startswith(_PATH) and url_has_allowed_host_and_scheme(asked, allowed_hosts=None)
    return asked if is_here else HOME


def _end_former(request: HttpRequest) -> None:
    former = session_by_token(request.COOKIES.get(COOKIE, ""), clock.now())
    if former is not None:
        end_session(origin_of(request), former.person, former.pk)
