"""Idempotency keys of people: what they do in their accounts is done once, what is about credentials takes no key."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.core import mail

from api.idempotency.models import IdempotentOutcome
from api.people import rates
from api.people.models import Invitation
from tests.api.people.visitor import PASSWORD, Visitor, refused

pytestmark = pytest.mark.django_db(transaction=True)

HEADERS = {"Idempotency-Key": '"once"'}


def invite(who: Visitor, email: str = "new@example.com", role: str = "reader") -> Any:
    path = f"/v1/accounts/{who.account_id}/invitations"
    return who.call("POST", path, {"email": email, "role": role}, **HEADERS)


def test_repeated_invitation_is_mailed_once(ann: Visitor) -> None:
    mail.outbox.clear()
    first, again = invite(ann), invite(ann)
    assert first.status_code == 201 and first.content == again.content
    assert again["Idempotent-Replayed"] == "true" and again["Cache-Control"] == "no-store"
    assert [one.to for one in mail.outbox] == [["new@example.com"]]
    assert Invitation.objects.count() == 1
    assert refused(invite(ann, "other@example.com")) == (422, "idempotency-key-reused")


def test_same_key_of_another_person_is_another_key(ann: Visitor, bob: Visitor) -> None:
    assert invite(ann).status_code == 201
    other = invite(bob)
    assert other.status_code == 201 and not other.has_header("Idempotent-Replayed")


def test_repetition_needs_a_session(ann: Visitor) -> None:
    assert invite(ann).status_code == 201
    assert ann.call("DELETE", "/v1/session").status_code == 204
    assert refused(invite(ann)) == (401, "not-signed-in")


def test_attempts_of_refused_requests_with_a_key_are_counted(ann: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal must not undo the count of attempts: tokens could be guessed without end."""
    monkeypatch.setattr(rates, "TOKEN_PER_SOURCE", rates.Rate("few_tokens", 2, 60))
    content = {"token": "psti_" + "A" * 43}
    answers = [ann.call("POST", "/v1/invitations/acceptance", content, **HEADERS) for _ in range(3)]
    assert [refused(answer)[0] for answer in answers] == [400, 400, 429]
    assert not IdempotentOutcome.objects.exists()


@pytest.mark.parametrize(
    "path, content",
    [
        ("/v1/people", {"email": "new@example.com", "password": PASSWORD}),
        ("/v1/people/password-reset", {"email": "ann@example.com"}),
        ("/v1/session", {"email": "ann@example.com", "password": PASSWORD}),
        ("/v1/session/authentication", {"password": PASSWORD, "code": ""}),
        ("/v1/people/me/totp", {}),
    ],
)
def test_credentials_take_no_key(ann: Visitor, path: str, content: dict[str, str]) -> None:
    answer = ann.call("POST", path, content, **{"Idempotency-Key": f'"{uuid.uuid4()}"'})
    assert refused(answer) == (400, "invalid-request")
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/Idempotency-Key"]
    assert not IdempotentOutcome.objects.exists()
