"""Money in a real browser: from the month so far to the hours behind a line, files, budgets; prices and settling.

The pages are served here, without storage and front ends: what they show comes from rows alone.
"""

from __future__ import annotations

import pytest

from tests.console.billed import bill
from tests.console.browsing import queue_row
from tests.console.pictures import DESKTOP, PHONE, browsing
from tests.console.serving import ServedPages
from tests.console.variants import DESKTOP_LIGHT, PHONE_LIGHT, flow
from tests.console.window import CONTRAST, Window

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


@pytest.fixture
def shop(served: ServedPages) -> ServedPages:
    """With two months of usage."""
    for name in QUEUES:
        queue_row(served.account_id, name)
    bill("shop")
    return served


@flow(PHONE_LIGHT)
def test_customer_goes_from_the_month_to_the_hours_behind_a_line_and_caps_it(shop: ServedPages) -> None:
    with browsing() as browser:
        window = Window(browser, shop)
        page = window.page
        shop.enter(page, shop.owner_link)
        page.goto(shop.of_account("billing"))
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
        page.get_by_label("Monthly limit, in USD").fill("1,5")
        page.get_by_role("button", name="Create the budget").click()
        window.see("written like 50.00")
        page.get_by_label("Monthly limit, in USD").fill("0.50")
        page.get_by_label("At 100 %").select_option("stop")
        page.get_by_role("button", name="Create the budget").click()
        window.see("Sending is stopped: the budget Cap is used up.")
        page.on("dialog", lambda dialog: dialog.accept())
        page.locator("tr", has_text="Cap").get_by_role("button", name="Delete").click()
        window.see("The budget Cap is deleted.")
        window.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_about_money_fit_and_can_be_read(shop: ServedPages, scheme: str) -> None:
    with browsing() as browser:
        window = Window(browser, shop, color_scheme=scheme)
        page = window.page
        for link, pages in (
            (shop.owner_link, [f"a/{shop.account_id}/{path}" for path in PAGES]),
            (shop.operator_link, [f"operators/{path}" for path in OPERATOR_PAGES]),
        ):
            shop.enter(page, link)
            for path in pages:
                for size in (DESKTOP, PHONE):
                    page.set_viewport_size(size)
                    page.goto(shop.at(path))
                    assert window.fits(), (path, size)
                    assert page.evaluate(CONTRAST) == [], (path, size)
        window.close()


@flow(DESKTOP_LIGHT)
def test_operator_looks_at_prices_and_closes_what_failed(shop: ServedPages) -> None:
    with browsing() as browser:
        window = Window(browser, shop)
        page = window.page
        shop.enter(page, shop.operator_link)
        window.choose("Billing")
        page.get_by_role("link", name="Prices", exact=True).click()
        page.get_by_role("link", name="house", exact=True).click()
        page.get_by_role("button", name="Preview").click()
        window.see("would have cost")
        window.choose("Billing")
        page.get_by_role("link", name="Settling", exact=True).click()
        window.see("negative_counter")
        window.choose("Background work")
        window.see("no space left on device")
        page.get_by_role("button", name="Try again").click()
        window.see("It is done.")
        window.close()
