"""Bar charts as places in a drawing, which the server writes as SVG: settled below, provisional above. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 960, 160
_GAP = 2
# A bar that is not empty can be seen.
_LEAST = 1
_LABELS_MAX = 8


class BarValue(NamedTuple):
    """`text` is what stands beside the bar in words."""

    label: str
    settled: int
    provisional: int
    text: str


class Bar(NamedTuple):
    x: int
    width: int
    settled_y: int
    settled_height: int
    provisional_y: int
    provisional_height: int
    text: str


class BarLabel(NamedTuple):
    """`percent` of the width."""

    percent: int
    text: str


class BarChart(NamedTuple):
    """`highest` is the highest bar in words: the drawing has no axis of values."""

    width: int
    height: int
    highest: str
    bars: list[Bar]
    labels: list[BarLabel]


def bar_chart(values: Sequence[BarValue]) -> BarChart | None:
    """None where nothing is to be drawn."""
    most = max((one.settled + one.provisional for one in values), default=0)
    if most <= 0:
        return None
    step = WIDTH // len(values)
    width = max(step - _GAP, 1)
    bars = [_bar(place * step, width, one, most) for place, one in enumerate(values)]
    every = -(-len(values) // _LABELS_MAX)
    labels = [BarLabel(place * step * 100 // WIDTH, values[place].label) for place in range(0, len(values), every)]
    highest = max(values, key=lambda one: one.settled + one.provisional)
    return BarChart(WIDTH, HEIGHT, f"{highest.text}, {highest.label}", bars, labels)


def _bar(x: int, width: int, value: BarValue, most: int) -> Bar:
    settled, provisional = (_height(one, most) for one in (value.settled, value.provisional))
    settled = min(settled, HEIGHT - provisional)
    return Bar(
        x, width, HEIGHT - settled, settled, HEIGHT - settled - provisional, provisional, f"{value.label}: {value.text}"
    )


def _height(quantity: int, most: int) -> int:
    return max(quantity * HEIGHT // most, _LEAST) if quantity > 0 else 0
