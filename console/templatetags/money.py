"""Amounts as people read them. Exact ones stand in the documents and in REST."""

from __future__ import annotations

from typing import Any

from django import template

from api.billing.pricing.meters import SHOWN, UsageMeter, shown_quantity
from api.billing.pricing.money import (
    CURRENCIES,
    NANOS_PER_WHOLE,
    format_minor,
    format_nanos,
    format_percent,
    round_half_up,
)

register = template.Library()
_MICRO = 1_000


@register.filter
def minor(amount: Any, currency: str) -> str:
    """1234 of USD -> 12.34 USD."""
    return "–" if amount is None else f"{format_minor(int(amount), currency)} {currency}"


@register.filter
def nanos(amount: Any, currency: str) -> str:
    """A share: as an amount, or, below one minor unit, to the millionth."""
    if amount is None:
        return "–"
    exact = int(amount)
    per_minor = NANOS_PER_WHOLE // 10 ** CURRENCIES[currency]
    if exact >= per_minor:
        return f"{format_minor(round_half_up(exact, per_minor), currency)} {currency}"
    if 0 < exact < _MICRO:
        return f"under 0.000001 {currency}"
    return f"{format_nanos(exact // _MICRO * _MICRO)} {currency}"


@register.filter
def percent(rate_ppm: Any) -> str:
    """Of a tax, which is stored in parts per million: 190000 -> 19 %."""
    return f"{format_percent(int(rate_ppm))} %"


@register.filter
def quantity(amount: Any, meter: str) -> str:
    return shown_quantity(UsageMeter(meter), int(amount))


@register.filter
def meter_name(meter: str) -> str:
    return SHOWN[UsageMeter(meter)][0]
