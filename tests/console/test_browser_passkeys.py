"""Passkeys in a real browser, which holds a virtual device: added, then signed in with, by a button alone."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.pictures import PASSWORD, browsing, by_name, link_of, new_account, open_link, with_device
from tests.console.test_accessibility import MARK_ANSWERED, wrong
from tests.console.variants import DESKTOP_DARK, PHONE_DARK, PHONE_LIGHT, flow
from tests.console.window import Window
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


class LocalName:
    """The installation under the name that browsers give passkeys to."""

    def __init__(self, installation: RunningInstallation) -> None:
        self.key = {"endpoint": by_name(installation.key["endpoint"])}


@flow(PHONE_DARK)
def test_person_adds_a_passkey_and_signs_in_with_it_alone(browser: Any, installation: RunningInstallation) -> None:
    window = Window(browser, LocalName(installation), reduced_motion="reduce")
    window.context.add_init_script(MARK_ANSWERED)
    page = window.page
    tools, device = with_device(page)
    page.on("dialog", lambda dialog: dialog.accept())
    account = new_account(installation, f"passkeys-{uuid.uuid4().hex[:8]}")
    open_link(page, by_name(link_of(installation, "--account", account)))
    page.goto(f"{window.endpoint}/console/me")
    page.get_by_label("Name", exact=True).fill("This computer")
    page.get_by_role("button", name="Add a passkey").click()
    window.see("Recovery codes")
    window.see("This computer")
    assert wrong(page) == [], "passkeys and recovery codes"
    page.get_by_label("Name", exact=True).fill("Once more")
    page.get_by_role("button", name="Add a passkey").click()
    window.see("This device holds a passkey of yours already.")
    held = tools.send("WebAuthn.getCredentials", {"authenticatorId": device})["credentials"]
    assert [(one["rpId"], one["isResidentCredential"]) for one in held] == [("localhost", True)]
    window.sign_out()
    window.see("You are signed out.")
    page.get_by_role("button", name="Sign in with a passkey").wait_for()
    assert wrong(page) == [], "the button of passkeys"
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(re.compile(r"/console/a/[0-9]+/$"))
    page.goto(f"{window.endpoint}/console/me")
    page.get_by_role("button", name="Remove the passkey This computer").click()
    window.see("The passkey is removed.")
    window.sign_out()
    page.get_by_role("button", name="Sign in with a passkey").click()
    window.see("The passkey was not accepted.")
    window.close()


@flow(DESKTOP_DARK)
def test_page_under_another_name_leads_to_the_one_that_has_passkeys(
    browser: Any, installation: RunningInstallation
) -> None:
    window = Window(browser, installation)
    window.page.goto(f"{window.endpoint}/console/sign-in")
    link = window.page.get_by_role("link", name=by_name(window.endpoint))
    link.wait_for()
    assert not window.page.get_by_role("button", name="Sign in with a passkey").is_visible()
    assert link.get_attribute("href") == f"{by_name(window.endpoint)}/console/"
    window.close()


@flow(PHONE_LIGHT)
def test_person_without_a_device_reads_what_happened(browser: Any, installation: RunningInstallation) -> None:
    window = Window(browser, LocalName(installation))
    tools, device = with_device(window.page)
    tools.send("WebAuthn.setUserVerified", {"authenticatorId": device, "isUserVerified": False})
    window.page.goto(f"{window.endpoint}/console/sign-in")
    window.page.get_by_role("button", name="Sign in with a passkey").click()
    window.see("Nothing was signed")
    window.page.get_by_label("E-mail address").fill("nobody@example.com")
    window.page.get_by_label("Password").fill(PASSWORD)
    window.close()
