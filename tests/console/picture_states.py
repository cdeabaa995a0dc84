"""Pages in the states that a form or a click leads to: refusals, secrets that are shown once, second steps.

Each function begins at pages that its caller is signed in for, and saves a picture of every state.
"""

from __future__ import annotations

import base64
import re
import time
from typing import Any

from api.people.limits import TOTP_STEP_S
from api.people.totp import code_at
from tests.console.pictures import PASSWORD, mail_token, url_of
from tests.support.installation import RunningInstallation

WRONG_POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Permit", "Action": "sqs:Send", "Resource": "*"}]}'
ENTRY_STATES = ("sign-in-wrong", "sign-up-mailed", "confirm-wrong")
ACCOUNT_STATES = (
    "not-found", "new-queue-wrong", "queue-access-shared", "message-resend", "messages-no-match", "tail-message",
    "redrive-dry-run", "schedules-wrong", "alarm-new-wrong", "alarm-change", "webhook-created", "policy-wrong",
    "key-created", "people-invited", "quotas-wrong", "budget-wrong", "again", "shortcuts", "accounts-switch", "menu",
)  # fmt: skip
GUEST_STATES = (
    "overview-empty", "queues-empty", "alarms-empty", "webhooks-empty", "groups-empty", "policies-empty", "keys-empty",
    "encryption-keys-empty", "billing-empty", "usage-empty", "invoices-empty", "budgets-empty", "join", "my-accounts",
    "queue-reader", "not-allowed", "me-password", "totp", "totp-on", "code", "code-wrong",
)  # fmt: skip
OPERATOR_STATES = ("accounts-none", "plan-new", "plan-preview", "plan-wrong", "account-suspended", "acting-keys")
ENTRY_WAIT_MS = 10_000


def take_entry_states(installation: RunningInstallation, page: Any, saver: Any) -> None:
    """Of a visitor who is not signed in."""
    page.goto(url_of(installation, "/console/sign-in"))
    page.get_by_label("E-mail address").fill("ann@example.com")
    page.get_by_label("Password").fill("not this one")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("alert").wait_for()
    saver.save(page, "sign-in-wrong")
    confirm = url_of(installation, "/console/confirm")
    token = "pstc_" + 43 * "x"
    _submit(page, confirm, {"Token from the e-mail": token, "Password that you chose": PASSWORD}, "Confirm")
    saver.save(page, "confirm-wrong")


def take_account_states(start: str, page: Any, saver: Any, rest: Any) -> None:
    """Of an owner. `start` is the first page of the account."""
    _take_queue_states(start, page, saver, rest)
    page.goto(f"{start}nothing-here")
    saver.save(page, "not-found")
    _submit(page, f"{start}alarms/new", {"Name": "too-late", "Queue": "absent"}, "Create the alarm")
    saver.save(page, "alarm-new-wrong")
    page.goto(f"{start}alarm/backlog")
    page.locator("summary", has_text="Change the alarm").click()
    saver.save(page, "alarm-change")
    webhook = {"Name": f"chat-{saver.kind}", "URL": "https://hooks.example.com/penstock"}
    _submit(page, f"{start}webhooks", webhook, "Create a webhook", refused=False)
    saver.save(page, "webhook-created")
    page.goto(f"{start}new-policy")
    page.get_by_role("button", name="JSON").click()
    page.locator("[data-policy-text]").fill(WRONG_POLICY)
    page.locator("#lint .badge.bad").first.wait_for()
    saver.save(page, "policy-wrong")
    _submit(page, f"{start}keys", {"Name": f"worker-{saver.kind}"}, "Create a key", refused=False)
    saver.save(page, "key-created")
    _submit(page, f"{start}quotas", {"Value": "many"}, "Send the request")
    saver.save(page, "quotas-wrong")
    budget = {"Name": "Team", "Monthly limit, in USD": "a lot", "Alerts at, in percent": "50"}
    _submit(page, f"{start}billing/budgets/edit", budget, "budget")
    saver.save(page, "budget-wrong")
    page.goto(f"{start.partition('/console/')[0]}/console/again")
    saver.save(page, "again")
    page.goto(f"{start}queues")
    page.locator(".queues").wait_for()
    page.keyboard.press("?")
    saver.save(page, "shortcuts")
    page.keyboard.press("Escape")
    _open_menu(page)
    saver.save(page, "menu")
    page.locator(".switch summary").click()
    saver.save(page, "accounts-switch")


def _take_queue_states(start: str, page: Any, saver: Any, rest: Any) -> None:
    _submit(page, f"{start}new-queue", {"Name": "orders", "Visibility timeout": "31"}, "Create the queue")
    saver.save(page, "new-queue-wrong")
    shared = {"Label": f"partner-{saver.kind}", "Account ids": "123456789012"}
    _submit(page, f"{start}queues/thumbnails/access", shared, "Permit", refused=False)
    saver.save(page, "queue-access-shared")
    page.goto(f"{start}queues/orders/messages")
    page.locator("details.message summary").nth(2).click()
    page.get_by_role("link", name="Edit and resend").locator("visible=true").first.click()
    page.get_by_role("button", name="Send again").wait_for()
    saver.save(page, "message-resend")
    page.goto(f"{start}queues/orders/messages?text=nowhere")
    page.get_by_text("No message matches").wait_for()
    saver.save(page, "messages-no-match")
    page.goto(f"{start}queues/search-index/tail")
    page.locator("[data-tail-badge]", has_text="Live").wait_for()
    rest.post("/v1/queues/search-index/messages", json={"body": '{"document": 17}'}).raise_for_status()
    page.locator("[data-row-line]").first.wait_for()
    saver.save(page, "tail-message")
    page.goto(f"{start}queues/orders-dead/moves")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("checked").first.wait_for()
    saver.save(page, "redrive-dry-run")
    page.goto(f"{start}queues/orders/schedules")
    page.locator("summary", has_text="New schedule").click()
    _submit(page, "", {"Name": "weekly", "Cron": "every week", "Body": "{}"}, "Create the schedule")
    page.locator("summary", has_text="Another time").first.click()
    saver.save(page, "schedules-wrong")


def take_guest_states(installation: RunningInstallation, browser: Any, page: Any, saver: Any, options: Any) -> None:
    """Of a person who signs up, and whom the owner, signed in on `page`, invites as a reader."""
    start, email = page.url, f"guest-{saver.kind}@example.com"
    people = {"E-mail address": email}
    page.goto(f"{start}people")
    page.locator("section", has_text="Send the invitation").get_by_label("Role").select_option("reader")
    _submit(page, "", people, "Send the invitation", refused=False)
    saver.save(page, "people-invited")
    invitation = mail_token(installation, email)
    context = browser.new_context(**options)
    guest = context.new_page()
    guest.on("dialog", lambda dialog: dialog.accept())
    _sign_up(installation, guest, saver, email, invitation)
    _take_empty_pages(guest, saver)
    guest.goto(url_of(installation, f"/console/join#{invitation}"))
    saver.save(guest, "join")
    guest.get_by_role("button", name="Accept").click()
    guest.wait_for_url(start)
    guest.goto(f"{start}queues/orders")
    guest.locator("[data-live]").first.wait_for()
    saver.save(guest, "queue-reader")
    guest.goto(f"{start}new-queue")
    saver.save(guest, "not-allowed")
    guest.goto(url_of(installation, "/console/"))
    saver.save(guest, "my-accounts")
    _take_second_factor(installation, guest, saver, email)
    context.close()


def _sign_up(installation: RunningInstallation, guest: Any, saver: Any, email: str, known: str) -> None:
    """`known` is the token of a mail that came before."""
    guest.goto(url_of(installation, "/console/sign-up"))
    _submit(guest, "", {"E-mail address": email, "Password": PASSWORD}, "Sign up", refused=False)
    saver.save(guest, "sign-up-mailed")
    token = mail_token(installation, email, known)
    guest.goto(url_of(installation, f"/console/confirm#{token}"))
    guest.get_by_label("Password that you chose").fill(PASSWORD)
    guest.get_by_role("button", name="Confirm").click()
    guest.wait_for_url(re.compile(r"/console/a/[0-9]+/$"))


def _take_empty_pages(guest: Any, saver: Any) -> None:
    own = guest.url
    for name in (one for one in GUEST_STATES if one.endswith("-empty")):
        path = name.removesuffix("-empty")
        path = f"billing/{path}" if path in ("usage", "invoices", "budgets") else path
        guest.goto(f"{own}{'' if path == 'overview' else path}")
        saver.save(guest, name)


def _take_second_factor(installation: RunningInstallation, guest: Any, saver: Any, email: str) -> None:
    guest.goto(url_of(installation, "/console/me"))
    saver.save(guest, "me-password")
    guest.get_by_role("button", name="Set up an authenticator").click()
    secret = guest.locator("form[action$=confirm] input[name=secret]").get_attribute("value")
    saver.save(guest, "totp")
    guest.get_by_label("Code", exact=True).fill(_code(secret))
    guest.get_by_role("button", name="Switch it on").click()
    guest.get_by_text("Recovery codes").first.wait_for()
    saver.save(guest, "totp-on")
    sign_out(guest)
    guest.get_by_label("E-mail address").fill(email)
    guest.get_by_label("Password").fill(PASSWORD)
    guest.get_by_role("button", name="Sign in", exact=True).click()
    guest.get_by_label("Code of your authenticator").wait_for()
    saver.save(guest, "code")
    _submit(guest, "", {"Code of your authenticator": "000000"}, "Continue")
    saver.save(guest, "code-wrong")


def take_operator_states(installation: RunningInstallation, page: Any, saver: Any) -> None:
    """Of an operator."""
    page.goto(url_of(installation, "/console/operators/accounts?q=nobody"))
    saver.save(page, "accounts-none")
    page.goto(url_of(installation, "/console/operators/billing/new-plan"))
    saver.save(page, "plan-new")
    page.goto(url_of(installation, "/console/operators/billing/plans/house"))
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="would have cost").wait_for()
    saver.save(page, "plan-preview")
    page.goto(url_of(installation, "/console/operators/billing/plans/house"))
    _submit(page, "", {"From, UTC": "yesterday"}, "Add the version")
    saver.save(page, "plan-wrong")
    page.goto(url_of(installation, "/console/operators/accounts"))
    page.get_by_role("link", name="demo", exact=True).click()
    page.get_by_role("button", name="Suspend the account").wait_for()
    _submit(page, "", {"Reason": "Ticket 4712: invoices that were not paid"}, "Suspend the account", refused=False)
    saver.save(page, "account-suspended")
    page.get_by_role("button", name="Resume the account").click()
    page.get_by_role("button", name="Suspend the account").wait_for()


def take_acting_states(start: str, page: Any, saver: Any) -> None:
    """Of an operator who acts as the owner: what is offered of the keys."""
    page.goto(f"{start}keys")
    saver.save(page, "acting-keys")


def _code(secret: str) -> str:
    raw = base64.b32decode(secret + "=" * (-len(secret) % 8))
    return code_at(raw, int(time.time()) // TOTP_STEP_S)


def sign_out(page: Any) -> None:
    """On a phone the button is in the menu."""
    _open_menu(page)
    page.get_by_role("button", name="Sign out").click()


def _open_menu(page: Any) -> None:
    menu = page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()


def _submit(page: Any, url: str, fields: dict[str, str], button: str, *, refused: bool = True) -> None:
    """Fills in a form, of the page that is open where `url` is empty, and waits for the answer."""
    if url:
        page.goto(url)
    for label, value in fields.items():
        page.get_by_label(re.compile(f"^{re.escape(label)}")).first.fill(value)
    with page.expect_response(lambda answer: answer.request.method == "POST", timeout=ENTRY_WAIT_MS):
        page.get_by_role("button", name=button).last.click()
    if refused:
        page.locator("[role=alert]").first.wait_for()
