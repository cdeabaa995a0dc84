"""Sign-in and sessions."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from api import clock
from api.people import limits, passwords
from api.people.models import Person, PersonSession
from tests.api.people.visitor import PASSWORD, Visitor, audit, new_visitor, refused

pytestmark = pytest.mark.django_db


def test_sign_in_with_a_wrong_password_and_of_an_unknown_person_are_the_same(ann: Visitor, hashes: list[str]) -> None:
    guest = new_visitor()
    wrong = guest.sign_in(ann.email, "wrong wrong wrong")
    spent = hashes.copy()
    hashes.clear()
    unknown = guest.sign_in("unknown@example.com")
    assert refused(wrong) == refused(unknown) == (401, "sign-in-refused")
    assert wrong.content == unknown.content
    assert spent == hashes == ["verify"]


def test_session_shows_where_it_came_from_and_no_token(ann: Visitor) -> None:
    guest = new_visitor()
    payload = {"email": ann.email, "password": PASSWORD}
    answer = guest.call("POST", "/v1/session", payload, **{"User-Agent": "browser\t" + "x" * 300})
    made = answer.json()
    assert answer["Cache-Control"] == "no-store"
    assert made["session"]["source_address"] == guest.source
    assert made["session"]["user_agent"] == ("browser" + "x" * 300)[: limits.USER_AGENT_CHARACTERS_MAX]
    guest.session_token = made["session_token"]
    shown = guest.call("GET", "/v1/session")
    assert shown.json() == made["session"]
    assert made["session_token"] not in guest.call("GET", "/v1/sessions").content.decode()


def test_sign_out_ends_the_session(ann: Visitor) -> None:
    assert ann.call("DELETE", "/v1/session").status_code == 204
    assert refused(ann.call("GET", "/v1/session")) == (401, "not-signed-in")
    assert refused(ann.call("DELETE", "/v1/session")) == (401, "not-signed-in")
    assert audit()[-2:] == ["session.begin", "session.end"]


def test_one_session_or_all_are_ended(ann: Visitor) -> None:
    second, third = new_visitor(), new_visitor()
    second.sign_in(ann.email)
    third.sign_in(ann.email)
    listed = ann.call("GET", "/v1/sessions").json()["sessions"]
    assert [one["source_address"] for one in listed] == [third.source, second.source, ann.source]
    assert ann.call("DELETE", f"/v1/sessions/{listed[1]['session_id']}").status_code == 204
    assert refused(second.call("GET", "/v1/session")) == (401, "not-signed-in")
    assert third.call("GET", "/v1/session").status_code == 200
    assert ann.call("DELETE", "/v1/sessions").status_code == 204
    assert not PersonSession.objects.exists()


def test_session_of_another_person_is_not_found(ann: Visitor, bob: Visitor) -> None:
    session_id = bob.call("GET", "/v1/session").json()["session_id"]
    assert refused(ann.call("DELETE", f"/v1/sessions/{session_id}")) == (404, "not-found")
    assert refused(ann.call("DELETE", f"/v1/sessions/{uuid.uuid4()}")) == (404, "not-found")
    assert refused(ann.call("DELETE", "/v1/sessions/x")) == (404, "not-found")
    ann.call("DELETE", "/v1/sessions")
    assert bob.call("GET", "/v1/session").status_code == 200
    assert len(bob.call("GET", "/v1/sessions").json()["sessions"]) == 1


@pytest.mark.parametrize(
    ("field", "bound_s"), [("created_at", limits.SESSION_AGE_S_MAX), ("last_seen_at", limits.SESSION_IDLE_S_MAX)]
)
@pytest.mark.parametrize(("more_s", "lives"), [(-30, True), (0, False), (30, False)])
def test_session_expires_by_age_and_by_idleness(
    ann: Visitor, field: str, bound_s: int, more_s: int, lives: bool
) -> None:
    PersonSession.objects.update(**{field: clock.now() - timedelta(seconds=bound_s + more_s)})
    assert (ann.call("GET", "/v1/session").status_code == 200) == lives
    if not lives:
        new_visitor().sign_in(ann.email)
        assert refused(ann.call("GET", "/v1/sessions")) == (401, "not-signed-in")


def test_last_seen_is_written_once_a_minute(ann: Visitor) -> None:
    for past_s, written in ((limits.SESSION_SEEN_EVERY_S - 10, False), (limits.SESSION_SEEN_EVERY_S, True)):
        past = clock.now() - timedelta(seconds=past_s)
        PersonSession.objects.update(last_seen_at=past)
        assert ann.call("GET", "/v1/session").status_code == 200
        assert (PersonSession.objects.get().last_seen_at != past) == written


def test_sessions_of_a_person_are_bounded(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_PERSON_MAX", 2)
    second, third = new_visitor(), new_visitor()
    second.sign_in(ann.email)
    assert ann.call("GET", "/v1/session").status_code == 200
    third.sign_in(ann.email)
    assert refused(ann.call("GET", "/v1/session")) == (401, "not-signed-in")
    assert second.call("GET", "/v1/session").status_code == third.call("GET", "/v1/session").status_code == 200


@pytest.mark.parametrize("token", ["", "x", "psts_" + "A" * 43, "psts_" + "A" * 44, "pst\u00e9"])
def test_made_up_session_is_refused(visitor: Visitor, token: str) -> None:
    for method, path in (("GET", "/v1/session"), ("GET", "/v1/sessions"), ("GET", "/v1/people/me")):
        assert refused(visitor.call(method, path, **{"Session-Token": token})) == (401, "not-signed-in")


def test_hash_of_a_session_is_compared_in_constant_time(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.people.selectors.same_hash", lambda one, other: False)
    assert refused(ann.call("GET", "/v1/session")) == (401, "not-signed-in")


def test_session_goes_by_its_header_alone(ann: Visitor) -> None:
    token, ann.session_token = ann.session_token, ""
    for headers in ({"Cookie": f"Session-Token={token}"}, {"Authorization": f"Bearer {token}"}):
        assert refused(ann.call("GET", "/v1/session", **headers)) == (401, "not-signed-in")
    assert refused(ann.call("GET", f"/v1/session?Session-Token={token}")) == (401, "not-signed-in")


def test_sign_in_ignores_a_session_that_is_over(ann: Visitor) -> None:
    ann.call("DELETE", "/v1/session")
    assert ann.sign_in(ann.email).status_code == 201


def test_sign_in_that_was_verified_before_a_password_change_gets_no_session(
    ann: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.people import passwords

    def verified_then_changed(password: str, encoded: str) -> bool:
        Person.objects.update(password="argon2$other")
        return True

    monkeypatch.setattr(passwords, "verify_password", verified_then_changed)
    monkeypatch.setattr(passwords, "is_outdated", lambda encoded: False)
    assert refused(new_visitor().sign_in(ann.email)) == (401, "sign-in-refused")


def test_expired_sessions_are_forgotten(ann: Visitor, bob: Visitor) -> None:
    from api.people.actions.upkeep import forget_expired

    mine = PersonSession.objects.filter(person_id=ann.person_id)
    mine.update(last_seen_at=clock.now() - timedelta(seconds=limits.SESSION_IDLE_S_MAX))
    assert forget_expired() == 1
    assert str(PersonSession.objects.get().person_id) == bob.person_id


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("/v1/session/authentication", {"password": PASSWORD}),
        ("/v1/people/me/password", {"current_password": PASSWORD, "new_password": "another long password"}),
    ],
)
def test_session_that_is_ended_while_the_password_is_verified_changes_nothing(
    ann: Visitor, monkeypatch: pytest.MonkeyPatch, path: str, payload: dict[str, str]
) -> None:
    verify, before = passwords.verify_password, Person.objects.get(email=ann.email).password

    def end_and_verify(password: str, encoded: str) -> bool:
        PersonSession.objects.all().delete()
        return verify(password, encoded)

    monkeypatch.setattr(passwords, "verify_password", end_and_verify)
    assert refused(ann.call("POST", path, payload)) == (401, "not-signed-in")
    assert Person.objects.get(email=ann.email).password == before
