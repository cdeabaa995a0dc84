"""Bodies and paths: strict, whichever route they are for; and that every route is one we know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.people import limits
from api.urls import _PEOPLE
from tests.api.people.visitor import PASSWORD, Visitor, refused

pytestmark = pytest.mark.django_db

# Route, a body that is read without complaint, and whether it wants a session.
BODIES: dict[str, tuple[dict[str, Any], bool]] = {
    "/v1/people": ({"email": "x@example.com", "password": PASSWORD}, False),
    "/v1/people/confirmation": ({"token": "x", "password": PASSWORD, "name": "", "account_title": ""}, False),
    "/v1/people/password-reset": ({"email": "x@example.com"}, False),
    "/v1/people/password": ({"token": "x", "new_password": PASSWORD}, False),
    "/v1/session": ({"email": "x@example.com", "password": PASSWORD}, False),
    "/v1/session/challenge": ({"challenge_token": "x", "code": "x"}, False),
    "/v1/session/authentication": ({"password": "x", "code": ""}, True),
    "/v1/people/me/password": ({"current_password": "x", "new_password": PASSWORD}, True),
    "/v1/people/me/totp/confirmation": ({"code": "x"}, True),
    "/v1/invitations/acceptance": ({"token": "x"}, True),
    "/v1/accounts/{account}/invitations": ({"email": "x@example.com", "role": "reader"}, True),
}
LONGEST = {
    "email": limits.EMAIL_CHARACTERS_MAX,
    "password": limits.PASSWORD_CHARACTERS_MAX,
    "new_password": limits.PASSWORD_CHARACTERS_MAX,
    "current_password": limits.PASSWORD_CHARACTERS_MAX,
    "token": limits.TOKEN_CHARACTERS_MAX,
    "challenge_token": limits.TOKEN_CHARACTERS_MAX,
    "code": limits.CODE_CHARACTERS_MAX,
    "name": limits.PERSON_NAME_CHARACTERS_MAX,
    "account_title": limits.ACCOUNT_TITLE_CHARACTERS_MAX,
}
OPTIONAL = {"name", "account_title", "code"}
CASES = [(route, member) for route, (body, _) in BODIES.items() for member in body]


def post(who: Visitor, route: str, body: Any) -> Any:
    """From an address of its own each time: limits of attempts do not matter here."""
    sender = Visitor(session_token=who.session_token if BODIES[route][1] else "")
    return sender.call("POST", route.format(account=who.account_id), body)


def pointers(answer: Any) -> set[str]:
    assert refused(answer) == (400, "invalid-request"), answer.content
    return {one["pointer"] for one in answer.json().get("errors", [])}


@pytest.mark.parametrize("route", BODIES)
def test_body_as_it_should_be_is_read(ann: Visitor, route: str) -> None:
    answer = post(ann, route, BODIES[route][0])
    assert answer.status_code != 500 and b"pointer" not in answer.content


@pytest.mark.parametrize(("route", "member"), CASES)
def test_member_of_a_wrong_type_is_refused(ann: Visitor, route: str, member: str) -> None:
    for wrong in (1, 1.5, True, None, ["x"], {"x": "x"}):
        assert pointers(post(ann, route, {**BODIES[route][0], member: wrong})) == {f"/{member}"}, wrong


@pytest.mark.parametrize(("route", "member"), CASES)
def test_member_with_a_nul_or_half_a_character_is_refused(ann: Visitor, route: str, member: str) -> None:
    body = {name: value for name, value in BODIES[route][0].items() if name != member}
    begun = json.dumps(body)[:-1] + (", " if body else "")
    assert pointers(post(ann, route, f'{begun}"{member}": "a\\u0000b@example.com"}}'.encode())) == {f"/{member}"}
    half = post(ann, route, f'{begun}"{member}": "a\\ud800b@example.com"}}'.encode())
    assert refused(half) == (400, "parse-error")


@pytest.mark.parametrize(("route", "member"), [case for case in CASES if case[1] in LONGEST])
def test_member_is_as_long_as_it_may_be_and_no_longer(ann: Visitor, route: str, member: str) -> None:
    longest = LONGEST[member]
    too_long = post(ann, route, {**BODIES[route][0], member: "x" * (longest + 1)})
    assert pointers(too_long) == {f"/{member}"}
    fits = post(ann, route, {**BODIES[route][0], member: "x" * longest})
    assert f'"/{member}"' not in fits.content.decode() and fits.status_code != 500


@pytest.mark.parametrize(("route", "member"), [case for case in CASES if case[1] not in OPTIONAL])
def test_member_that_is_wanted_is_not_left_out_or_empty(ann: Visitor, route: str, member: str) -> None:
    body = BODIES[route][0]
    without = {name: value for name, value in body.items() if name != member}
    assert pointers(post(ann, route, without)) == {f"/{member}"}
    assert pointers(post(ann, route, {**body, member: ""})) == {f"/{member}"}


@pytest.mark.parametrize("route", BODIES)
def test_unknown_members_are_refused(ann: Visitor, route: str) -> None:
    for more in ("account_id", "person_id", "state", "active", "email_confirmed_at", "source"):
        assert pointers(post(ann, route, {**BODIES[route][0], more: "x"})) == {f"/{more}"}


@pytest.mark.parametrize(
    ("name", "code"), [("\\ud800", "parse-error"), ("\\u0000", "invalid-request"), ("\\u001b[31m", "invalid-request")]
)
def test_unknown_member_of_any_name_is_refused(ann: Visitor, name: str, code: str) -> None:
    assert refused(post(ann, "/v1/people/password-reset", f'{{"{name}": 1}}'.encode())) == (400, code)


@pytest.mark.parametrize("route", BODIES)
def test_member_named_twice_is_refused(ann: Visitor, route: str) -> None:
    body = BODIES[route][0]
    name, value = next(iter(body.items()))
    raw = json.dumps(body)[:-1] + f", {json.dumps(name)}: {json.dumps(value)}}}"
    assert refused(post(ann, route, raw.encode())) == (400, "parse-error")


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"1", b"null", b"{", b"\xff", b"[" * 20_000, b'{"x": NaN}'])
def test_body_that_is_no_object_is_refused(ann: Visitor, route: str, body: bytes) -> None:
    answer = post(ann, route, body)
    assert refused(answer)[0] == 400


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_form_of_a_page_is_not_read(visitor: Visitor, kind: str) -> None:
    from django.test import Client

    answer = Client().generic("POST", "/v1/session", b'{"email": "a@example.com", "password": "x"}', content_type=kind)
    assert refused(answer)[0] == 415


@pytest.mark.parametrize("route", ["/v1/people", "/v1/session/challenge", "/v1/people/confirmation"])
def test_method_that_a_route_has_not_is_refused(visitor: Visitor, route: str) -> None:
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert refused(visitor.call(method, route))[0] == 405


def test_every_route_is_described_and_every_open_one_is_known(db: None) -> None:
    document = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
    described = document["paths"]
    # The front end's own are below an account's queues.
    assert len({path for path in described if path.startswith(OURS) and "/queues/" not in path}) == len(_PEOPLE)
    open_calls = {
        (method, path) for path, item in described.items() for method, call in item.items() if not call.get("security")
    }
    assert open_calls == {("post", route) for route, (_, session) in BODIES.items() if not session}


OURS = ("/v1/people", "/v1/session", "/v1/accounts", "/v1/invitations")
