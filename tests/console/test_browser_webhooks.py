"""Webhooks in a real browser: created, tested against a receiver that checks signatures, named by an alarm, deleted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.pictures import PHONE, account_of, browsing, link_of, new_account, open_link, url_of
from tests.console.test_accessibility import MARK_ANSWERED, wrong
from tests.console.variants import DESKTOP_LIGHT, PHONE_LIGHT, flow
from tests.console.window import Window
from tests.support.installation import RunningInstallation
from tests.support.webhook_receiver import WebhookReceiver, documented_check

pytestmark = pytest.mark.slow
OK, RECEIVER_FAILS = 200, 503


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@flow(PHONE_LIGHT)
def test_person_creates_a_webhook_and_tests_it_against_a_receiver(
    browser: Any, installation: RunningInstallation, webhook_receiver: WebhookReceiver
) -> None:
    webhook_receiver.status, webhook_receiver.calls = OK, []
    window = Window(browser, installation, reduced_motion="reduce")
    window.context.add_init_script(MARK_ANSWERED)
    page, name = window.page, f"ops-{uuid.uuid4().hex[:8]}"
    page.on("dialog", lambda dialog: dialog.accept())
    open_link(page, link_of(installation, "--account", new_account(installation, "called")))
    alarms = url_of(installation, f"/console/a/{account_of(page)}/alarms")
    secret = create(page, alarms, name, webhook_receiver.url)
    with webhook_receiver.serving():
        page.get_by_role("button", name="Send a test").click()
        window.see("answered 200")
        webhook_receiver.status = RECEIVER_FAILS
        page.get_by_role("button", name="Send a test").click()
        window.see(f"answered {RECEIVER_FAILS}")
    assert page.locator("#deliveries tbody tr").first.get_by_text("Failed").count() == 1, "a test is called once"
    received, _ = webhook_receiver.calls
    is_genuine = documented_check()
    assert is_genuine(secret, received.headers, received.body)
    assert not is_genuine(secret, received.headers, received.body + b" ")
    assert json.loads(received.body)["type"] == "webhook.test"
    assert page.locator("code", has_text="whsec_").count() == 0, "the secret was on the first page alone"
    assert wrong(page) == []
    page.set_viewport_size(PHONE)
    assert window.fits()
    window.close()


def create(page: Any, alarms: str, name: str, url: str) -> str:
    """From the page of alarms. The secret, as it is shown."""
    page.goto(alarms)
    page.get_by_role("link", name="Webhooks").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("URL", exact=True).fill(url)
    page.get_by_role("button", name="Create a webhook").click()
    secret: str = page.locator("code", has_text="whsec_").inner_text()
    assert wrong(page) == [], "the page with the secret"
    return secret


@flow(DESKTOP_LIGHT)
def test_alarm_names_a_webhook_is_muted_and_lets_it_go_when_it_is_deleted(
    browser: Any, installation: RunningInstallation, webhook_receiver: WebhookReceiver
) -> None:
    window = Window(browser, installation, reduced_motion="reduce")
    window.context.add_init_script(MARK_ANSWERED)
    page, name = window.page, f"ops-{uuid.uuid4().hex[:8]}"
    page.on("dialog", lambda dialog: dialog.accept())
    queue, _ = installation.new_queue()
    open_link(page, link_of(installation, "--account", "tests"))
    alarms = url_of(installation, f"/console/a/{account_of(page)}/alarms")
    create(page, alarms, name, webhook_receiver.url)
    page.goto(f"{alarms}/new?queue={queue}")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Threshold").fill("100")
    page.get_by_label("Webhooks").fill(name)
    page.get_by_role("button", name="Create the alarm").click()
    window.see("The alarm is created.")
    page.get_by_role("button", name="Mute", exact=True).click()
    window.see("No notifications are sent until then.")
    page.get_by_role("link", name=name, exact=True).click()
    window.see("Last deliveries")  # the page before has a button of that name, too
    page.get_by_role("button", name="Delete", exact=True).click()
    window.see("Change these alarms, then delete the webhook.")
    page.goto(f"{alarms.removesuffix('s')}/{name}")
    page.get_by_role("button", name="Delete", exact=True).click()
    window.see(f"The alarm {name} is deleted.")
    page.goto(f"{alarms.removesuffix('alarms')}webhooks/{name}")
    page.get_by_role("button", name="Delete", exact=True).click()
    window.see(f"The webhook {name} is deleted.")
    window.close()
