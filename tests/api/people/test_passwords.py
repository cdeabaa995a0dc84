"""Which passwords are accepted, what they cost, and how they are changed and reset."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core import mail
from django.db import connection

from api import clock
from api.people import limits, passwords
from api.people.errors import PeopleError
from api.people.models import Person, PersonSession, PersonToken
from tests.api.people.visitor import PASSWORD, Visitor, audit, mailed_token, new_visitor, refused

NEW = "an entirely new one"


@pytest.mark.parametrize(
    ("password", "accepted"),
    [
        ("abcdefghijk", False),
        ("abcdefghijkl", True),
        ("abcde" * 25 + "abc", True),
        ("abcde" * 25 + "abcd", False),
        ("aabbccddaabb", False),
        ("aabbccddeeaa", True),
        ("somebody@example.com", False),
        ("SOMEBODY@example.com", False),
        ("1QAZ2wsx3edc", False),  # one of the most common ones
        ("пароль и ещё", True),
        ("ﬁve ﬁgures ﬁt", True),
    ],
)
def test_password_rules(password: str, accepted: bool) -> None:
    if accepted:
        passwords.check_rules(password, "somebody@example.com")
    else:
        with pytest.raises(PeopleError) as caught:
            passwords.check_rules(password, "somebody@example.com")
        assert caught.value.code == "weak-password"


@pytest.mark.django_db(transaction=True)
def test_hash_is_waited_for_and_computed_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who sign in must not hold what all other requests need."""
    held: list[bool] = []

    def look(password: str, encoded: str) -> bool:
        held.append(connection.connection is not None)
        return False

    passwords.verify_password("the first call makes a stand-in", "")
    monkeypatch.setattr(passwords, "_hasher", SimpleNamespace(verify=look))
    Person.objects.count()
    assert connection.connection is not None
    passwords.verify_password("x", "")
    assert held == [False]


def test_password_written_in_another_form_is_the_same() -> None:
    encoded = passwords.hash_password("café au lait, s'il vous plaît")
    assert passwords.verify_password("cafe\u0301 au lait, s'il vous plai\u0302t", encoded)
    assert not passwords.verify_password("cafe au lait, s'il vous plait", encoded)


def test_hashes_are_argon2id_with_the_named_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    encoded = passwords.hash_password(PASSWORD)
    assert encoded.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")
    assert not passwords.is_outdated(encoded)
    monkeypatch.setattr(passwords.PersonPasswordHasher, "time_cost", 3)
    assert passwords.is_outdated(encoded)


def test_nothing_matches_where_there_is_no_password(hashes: list[str]) -> None:
    assert not passwords.verify_password("", "")
    assert not passwords.verify_password(PASSWORD, "")
    assert hashes == ["verify", "verify"]


def test_too_many_hashes_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HASH_WAIT_S_MAX", 0.01)
    with passwords._place():
        passwords.hash_password(PASSWORD)
        with passwords._place(), pytest.raises(PeopleError) as caught:
            passwords.hash_password(PASSWORD)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 5)
    passwords.hash_password(PASSWORD)


@pytest.mark.django_db
def test_outdated_hash_is_renewed_at_the_next_sign_in(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Person.objects.get().password
    monkeypatch.setattr(passwords.PersonPasswordHasher, "time_cost", 2)
    assert new_visitor().sign_in(ann.email).status_code == 201
    after = Person.objects.get().password
    assert before != after and ",t=2," in after
    assert new_visitor().sign_in(ann.email).status_code == 201
    assert Person.objects.get().password == after


# --- change ---


@pytest.mark.django_db
def test_password_change_ends_all_other_sessions(ann: Visitor, django_capture_on_commit_callbacks: object) -> None:
    other = new_visitor()
    other.sign_in(ann.email)
    mail.outbox.clear()
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        changed = ann.call("POST", "/v1/people/me/password", {"current_password": PASSWORD, "new_password": NEW})
    assert changed.status_code == 204
    assert ann.call("GET", "/v1/session").status_code == 200
    assert refused(other.call("GET", "/v1/session")) == (401, "not-signed-in")
    assert refused(new_visitor().sign_in(ann.email)) == (401, "sign-in-refused")
    assert new_visitor().sign_in(ann.email, NEW).status_code == 201
    assert [one.subject for one in mail.outbox] == ["A security setting was changed"]
    assert "person.change_password" in audit()


@pytest.mark.django_db
def test_password_change_wants_the_current_one_and_a_good_new_one(ann: Visitor) -> None:
    def change(current: str, new: str) -> tuple[int, str]:
        return refused(ann.call("POST", "/v1/people/me/password", {"current_password": current, "new_password": new}))

    assert change("wrong wrong wrong", NEW) == (403, "access-denied")
    assert change(PASSWORD, "short") == (400, "weak-password")
    assert ann.call("GET", "/v1/session").status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize(("age_s", "status"), [(-30, 204), (0, 403), (30, 403)])
def test_password_change_wants_a_recent_authentication(ann: Visitor, age_s: int, status: int) -> None:
    past = clock.now() - timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX + age_s)
    PersonSession.objects.update(authenticated_at=past)
    payload = {"current_password": PASSWORD, "new_password": NEW}
    answer = ann.call("POST", "/v1/people/me/password", payload)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["code"] == "recent-authentication-required"
        assert refused(ann.call("POST", "/v1/session/authentication", {"password": NEW})) == (401, "sign-in-refused")
        assert ann.call("POST", "/v1/session/authentication", {"password": PASSWORD}).status_code == 200
        assert ann.call("POST", "/v1/people/me/password", payload).status_code == 204


# --- reset ---


@pytest.mark.django_db
def test_reset_by_mail_ends_all_sessions_and_is_used_once(ann: Visitor) -> None:
    guest = new_visitor()
    assert guest.call("POST", "/v1/people/password-reset", {"email": "ANN@example.com"}).status_code == 202
    payload = {"token": mailed_token(ann.email), "new_password": NEW}
    assert guest.call("POST", "/v1/people/password", payload).status_code == 204
    assert refused(ann.call("GET", "/v1/session")) == (401, "not-signed-in")
    assert new_visitor().sign_in(ann.email, NEW).status_code == 201
    assert refused(guest.call("POST", "/v1/people/password", payload)) == (400, "invalid-token")
    assert audit()[-3:] == ["person.ask_for_reset", "person.reset_password", "session.begin"]


@pytest.mark.django_db
def test_reset_of_unknown_and_unconfirmed_addresses_answers_the_same_and_mails_nothing(ann: Visitor) -> None:
    guest = new_visitor()
    guest.call("POST", "/v1/people", {"email": "new@example.com", "password": PASSWORD})
    mail.outbox.clear()
    answers = {
        (answer.status_code, answer.content)
        for email in ("new@example.com", "unknown@example.com", ann.email)
        for answer in [guest.call("POST", "/v1/people/password-reset", {"email": email})]
    }
    assert answers == {(202, b"")}
    assert [one.to for one in mail.outbox] == [[ann.email]]


@pytest.mark.django_db
def test_answer_of_a_reset_waits_for_nothing_that_depends_on_the_address(
    ann: Visitor, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: object
) -> None:
    monkeypatch.setattr("api.people.errands.leave", lambda errand: None)
    for email in (ann.email, "unknown@example.com"):
        with django_assert_num_queries(4):  # type: ignore[operator]  # two rates, each sweeps and charges
            new_visitor().call("POST", "/v1/people/password-reset", {"email": email})


@pytest.mark.django_db
@pytest.mark.parametrize(("left_s", "status"), [(60, 204), (0, 400)])
def test_reset_token_expires(ann: Visitor, left_s: int, status: int) -> None:
    ann.call("POST", "/v1/people/password-reset", {"email": ann.email})
    PersonToken.objects.update(expires_at=clock.now() + timedelta(seconds=left_s))
    payload = {"token": mailed_token(ann.email), "new_password": NEW}
    assert ann.call("POST", "/v1/people/password", payload).status_code == status


@pytest.mark.django_db
def test_weak_password_does_not_use_the_reset_token_up(ann: Visitor) -> None:
    ann.call("POST", "/v1/people/password-reset", {"email": ann.email})
    token = mailed_token(ann.email)
    payload = {"token": token, "new_password": "short"}
    assert refused(ann.call("POST", "/v1/people/password", payload)) == (400, "weak-password")
    assert ann.call("POST", "/v1/people/password", {"token": token, "new_password": NEW}).status_code == 204


@pytest.mark.django_db
def test_password_change_voids_tokens_that_were_mailed_before(ann: Visitor) -> None:
    ann.call("POST", "/v1/people/password-reset", {"email": ann.email})
    ann.call("POST", "/v1/people/me/password", {"current_password": PASSWORD, "new_password": NEW})
    payload = {"token": mailed_token(ann.email), "new_password": "yet another one"}
    assert refused(ann.call("POST", "/v1/people/password", payload)) == (400, "invalid-token")


@pytest.mark.django_db
def test_token_of_one_kind_opens_nothing_of_another(ann: Visitor) -> None:
    ann.call("POST", "/v1/people/password-reset", {"email": ann.email})
    reset = mailed_token(ann.email)
    assert refused(ann.call("POST", "/v1/invitations/acceptance", {"token": reset})) == (400, "invalid-token")
    assert ann.call("POST", "/v1/people/confirmation", {"token": reset, "password": PASSWORD}).status_code == 400
    as_session = Visitor(session_token=reset)
    assert refused(as_session.call("GET", "/v1/session")) == (401, "not-signed-in")
    disguised = Visitor(session_token="psts_" + reset[5:])
    assert refused(disguised.call("GET", "/v1/session")) == (401, "not-signed-in")
