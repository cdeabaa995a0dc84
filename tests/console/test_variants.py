"""The variants in which flows run: every one of them has its share, and the watch on a window can fail."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.console.pictures import browsing
from tests.console.variants import PHONE_DARK, VARIANTS, holding
from tests.console.window import Window

FILES = sorted(path.stem for path in Path(__file__).parent.glob("test_browser*.py"))
# It looks at both widths by itself, in each scheme.
OTHERS = {"test_pages_about_money_fit_and_can_be_read"}


def flows() -> dict[str, Any]:
    """The tests of the browser files, by name."""
    modules = [importlib.import_module(f"tests.console.{name}") for name in FILES]
    return {
        name: test
        for module in modules
        for name, test in vars(module).items()
        if name.startswith("test_") and test.__module__ == module.__name__
    }


def test_each_flow_has_a_variant_and_each_variant_its_share() -> None:
    given = {name: getattr(test, "suite_variants", ()) for name, test in flows().items()}
    assert {name for name, chosen in given.items() if not chosen} == OTHERS
    shares = Counter(variant.name for variants in given.values() for variant in variants)
    assert set(shares) == {variant.name for variant in VARIANTS}
    assert max(shares.values()) - min(shares.values()) <= 2, shares


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


SIDE = (
    "<div style='overflow-x: auto; width: 300px'><p style='width: 900px; text-align: right'><button>Far</button></div>"
)
WIDE = "<div style='width: 900px'>Words</div><button>Near</button>"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "says"), [(SIDE, "reached by moving"), (WIDE, "px wide, not 390"), ("<button>Near</button>", "")]
)
def test_window_notes_what_a_person_would_have_to_look_for(browser: Any, body: str, says: str) -> None:
    with holding(PHONE_DARK):
        window = Window(browser, SimpleNamespace(key={"endpoint": "data:"}))
    head = "<!doctype html><meta name=viewport content='width=device-width, initial-scale=1'><main>"
    window.page.goto(f"data:text/html,{head}{body}")
    assert window.page.evaluate("matchMedia('(hover: none) and (prefers-color-scheme: dark)').matches")
    window.page.get_by_role("button").click()
    window.page.wait_for_timeout(100)
    assert [says in text for text in window.wrong] == ([True] if says else []), window.wrong
    window.wrong.clear()
    window.close()
