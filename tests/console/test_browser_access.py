"""Access in a real browser: people who are invited and join, groups, keys that are rotated, encryption keys, the second
factor, a new password, the closing of an account."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from api.people.limits import TOTP_STEP_S
from api.people.totp import code_at
from tests.console.pictures import PASSWORD, PHONE, account_of
from tests.console.serving import ServedPages, mailed_path
from tests.console.variants import DESKTOP_DARK, DESKTOP_LIGHT, PHONE_DARK, PHONE_LIGHT, flow
from tests.console.window import Window

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
BOB = "bob@example.com"


@pytest.fixture
def owner(served: ServedPages, browser_beside_rows: Any) -> Iterator[Window]:
    """The window of the account's owner."""
    window = Window(browser_beside_rows, served)
    window.page.on("dialog", lambda dialog: dialog.accept())
    served.enter(window.page, served.owner_link)
    yield window
    window.close()


def sign_up(window: Window, served: ServedPages, email: str) -> None:
    page = window.page
    page.goto(served.at("sign-up"))
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign up").click()
    window.see("Check your mail")
    page.goto(served.at(mailed_path(email)))
    page.get_by_label("Password that you chose").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url(re.compile(r"/console/a/[0-9]+/$"))


def sign_in(page: Any, served: ServedPages, email: str, password: str = PASSWORD) -> None:
    page.goto(served.at("sign-in"))
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


@flow(DESKTOP_DARK)
def test_person_is_invited_joins_gets_a_policy_through_a_group_and_leaves(served: ServedPages, owner: Window) -> None:
    page = owner.page
    page.goto(served.of_account("new-policy?start=watch"))
    page.get_by_label("Name", exact=True).fill("watch")
    page.get_by_role("button", name="Create the policy").click()
    owner.see("The policy watch is created.")
    page.goto(served.of_account("people"))
    page.get_by_label("E-mail address").fill(BOB)
    page.locator("section", has_text="Send the invitation").get_by_label("Role").select_option("reader")
    page.get_by_role("button", name="Send the invitation").click()
    owner.see(f"An invitation is on its way to {BOB}.")
    invitation = mailed_path(BOB)
    guest = Window(owner.context.browser, served)
    sign_up(guest, served, BOB)
    guest.page.goto(served.at(invitation))
    guest.page.get_by_role("button", name="Accept").click()
    guest.see("You are a member of this account now, as reader.")
    assert account_of(guest.page) == served.account_id
    assert guest.page.get_by_role("link", name="New queue").count() == 0
    page.goto(served.of_account("groups"))
    page.get_by_label("Name", exact=True).fill("on-call")
    page.get_by_role("button", name="Create a group").click()
    owner.see("The group on-call is created.")
    page.get_by_label("Person").select_option(label=BOB)
    page.get_by_role("button", name="Add", exact=True).click()
    owner.see("The person is in the group, and has its policies.")
    page.get_by_label("Policy").select_option("watch")
    page.get_by_role("button", name="Attach").click()
    owner.see("All members of the group have the policy.")
    page.goto(served.of_account("people"))
    page.get_by_label(f"Role of {BOB}").select_option("developer")
    page.locator("tr", has_text=BOB).get_by_role("button", name="Change").click()
    page.locator("tr", has_text=BOB).get_by_role("link", name=BOB).click()
    owner.see("Developer, joined")
    page.get_by_role("link", name="on-call").wait_for()
    page.set_viewport_size(PHONE)
    assert owner.fits()
    guest.page.goto(served.of_account())
    guest.page.get_by_role("link", name="New queue").first.wait_for()
    guest.page.on("dialog", lambda dialog: dialog.accept())
    guest.page.goto(served.of_account("people"))
    guest.page.get_by_role("button", name="Leave").click()
    guest.see("You have left the account.")
    guest.close()


@flow(PHONE_LIGHT)
def test_key_is_rotated_and_what_it_was_is_in_the_audit_log(served: ServedPages, owner: Window) -> None:
    page = owner.page
    page.goto(served.of_account("keys"))
    page.get_by_label("Name", exact=True).fill("worker")
    page.get_by_label("Valid for").select_option("90 days")
    page.get_by_role("button", name="Create a key").click()
    first = page.locator("code", has_text=re.compile("^pstk_")).inner_text()
    page.get_by_role("link", name="worker", exact=True).click()
    page.get_by_label("The old key expires").select_option("24")
    page.get_by_role("button", name="Rotate the key").click()
    owner.see("The old key,")
    assert page.locator("code", has_text=re.compile("^pstk_")).inner_text() != first
    assert page.locator("tbody tr", has_text="worker").count() == 2
    owner.choose("Audit log")
    page.get_by_label("Action begins with").fill("key.rotate")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**action=key.rotate**")
    assert page.locator("tbody tr").count() == 1


# Clicks twice, and counts how often the form would be sent. Nothing is sent.
_CLICKED_TWICE = """
() => {
    let sent = 0;
    addEventListener("submit", (event) => { if (!event.defaultPrevented) { sent += 1; event.preventDefault(); } });
    const button = document.querySelector("form[action$=new] button");
    button.click();
    button.click();
    return sent;
}
"""


@flow(DESKTOP_DARK)
def test_form_is_sent_once_however_often_it_is_clicked(served: ServedPages, owner: Window) -> None:
    page = owner.page
    page.goto(served.of_account("keys"))
    page.get_by_label("Name", exact=True).fill("hasty")
    assert page.evaluate(_CLICKED_TWICE) == 1


@flow(DESKTOP_LIGHT)
def test_encryption_key_is_created_rotated_disabled_and_its_deletion_cancelled(
    served: ServedPages, owner: Window
) -> None:
    page = owner.page
    page.goto(served.of_account("encryption-keys"))
    page.get_by_label("Name", exact=True).fill("payments")
    page.get_by_label("Description").fill("Cards")
    page.get_by_role("button", name="Create a key").click()
    owner.see("The key payments is created.")
    page.get_by_role("button", name="Rotate", exact=True).click()
    owner.see("A new version seals from now on.")
    page.get_by_role("button", name="Disable").click()
    owner.see("neither take nor give messages.")
    page.get_by_role("button", name="Enable").click()
    owner.see("take and give messages again.")
    page.locator("button:disabled", has_text="Schedule the deletion").wait_for()
    page.get_by_label("Type payments to confirm").fill("payments")
    page.get_by_role("button", name="Schedule the deletion").click()
    owner.see("The deletion is scheduled.")
    page.get_by_role("button", name="Cancel the deletion").click()
    owner.see("The deletion is cancelled.")


@flow(PHONE_DARK)
def test_second_factor_is_set_up_and_asked_for_and_a_new_password_comes_by_mail(
    served: ServedPages, browser_beside_rows: Any
) -> None:
    window = Window(browser_beside_rows, served)
    page = window.page
    sign_up(window, served, BOB)
    page.goto(served.at("me"))
    page.get_by_role("button", name="Set up an authenticator").click()
    secret = page.locator("form[action$=confirm] input[name=secret]").get_attribute("value")
    raw = base64.b32decode(secret + "=" * (-len(secret) % 8))
    page.get_by_label("Code", exact=True).fill(code_at(raw, int(time.time()) // TOTP_STEP_S))
    page.get_by_role("button", name="Switch it on").click()
    window.see("Recovery codes")
    recovery = page.locator(".shown-once pre").inner_text().split()
    window.sign_out()
    sign_in(page, served, BOB)
    page.get_by_label("Code of your authenticator").fill("000000")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("alert").first.wait_for()
    page.get_by_label("Code of your authenticator").fill(recovery[0])
    page.get_by_role("button", name="Continue").click()
    window.sign_out()
    page.get_by_role("link", name="Forgot your password?").click()
    page.get_by_label("E-mail address").fill(BOB)
    page.get_by_role("button", name="Send a mail").click()
    window.see("Check your mail")
    page.goto(served.at(mailed_path(BOB)))
    page.get_by_label("New password").fill(f"{PASSWORD} two")
    page.get_by_role("button", name="Change the password").click()
    window.see("The password is changed")
    sign_in(page, served, BOB, f"{PASSWORD} two")
    page.get_by_label("Code of your authenticator").fill(recovery[1])
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(re.compile(r"/console/a/[0-9]+/$"))
    window.close()


@flow(PHONE_DARK)
def test_deleted_queue_is_kept_for_days_and_restored_under_another_name(served: ServedPages, owner: Window) -> None:
    page = owner.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(served.of_account("settings"))
    page.get_by_label("Keep deleted queues for, in days").fill("7")
    page.get_by_role("button", name="Save").click()
    owner.see("The settings are changed.")
    page.goto(served.of_account("new-queue"))
    page.get_by_label("Name", exact=True).fill("imports")
    page.get_by_role("button", name="Create the queue").click()
    page.wait_for_url(served.of_account("queues/imports"))
    page.goto(served.of_account("queues/imports/delete"))
    owner.see("For 7 d it can be restored")
    page.get_by_label("Type imports to confirm").fill("imports")
    page.get_by_role("button", name="Delete the queue").click()
    owner.see("The queue imports is deleted.")
    page.get_by_role("link", name="Deleted queues that can be restored").click()
    page.locator("summary", has_text="Restore").click()
    assert owner.fits()
    page.get_by_label("Name", exact=True).fill("imports-back")
    page.get_by_role("button", name="Restore the queue").click()
    owner.see("The queue imports-back is restored.")
    page.goto(served.of_account("deleted-queues"))
    owner.see("No deleted queue is kept")


@flow(DESKTOP_DARK)
def test_account_is_closed_after_its_id_is_typed_and_reopened(served: ServedPages, owner: Window) -> None:
    page = owner.page
    owner.choose("Settings")
    page.get_by_role("button", name="Switch it on").click()
    owner.see("The settings are changed.")
    page.locator("button:disabled", has_text="Close the account").wait_for()
    page.get_by_label(f"Type {served.account_id} to confirm").fill(served.account_id)
    page.get_by_role("button", name="Close the account").click()
    owner.see("The account is closing.")
    page.goto(served.of_account())
    owner.see("This account is closing.")
    assert page.get_by_role("link", name="New queue").count() == 0
    page.goto(served.of_account("settings"))
    page.get_by_role("button", name="Reopen the account").click()
    owner.see("The account is active again.")
