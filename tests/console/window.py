"""A window of a real browser, in the variant of the test that opens it."""

from __future__ import annotations

import copy
import re
from typing import Any, Protocol

from tests.console.variants import variant_held

WAIT_MS = 30_000
# What a person cannot do by tapping alone: a page that is wider than its window, and a control that is in sight only
# once something was moved sideways.
_WATCH = """(() => {
  const controls = "a, button, input, select, textarea, summary";
  const look = (event) => {
    const root = document.documentElement, width = root.clientWidth, wrong = [];
    if (root.scrollWidth > width || scrollX > 0) {
      const far = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > width);
      wrong.push(`the page is ${root.scrollWidth} px wide, not ${width}: ${far.at(-1)?.outerHTML.slice(0, 160)}`);
    }
    if (document.querySelectorAll("main").length > 1) wrong.push("a page stands within another");
    const control = event.target instanceof Element && event.target.closest(controls);
    if (control) {
      const box = control.getBoundingClientRect(), name = control.outerHTML.slice(0, 160);
      if (box.left < -1 || box.right > width + 1) wrong.push(`partly out of sight: ${name}`);
      for (let one = control.parentElement; one; one = one.parentElement) {
        if (one.scrollLeft > 0) wrong.push(`reached by moving ${one.className} sideways: ${name}`);
      }
    }
    for (const text of wrong) console.error(`${location.pathname}: ${text}`);
  };
  for (const kind of ["pointerdown", "input", "change"]) document.addEventListener(kind, look, true);
})();"""

# Texts whose contrast with what lies behind them is under 4.5 to 1 (WCAG 2.1, AA), by their first words.
CONTRAST = """() => {
  const part = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (colour) => colour.slice(0, 3).map((one) => one / 255)
    .map((one) => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [.2126, .7152, .0722][place], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = part(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("main *, header *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
    if (!text || !element.offsetParent || element.closest(".u-legend, [disabled], .unseen")) continue;
    const [one, other] = [light(part(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (ratio < 4.5) found.push(`${text.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""


class HasEndpoint(Protocol):
    """An installation, or pages that a test serves."""

    @property
    def key(self) -> dict[str, Any]: ...


class Window:
    """A page that notes what must never happen: failing scripts, refused resources, requests to other sites, controls
    that are out of sight."""

    def __init__(self, browser: Any, installation: HasEndpoint, **options: Any) -> None:
        variant = variant_held()
        self.context = browser.new_context(**{"color_scheme": variant.scheme, **variant.device, **options})
        self.context.add_init_script(_WATCH)
        self.endpoint = installation.key["endpoint"]
        self.wrong: list[str] = []
        self._open()

    def _open(self) -> None:
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        # What comes after a click is for the page that it leads to, not for the one that still stands there: an action
        # waits while htmx has a request under way.
        self.page.add_locator_handler(self.page.locator("html.working"), lambda: None)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("console", lambda line: self.wrong.append(line.text) if _is_wrong(line) else None)
        self.page.on("request", self._look)

    def _look(self, request: Any) -> None:
        if not request.url.startswith((self.endpoint, "data:", "blob:")):
            self.wrong.append(f"request to another site: {request.url}")

    def another(self) -> Window:
        """A second tab of the same browser. It is closed with this one."""
        tab = copy.copy(self)
        tab._open()
        return tab

    def see(self, text: str) -> None:
        """Raises AssertionError with what the page says instead."""
        from playwright.sync_api import TimeoutError as NotThere

        try:
            self.page.get_by_text(text).first.wait_for()
        except NotThere:
            shown = self.page.inner_text("body")[:1_000]
            raise AssertionError(f"{text!r} is not on {self.page.url}: {shown}") from None

    def open_menu(self) -> None:
        """A phone has the menu folded, and shut again on every page."""
        button = self.page.get_by_role("button", name="Menu", exact=True)
        if button.is_visible() and button.get_attribute("aria-expanded") == "false":
            button.click()

    def choose(self, name: str) -> None:
        """A link of the menu."""
        self.open_menu()
        self.page.locator("#menu").get_by_role("link", name=name, exact=True).click()

    def sign_out(self) -> None:
        self.open_menu()
        self.page.get_by_role("button", name="Sign out").click()

    def fits(self) -> bool:
        """Nothing makes the page wider than the window."""
        width = self.page.viewport_size["width"]
        return bool(self.page.evaluate("document.documentElement.scrollWidth") <= width)

    def close(self) -> None:
        self.context.close()
        assert not self.wrong, self.wrong


def _is_wrong(line: Any) -> bool:
    """A refusal (status 4xx) that a test provokes is noted by the browser and by htmx, too."""
    return line.type == "error" and not re.search(r"status of 4|Status Error Code 4", line.text)
