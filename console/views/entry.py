"""The ways in and out: sign-up, confirmation, sign-in, second factor, new password, invitation, one-time link."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from api import clock
from api.people.actions import enrolment, invitations, new_passwords
from api.people.actions import sessions as actions
from api.people.actions.console_links import open_link
from api.people.actions.tokens import find_token
from api.people.errors import PeopleError
from api.people.origin import origin_of
from api.people.selectors import has_authenticator, has_second_factor, passkeys_of
from api.people.tokens import TokenKind
from console import sessions
from console.error_notices import ErrorNotice, notice_of
from console.pages import open_page, person_page, told
from console.visits import Visit

# A code that is wrong and a sign-in that ended are refused alike.
WRONG_CODE = ErrorNotice(
    400, "The code is not right, or the sign-in has ended.", "Enter the code that is shown now, or sign in again."
)


@person_page("GET")
def home(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The account where the person is alone in one, or the accounts."""
    if len(visit.memberships) == 1 and not visit.is_operator:
        return HttpResponseRedirect(f"/console/a/{visit.memberships[0].account_id}/")
    if visit.is_operator and not visit.memberships:
        return HttpResponseRedirect("/console/operators/")
    return render(request, "console/accounts.html", {})


@open_page("GET", "POST")
def sign_in(request: HttpRequest) -> HttpResponse:
    target = sessions.next_of(request)
    if request.method == "GET":
        if sessions.session_of(request) is not None:
            return HttpResponseRedirect(target)
        return render(request, "console/entry/sign_in.html", {"next": target})
    email, password = request.POST.get("email", ""), request.POST.get("password", "")
    try:
        found = actions.sign_in(origin_of(request), email.strip(), password)
    except PeopleError as error:
        return repeat_form(request, "sign_in", error, next=target, email=email)
    if isinstance(found, actions.Challenge):
        return sessions.keep_challenge(
            HttpResponseRedirect(f"/console/code?{urlencode({'next': target})}"), found.token
        )
    return sessions.begin(request, HttpResponseRedirect(target), found)


@open_page("GET", "POST")
def code(request: HttpRequest) -> HttpResponse:
    target = sessions.next_of(request)
    token = request.COOKIES.get(sessions.CHALLENGE_COOKIE, "")
    if not token:
        return HttpResponseRedirect("/console/sign-in")
    if request.method == "GET":
        return render(request, "console/entry/code.html", {"next": target, **ways_of_challenge(token)})
    try:
        new = actions.answer_challenge(origin_of(request), token, request.POST.get("code", "").strip())
    except PeopleError as error:
        wrong = {"refusal": WRONG_CODE} if error.code == "invalid-token" else {}
        return repeat_form(request, "code", error, next=target, **ways_of_challenge(token), **wrong)
    return sessions.begin(request, HttpResponseRedirect(target), new)


@open_page("POST")
def sign_out(request: HttpRequest) -> HttpResponse:
    return sessions.end(request, told("/console/sign-in", "You are signed out."))


@open_page("GET", "POST")
def sign_up(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return render(request, "console/entry/sign_up.html", {})
    email, password = request.POST.get("email", "").strip(), request.POST.get("password", "")
    try:
        enrolment.sign_up(origin_of(request), email, password)
    except PeopleError as error:
        return repeat_form(request, "sign_up", error, email=email)
    return render(request, "console/entry/mailed.html", {"email": email, "for_page": "confirm"})


@open_page("GET", "POST")
def confirm(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return render(request, "console/entry/confirm.html", {})
    given = {name: request.POST.get(name, "").strip() for name in ("token", "name", "title")}
    password = request.POST.get("password", "")
    origin = origin_of(request)
    try:
        enrolled = enrolment.confirm(origin, given["token"], password, given["name"], given["title"])
        found = actions.sign_in(origin, enrolled.person.email, password)
    except PeopleError as error:
        return repeat_form(request, "confirm", error, **given)
    assert isinstance(found, actions.NewSession), "a person who was just confirmed has no second factor"
    return sessions.begin(request, told(f"/console/a/{enrolled.account_id}/", "Welcome. This is your account."), found)


@open_page("GET", "POST")
def reset(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return render(request, "console/entry/reset.html", {})
    email = request.POST.get("email", "").strip()
    try:
        new_passwords.ask_for_reset(origin_of(request), email)
    except PeopleError as error:
        return repeat_form(request, "reset", error, email=email)
    return render(request, "console/entry/mailed.html", {"email": email, "for_page": "new-password"})


@open_page("GET", "POST")
def new_password(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return render(request, "console/entry/new_password.html", {})
    token = request.POST.get("token", "").strip()
    try:
        new_passwords.reset_password(origin_of(request), token, request.POST.get("password", ""))
    except PeopleError as error:
        return repeat_form(request, "new_password", error, token=token)
    return told("/console/sign-in", "The password is changed, and all sessions have ended. Sign in with it.")


@open_page("GET", "POST")
def link(request: HttpRequest) -> HttpResponse:
    """What `./penstock console-link` prints leads here. The token stands in the fragment of the address, which no log,
    proxy or other site gets to see; a script puts it into the form and takes it out of the address."""
    if request.method == "GET":
        return render(request, "console/entry/link.html", {"account_id": request.GET.get("account", "")})
    account_id = request.POST.get("account", "")
    try:
        new = open_link(origin_of(request), request.POST.get("token", "").strip())
    except PeopleError as error:
        return repeat_form(request, "link", error, account_id=account_id)
    target = f"/console/a/{account_id}/" if account_id.isascii() and account_id.isdigit() else sessions.HOME
    return sessions.begin(request, HttpResponseRedirect(target), new)


@person_page("GET", "POST")
def join(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Accepts an invitation."""
    if request.method == "GET":
        return render(request, "console/entry/join.html", {})
    token = request.POST.get("token", "").strip()
    try:
        joined = invitations.accept(visit.origin, visit.person, token)
    except PeopleError as error:
        return repeat_form(request, "join", error, token=token)
    return told(f"/console/a/{joined.account_id}/", f"You are a member of this account now, as {joined.role}.")


AUTHENTICATED = (
    "Thank you. What concerns security or money can be changed for ten minutes; repeat what you wanted to do."
)


@person_page("GET", "POST")
def again(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The password once more, before what concerns security or money changes."""
    target = sessions.next_of(request)
    known = {"next": target, **ways_again(visit)}
    if request.method == "GET":
        return render(request, "console/entry/again.html", known)
    password, given_code = request.POST.get("password", ""), request.POST.get("code", "").strip()
    try:
        actions.authenticate_again(visit.origin, visit.session, password, given_code)
    except PeopleError as error:
        return repeat_form(request, "again", error, **known)
    return told(target, AUTHENTICATED)


def ways_of_challenge(token: str) -> dict[str, bool]:
    """What can be given in the second step, told to a visitor who gave the right password."""
    found = find_token(TokenKind.CHALLENGE, token, clock.now())
    if found is None:
        return {"authenticator": True, "passkeys": False}
    return {"authenticator": has_authenticator(found.person), "passkeys": bool(passkeys_of(found.person))}


def ways_again(visit: Visit) -> dict[str, bool | str]:
    """`link_option`: for those who came by a link of the launcher."""
    person, accounts = visit.person, [one.account_id for one in visit.memberships]
    account = accounts[0] if len(accounts) == 1 else "NAME"
    return {
        "link_option": "--operator" if visit.is_operator else f"--account {account}",
        "has_password": bool(person.password),
        "second_factor": has_second_factor(person),
        "authenticator": has_authenticator(person),
        "passkeys": bool(passkeys_of(person)),
    }


def repeat_form(request: HttpRequest, name: str, error: PeopleError, /, **given: object) -> HttpResponse:
    """The form once more, with what was wrong. Passwords and codes are not repeated."""
    refusal = notice_of(error)
    return render(request, f"console/entry/{name}.html", {"refusal": refusal, **given}, status=refusal.status)
