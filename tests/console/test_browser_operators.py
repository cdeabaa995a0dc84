"""Operators in a real browser: accounts suspended, requests for quotas answered, plans given with a tax in percent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.pictures import PHONE, browsing
from tests.console.serving import ServedPages
from tests.console.test_browser import Window

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def operator(served: ServedPages) -> Iterator[Window]:
    with browsing() as browser:
        window = Window(browser, served)
        served.enter(window.page, served.operator_link)
        yield window
        window.close()


@pytest.fixture
def owner(served: ServedPages, operator: Window) -> Iterator[Window]:
    """In the same browser, with cookies of its own."""
    window = Window(operator.context.browser, served)
    served.enter(window.page, served.owner_link)
    yield window
    window.close()


def test_account_is_suspended_with_a_reason_and_resumed(served: ServedPages, operator: Window, owner: Window) -> None:
    page = operator.page
    page.goto(served.at("operators/accounts"))
    page.get_by_role("link", name="shop", exact=True).click()
    page.get_by_label("Reason").first.fill("Unpaid since March")
    page.get_by_role("button", name="Suspend the account").click()
    operator.see("The account is suspended: its keys open nothing.")
    owner.page.goto(served.of_account("settings"))
    owner.see("This account is suspended.")
    owner.see("Unpaid since March")
    page.get_by_role("button", name="Resume the account").click()
    operator.see("The account is active again.")
    owner.page.goto(served.of_account())
    owner.page.get_by_role("link", name="New queue").first.wait_for()


def test_request_for_a_quota_is_approved_and_the_answer_is_read(
    served: ServedPages, operator: Window, owner: Window
) -> None:
    owner.page.goto(served.of_account("quotas"))
    owner.page.locator("select[name=name]").select_option("queues")
    owner.page.get_by_label("Value").fill("250000")
    owner.page.get_by_label("Reason").fill("One queue a shop")
    owner.page.get_by_role("button", name="Send the request").click()
    owner.see("is with the operator.")
    page = operator.page
    page.get_by_role("link", name="Quotas", exact=True).click()
    operator.see("One queue a shop")
    page.get_by_label("Answer").fill("Welcome")
    page.get_by_role("button", name="Approve").click()
    operator.see("The request for queues is approved.")
    owner.page.goto(served.of_account("quotas"))
    owner.see("Welcome")
    assert "250,000" in owner.page.locator("tr", has_text="queues").first.inner_text()


def test_plan_is_created_and_given_with_a_tax_in_percent(served: ServedPages, operator: Window, owner: Window) -> None:
    page = operator.page
    page.goto(served.at("operators/billing/new-plan"))
    page.get_by_label("Code").fill("house")
    page.get_by_label("Name", exact=True).fill("House prices")
    page.get_by_role("button", name="Create the plan").click()
    operator.see("The plan house is created.")
    page.goto(served.at(f"operators/billing/accounts/{served.account_id}"))
    page.get_by_label("Plan").select_option("house")
    page.get_by_label("Taxes").fill("VAT=19.5.1")
    page.get_by_role("button", name="Assign the plan").click()
    operator.see("A tax is written in percent, like VAT=19.")
    page.get_by_label("Plan").select_option("house")
    page.get_by_label("Taxes").fill("VAT=19.5")
    page.get_by_role("button", name="Assign the plan").click()
    operator.see("VAT 19.5 %")
    owner.page.goto(served.of_account("billing/prices"))
    owner.see("VAT: 19.5 % of what is left after credits.")
    owner.page.set_viewport_size(PHONE)
    assert owner.fits()
