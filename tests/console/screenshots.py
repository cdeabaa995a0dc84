"""`python -m tests.console.screenshots [--out DIR]`: pictures of every page of the console.

Desktop and phone, light and dark, of an installation of its own that is filled with examples and stopped at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.console.pictures import DESKTOP, PHONE, account_of, browsing, fill, link_of, open_link, url_of
from tests.support.installation import RunningInstallation, running

CHART_MS = 10_000
OPEN_PAGES = ("sign-in", "link", "sign-up", "confirm", "reset", "new-password", "nothing-here")
ACCOUNT_PAGES = {
    "overview": "",
    "queues": "queues",
    "queues-none": "queues?q=zzz",
    "queues-dead": "queues?kind=dead-letter",
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
    "alarms": "alarms",
    "alarm-new": "alarms/new?queue=orders",
    "webhooks": "webhooks",
    "people": "people",
    "groups": "groups",
    "group": "groups/on-call",
    "policies": "policies",
    "policy": "policies/send-orders",
    "policy-form": "policies/send-orders?as=form",
    "policy-new": "new-policy?start=receive",
    "simulator": "simulator?who=policy:send-orders&action=sqs:SendMessage+sqs:PurgeQueue&resource=orders-eu",
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
    "invoices": "billing/invoices",
    "budgets": "billing/budgets",
    "budget": "billing/budgets/edit?name=Orders",
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
    "plans": "operators/billing/plans",
    "plan": "operators/billing/plans/house",
    "work": "operators/background",
}
BILL = "from tests.console.billed import bill; bill('tests'); print('{}')"
# Pages that a link of another page leads to.
LINKED_PAGES = {
    "key": ("keys", "checkout"),
    "encryption-key": ("encryption-keys", "payments"),
    "person": ("people", "@"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="screenshots", metavar="DIR")
    parser.add_argument("--only", default="", metavar="NAME", help="pages whose name begins so")
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the installation is stopped then, too
    with running() as installation, browsing() as browser:
        fill(installation)
        installation.manage("shell", "-v", "0", "-c", BILL)
        for theme in ("light", "dark"):
            for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
                context = browser.new_context(viewport=size, color_scheme=theme)
                _take(installation, context.new_page(), _saver(out, f"{name}-{theme}"), options.only)
                context.close()


def _saver(out: Path, kind: str) -> Callable[[Any, str], None]:
    def save(page: Any, name: str) -> None:
        page.wait_for_load_state("networkidle")
        page.screenshot(path=str(out / f"{name}-{kind}.png"), full_page=True)

    return save


def _take(installation: RunningInstallation, page: Any, save: Callable[[Any, str], None], only: str) -> None:
    for name in (one for one in OPEN_PAGES if one.startswith(only)):
        page.goto(url_of(installation, f"/console/{name}"))
        save(page, name)
    open_link(page, link_of(installation, "--account", "tests"))
    account_id = account_of(page)
    for name, path in ACCOUNT_PAGES.items():
        if not name.startswith(only):
            continue
        page.goto(url_of(installation, f"/console/a/{account_id}/{path}"))
        if name == "queue":
            page.wait_for_timeout(CHART_MS)  # some points of the chart
        save(page, name)
        if name == "messages":
            page.locator("details.message summary").nth(2).click()
            save(page, "message-open")
        if name == "overview":
            page.keyboard.press("Control+k")
            page.keyboard.type("ord")
            page.wait_for_selector("#jumps a small")
            save(page, "jump")
    for name, (path, link) in LINKED_PAGES.items():
        if name.startswith(only):
            page.goto(url_of(installation, f"/console/a/{account_id}/{path}"))
            page.locator("main td a").get_by_text(link).first.click()
            page.wait_for_url(f"**/{path}/*")
            save(page, name)
    if only:
        return
    page.goto(url_of(installation, "/console/me"))
    save(page, "me")
    open_link(page, link_of(installation, "--operator"))
    for name, path in OPERATOR_PAGES.items():
        page.goto(url_of(installation, f"/console/{path}"))
        save(page, name)
    page.goto(url_of(installation, "/console/operators/accounts"))
    page.get_by_role("link", name="tests", exact=True).click()
    save(page, "operator-account")
    page.get_by_role("link", name="Quotas", exact=True).last.click()
    page.wait_for_url("**/quotas")
    save(page, "operator-account-quotas")
    page.go_back()
    page.get_by_role("button", name="Act as this member").wait_for()
    page.get_by_label("Reason").last.fill("Ticket 4711: messages that nobody receives")
    page.get_by_role("button", name="Act as this member").click()
    page.get_by_text("You act as").wait_for()
    save(page, "acting")
    page.get_by_role("button", name="Stop acting").click()


if __name__ == "__main__":
    main()
