"""Every page under axe-core 4.11.0 (tests/console/axe, MPL 2.0): nothing serious, in light and dark."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.console.pictures import DESKTOP, account_of, browsing, fill, link_of, open_link, url_of
from tests.console.screenshots import ACCOUNT_PAGES, OPEN_PAGES, OPERATOR_PAGES, REFERENCE_PAGES
from tests.console.variants import variant_held
from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow
SERIOUS = ("serious", "critical")
# The other rules find in the dark what they find in the light.
RULES = {"light": [], "dark": ["color-contrast", "link-in-text-block"]}
LOADED_S_MAX = 30
# What was opened on a page that was judged before: the rest has not changed.
OPENED = "details:is(.message, .operation)[open]"
# Keeps what it finds of each rule short: the rule, and the first elements that break it.
_RUN = """async ([serious, rules, part]) => {
  const only = rules.length ? {runOnly: {type: "rule", values: rules}} : {};
  const found = await axe.run(part ? document.querySelector(part) : document, {resultTypes: ["violations"], ...only});
  return found.violations.filter((one) => serious.includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(" | ")}`);
}"""
# A part of a page is asked for when the page is there; an answered one is marked.
MARK_ANSWERED = """document.addEventListener("htmx:afterRequest", (event) => {
  event.detail.requestConfig.elt.setAttribute("data-answered", "");
});"""
_IS_LOADED = """() => document.readyState === "complete" && !document.querySelector(
  "[hx-trigger^=load]:not([hx-trigger*=delay]):not([data-answered]), .htmx-request, .htmx-settling")"""


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


@contextmanager
def window(browser: Any) -> Iterator[Any]:
    """Colours change at once, so that axe measures none on its way."""
    context = browser.new_context(viewport=DESKTOP, reduced_motion="reduce")
    context.add_init_script(MARK_ANSWERED)
    yield context.new_page()
    context.close()


def wrong(page: Any, part: str = "") -> list[str]:
    """What axe finds on the page, or in one part of it (a selector), once it has loaded its parts."""
    wait_until(lambda: page.evaluate(_IS_LOADED), LOADED_S_MAX)
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe())
    found = []
    for scheme, rules in RULES.items():
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {one}" for one in page.evaluate(_RUN, [SERIOUS, rules, part])]
    page.emulate_media(color_scheme=variant_held().scheme)
    return found


def look(page: Any, installation: RunningInstallation, paths: dict[str, str]) -> list[str]:
    found = []
    for name, path in paths.items():
        page.goto(url_of(installation, path))
        # An address within a page that was judged before opens a part of it.
        found += [f"{name}: {one}" for one in wrong(page, OPENED if "#" in path else "")]
        for summary in page.locator("details:is(.message, .operation):not([open]) > summary").all()[:1]:
            summary.click()
            found += [f"{name}, opened: {one}" for one in wrong(page, OPENED)]
    return found


def test_pages_have_nothing_serious_under_axe(browser: Any, sighted: RunningInstallation) -> None:
    with window(browser) as page:
        found = look(page, sighted, {name: f"/console/{name}" for name in OPEN_PAGES})
        open_link(page, link_of(sighted, "--account", "sighted"))
        start = f"/console/a/{account_of(page)}/"
        found += look(page, sighted, {name: f"{start}{path}" for name, path in ACCOUNT_PAGES.items()})
        found += look(page, sighted, {"me": "/console/me"})
        page.goto(url_of(sighted, start))
        page.keyboard.press("Control+k")
        found += [f"jump: {one}" for one in wrong(page)]
    assert not found, "\n".join(found)


def test_reference_of_the_api_has_nothing_serious_under_axe(browser: Any, installation: RunningInstallation) -> None:
    with window(browser) as page:
        found = look(page, installation, REFERENCE_PAGES)
    assert not found, "\n".join(found)


def test_pages_of_operators_have_nothing_serious_under_axe(browser: Any, installation: RunningInstallation) -> None:
    with window(browser) as page:
        open_link(page, link_of(installation, "--operator"))
        found = look(page, installation, {name: f"/console/{path}" for name, path in OPERATOR_PAGES.items()})
    assert not found, "\n".join(found)


def test_axe_finds_what_is_wrong(browser: Any) -> None:
    """The check itself can fail."""
    page = browser.new_page()
    page.set_content("<!doctype html><html><body><input><img src='data:,'></body></html>")
    found = " ".join(wrong(page))
    assert "label" in found and "image-alt" in found and "html-has-lang" in found
    page.close()


def test_axe_finds_what_is_wrong_in_the_dark_alone(browser: Any) -> None:
    style = "<style>@media (prefers-color-scheme: dark) { body { color: #333; background: #222 } }</style>"
    with window(browser) as page:
        page.set_content(f"<!doctype html><html lang=en><title>Dark</title>{style}<main>Words</main></html>")
        assert [one.partition(":")[0] for one in wrong(page)] == ["dark"]


def test_page_is_not_judged_before_it_has_loaded_its_parts(browser: Any) -> None:
    with window(browser) as page:
        page.set_content('<div hx-trigger="load, every 5s">Wait</div>')
        assert not page.evaluate(_IS_LOADED)
        page.locator("div").evaluate("(part) => part.setAttribute('data-answered', '')")
        assert page.evaluate(_IS_LOADED)


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
