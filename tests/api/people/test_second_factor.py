"""The second factor: authenticator codes, recovery codes, the two steps of a sign-in."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from api import clock
from api.people import limits, rates
from api.people.models import PersonSession, PersonToken, RecoveryCode, TotpFactor
from api.people.totp import code_at, matching_step, otpauth_url, secret_text
from tests.api.people.visitor import PASSWORD, Visitor, audit, new_visitor, refused

pytestmark = pytest.mark.django_db
# RFC 6238, appendix B, SHA-1; the last six of the eight digits.
SECRET = b"12345678901234567890"
VECTORS = {
    59: "287082",
    1111111109: "081804",
    1111111111: "050471",
    1234567890: "005924",
    2000000000: "279037",
    20000000000: "353130",
}


class Authenticator:
    """The person's application. Steps count from now on, so that no code is asked for twice."""

    def __init__(self, secret: str) -> None:
        self.secret = base64.b32decode(secret)

    def code(self, after_steps: int = 0) -> str:
        return code_at(self.secret, int(clock.now().timestamp()) // limits.TOTP_STEP_S + after_steps)


def switch_on(who: Visitor) -> tuple[Authenticator, list[str]]:
    """The code of the step before is used up with it."""
    begun = who.call("POST", "/v1/people/me/totp")
    assert begun.status_code == 201, begun.content
    authenticator = Authenticator(begun.json()["secret"])
    confirmed = who.call("POST", "/v1/people/me/totp/confirmation", {"code": authenticator.code(-1)})
    assert confirmed.status_code == 200, confirmed.content
    return authenticator, confirmed.json()["recovery_codes"]


def challenged(email: str) -> tuple[Visitor, str]:
    guest = new_visitor()
    answer = guest.sign_in(email)
    assert answer.status_code == 202 and set(answer.json()) == {"challenge_token"}
    return guest, answer.json()["challenge_token"]


def answer_with(guest: Visitor, token: str, code: str) -> Any:
    return guest.call("POST", "/v1/session/challenge", {"challenge_token": token, "code": code})


@pytest.mark.parametrize(("now_s", "code"), VECTORS.items())
def test_code_is_that_of_the_standard(now_s: int, code: str) -> None:
    assert code_at(SECRET, now_s // 30) == code
    assert matching_step(SECRET, code, now_s, 0) == now_s // 30


@pytest.mark.parametrize(("steps", "accepted"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_code_drifts_by_one_step(steps: int, accepted: bool) -> None:
    found = matching_step(SECRET, code_at(SECRET, 1000 + steps), 30_000, 0)
    assert found == (1000 + steps if accepted else None)


@pytest.mark.parametrize(("last_step", "accepted"), [(999, True), (1000, False), (1001, False)])
def test_used_step_and_those_before_are_refused(last_step: int, accepted: bool) -> None:
    assert (matching_step(SECRET, code_at(SECRET, 1000), 30_000, last_step) is not None) == accepted


def test_application_gets_the_secret_as_it_reads_it() -> None:
    assert base64.b32decode(secret_text(SECRET)) == SECRET
    url = otpauth_url(SECRET, "a+b@example.com")
    expected = f"otpauth://totp/Penstock:a%2Bb@example.com?secret={secret_text(SECRET)}&issuer=Penstock"
    assert url == expected + "&digits=6&period=30"


def test_sign_in_is_two_steps_once_the_factor_is_on(ann: Visitor) -> None:
    ann.call("POST", "/v1/people/me/totp")
    assert new_visitor().sign_in(ann.email).status_code == 201  # begun, not confirmed
    authenticator, codes = switch_on(ann)
    assert len(set(codes)) == limits.RECOVERY_CODES
    assert ann.call("GET", "/v1/people/me").json()["second_factor"] is True
    guest, token = challenged(ann.email)
    assert refused(Visitor(session_token=token).call("GET", "/v1/session")) == (401, "not-signed-in")
    answer = answer_with(guest, token, authenticator.code())
    assert answer.status_code == 201
    guest.session_token = answer.json()["session_token"]
    assert guest.call("GET", "/v1/session").status_code == 200
    assert audit()[-3:] == ["second_factor.begin", "second_factor.on", "session.begin"]


def test_code_and_challenge_are_used_once(ann: Visitor) -> None:
    authenticator, _ = switch_on(ann)
    guest, token = challenged(ann.email)
    code = authenticator.code()
    assert answer_with(guest, token, code).status_code == 201
    assert refused(answer_with(guest, token, authenticator.code(1))) == (400, "invalid-token")
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, code)) == (400, "invalid-token")
    assert answer_with(guest, token, authenticator.code(1)).status_code == 201


def test_recovery_code_is_used_once_however_it_is_written(ann: Visitor) -> None:
    _, codes = switch_on(ann)
    guest, token = challenged(ann.email)
    assert answer_with(guest, token, codes[0].replace("-", "").upper()).status_code == 201
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, codes[0])) == (400, "invalid-token")
    assert answer_with(guest, token, codes[1]).status_code == 201
    assert RecoveryCode.objects.count() == limits.RECOVERY_CODES - 2


def test_codes_of_another_person_open_nothing(ann: Visitor, bob: Visitor) -> None:
    _, codes = switch_on(ann)
    others, other_codes = switch_on(bob)
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, other_codes[0])) == (400, "invalid-token")
    assert refused(answer_with(guest, token, others.code())) == (400, "invalid-token")
    assert answer_with(guest, token, codes[0]).status_code == 201


def test_stored_hash_of_a_recovery_code_says_whose_it_is() -> None:
    from api.people.tokens import hash_recovery_code

    assert hash_recovery_code("a", "x" * 16) != hash_recovery_code("b", "x" * 16)


def test_sealed_secret_opens_for_its_person_only(ann: Visitor, bob: Visitor) -> None:
    from api.people.actions.factors import _open
    from api.people.models import Person
    from frontend.crypto.keyring import KeyringError

    authenticator, _ = switch_on(ann)
    factor = TotpFactor.objects.get()
    assert _open(Person.objects.get(pk=ann.person_id), factor) == authenticator.secret
    with pytest.raises(KeyringError):
        _open(Person.objects.get(pk=bob.person_id), factor)


@pytest.mark.parametrize("code", ["000000", "12345", "1234567", "١٢٣٤٥٦", "x", "aaaa-aaaa-aaaa-aaaa"])
def test_wrong_code_is_refused(ann: Visitor, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_on(ann)
    monkeypatch.setattr("api.people.totp.code_at", lambda secret, step: "999999")
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, code)) == (400, "invalid-token")


def test_challenge_is_gone_after_too_many_wrong_codes(ann: Visitor) -> None:
    authenticator, _ = switch_on(ann)
    guest, token = challenged(ann.email)
    for _ in range(limits.TOKEN_ATTEMPTS_MAX - 1):
        answer_with(guest, token, "x")
    assert PersonToken.objects.get().attempts == limits.TOKEN_ATTEMPTS_MAX - 1
    answer_with(guest, token, "x")
    assert refused(answer_with(guest, token, authenticator.code())) == (400, "invalid-token")


@pytest.mark.parametrize(("left_s", "status"), [(60, 201), (0, 400)])
def test_challenge_expires(ann: Visitor, left_s: int, status: int) -> None:
    authenticator, _ = switch_on(ann)
    guest, token = challenged(ann.email)
    PersonToken.objects.update(expires_at=clock.now() + timedelta(seconds=left_s))
    assert answer_with(guest, token, authenticator.code()).status_code == status


def test_codes_are_limited_per_person_over_all_challenges(ann: Visitor) -> None:
    authenticator, _ = switch_on(ann)
    for _ in range(rates.CODE_PER_PERSON.burst - 1):
        rates.charge(rates.CODE_PER_PERSON, ann.person_id)
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, authenticator.code())) == (429, "too-many-attempts")


def test_changing_the_factor_wants_a_recent_authentication_with_a_code(ann: Visitor) -> None:
    authenticator, codes = switch_on(ann)
    old = clock.now() - timedelta(seconds=limits.RECENT_AUTHENTICATION_S_MAX)
    PersonSession.objects.update(authenticated_at=old)
    for method, path in (
        ("POST", "/v1/people/me/totp"),
        ("DELETE", "/v1/people/me/totp"),
        ("POST", "/v1/people/me/recovery-codes"),
    ):
        assert refused(ann.call(method, path)) == (403, "recent-authentication-required"), path
    confirmation = ann.call("POST", "/v1/people/me/totp/confirmation", {"code": "123456"})
    assert refused(confirmation) == (403, "recent-authentication-required")
    for payload in (
        {"password": PASSWORD},
        {"password": PASSWORD, "code": "x"},
        {"password": "wrong wrong wrong", "code": codes[0]},
    ):
        assert refused(ann.call("POST", "/v1/session/authentication", payload)) == (401, "sign-in-refused")
    payload = {"password": PASSWORD, "code": authenticator.code()}
    assert ann.call("POST", "/v1/session/authentication", payload).status_code == 200
    assert ann.call("DELETE", "/v1/people/me/totp").status_code == 204


def test_factor_is_switched_off_with_its_recovery_codes(ann: Visitor, django_capture_on_commit_callbacks: Any) -> None:
    switch_on(ann)
    _, token = challenged(ann.email)
    mail.outbox.clear()
    with django_capture_on_commit_callbacks(execute=True):
        assert ann.call("DELETE", "/v1/people/me/totp").status_code == 204
    assert [one.subject for one in mail.outbox] == ["A security setting was changed"]
    assert not RecoveryCode.objects.exists()
    assert refused(answer_with(new_visitor(), token, "x")) == (400, "invalid-token")
    assert new_visitor().sign_in(ann.email).status_code == 201
    assert refused(ann.call("DELETE", "/v1/people/me/totp")) == (409, "second-factor-off")
    assert refused(ann.call("POST", "/v1/people/me/recovery-codes")) == (409, "second-factor-off")


def test_factor_that_is_on_is_not_begun_again(ann: Visitor) -> None:
    authenticator, _ = switch_on(ann)
    assert refused(ann.call("POST", "/v1/people/me/totp")) == (409, "second-factor-on")
    confirm = ann.call("POST", "/v1/people/me/totp/confirmation", {"code": authenticator.code()})
    assert refused(confirm) == (409, "second-factor-on")


def test_confirmation_wants_a_code_of_the_latest_secret(ann: Visitor) -> None:
    first = Authenticator(ann.call("POST", "/v1/people/me/totp").json()["secret"])
    second = Authenticator(ann.call("POST", "/v1/people/me/totp").json()["secret"])
    confirm = "/v1/people/me/totp/confirmation"
    assert refused(ann.call("POST", confirm, {"code": first.code()})) == (403, "access-denied")
    assert TotpFactor.objects.get().confirmed_at is None
    assert ann.call("POST", confirm, {"code": second.code()}).status_code == 200


def test_new_recovery_codes_void_those_before(ann: Visitor) -> None:
    _, codes = switch_on(ann)
    renewed = ann.call("POST", "/v1/people/me/recovery-codes").json()["recovery_codes"]
    guest, token = challenged(ann.email)
    assert refused(answer_with(guest, token, codes[0])) == (400, "invalid-token")
    assert answer_with(guest, token, renewed[0]).status_code == 201


def test_password_reset_leaves_the_factor_on(ann: Visitor) -> None:
    from tests.api.people.visitor import mailed_token

    switch_on(ann)
    ann.call("POST", "/v1/people/password-reset", {"email": ann.email})
    payload = {"token": mailed_token(ann.email), "new_password": "an entirely new one"}
    assert ann.call("POST", "/v1/people/password", payload).status_code == 204
    assert new_visitor().sign_in(ann.email, "an entirely new one").status_code == 202
