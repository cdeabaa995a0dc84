"""`python -m tests.console.screenshots [--out DIR]`: pictures of every page of the console.

Desktop and phone, light and dark, of an installation of its own that is filled with examples and stopped at the end.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.console.picture_states import (
    ACCOUNT_STATES,
    ENTRY_STATES,
    GUEST_STATES,
    OPERATOR_STATES,
    sign_out,
    take_account_states,
    take_acting_states,
    take_entry_states,
    take_guest_states,
    take_operator_states,
)
from tests.console.pictures import (
    DESKTOP,
    PHONE,
    browsing,
    by_name,
    fill,
    link_of,
    open_link,
    url_of,
    with_device,
)
from tests.support.installation import RunningInstallation, running, wait_until
from tests.support.webhook_receiver import WebhookReceiver

CHART_MS = 10_000
CALLED_S_MAX = 60
OPEN_PAGES = ("sign-in", "link", "sign-up", "confirm", "reset", "new-password", "nothing-here")
# Of the reference of the REST API, which is for everybody.
REFERENCE_PAGES = {
    "api": "/v1/docs",
    "api-operation": "/v1/docs#queues.create",
    "api-searched": "/v1/docs?q=webhook+put",
    "api-none": "/v1/docs?q=zzz",
}
ACCOUNT_PAGES = {
    "overview": "",
    "queues": "queues",
    "queues-none": "queues?q=zzz",
    "queues-dead": "queues?kind=dead-letter",
    "deleted-queues": "deleted-queues",
    "new-queue": "new-queue",
    "new-queue-fifo": "new-queue?preset=events",
    "queue": "queues/orders",
    "queue-metrics": "queues/orders/metrics",
    "queue-paused": "queues/exports",
    "queue-edit": "queues/orders/edit",
    "queue-tags": "queues/orders/tags",
    "queue-access": "queues/orders/access",
    "queue-quotas": "queues/orders/quotas",
    "queue-purge": "queues/orders/purge",
    "queue-delete": "queues/orders-dead/delete",
    "messages": "queues/orders/messages",
    "messages-dead": "queues/orders-dead/messages",
    "messages-empty": "queues/webhooks/messages",
    "tail": "queues/orders/tail",
    "send": "queues/orders/send",
    "redrive": "queues/orders-dead/moves",
    "schedules": "queues/orders/schedules",
    "schedule-edit": "queues/orders/schedules/nightly-report/edit",
    "alarms": "alarms",
    "alarm-new": "alarms/new?queue=orders",
    "webhooks": "webhooks",
    "webhook": "webhooks/on-call",
    "people": "people",
    "groups": "groups",
    "group": "groups/on-call",
    "policies": "policies",
    "policy": "policies/send-orders",
    "policy-form": "policies/send-orders?as=form",
    "policy-new": "new-policy?start=receive",
    "simulator": "simulator?who=policy:send-orders&action=sqs:SendMessage+sqs:PurgeQueue"
    "&resource=orders-eu&source_ip=10.0.0.7",
    "keys": "keys",
    "encryption-keys": "encryption-keys",
    "quotas": "quotas",
    "audit": "audit",
    "definitions": "definitions",
    "settings": "settings",
    "billing": "billing",
    "usage": "billing/usage",
    "usage-queues": "billing/usage?by=queue",
    "usage-tag": "billing/usage?by=tag&tag=team",
    "usage-keys": "billing/usage?by=key",
    "usage-origins": "billing/usage?by=origin",
    "usage-meter": "billing/usage?meter=messages_sent",
    "invoices": "billing/invoices",
    "budgets": "billing/budgets",
    "budget-new": "billing/budgets/edit",
    "budget": "billing/budgets/edit?name=Orders",
    "buyer": "billing/buyer",
    "prices": "billing/prices",
}
OPERATOR_PAGES = {
    "cluster": "operators/",
    "quota-requests": "operators/quota-requests",
    "quotas-installation": "operators/quotas",
    "accounts": "operators/accounts",
    "months": "operators/billing",
    "accounts-by-cost": "operators/billing/accounts",
    "settling": "operators/billing/settling",
    "seller": "operators/billing/seller",
    "plans": "operators/billing/plans",
    "plan": "operators/billing/plans/house",
    "work": "operators/background",
}
EXAMPLES = (
    "from tests.console.billed import bill; bill('tests')",
    "from tests.console.alarmed import alarm; alarm('tests')",
)
# Pages that a link of another page leads to: out of a row with this text.
LINKED_PAGES = {
    "key": ("keys", "checkout"),
    "encryption-key": ("encryption-keys", "payments"),
    "person": ("people", "@"),
    "alarm-history": ("alarms", "backlog"),
    "invoice": ("billing/invoices", "Due"),
    "invoice-draft": ("billing/invoices", "Draft"),
}
OPERATED_PAGES = ("operator-account-quotas", "operator-account-billing", "operator-account", "acting")
README_PICTURES = {"messages": "light", "queue": "light", "overview": "dark"}
README_SIZE = {"width": 1100, "height": 760}
PERSON_PAGES = ("me", "passkey-added", "passkeys", "passkey-sign-in")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="screenshots", metavar="DIR")
    parser.add_argument("--readme", action="store_true", help="those of the documentation: --out docs/images")
    parser.add_argument("--only", default="", metavar="NAME,...", help="pages whose names begin so")
    parser.add_argument(
        "--kinds", default="", metavar="KIND,...", help="as desktop-light, phone-dark: those that begin so"
    )
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the installation is stopped then, too
    with tempfile.TemporaryDirectory() as folder:
        receiver = WebhookReceiver(Path(folder))
        with running(settings=receiver.settings) as installation, browsing() as browser:
            fill(installation, receiver.url)
            if options.readme:
                _take_readme(installation, browser, out)
            else:
                _call(installation, receiver)
                installation.manage("shell", "-v", "0", "-c", "; ".join((*EXAMPLES, "print('{}')")))
                kinds = tuple(options.kinds.split(","))
                _take_all(installation, browser, Saver(out, tuple(options.only.split(","))), kinds)
        receiver.close()


class Saver:
    """Keeps pictures of the pages that are wanted. `kind` is what they are taken as."""

    def __init__(self, folder: Path, prefixes: tuple[str, ...]) -> None:
        self.folder, self.prefixes = folder, prefixes
        self.kind = ""

    def wants(self, name: str) -> bool:
        return name.startswith(self.prefixes)

    def save(self, page: Any, name: str) -> None:
        if self.wants(name):
            page.wait_for_load_state("networkidle")
            page.locator("html:not(.working)").wait_for(state="attached")  # no answer is on its way
            page.screenshot(path=str(self.folder / f"{name}-{self.kind}.png"), full_page=True)


def _take_readme(installation: RunningInstallation, browser: Any, out: Path) -> None:
    """What a window of a laptop shows, and no more."""
    for name, theme in README_PICTURES.items():
        context = browser.new_context(viewport=README_SIZE, color_scheme=theme)
        page = context.new_page()
        open_link(page, link_of(installation, "--account", "tests"))
        page.goto(f"{page.url}{ACCOUNT_PAGES[name]}")
        page.wait_for_load_state("networkidle")
        if name == "queue":
            page.wait_for_timeout(4 * CHART_MS)
        if name == "messages":
            page.locator("details.message summary").nth(2).click()
        page.screenshot(path=str(out / f"{name}.png"))
        context.close()


def _call(installation: RunningInstallation, receiver: WebhookReceiver) -> None:
    """The test that `fill` asked for is delivered; one more is refused."""
    with receiver.serving():
        wait_until(lambda: len(receiver.calls) == 1, CALLED_S_MAX, 0.2)
        receiver.status = 503
        installation.rest().post("/v1/webhooks/on-call/test").raise_for_status()
        wait_until(lambda: len(receiver.calls) == 2, CALLED_S_MAX, 0.2)


def _take_all(installation: RunningInstallation, browser: Any, saver: Saver, kinds: tuple[str, ...]) -> None:
    for theme in ("light", "dark"):
        for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
            saver.kind = f"{name}-{theme}"
            if not saver.kind.startswith(kinds):
                continue
            options = {"viewport": size, "color_scheme": theme}
            context = browser.new_context(**options)
            page = context.new_page()
            _take_open_pages(installation, page, saver)
            _take_account(installation, page, saver)
            start = page.url
            _take_linked_pages(installation, page, saver)
            if any(map(saver.wants, ACCOUNT_STATES)):
                with installation.rest() as rest:
                    take_account_states(start, page, saver, rest)
            page.goto(start)
            if any(map(saver.wants, (*GUEST_STATES, "people-invited", "sign-up-mailed"))):
                take_guest_states(installation, browser, page, saver, options)
            _take_operator_pages(installation, page, saver)
            _take_passkeys(installation, page, saver)
            context.close()


def _take_open_pages(installation: RunningInstallation, page: Any, saver: Saver) -> None:
    for name in filter(saver.wants, OPEN_PAGES):
        page.goto(url_of(installation, f"/console/{name}"))
        saver.save(page, name)
    for name in filter(saver.wants, REFERENCE_PAGES):
        page.goto(url_of(installation, REFERENCE_PAGES[name]))
        saver.save(page, name)
    if any(map(saver.wants, ENTRY_STATES)):
        take_entry_states(installation, page, saver)


def _take_account(installation: RunningInstallation, page: Any, saver: Saver) -> None:
    open_link(page, link_of(installation, "--account", "tests"))
    start = page.url
    for name in filter(saver.wants, ACCOUNT_PAGES):
        page.goto(f"{start}{ACCOUNT_PAGES[name]}")
        if name == "queue":
            page.wait_for_timeout(CHART_MS)  # some points of the chart
        saver.save(page, name)
        if name == "messages":
            page.locator("details.message summary").nth(2).click()
            saver.save(page, "message-open")
        if name == "overview":
            page.keyboard.press("Control+k")
            page.keyboard.type("ord")
            page.wait_for_selector("#jumps a small")
            saver.save(page, "jump")
        if name == "definitions":
            page.get_by_label("Or the document").fill(_changed_definitions(installation))
            page.get_by_role("button", name="Show what would change").click()
            page.get_by_role("heading", name="What would change").wait_for()
            saver.save(page, "definitions-changes")
    page.goto(start)


def _changed_definitions(installation: RunningInstallation) -> str:
    """Those of the account with a changed queue and a new one."""
    with installation.rest() as rest:
        found = rest.get("/v1/definitions").raise_for_status().json()
    orders = next(queue for queue in found["queues"] if queue["name"] == "orders")
    orders["attributes"] |= {"VisibilityTimeout": "90"}
    orders["tags"] |= {"team": "fulfilment"}
    found["queues"].append({"name": "returns", "attributes": {"DelaySeconds": "30"}, "tags": {"team": "checkout"}})
    return json.dumps(found, indent=2)


def _take_linked_pages(installation: RunningInstallation, page: Any, saver: Saver) -> None:
    """From the first page of the account."""
    start = page.url
    for name in filter(saver.wants, LINKED_PAGES):
        path, link = LINKED_PAGES[name]
        page.goto(f"{start}{path}")
        page.locator("main tr", has_text=link).locator("td a").first.click()
        page.wait_for_url(lambda at, path=path: not at.endswith(path))  # not one with the path of the list
        saver.save(page, name)


def _take_operator_pages(installation: RunningInstallation, page: Any, saver: Saver) -> None:
    if not any(map(saver.wants, (*OPERATOR_PAGES, *OPERATED_PAGES, *OPERATOR_STATES))):
        return
    open_link(page, link_of(installation, "--operator"))
    for name in filter(saver.wants, OPERATOR_PAGES):
        page.goto(url_of(installation, f"/console/{OPERATOR_PAGES[name]}"))
        saver.save(page, name)
    if any(map(saver.wants, OPERATOR_STATES)):
        take_operator_states(installation, page, saver)
    if any(map(saver.wants, (*OPERATED_PAGES, "acting-keys"))):
        _take_operated_pages(installation, page, saver)


def _take_operated_pages(installation: RunningInstallation, page: Any, saver: Saver) -> None:
    """Of one account."""
    page.goto(url_of(installation, "/console/operators/accounts"))
    account = str(page.get_by_role("link", name="tests", exact=True).get_attribute("href"))
    billing = account.replace("/operators/", "/operators/billing/")
    for name, path in zip(OPERATED_PAGES, (f"{account}/quotas", billing, account), strict=False):
        page.goto(url_of(installation, path))
        saver.save(page, name)
    owner = page.locator("select[name=person] option", has_text="(owner)").get_attribute("value")
    page.locator("select[name=person]").select_option(owner)
    page.get_by_label("Reason").last.fill("Ticket 4711: messages that nobody receives")
    page.get_by_role("button", name="Act as this member").click()
    page.get_by_text("You act as").wait_for()
    saver.save(page, "acting")
    take_acting_states(page.url, page, saver)
    page.get_by_role("button", name="Stop acting").click()


def _take_passkeys(installation: RunningInstallation, page: Any, saver: Saver) -> None:
    """By the name that browsers give passkeys to, with a virtual device."""
    if not any(map(saver.wants, PERSON_PAGES)):
        return
    with_device(page)
    page.on("dialog", lambda dialog: dialog.accept())
    open_link(page, by_name(link_of(installation, "--account", "tests")))
    me = by_name(url_of(installation, "/console/me"))
    page.goto(me)
    page.get_by_role("button", name="Add a passkey").wait_for()
    saver.save(page, "me")
    page.get_by_label("Name", exact=True).fill("This computer")
    page.get_by_role("button", name="Add a passkey").click()
    page.get_by_text("Recovery codes").first.wait_for()
    saver.save(page, "passkey-added")
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/console/a/*/")
    page.goto(me)
    saver.save(page, "passkeys")
    page.get_by_role("button", name="Remove the passkey This computer").click()
    page.get_by_text("The passkey is removed.").wait_for()
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").wait_for()
    saver.save(page, "passkey-sign-in")


if __name__ == "__main__":
    main()
