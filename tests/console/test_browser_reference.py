"""The reference of the REST API in a real browser: searched, followed, and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.pictures import browsing, url_of
from tests.console.variants import DESKTOP_LIGHT, PHONE_DARK, flow
from tests.console.window import CONTRAST, Window
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
ONE_FOUND = re.compile(r"^1 of \d+ operations")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@flow(PHONE_DARK)
def test_reference_is_searched_and_an_operation_opened(browser: Any, installation: RunningInstallation) -> None:
    window = Window(browser, installation)
    page = window.page
    page.goto(url_of(installation, "/v1/docs"))
    page.locator("main").press("/")
    page.keyboard.type("put webhook secret")
    page.get_by_text(ONE_FOUND).wait_for()
    assert page.locator("section:visible h2").all_text_contents() == ["Webhooks"]
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="webhooks.put").wait_for()
    assert window.fits() and page.evaluate(CONTRAST) == []
    page.get_by_label("Search the operations").fill("zzz")
    page.get_by_role("heading", name="No operation has these words").wait_for()
    page.goto(url_of(installation, "/v1/docs#data.receive"))
    page.get_by_role("link", name="data.receive", exact=True).wait_for()
    assert window.fits()
    window.close()


@flow(DESKTOP_LIGHT)
def test_reference_works_without_scripts(browser: Any, installation: RunningInstallation) -> None:
    window = Window(browser, installation, java_script_enabled=False)
    page = window.page
    page.goto(url_of(installation, "/v1/docs"))
    page.get_by_label("Search the operations").fill("webhooks.put")
    page.get_by_role("button", name="Search").click()
    page.get_by_text(ONE_FOUND).wait_for()
    page.get_by_text("/v1/webhooks/{name}", exact=True).click()
    page.get_by_role("link", name="webhooks.put").wait_for()
    page.goto(url_of(installation, "/v1/docs#data.receive"))
    page.get_by_role("link", name="data.receive", exact=True).wait_for()
    window.close()
