"""Webhooks on pages: made, tested, rotated, deleted by those who may; the secret is in one answer alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from api.alarms.models import MetricAlarm
from api.webhooks.models import CallResult, DeliveryState, Webhook, WebhookDelivery
from tests.console.browsing import Browser, owner, queue_row
from tests.console.test_alarms import make as make_alarm

pytestmark = pytest.mark.django_db
FORM = {"name": "ops", "url": "https://hooks.example.com/T0/hidden-part"}
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


def make(browser: Browser, **given: str) -> str:
    page = browser.at("webhooks")
    return str(browser.post(page, {**FORM, **given}, page).content.decode())


def text_of(browser: Browser, tail: str) -> str:
    return str(browser.get(browser.at(tail)).content.decode())


def test_webhook_is_made_tested_rotated_and_deleted_by_its_pages(ann: Browser) -> None:
    assert "No webhooks yet" in text_of(ann, "webhooks") and "/webhooks" in text_of(ann, "alarms")
    secret = SECRET.search(make(ann))
    assert secret is not None
    for tail in ("webhooks", "webhooks/ops"):
        text = text_of(ann, tail)
        assert "https://hooks.example.com/..." in text and "whsec_" not in text and "hidden-part" not in text
    page = ann.at("webhooks/ops")
    assert ann.post(f"{page}/test", {}, page).status_code == 302
    assert "Pending" in text_of(ann, "webhooks/ops") and "hx-get" in text_of(ann, "webhooks/ops/deliveries")
    WebhookDelivery.objects.update(
        state=DeliveryState.FAILED, result=CallResult.STATUS, status_code=503, latency_ms=9, attempts=1
    )
    text = text_of(ann, "webhooks/ops/deliveries")
    assert "Failed" in text and "answered 503" in text and "hx-get" not in text
    rotated = SECRET.search(ann.post(f"{page}/rotate", {"hours": "24"}, page).content.decode())
    assert rotated is not None and rotated[0] != secret[0] and "the old one also signs" in text_of(ann, "webhooks/ops")
    assert ann.post(f"{page}/delete", {}, page).status_code == 302
    assert not Webhook.objects.exists() and ann.get(page).status_code == 404


def test_alarm_names_webhooks_in_its_form_and_keeps_them(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    make(ann)
    assert make_alarm(ann, webhooks="other") == 400
    assert make_alarm(ann, webhooks="ops") == 302
    assert MetricAlarm.objects.get().webhooks == ["ops"] and "/webhooks/ops" in text_of(ann, "alarm/backlog")
    page = ann.at("webhooks/ops")
    answer = ann.post(f"{page}/delete", {}, page)
    assert answer.status_code == 409 and "backlog" in answer.content.decode() and Webhook.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"url": "http://example.com/"}, "begins with https"), ({"url": "https://127.0.0.1/"}, "public internet"),
        ({"name": "a b"}, "letters"), ({"name": "\0"}, "letters"), ({"url": "https://<script>/"}, "no host name"),
    ],
)  # fmt: skip
def test_webhook_form_comes_back_with_what_was_typed_and_why(ann: Browser, wrong: dict[str, str], says: str) -> None:
    text = make(ann, **wrong)
    assert says in text and "<script>/" not in text and not Webhook.objects.exists()


def test_name_that_is_taken_replaces_no_webhook(ann: Browser) -> None:
    make(ann)
    assert "choose another name" in make(ann, url="https://elsewhere.example.com/")
    assert "hooks.example.com" in Webhook.objects.get().shown_url


def test_reader_sees_webhooks_and_changes_none(ann: Browser, join: Callable[..., Browser]) -> None:
    make(ann)
    reader = join(ann, "reader")
    assert "ops" in text_of(reader, "webhooks") and "Create a webhook" not in text_of(reader, "webhooks")
    text = text_of(reader, "webhooks/ops")
    assert "Send a test" not in text and "Rotate" not in text and "Delete" not in text
    assert reader.post(reader.at("webhooks"), FORM).status_code == 403
    for tail in ("test", "rotate", "delete"):
        assert reader.post(reader.at(f"webhooks/ops/{tail}")).status_code == 403
    assert Webhook.objects.count() == 1 and not WebhookDelivery.objects.exists()


def test_webhooks_of_another_account_are_not_on_pages(ann: Browser) -> None:
    make(ann)
    bob = owner("bob@example.com")
    for browser_path in (bob.at("webhooks/ops"), ann.at("webhooks/ops"), ann.at("webhooks")):
        assert bob.get(browser_path).status_code == 404
    for tail in ("test", "rotate", "delete"):
        assert bob.post(bob.at(f"webhooks/ops/{tail}"), {}).status_code == 404
    assert Webhook.objects.exists() and not WebhookDelivery.objects.exists()
