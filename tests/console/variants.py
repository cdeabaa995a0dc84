"""The four variants in which a flow runs in a browser: a desktop or a phone, light or dark.

In the suite a flow runs in the one that its mark names. `PENSTOCK_BROWSER_VARIANTS=all` runs each in all four.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.console.pictures import DESKTOP, PHONE


class Variant(NamedTuple):
    """`device`: options of a browser's context."""

    name: str
    scheme: str
    device: dict[str, Any]

    def __str__(self) -> str:
        return self.name


_PHONE = {"viewport": PHONE, "is_mobile": True, "has_touch": True}
DESKTOP_LIGHT = Variant("desktop-light", "light", {"viewport": DESKTOP})
DESKTOP_DARK = Variant("desktop-dark", "dark", {"viewport": DESKTOP})
PHONE_LIGHT = Variant("phone-light", "light", _PHONE)
PHONE_DARK = Variant("phone-dark", "dark", _PHONE)
VARIANTS = (DESKTOP_LIGHT, DESKTOP_DARK, PHONE_LIGHT, PHONE_DARK)
RUNS_ALL = os.environ.get("PENSTOCK_BROWSER_VARIANTS") == "all"
_held = [DESKTOP_LIGHT]


def flow(*variants: Variant) -> Callable[[Any], Any]:
    """Marks a test that opens windows: these variants are the suite's."""
    chosen = VARIANTS if RUNS_ALL else variants

    def mark(test: Any) -> Any:
        test.suite_variants = variants
        over = pytest.mark.parametrize("variant", chosen, ids=str, indirect=True)
        return pytest.mark.usefixtures("variant")(over(test))

    return mark


@contextmanager
def holding(variant: Variant) -> Iterator[Variant]:
    """Windows that are opened meanwhile are of this variant."""
    _held.append(variant)
    try:
        yield variant
    finally:
        _held.pop()


def variant_held() -> Variant:
    return _held[-1]
