"""Passkeys: how they are added, sign in, stand in for codes, and go; and what is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.core import mail

from api import clock
from api.people import limits, rates
from api.people.actions import passkey_sign_in, passkeys
from api.people.actions.sessions import NewSession
from api.people.actions.upkeep import forget_expired
from api.people.errors import PeopleError
from api.people.models import Passkey, PasskeyChallenge, Person, PersonSession, PersonToken, RecoveryCode
from api.people.origin import RequestOrigin
from tests.api.people.test_second_factor import answer_with, challenged, switch_on
from tests.api.people.visitor import Visitor, audit, refused
from tests.support.authenticator import USER_PRESENT, SoftwareAuthenticator, as_text, from_text

pytestmark = pytest.mark.django_db
ORIGIN = "http://localhost:9324"


class Ceremony(NamedTuple):
    """One way to use a passkey: options with the token that goes with them, and what takes the answer."""

    begin: Callable[[Visitor], tuple[str, dict[str, Any]]]
    finish: Callable[[Visitor, str, str], NewSession | None]


def origin() -> RequestOrigin:
    return RequestOrigin(Visitor().source)


def session_of(who: Visitor) -> PersonSession:
    return PersonSession.objects.select_related("person").filter(person__email=who.email).latest("created_at")


def device(**told: Any) -> SoftwareAuthenticator:
    return SoftwareAuthenticator(ORIGIN, **told)


def add(who: Visitor, key: SoftwareAuthenticator, name: str = "My phone") -> passkeys.AddedPasskey:
    session = session_of(who)
    return passkeys.add_passkey(origin(), session, name, key.create(passkeys.begin_passkey(session)))


def _begin_sign_in(who: Visitor) -> tuple[str, dict[str, Any]]:
    begun = passkey_sign_in.begin_sign_in(origin())
    return begun.token, begun.options


def _begin_second_step(who: Visitor) -> tuple[str, dict[str, Any]]:
    _, token = challenged(who.email)
    return token, passkey_sign_in.begin_second_step(origin(), token)


def _finish_again(who: Visitor, token: str, response: str) -> None:
    passkey_sign_in.authenticate_again(origin(), session_of(who), response)


CEREMONIES = {
    "sign-in": Ceremony(_begin_sign_in, lambda _, token, response: passkey_sign_in.sign_in(origin(), token, response)),
    "second-step": Ceremony(
        _begin_second_step,
        lambda _, token, response: passkey_sign_in.answer_second_step(origin(), token, response),
    ),
    "again": Ceremony(lambda who: ("", passkey_sign_in.begin_again(session_of(who))), _finish_again),
}
everywhere = pytest.mark.parametrize("way", CEREMONIES.values(), ids=CEREMONIES)


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(PeopleError) as caught:
        call()
    return caught.value.code


def assert_refused(way: Ceremony, who: Visitor, token: str, response: str) -> None:
    sessions = PersonSession.objects.count()
    authenticated = session_of(who).authenticated_at
    assert code_of(lambda: way.finish(who, token, response)) == "passkey-refused"
    assert PersonSession.objects.count() == sessions and session_of(who).authenticated_at == authenticated


# --- adding ---


def test_first_passkey_switches_the_second_factor_on_and_gives_recovery_codes(
    ann: Visitor, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        added = add(ann, device())
    assert len(set(added.recovery_codes)) == limits.RECOVERY_CODES
    assert ann.call("GET", "/v1/people/me").json()["second_factor"] is True
    assert audit()[-2:] == ["second_factor.on", "passkey.add"]
    assert "The passkey 'My phone' was added" in mail.outbox[-1].body
    assert add(ann, device(), "Key ring").recovery_codes == []
    assert RecoveryCode.objects.count() == limits.RECOVERY_CODES
    assert audit()[-2:] == ["second_factor.add", "passkey.add"]


def test_browser_is_asked_for_a_verified_person_and_no_attestation(ann: Visitor) -> None:
    first = device()
    add(ann, first)
    options = passkeys.begin_passkey(session_of(ann))
    assert options["rp"] == {"name": "Penstock", "id": "localhost"}
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert options["authenticatorSelection"]["residentKey"] == "preferred"
    assert options["attestation"] == "none"
    assert [one["id"] for one in options["excludeCredentials"]] == [as_text(first.credential_id)]
    assert from_text(options["user"]["id"]) == Person.objects.get(email=ann.email).pk.bytes


@pytest.mark.parametrize(
    "lie",
    [
        {"origin": "http://localhost:9325"},
        {"origin": "https://localhost:9324"},
        {"rp_id": "example.com"},
        {"flags": USER_PRESENT},
        {"credential_id": bytes(limits.CREDENTIAL_ID_BYTES_MAX + 1)},
    ],
    ids=["other-origin", "other-scheme", "other-rp-id", "person-not-verified", "long-id"],
)
def test_passkey_that_does_not_prove_what_it_must_is_not_added(ann: Visitor, lie: dict[str, Any]) -> None:
    key = device()
    for name, value in lie.items():
        setattr(key, name, value)
    assert code_of(lambda: add(ann, key)) == "passkey-refused"
    assert not Passkey.objects.exists() and not RecoveryCode.objects.exists()


def test_challenge_of_a_new_passkey_is_used_once_and_by_its_session_alone(ann: Visitor, bob: Visitor) -> None:
    key, session = device(), session_of(ann)
    response = key.create(passkeys.begin_passkey(session))
    passkeys.begin_passkey(session_of(bob))
    assert code_of(lambda: passkeys.add_passkey(origin(), session_of(bob), "x", response)) == "passkey-refused"
    passkeys.add_passkey(origin(), session, "x", response)
    assert code_of(lambda: passkeys.add_passkey(origin(), session, "y", response)) == "passkey-refused"
    assert Passkey.objects.count() == 1


def test_passkey_of_another_person_is_not_taken_over(ann: Visitor, bob: Visitor) -> None:
    key = device()
    add(ann, key)
    assert code_of(lambda: add(bob, key)) == "passkey-known"
    assert Passkey.objects.get().person.email == ann.email
    assert not RecoveryCode.objects.filter(person__email=bob.email).exists()


@pytest.mark.parametrize("name", ["", "   ", "a\x00b", "a‮b", "x" * (limits.PASSKEY_NAME_CHARACTERS_MAX + 1)])
def test_name_of_a_passkey_is_short_and_printable(ann: Visitor, name: str) -> None:
    assert code_of(lambda: add(ann, device(), name)) == "invalid-request"


def test_name_of_a_passkey_is_given_once_a_person(ann: Visitor, bob: Visitor) -> None:
    add(ann, device(), "x" * limits.PASSKEY_NAME_CHARACTERS_MAX)
    assert code_of(lambda: add(ann, device(), "x" * limits.PASSKEY_NAME_CHARACTERS_MAX)) == "passkey-name-taken"
    add(bob, device(), "x" * limits.PASSKEY_NAME_CHARACTERS_MAX)


def test_person_has_so_many_passkeys_and_no_more(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PASSKEYS_PER_PERSON_MAX", 2)
    session, last = session_of(ann), device()
    add(ann, device(), "one")
    response = last.create(passkeys.begin_passkey(session))
    Passkey.objects.create(
        person=session.person, name="two", credential_id=b"2", public_key=b"", sign_count=0, created_at=clock.now()
    )
    assert code_of(lambda: passkeys.add_passkey(origin(), session, "three", response)) == "over-limit"
    assert code_of(lambda: passkeys.begin_passkey(session)) == "over-limit"


@pytest.mark.parametrize(
    "response", ["", "null", "[]", "{}", '{"id": 1}', "[" * 10_000, "{" * 100, "x" * 20_000, '{"id":"a","rawId":"a"}']
)
def test_answer_that_is_none_is_refused(ann: Visitor, response: str) -> None:
    session = session_of(ann)
    passkeys.begin_passkey(session)
    assert code_of(lambda: passkeys.add_passkey(origin(), session, "x", response)) == "passkey-refused"
    token, _ = _begin_sign_in(ann)
    assert code_of(lambda: passkey_sign_in.sign_in(origin(), token, response)) == "passkey-refused"


def test_answer_with_parts_of_another_shape_is_refused(ann: Visitor) -> None:
    key = device()
    add(ann, key)
    for name in ("clientDataJSON", "authenticatorData", "signature", "userHandle"):
        for wrong in ("", "AAAA", "$", 1, None):
            token, options = _begin_sign_in(ann)
            whole = json.loads(key.get(options))
            changed = json.dumps({**whole, "response": {**whole["response"], name: wrong}})
            assert_refused(CEREMONIES["sign-in"], ann, token, changed)


# --- signing in ---


@everywhere
def test_passkey_signs_in_and_is_noted(ann: Visitor, way: Ceremony) -> None:
    key = device()
    passkey = add(ann, key).passkey
    before = session_of(ann).authenticated_at
    token, options = way.begin(ann)
    assert options["rpId"] == "localhost" and options["userVerification"] == "required"
    found = way.finish(ann, token, key.get(options))
    passkey.refresh_from_db()
    assert (passkey.sign_count, passkey.last_used_at is None) == (1, False)
    if found is None:
        assert session_of(ann).authenticated_at > before and audit()[-1] == "session.authenticate"
        return
    assert Visitor(session_token=found.token).call("GET", "/v1/session").status_code == 200
    assert audit()[-1] == "session.begin" and found.session.person.email == ann.email


@everywhere
def test_device_that_counts_nothing_signs_in_again_and_again(ann: Visitor, way: Ceremony) -> None:
    key = device(counts=False)
    add(ann, key)
    for _ in range(2):
        token, options = way.begin(ann)
        way.finish(ann, token, key.get(options))


@everywhere
def test_replayed_answer_is_refused(ann: Visitor, way: Ceremony) -> None:
    key = device(counts=False)
    add(ann, key)
    token, options = way.begin(ann)
    response = key.get(options)
    way.finish(ann, token, response)
    if way is CEREMONIES["second-step"]:
        assert code_of(lambda: way.finish(ann, token, response)) == "invalid-token"
        token, _ = way.begin(ann)
    assert_refused(way, ann, token, response)
    way.begin(ann)
    assert_refused(way, ann, token, response)


@everywhere
def test_challenge_is_gone_with_a_wrong_answer(ann: Visitor, way: Ceremony) -> None:
    key = device()
    add(ann, key)
    token, options = way.begin(ann)
    assert_refused(way, ann, token, "{}")
    assert_refused(way, ann, token, key.get(options))


@everywhere
@pytest.mark.parametrize(
    "lie",
    [
        {"origin": "https://evil.example"},
        {"origin": ORIGIN + ".evil.example"},
        {"rp_id": "evil.example"},
        {"flags": USER_PRESENT},
        {"flags": 0},
        {"user_handle": uuid.uuid4().bytes},
        {"key": SoftwareAuthenticator("").key},
    ],
    ids=["other-origin", "longer-origin", "other-rp-id", "person-not-verified", "nobody-there", "handle", "other-key"],
)
def test_answer_that_does_not_prove_what_it_must_is_refused(ann: Visitor, way: Ceremony, lie: dict[str, Any]) -> None:
    key = device()
    add(ann, key)
    for name, value in lie.items():
        setattr(key, name, value)
    token, options = way.begin(ann)
    assert_refused(way, ann, token, key.get(options))


@everywhere
def test_count_that_does_not_grow_is_refused(ann: Visitor, way: Ceremony) -> None:
    key = device()
    add(ann, key)
    token, options = way.begin(ann)
    way.finish(ann, token, key.get(options))
    for count in (-1, 0):
        token, options = way.begin(ann)
        key.count = count
        assert_refused(way, ann, token, key.get(options))


@everywhere
def test_challenge_of_another_browser_is_refused(ann: Visitor, bob: Visitor, way: Ceremony) -> None:
    """The challenge was given, for the same purpose, to a visitor with another token or session."""
    key = device()
    add(ann, key)
    add(bob, device())
    token, _ = way.begin(ann)
    _, other_options = way.begin(bob)
    assert_refused(way, ann, token, key.get(other_options))


@pytest.mark.parametrize("other", [name for name in CEREMONIES if name != "sign-in"])
def test_challenge_of_another_purpose_is_refused(ann: Visitor, other: str) -> None:
    key = device()
    add(ann, key)
    way = CEREMONIES["sign-in"]
    token, _ = way.begin(ann)
    assert_refused(way, ann, token, key.get(CEREMONIES[other].begin(ann)[1]))
    other_token, _ = CEREMONIES[other].begin(ann)
    assert_refused(CEREMONIES[other], ann, other_token, key.get(way.begin(ann)[1]))


@everywhere
def test_challenge_expires(ann: Visitor, way: Ceremony) -> None:
    key = device()
    add(ann, key)
    token, options = way.begin(ann)
    PasskeyChallenge.objects.update(expires_at=clock.now())
    assert_refused(way, ann, token, key.get(options))


@pytest.mark.parametrize("name", ["second-step", "again"])
def test_passkey_of_another_person_is_refused(ann: Visitor, bob: Visitor, name: str) -> None:
    add(ann, device())
    theirs = device()
    add(bob, theirs)
    way = CEREMONIES[name]
    for handle in (theirs.user_handle, Person.objects.get(email=ann.email).pk.bytes, b""):
        theirs.user_handle = handle
        token, options = way.begin(ann)
        assert_refused(way, ann, token, theirs.get(options))


def test_sign_in_without_the_name_of_a_person_is_refused(ann: Visitor) -> None:
    """The credential may be the first of many that a key made for others: only what it keeps names a person."""
    key = device()
    add(ann, key)
    key.user_handle = b""
    token, options = _begin_sign_in(ann)
    assert_refused(CEREMONIES["sign-in"], ann, token, key.get(options))


def test_unknown_and_wrong_passkeys_are_refused_with_one_text_after_one_verification(
    ann: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    import webauthn

    verified = []
    real = webauthn.verify_authentication_response
    monkeypatch.setattr(webauthn, "verify_authentication_response", lambda **given: verified.append(1) or real(**given))
    known, unknown = device(), device()
    add(ann, known)
    unknown.user_handle, known.key = known.user_handle, unknown.key
    texts = set()
    for key in (known, unknown):
        token, options = _begin_sign_in(ann)
        with pytest.raises(PeopleError) as caught:
            passkey_sign_in.sign_in(origin(), token, key.get(options))
        texts.add((caught.value.code, caught.value.detail))
    assert len(texts) == 1 and len(verified) == 2


def test_options_of_a_sign_in_name_no_credential(ann: Visitor) -> None:
    add(ann, device())
    assert _begin_sign_in(ann)[1]["allowCredentials"] == []


def test_second_step_names_the_credentials_of_its_person_alone(ann: Visitor, bob: Visitor) -> None:
    key = device()
    add(ann, key)
    add(bob, device())
    assert [one["id"] for one in _begin_second_step(ann)[1]["allowCredentials"]] == [as_text(key.credential_id)]


def test_token_of_the_second_step_is_used_once_and_gone_after_wrong_answers(ann: Visitor) -> None:
    key = device()
    add(ann, key)
    token, options = _begin_second_step(ann)
    passkey_sign_in.answer_second_step(origin(), token, key.get(options))
    assert code_of(lambda: passkey_sign_in.begin_second_step(origin(), token)) == "invalid-token"
    token, _ = _begin_second_step(ann)
    for _ in range(limits.TOKEN_ATTEMPTS_MAX):
        assert code_of(lambda: passkey_sign_in.answer_second_step(origin(), token, "{}")) == "passkey-refused"
    assert not PersonToken.objects.filter(kind="challenge").exists()


def test_session_that_is_ended_meanwhile_is_not_authenticated_again(ann: Visitor) -> None:
    key = device()
    add(ann, key)
    session = session_of(ann)
    response = key.get(passkey_sign_in.begin_again(session))
    PersonSession.objects.filter(pk=session.pk).delete()
    with pytest.raises(PeopleError) as refusal:
        passkey_sign_in.authenticate_again(origin(), session, response)
    assert refusal.value.code == "not-signed-in"


def test_attempts_are_counted(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    key = device()
    add(ann, key)
    counted: list[str] = []
    monkeypatch.setattr(rates, "charge", lambda rate, subject: counted.append(rate.name))
    _begin_sign_in(ann)
    with pytest.raises(PeopleError):
        passkey_sign_in.sign_in(origin(), "", "{}")
    assert counted == ["sign_in_per_source"] * 2
    counted.clear()
    with pytest.raises(PeopleError):
        passkey_sign_in.authenticate_again(origin(), session_of(ann), "{}")
    assert counted == ["code_per_person"]
    token, _ = _begin_second_step(ann)
    counted.clear()
    with pytest.raises(PeopleError):
        passkey_sign_in.answer_second_step(origin(), token, "{}")
    assert counted == ["token_per_source", "code_per_person"]


def test_recovery_code_stands_in_for_a_passkey(ann: Visitor) -> None:
    codes = add(ann, device()).recovery_codes
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, "123456")) == (400, "invalid-token")
    assert answer_with(guest, token, codes[0]).status_code == 201


# --- removing ---


def test_recovery_codes_stay_until_the_last_factor_goes(ann: Visitor) -> None:
    _, codes = switch_on(ann)
    passkey = add(ann, device()).passkey
    assert ann.call("DELETE", "/v1/people/me/totp").status_code == 204
    assert audit()[-1] == "second_factor.remove" and RecoveryCode.objects.count() == len(codes)
    assert ann.call("GET", "/v1/people/me").json()["second_factor"] is True
    assert ann.call("DELETE", f"/v1/people/me/passkeys/{passkey.pk}").status_code == 204
    assert audit()[-2:] == ["passkey.remove", "second_factor.off"] and not RecoveryCode.objects.exists()
    assert ann.call("GET", "/v1/people/me").json()["second_factor"] is False


def test_authenticator_is_added_to_a_passkey_and_leaves_the_recovery_codes(ann: Visitor) -> None:
    codes = add(ann, device()).recovery_codes
    _, none = switch_on(ann)
    assert none == [] and RecoveryCode.objects.count() == len(codes)


def test_removed_passkey_signs_in_no_more(ann: Visitor) -> None:
    key = device()
    passkey = add(ann, key).passkey
    token, options = _begin_sign_in(ann)
    ann.call("DELETE", f"/v1/people/me/passkeys/{passkey.pk}")
    assert_refused(CEREMONIES["sign-in"], ann, token, key.get(options))


def test_passkeys_are_listed_and_removed_by_their_person_after_a_recent_sign_in(ann: Visitor, bob: Visitor) -> None:
    passkey = add(ann, device()).passkey
    path = f"/v1/people/me/passkeys/{passkey.pk}"
    listed = ann.call("GET", "/v1/people/me/passkeys").json()["passkeys"]
    assert [(one["passkey_id"], one["name"], one["last_used_at"]) for one in listed] == [
        (str(passkey.pk), "My phone", None)
    ]
    assert bob.call("GET", "/v1/people/me/passkeys").json() == {"passkeys": []}
    assert refused(bob.call("DELETE", path)) == (404, "not-found")
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX))
    assert refused(ann.call("DELETE", path)) == (403, "recent-authentication-required")
    assert refused(Visitor().call("GET", "/v1/people/me/passkeys")) == (401, "not-signed-in")
    assert Passkey.objects.count() == 1


def test_upkeep_and_new_challenges_forget_those_that_expired(ann: Visitor) -> None:
    for _ in range(3):
        _begin_sign_in(ann)
    PasskeyChallenge.objects.update(expires_at=clock.now())
    _begin_sign_in(ann)
    assert PasskeyChallenge.objects.count() == 4 - limits.PASSKEY_CHALLENGES_SWEPT
    forget_expired()
    assert PasskeyChallenge.objects.count() == 1


def test_address_without_https_gives_no_passkeys(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.settings.environment import environment

    changed = environment().model_copy(update={"endpoint": "http://10.0.0.5:9324"})
    monkeypatch.setattr(passkeys, "environment", lambda: changed)
    assert code_of(lambda: passkeys.begin_passkey(session_of(ann))) == "passkeys-not-possible"
    assert code_of(lambda: passkey_sign_in.begin_sign_in(origin())) == "passkeys-not-possible"
