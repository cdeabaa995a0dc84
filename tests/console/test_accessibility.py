"""Every page under axe-core 4.11.0 (tests/console/axe, MPL 2.0): nothing serious, in light and dark."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.pictures import DESKTOP, account_of, browsing, fill, link_of, open_link, url_of
from tests.console.screenshots import ACCOUNT_PAGES, OPEN_PAGES, OPERATOR_PAGES
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
SERIOUS = ("serious", "critical")
# The other rules find in the dark what they find in the light.
RULES = {"light": [], "dark": ["color-contrast", "link-in-text-block"]}
# Keeps what it finds of each rule short: the rule, and the first elements that break it.
_RUN = """async ([serious, rules]) => {
  const only = rules.length ? {runOnly: {type: "rule", values: rules}} : {};
  const found = await axe.run(document, {resultTypes: ["violations"], ...only});
  return found.violations.filter((one) => serious.includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(" | ")}`);
}"""


@functools.cache
def axe() -> str:
    return (Path(__file__).parent / "axe" / "axe.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def sighted(installation: RunningInstallation) -> RunningInstallation:
    """With an account of examples."""
    account = copy.copy(installation)
    account.key = json.loads(installation.command("keys", "create", "--account", "sighted", "--json").stdout)
    fill(account)
    return account


def wrong(page: Any, scheme: str = "light") -> list[str]:
    """What axe finds on the page once it has loaded its parts."""
    page.wait_for_load_state("networkidle")
    page.evaluate(axe())
    found: list[str] = page.evaluate(_RUN, [SERIOUS, RULES[scheme]])
    return found


def look(page: Any, installation: RunningInstallation, paths: dict[str, str], scheme: str) -> list[str]:
    found = []
    for name, path in paths.items():
        page.goto(url_of(installation, path))
        found += [f"{name}: {one}" for one in wrong(page, scheme)]
        for summary in page.locator("details.message > summary").all()[:1]:
            summary.click()
            found += [f"{name}, opened: {one}" for one in wrong(page, scheme)]
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_nothing_serious_under_axe(browser: Any, sighted: RunningInstallation, scheme: str) -> None:
    context = browser.new_context(viewport=DESKTOP, color_scheme=scheme)
    page = context.new_page()
    found = look(page, sighted, {name: f"/console/{name}" for name in OPEN_PAGES}, scheme)
    open_link(page, link_of(sighted, "--account", "sighted"))
    start = f"/console/a/{account_of(page)}/"
    found += look(page, sighted, {name: f"{start}{path}" for name, path in ACCOUNT_PAGES.items()}, scheme)
    found += look(page, sighted, {"me": "/console/me"}, scheme)
    page.goto(url_of(sighted, start))
    page.keyboard.press("Control+k")
    found += [f"jump: {one}" for one in wrong(page, scheme)]
    context.close()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_operators_have_nothing_serious_under_axe(
    browser: Any, installation: RunningInstallation, scheme: str
) -> None:
    context = browser.new_context(viewport=DESKTOP, color_scheme=scheme)
    page = context.new_page()
    open_link(page, link_of(installation, "--operator"))
    found = look(page, installation, {name: f"/console/{path}" for name, path in OPERATOR_PAGES.items()}, scheme)
    context.close()
    assert not found, "\n".join(found)


def test_axe_finds_what_is_wrong(browser: Any) -> None:
    """The check itself can fail."""
    page = browser.new_page()
    page.set_content("<!doctype html><html><body><input><img src='data:,'></body></html>")
    found = " ".join(wrong(page))
    assert "label" in found and "image-alt" in found and "html-has-lang" in found
    page.close()


def test_chart_is_shown_as_a_table_too(browser: Any, sighted: RunningInstallation) -> None:
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    open_link(page, link_of(sighted, "--account", "sighted"))
    page.goto(f"{page.url}queues/orders")
    button = page.locator("[data-chart-table]").first
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    page.locator("[data-chart-rows] th", has_text="Time").wait_for()
    context.close()
