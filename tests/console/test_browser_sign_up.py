"""The whole way in a real browser, on a running installation: from sign-up over messages to the paid invoice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.pictures import PASSWORD, account_of, browsing, link_of, mail_token, open_link, url_of
from tests.console.variants import PHONE_DARK, flow
from tests.console.window import Window
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
# A month cannot be waited for: what was sent is settled as if it had been sent in the month before.
BILL = """
import json
from tests.console.billed import bill_last_month
print(json.dumps(bill_last_month({!r}, "orders", 2)))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@flow(PHONE_DARK)
def test_person_goes_from_sign_up_to_the_paid_invoice(browser: Any, installation: RunningInstallation) -> None:
    window, operator = Window(browser, installation), Window(browser, installation)
    sign_up(window, installation, f"ann-{uuid.uuid4().hex[:8]}@example.com")
    create_queue(window)
    send_edit_and_delete(window)
    account_id = account_of(window.page)
    number = installation.manage("shell", "-v", "0", "-c", BILL.format(account_id))
    read_invoices(window, "Due")
    open_link(operator.page, link_of(installation, "--operator"))
    record_two_payments(operator, account_id, number)
    read_invoices(window, "Paid")
    window.page.get_by_role("heading", name=number).wait_for()
    window.page.locator("tr", has_text="Transfer 4712").get_by_text("5.45 USD").wait_for()
    operator.close()
    window.close()


def sign_up(window: Window, installation: RunningInstallation, email: str) -> None:
    page = window.page
    page.goto(url_of(installation, "/console"))
    page.get_by_role("link", name="Sign up").click()
    page.wait_for_url("**/console/sign-up*")  # the page before it has fields of the same names
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign up").click()
    window.see("Check your mail")
    page.goto(url_of(installation, f"/console/confirm#{mail_token(installation, email)}"))
    page.get_by_label("Password that you chose").fill(PASSWORD)
    page.get_by_label("Name of your account").fill("Ann's shop")
    page.get_by_role("button", name="Confirm").click()
    window.see("No queues yet")


def create_queue(window: Window) -> None:
    page = window.page
    page.get_by_role("link", name="New queue").first.click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Visibility timeout").fill("90")
    page.locator("#same").get_by_text("'VisibilityTimeout': '90'").wait_for()
    page.get_by_role("button", name="Create the queue").click()
    window.see("The queue orders is ready.")


def send_edit_and_delete(window: Window) -> None:
    page = window.page
    page.get_by_role("link", name="Send", exact=True).click()
    page.get_by_label("Body", exact=True).fill('{"order": 1, "note": "<b>bold</b>"}')
    page.get_by_role("button", name="Add an attribute").click()
    page.get_by_label("Name of the attribute").fill("color")
    page.get_by_label("Value", exact=True).fill("red")
    page.get_by_role("button", name="Send", exact=True).click()
    window.see("Sent, with the id")
    page.get_by_role("link", name="Browse the messages").click()
    page.locator("details.message summary").first.click()
    assert '"note": "<b>bold</b>"' in page.locator("[data-pretty-text]").first.inner_text()
    page.get_by_role("link", name="Edit and resend").click()
    page.get_by_label("Body", exact=True).fill('{"order": 2}')
    page.get_by_role("button", name="Send again").click()
    window.see("Sent again to orders")
    page.locator("details.message summary").first.click()
    assert '"order": 2' in page.locator("[data-pretty-text]").first.inner_text()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete", exact=True).click()
    window.see("The message is deleted.")
    window.see("The queue is empty")


def read_invoices(window: Window, badge: str) -> None:
    """The issued one says so in the list and on its page, which is open then."""
    window.choose("Usage and billing")
    window.page.wait_for_url("**/billing")
    window.page.get_by_role("link", name="Invoices", exact=True).click()
    window.page.wait_for_url("**/billing/invoices")
    row = window.page.locator("main tbody tr").filter(has=window.page.get_by_text(badge, exact=True))
    row.get_by_text("5.95 USD").wait_for()
    row.get_by_role("link").first.click()
    window.page.locator("main .head .badge", has_text=badge).wait_for()


def record_two_payments(operator: Window, account_id: str, number: str) -> None:
    page = operator.page
    operator.choose("Accounts")
    page.get_by_placeholder("Id, name, title or address of a member").fill(account_id)
    page.locator("tbody tr", has_text=account_id).get_by_role("link").click()
    page.get_by_role("link", name="Plan, credits and invoices").click()
    for reference, amount, answer in (
        ("Transfer 4711", "0.50", f"{number} has 5.45 USD due."),
        ("Transfer 4711", "0.50", "is recorded already"),
        ("Transfer 4712", "", f"{number} is paid."),
    ):
        page.get_by_label("Invoice paid").select_option(label=number)
        page.get_by_label("Amount", exact=True).fill(amount)
        page.get_by_label("Reference").fill(reference)
        page.get_by_role("button", name="Record the payment").click()
        operator.see(answer)
