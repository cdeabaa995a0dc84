"""The terms of a price plan's version in words."""

from __future__ import annotations

from typing import NamedTuple

from api.billing.models import PricePlanVersion
from api.billing.pricing.meters import PRICED_METERS, SHOWN, UsageMeter, shown_quantity
from api.billing.pricing.money import format_minor, format_nanos
from api.billing.pricing.terms import MeterPrice, PriceTier, parse_terms


class PriceWords(NamedTuple):
    """`tiers` are lines, one for each tier; empty: the meter is included."""

    meter: str
    free: str
    tiers: list[str]


class PlanWords(NamedTuple):
    version: PricePlanVersion
    currency: str
    base_fee: str
    minimum: str
    prices: list[PriceWords]
    included: list[str]


def plan_words(version: PricePlanVersion) -> PlanWords:
    terms = parse_terms(version.terms)
    found = [(meter, terms.prices[meter]) for meter in PRICED_METERS if meter in terms.prices]
    fees = [format_minor(fee, terms.currency) for fee in (terms.base_fee_minor, terms.minimum_minor)]
    return PlanWords(
        version,
        terms.currency,
        fees[0] if terms.base_fee_minor else "",
        fees[1] if terms.minimum_minor else "",
        [_price_words(meter, price, terms.currency) for meter, price in found if price.tiers],
        [SHOWN[meter][0] for meter, price in found if not price.tiers],
    )


def terms_lines(version: PricePlanVersion) -> list[str]:
    """As they were understood, a line for each fee and price."""
    words = plan_words(version)
    fees = [("base fee a month", words.base_fee), ("minimum a month", words.minimum)]
    lines = [f"{name}: {amount} {words.currency}" for name, amount in fees if amount]
    for price in words.prices:
        free = f"{price.free} a month are free, then " if price.free else ""
        lines.append(f"{price.meter}: {free}{'; then '.join(price.tiers)}")
    return [*lines, f"included: {', '.join(words.included)}"] if words.included else lines


def _price_words(meter: UsageMeter, price: MeterPrice, currency: str) -> PriceWords:
    unit = SHOWN[meter][2]
    free = f"{shown_quantity(meter, price.free)} {unit}" if price.free else ""
    return PriceWords(SHOWN[meter][0], free, [_tier_words(meter, tier, currency) for tier in price.tiers])


def _tier_words(meter: UsageMeter, tier: PriceTier, currency: str) -> str:
    """Of one shown unit where that is large, else of a million, as on an invoice."""
    _, per_unit, unit = SHOWN[meter]
    per, name = (per_unit, unit.removesuffix("s")) if per_unit > 1 else (10**6, f"million {unit}")
    price = f"{format_nanos(tier.price_nanos * per // tier.per)} {currency} per {name}"
    return price if tier.up_to is None else f"{price}, up to {shown_quantity(meter, tier.up_to)} {unit}"
