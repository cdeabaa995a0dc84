"""Money in a real browser: from the month so far to the hours behind a line, files, budgets; prices and settling.

The pages are served here, without storage and front ends: what they show comes from rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.test.testcases import LiveServerThread

from tests.console.billed import bill
from tests.console.browsing import HOST, queue_row
from tests.console.pictures import DESKTOP, PHONE, browsing, chromium_path, open_link
from tests.console.test_browser import CONTRAST, Window

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
QUEUES = ("orders", "customer-events.fifo", "search-index", "webhooks", "exports")
PAGES = (
    "billing", "billing/usage", "billing/usage?by=queue", "billing/usage?by=tag&tag=team", "billing/usage?by=key",
    "billing/usage?meter=sent_units", "billing/invoices", "billing/budgets", "billing/budgets/edit?name=Orders",
    "billing/prices",
)  # fmt: skip
OPERATOR_PAGES = (
    "billing", "billing/accounts", "billing/settling", "billing/plans", "billing/plans/house", "background",
)  # fmt: skip


class ServedPages(NamedTuple):
    """What `Window` asks of an installation: where it is. The links sign in once."""

    key: dict[str, str]
    account_id: str
    owner_link: str
    operator_link: str

    def at(self, path: str) -> str:
        return f"{self.key['endpoint']}/console/{path}"


@pytest.fixture
def server_url(transactional_db: None) -> Iterator[str]:
    """Django's own test server would take the paths of the console's assets for its static files."""
    thread = LiveServerThread(HOST, lambda media: media.application)
    thread.start()
    thread.is_ready.wait()
    if thread.error is not None:
        raise thread.error
    yield f"http://{HOST}:{thread.port}"
    thread.terminate()


@pytest.fixture
def served(server_url: str, storage: Any) -> ServedPages:
    if chromium_path() is None:
        pytest.fail("there is no Chromium; install it with: sudo apt-get install -y chromium fonts-dejavu-core")
    from api.accounts.models import Account
    from api.people.actions.console_links import make_operator_link, make_owner_link

    link = make_owner_link("shop")
    for name in QUEUES:
        queue_row(link.account_id, name)
    bill("shop")
    assert Account.objects.filter(pk=link.account_id).exists()
    return ServedPages({"endpoint": server_url}, link.account_id, link.token, make_operator_link())


def test_customer_goes_from_the_month_to_the_hours_behind_a_line_and_caps_it(served: ServedPages) -> None:
    with browsing() as browser:
        window = Window(browser, served)
        page = window.page
        open_link(page, served.at(f"link#{served.owner_link}"))
        page.goto(served.at(f"a/{served.account_id}/billing"))
        window.see("Forecast of the month")
        page.get_by_role("link", name="Invoices", exact=True).click()
        page.locator("tbody tr").nth(1).get_by_role("link").first.click()
        page.get_by_role("heading", name="PS-").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        assert download.value.suggested_filename.endswith(".csv")
        page.get_by_role("link", name="Sent, in units of 64 KiB", exact=True).first.click()
        page.wait_for_url("**/billing/usage**")
        page.locator("table tbody tr").nth(4).get_by_role("link").click()
        page.wait_for_url("**by=hour**")
        assert page.locator("table tbody tr").count() == 3
        page.get_by_role("link", name="Budgets", exact=True).click()
        page.get_by_role("link", name="New budget").click()
        page.get_by_role("textbox", name="Name", exact=True).fill("Cap")
        page.get_by_label("Limit of a month, in USD").fill("1,5")
        page.get_by_role("button", name="Make the budget").click()
        window.see("written like 50.00")
        page.get_by_label("Limit of a month, in USD").fill("0.50")
        page.get_by_label("Stop sending at 100 %").check()
        page.get_by_role("button", name="Make the budget").click()
        window.see("Sending is stopped: a budget is used up.")
        page.on("dialog", lambda dialog: dialog.accept())
        page.locator("tr", has_text="Cap").get_by_role("button", name="Delete").click()
        window.see("The budget Cap is deleted.")
        window.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_about_money_fit_and_can_be_read(served: ServedPages, scheme: str) -> None:
    with browsing() as browser:
        window = Window(browser, served, color_scheme=scheme)
        page = window.page
        for link, pages in (
            (served.owner_link, [f"a/{served.account_id}/{path}" for path in PAGES]),
            (served.operator_link, [f"operators/{path}" for path in OPERATOR_PAGES]),
        ):
            open_link(page, served.at(f"link#{link}"))
            for path in pages:
                for size in (DESKTOP, PHONE):
                    page.set_viewport_size(size)
                    page.goto(served.at(path))
                    assert window.fits(), (path, size)
                    assert page.evaluate(CONTRAST) == [], (path, size)
        window.close()


def test_operator_looks_at_prices_and_closes_what_failed(served: ServedPages) -> None:
    with browsing() as browser:
        window = Window(browser, served)
        page = window.page
        open_link(page, served.at(f"link#{served.operator_link}"))
        page.get_by_role("link", name="Billing", exact=True).click()
        page.get_by_role("link", name="Prices", exact=True).click()
        page.get_by_role("link", name="house", exact=True).click()
        page.get_by_role("button", name="Preview").click()
        window.see("would have cost")
        page.get_by_role("link", name="Billing", exact=True).click()
        page.get_by_role("link", name="Settling", exact=True).click()
        window.see("negative_counter")
        page.get_by_role("link", name="Background work").click()
        window.see("no space left on device")
        page.get_by_role("button", name="Try again").click()
        window.see("It is done.")
        window.close()
