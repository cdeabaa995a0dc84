"""No token, password, code or secret stands in the database in clear, or in what is logged."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from django.db import connection

from api.people.actions.passkey_sign_in import begin_sign_in
from api.people.origin import RequestOrigin
from tests.api.people.visitor import PASSWORD, Visitor, mailed_token, new_visitor, refused

pytestmark = pytest.mark.django_db


def database_text() -> str:
    """Every row of every table; bytes are shown in hex."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        names = [name for (name,) in cursor.fetchall()]
        ours = {"person", "person_session", "person_token", "person_totp", "passkey_challenge"}
        assert ours | {"audit_entry"} <= set(names)
        rows: list[str] = []
        for name in names:
            cursor.execute(f'SELECT t::text FROM "{name}" AS t')
            rows += [row for (row,) in cursor.fetchall()]
    return "\n".join(rows)


def forms(secret: str) -> set[str]:
    """As text, as hex of the text, and as hex of the bytes that a token or a secret stands for."""
    found = {secret, secret.encode().hex()}
    if secret.startswith("pst"):
        # A part of it is as bad as the whole: 20 characters that follow the prefix.
        found |= {secret[5:25], secret[5:25].encode().hex(), base64.urlsafe_b64decode(secret[5:] + "=").hex()}
    if secret.isupper():
        raw = base64.b32decode(secret)
        found |= {raw.hex(), base64.b64encode(raw).decode(), base64.b64encode(raw).hex()}
    if secret.count("-") == 3:
        found |= {secret.replace("-", ""), secret.replace("-", "").encode().hex()}
    return found


def live_through_everything(ann: Visitor, bob: Visitor) -> list[str]:
    """Leaves rows of all kinds. Returns what must be nowhere in clear."""
    from api.people.totp import code_at

    secrets = [PASSWORD, ann.session_token, bob.session_token]
    guest = new_visitor()
    guest.call("POST", "/v1/people", {"email": "eve@example.com", "password": "password of eve"})
    secrets += ["password of eve", mailed_token("eve@example.com")]
    begun = ann.call("POST", "/v1/people/me/totp").json()
    secrets.append(begun["secret"])
    from api import clock

    code = code_at(base64.b32decode(begun["secret"]), int(clock.now().timestamp()) // 30)
    confirmed = ann.call("POST", "/v1/people/me/totp/confirmation", {"code": code})
    secrets += confirmed.json()["recovery_codes"]
    secrets.append(guest.sign_in(ann.email).json()["challenge_token"])
    secrets.append(begin_sign_in(RequestOrigin(guest.source)).token)
    ann.call("POST", "/v1/people/password-reset", {"email": ann.email})
    secrets.append(mailed_token(ann.email))
    ann.call("POST", f"/v1/accounts/{ann.account_id}/invitations", {"email": bob.email, "role": "reader"})
    secrets.append(mailed_token(bob.email))
    assert refused(guest.sign_in(bob.email, "a wrong password, too"))[0] == 401
    assert refused(guest.call("POST", "/v1/people/confirmation", {"token": secrets[4], "password": "wrong wrong"}))
    return [*secrets, "a wrong password, too"]


def test_secrets_are_neither_stored_nor_logged_in_clear(
    ann: Visitor, bob: Visitor, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = live_through_everything(ann, bob)
    monkeypatch.setattr("api.people.selectors.sessions_of", lambda *_: 1 / 0)
    assert refused(ann.call("GET", "/v1/sessions")) == (500, "internal-failure")
    stored = database_text()
    shown = capfd.readouterr()
    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records) + shown.out + shown.err
    assert "ZeroDivisionError" in logged
    assert len(secrets) == 21
    for secret in secrets:
        for form in forms(secret):
            assert form not in stored, "stored"
            assert form not in logged, "logged"


def test_scan_finds_what_is_stored_in_clear(ann: Visitor) -> None:
    from api.people.models import PersonSession

    PersonSession.objects.update(token_hash=base64.urlsafe_b64decode(ann.session_token[5:] + "="))
    stored = database_text()
    assert any(form in stored for form in forms(ann.session_token))
    PersonSession.objects.update(user_agent=ann.session_token)
    assert ann.session_token in database_text()


def test_attempts_do_not_name_who_was_tried(visitor: Visitor) -> None:
    visitor.sign_in("stranger@example.com")
    assert "stranger" not in database_text() and b"stranger".hex() not in database_text()
