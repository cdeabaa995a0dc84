"""A browser that loads the answer of a form again sends the form again: what shows a secret is carried out once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from api.accounts.models import AccessKey
from api.audit.models import AuditEntry
from api.idempotency.models import IdempotentOutcome
from api.webhooks.models import Webhook
from console.pages import page_above
from tests.console.browsing import Browser, owner
from tests.console.test_access import make_key

pytestmark = pytest.mark.django_db
HOOK = {"name": "ops", "url": "https://hooks.example.com/T0"}


def sent_twice(browser: Browser, path: str, form: dict[str, Any], page: str) -> tuple[str, str]:
    """The text of the answer, and what the page says to which the repetition leads."""
    given = {**form, **browser.token(page)}
    first, again = (browser.client.post(path, given, REMOTE_ADDR=browser.source) for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 302), again.content
    return first.content.decode(), browser.get(again["Location"]).content.decode()


def count_done(action: str) -> int:
    return AuditEntry.objects.filter(action=action).count()


def test_new_key_that_is_loaded_again_makes_no_other_key(ann: Browser) -> None:
    shown, told = sent_twice(ann, ann.at("keys/new"), {"name": "worker"}, ann.at("keys"))
    key = AccessKey.objects.get(account_id=ann.account_id, name="worker")
    token = re.search(r"pstk_[A-Za-z0-9_-]+", shown)
    assert token is not None and "Your new key" in shown
    assert f"The key {key.access_key_id} was created already" in told and "pstk_" not in told
    kept = IdempotentOutcome.objects.get()
    for secret in (token[0], key.access_key_id):
        assert secret.encode() not in bytes(kept.sealed), "neither the secret nor the name is kept in plain"
    assert len(kept.sealed) < len(token[0]) + 50, "no secret is kept, sealed or not"
    ann.post(ann.at("keys/new"), {"name": "worker"}, ann.at("keys"))
    assert AccessKey.objects.filter(account_id=ann.account_id, name="worker").count() == 2, "another form, another key"


def test_form_that_was_refused_is_sent_again(ann: Browser) -> None:
    given = ann.token(ann.at("keys"))
    for name, status in (("", 400), ("worker", 200)):
        answer = ann.client.post(ann.at("keys/new"), {"name": name, **given}, REMOTE_ADDR=ann.source)
        assert answer.status_code == status
    assert AccessKey.objects.filter(account_id=ann.account_id, name="worker").count() == 1


def test_form_without_its_id_creates_nothing(ann: Browser) -> None:
    given = {name: value for name, value in ann.token(ann.at("keys")).items() if name != "form_id"}
    for form_id in ({}, {"form_id": ""}, {"form_id": "\0"}, {"form_id": "x" * 256}):
        answer = ann.client.post(ann.at("keys/new"), {"name": "w", **given, **form_id}, REMOTE_ADDR=ann.source)
        assert answer.status_code == 400 and "Load the page again" in answer.content.decode()
    assert not AccessKey.objects.filter(account_id=ann.account_id, name="w").exists()


def test_id_of_a_form_is_of_its_person(ann: Browser) -> None:
    bob = owner("bob@example.com")
    form_id = ann.token(ann.at("keys"))["form_id"]
    for browser in (ann, bob):
        given = {"name": "worker", **browser.token(browser.at("keys")), "form_id": form_id}
        assert browser.client.post(browser.at("keys/new"), given, REMOTE_ADDR=browser.source).status_code == 200


def test_rotation_that_is_loaded_again_rotates_nothing(ann: Browser) -> None:
    page = ann.at(f"keys/{make_key(ann).access_key_id}")
    _, told = sent_twice(ann, f"{page}/rotate", {"hours": "1"}, page)
    assert "was created already" in told and count_done("key.rotate") == 1


def test_webhook_and_its_rotation_that_are_loaded_again_change_nothing(ann: Browser) -> None:
    page = ann.at("webhooks")
    shown, told = sent_twice(ann, page, HOOK, page)
    assert "whsec_" in shown and "The webhook ops was created already" in told
    assert Webhook.objects.count() == count_done("webhook.put") == 1
    shown, told = sent_twice(ann, f"{page}/ops/rotate", {"hours": "0"}, f"{page}/ops")
    assert "whsec_" in shown and "rotated already" in told and count_done("webhook.rotate") == 1


def test_recovery_codes_that_are_loaded_again_stay_as_they_are(ann: Browser) -> None:
    import base64
    import time

    from api.people.totp import code_at

    secret = re.search(r"<code>([A-Z2-7 ]+)</code>", ann.post("/console/me/totp").content.decode())
    assert secret is not None
    padded = secret[1].replace(" ", "")
    key = base64.b32decode(padded + "=" * (-len(padded) % 8))
    form = {"code": code_at(key, int(time.time()) // 30), "secret": secret[1]}
    _, told = sent_twice(ann, "/console/me/totp/confirm", form, "/console/me")
    assert "The authenticator was added already" in told
    shown, told = sent_twice(ann, "/console/me/totp/codes", {}, "/console/me")
    assert "Recovery codes" in shown and "were created already" in told
    assert count_done("second_factor.renew_recovery_codes") == 1


@pytest.mark.parametrize(
    ("tail", "page"),
    [
        ("keys/new", "keys"), ("keys/AKPS/rotate", "keys/AKPS"), ("webhooks/ops/rotate", "webhooks/ops"),
        ("people/invite", "people"), ("queues/orders/schedules/hourly/pause", "queues/orders/schedules"),
        ("queues/orders/messages/delete", "queues/orders/messages"), ("close", ""),
    ],
)  # fmt: skip
def test_address_of_a_form_leads_to_its_page(ann: Browser, tail: str, page: str) -> None:
    answer = ann.get(ann.at(tail))
    assert (answer.status_code, answer["Location"]) == (302, ann.at(page))
    assert ann.client.options(ann.at(tail)).status_code == 405


def test_addresses_of_a_person_lead_to_pages() -> None:
    for path in ("/console/me/totp/codes", "/console/me/totp/confirm", "/console/me/passkeys"):
        assert page_above(path) == "/console/me"
    assert page_above("/console/sign-out") == "/console/"
    assert page_above("/console/operators/nodes/1/drain") == "/console/operators/"
    assert page_above("/elsewhere/form") == "/console/"
