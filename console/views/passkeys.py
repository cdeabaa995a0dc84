"""Passkeys: created and removed on the person's page, and asked for where a password or a code is.

A script asks for options (JSON) and hands them to the browser; the form goes off with what the browser has signed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse

from api.people.actions import passkey_sign_in, passkeys
from api.people.errors import PeopleError
from api.people.origin import origin_of
from console import sessions
from console.error_notices import notice_of
from console.pages import open_page, person_page, require_recent_sign_in, told
from console.views.entry import AUTHENTICATED, repeat_form, ways_again, ways_of_challenge
from console.views.me import ME, show_me
from console.visits import Visit

_AGAIN = f"/console/again?{urlencode({'next': ME})}"


@person_page("POST")
def new_options(request: HttpRequest, visit: Visit) -> HttpResponse:
    def options() -> dict[str, Any]:
        require_recent_sign_in(visit)
        return passkeys.begin_passkey(visit.session)

    return _options(options)


@person_page("POST")
def add(request: HttpRequest, visit: Visit) -> HttpResponse:
    require_recent_sign_in(visit)
    name, response = request.POST.get("name", ""), request.POST.get("credential", "")
    try:
        added = passkeys.add_passkey(visit.origin, visit.session, name, response)
    except PeopleError as error:
        return show_me(request, visit, refusal=notice_of(error), passkey_name=name)
    if added.recovery_codes:
        return show_me(request, visit, recovery_codes=added.recovery_codes)
    return told(ME, f"The passkey {added.passkey.name} is added.")


@person_page("POST")
def remove(request: HttpRequest, visit: Visit, passkey_id: uuid.UUID) -> HttpResponse:
    require_recent_sign_in(visit)
    if not passkeys.remove_passkey(visit.origin, visit.session, passkey_id):
        raise Http404
    return told(ME, "The passkey is removed. Delete it on its device, too.", "warn")


@open_page("POST")
def sign_in_options(request: HttpRequest) -> HttpResponse:
    try:
        begun = passkey_sign_in.begin_sign_in(origin_of(request))
    except PeopleError as error:
        return _refused(error)
    return sessions.keep_passkey_token(JsonResponse({"options": begun.options}), begun.token)


@open_page("POST")
def sign_in(request: HttpRequest) -> HttpResponse:
    target = sessions.next_of(request)
    token = request.COOKIES.get(sessions.PASSKEY_COOKIE, "")
    try:
        new = passkey_sign_in.sign_in(origin_of(request), token, request.POST.get("credential", ""))
    except PeopleError as error:
        return repeat_form(request, "sign_in", error, next=target)
    return sessions.begin(request, HttpResponseRedirect(target), new)


@open_page("POST")
def code_options(request: HttpRequest) -> HttpResponse:
    token = request.COOKIES.get(sessions.CHALLENGE_COOKIE, "")
    return _options(lambda: passkey_sign_in.begin_second_step(origin_of(request), token))


@open_page("POST")
def code(request: HttpRequest) -> HttpResponse:
    target = sessions.next_of(request)
    token = request.COOKIES.get(sessions.CHALLENGE_COOKIE, "")
    try:
        new = passkey_sign_in.answer_second_step(origin_of(request), token, request.POST.get("credential", ""))
    except PeopleError as error:
        return repeat_form(request, "code", error, next=target, **ways_of_challenge(token))
    return sessions.begin(request, HttpResponseRedirect(target), new)


@person_page("POST")
def again_options(request: HttpRequest, visit: Visit) -> HttpResponse:
    return _options(lambda: passkey_sign_in.begin_again(visit.session))


@person_page("POST")
def again(request: HttpRequest, visit: Visit) -> HttpResponse:
    target = sessions.next_of(request)
    try:
        passkey_sign_in.authenticate_again(visit.origin, visit.session, request.POST.get("credential", ""))
    except PeopleError as error:
        return repeat_form(request, "again", error, next=target, **ways_again(visit))
    return told(target, AUTHENTICATED)


def _options(make: Callable[[], dict[str, Any]]) -> HttpResponse:
    try:
        return JsonResponse({"options": make()})
    except PeopleError as error:
        return _refused(error)


def _refused(error: PeopleError) -> HttpResponse:
    """For the script: a text to show, or a page to go to."""
    notice = notice_of(error)
    go = _AGAIN if error.code == "recent-authentication-required" else ""
    return JsonResponse({"refused": f"{notice.text} {notice.step}".strip(), "go": go}, status=notice.status)
