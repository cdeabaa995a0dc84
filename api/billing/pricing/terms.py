"""The terms of a price plan's version, and their JSON, read strictly. Pure.

    {"currency": "USD", "base_fee_minor": 0, "minimum_minor": 0,
     "prices": {"sent_units": {"free": 1000000, "tiers": [{"up_to": 100000000000, "price_nanos": 400, "per": 1},
                                                            {"up_to": null, "price_nanos": 300, "per": 1}]},
                "messages_sent": {"included": true}, ...}}

A price is nanos for `per` of the meter's units. `up_to` counts from the first unit behind the free ones; the last tier
has none. Each meter of a plan has prices or is included; one that a plan leaves out has no price: its usage cannot be
billed, and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from api.billing.pricing.meters import BYTE_MS_PER_GIB_HOUR, PRICED_METERS, SHOWN_ONLY, UsageMeter
from api.billing.pricing.money import CURRENCIES

# Bounds of what a plan may say: sums of a month stay far within numeric(38).
AMOUNT_MINOR_MAX = 10**12
PRICE_NANOS_MAX = 10**15
QUANTITY_MAX = 10**30
TIERS_MAX = 20
_NAME_SHOWN_CHARACTERS = 40


class TermsError(ValueError):
    """The terms do not parse, or contradict themselves. The text names the member."""


class PriceTier(NamedTuple):
    """From the end of the tier before up to `up_to` (None: without end)."""

    up_to: int | None
    price_nanos: int
    per: int


class MeterPrice(NamedTuple):
    """Without tiers the meter is included."""

    free: int
    tiers: tuple[PriceTier, ...]


INCLUDED = MeterPrice(0, ())


class PlanTerms(NamedTuple):
    """Of one version. Fees and the minimum are of a whole month."""

    currency: str
    base_fee_minor: int
    minimum_minor: int
    prices: Mapping[UsageMeter, MeterPrice]


def parse_terms(document: Any) -> PlanTerms:
    """Raises TermsError."""
    members = _members(document, "terms", {"currency", "base_fee_minor", "minimum_minor", "prices"})
    currency = members["currency"]
    if not isinstance(currency, str) or currency not in CURRENCIES:
        raise TermsError(f"currency must be one of {', '.join(CURRENCIES)}")
    fees = [_whole(members[name], name, AMOUNT_MINOR_MAX) for name in ("base_fee_minor", "minimum_minor")]
    if not isinstance(members["prices"], dict):
        raise TermsError("prices must be an object")
    prices: dict[UsageMeter, MeterPrice] = {}
    for name, price in members["prices"].items():
        if name not in PRICED_METERS:
            if name in SHOWN_ONLY:
                raise TermsError(f"prices.{name} is shown and never priced")
            # A name of JSON may be half a character, which no page can show.
            raise TermsError(f"prices.{ascii(name[:_NAME_SHOWN_CHARACTERS])[1:-1]} is no meter")
        prices[UsageMeter(name)] = _parse_price(price, f"prices.{name}")
    return PlanTerms(currency, fees[0], fees[1], prices)


def check_complete(terms: PlanTerms) -> None:
    """Raises TermsError for a meter without a price: no new version may leave one out."""
    missing = [meter for meter in PRICED_METERS if meter not in terms.prices]
    if missing:
        raise TermsError(f"prices has nothing for {', '.join(missing)}")


def terms_document(terms: PlanTerms) -> dict[str, Any]:
    """The JSON that `parse_terms` reads."""
    return {
        "currency": terms.currency,
        "base_fee_minor": terms.base_fee_minor,
        "minimum_minor": terms.minimum_minor,
        "prices": {meter.value: _price_document(price) for meter, price in terms.prices.items()},
    }


def _price_document(price: MeterPrice) -> dict[str, Any]:
    if not price.tiers:
        return {"included": True}
    return {"free": price.free, "tiers": [tier._asdict() for tier in price.tiers]}


def _parse_price(document: Any, where: str) -> MeterPrice:
    if document == {"included": True}:
        return INCLUDED
    members = _members(document, where, {"free", "tiers"})
    free, found = _whole(members["free"], f"{where}.free", QUANTITY_MAX), members["tiers"]
    if not isinstance(found, list) or not 1 <= len(found) <= TIERS_MAX:
        raise TermsError(f"{where}.tiers must be a list of 1 to {TIERS_MAX}")
    tiers = tuple(_parse_tier(one, f"{where}.tiers[{place}]") for place, one in enumerate(found))
    ends = [tier.up_to for tier in tiers]
    if ends[-1] is not None:
        raise TermsError(f"{where}: the last tier must have no end (up_to null)")
    reached = 0
    for end in ends[:-1]:
        if end is None or end <= reached:
            raise TermsError(f"{where}: each tier must end behind the one before")
        reached = end
    return MeterPrice(free, tiers)


def _parse_tier(document: Any, where: str) -> PriceTier:
    members = _members(document, where, {"up_to", "price_nanos", "per"})
    up_to = None if members["up_to"] is None else _whole(members["up_to"], f"{where}.up_to", QUANTITY_MAX)
    per = _whole(members["per"], f"{where}.per", QUANTITY_MAX)
    if per == 0:
        raise TermsError(f"{where}.per must be at least 1")
    return PriceTier(up_to, _whole(members["price_nanos"], f"{where}.price_nanos", PRICE_NANOS_MAX), per)


def _members(document: Any, where: str, names: set[str]) -> dict[str, Any]:
    if not isinstance(document, dict) or set(document) != names:
        raise TermsError(f"{where} must be an object of {', '.join(sorted(names))}, all given and nothing else")
    return document


def _whole(value: Any, where: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise TermsError(f"{where} must be an integer from 0 to {most}")
    return value


# --- the plan of every account that was given no other; operators change it by a later version of their own ---

STANDARD_CODE = "standard"
STANDARD_NAME = "Standard"
_HOURS_PER_MONTH = 730
_GIB_MONTH = BYTE_MS_PER_GIB_HOUR * _HOURS_PER_MONTH
# 0.40 USD a million units, 0.30 USD from 100 thousand million on; the first million is free.
_UNITS = MeterPrice(10**6, (PriceTier(10**11, 400, 1), PriceTier(None, 300, 1)))
# 0.10 USD a GiB and month; the first GiB is free.
_STORAGE = MeterPrice(_GIB_MONTH, (PriceTier(None, 10**8, _GIB_MONTH),))

STANDARD_TERMS = PlanTerms(
    "USD",
    0,
    0,
    {
        **dict.fromkeys(PRICED_METERS, INCLUDED),
        UsageMeter.SENT_UNITS: _UNITS,
        UsageMeter.DELIVERED_UNITS: _UNITS,
        UsageMeter.STORED_BYTE_MS: _STORAGE,
    },
)
