"""Money as integers. Pure.

    nano     10**-9 of a currency's whole unit: prices, and shares of queues and tags
    minor    the smallest unit that is paid, a cent of most currencies: lines and totals

An amount is rounded once, from its exact value to minor units, when its line is made: half up. All amounts that are
rounded are positive. Nothing is computed with floating point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NANOS_PER_WHOLE = 10**9
# Digits behind the point, as ISO 4217 has them.
CURRENCIES = {
    "AUD": 2, "CAD": 2, "CHF": 2, "CZK": 2, "DKK": 2, "EUR": 2, "GBP": 2, "INR": 2, "JPY": 0, "KRW": 0, "NOK": 2,
    "NZD": 2, "PLN": 2, "SEK": 2, "SGD": 2, "TND": 3, "USD": 2,
}  # fmt: skip
PPM = 10**6
_PPM_PER_PERCENT = PPM // 100
_PERCENT = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,4}))? ?%?", re.ASCII)


def nanos_per_minor(currency: str) -> int:
    return NANOS_PER_WHOLE // 10 ** CURRENCIES[currency]


def round_half_up(numerator: int, denominator: int) -> int:
    """The one rounding of an amount."""
    assert numerator >= 0 and denominator > 0
    return (2 * numerator + denominator) // (2 * denominator)


def part_of(whole: int, numerator: int, denominator: int) -> int:
    """A part of an amount or an allowance, rounded as amounts are."""
    return round_half_up(whole * numerator, denominator)


def split_exactly(whole: int, weights: Sequence[int]) -> list[int]:
    """`whole` in shares proportional to `weights`: they sum to it. What is left of the division goes to the largest
    remainders, the first one of equals."""
    total = sum(weights)
    if total == 0:
        assert whole == 0
        return [0] * len(weights)
    shares = [whole * weight // total for weight in weights]
    remainders = [whole * weight % total for weight in weights]
    left = whole - sum(shares)
    for place in sorted(range(len(weights)), key=lambda place: (-remainders[place], place))[:left]:
        shares[place] += 1
    return shares


def format_minor(amount_minor: int, currency: str) -> str:
    """`1234` of USD is `12.34`. For people and CSV; JSON has the integer as well."""
    return _with_point(amount_minor, CURRENCIES[currency])


def format_nanos(amount_nanos: int) -> str:
    """In whole units, without trailing zeros, but never fewer than two digits behind the point."""
    whole, _, fraction = _with_point(amount_nanos, 9).partition(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"


def format_percent(rate_ppm: int) -> str:
    """`190000` is `19`, `88750` is `8.875`."""
    return f"{rate_ppm // _PPM_PER_PERCENT}.{rate_ppm % _PPM_PER_PERCENT:04}".rstrip("0").rstrip(".")


def parse_percent(text: str) -> int:
    """`19`, `8.875` or `19 %` in parts per million. Raises ValueError."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise ValueError("a rate is a percentage with at most four decimals, like 19 or 8.875")
    return int(found[1]) * _PPM_PER_PERCENT + int((found[2] or "").ljust(4, "0"))


def _with_point(amount: int, digits: int) -> str:
    sign = "-" if amount < 0 else ""
    text = str(abs(amount)).rjust(digits + 1, "0")
    return f"{sign}{text[:-digits]}.{text[-digits:]}" if digits else f"{sign}{text}"


def parse_minor(text: str, currency: str) -> int:
    """`12`, `12.5` and `12.50` of USD are 1200, 1250 and 1250. Raises ValueError."""
    digits = CURRENCIES[currency]
    found = re.fullmatch(rf"([0-9]{{1,13}})(?:\.([0-9]{{1,{digits}}}))?" if digits else r"([0-9]{1,13})()", text)
    if found is None:
        raise ValueError(f"an amount is written like {format_minor(5000, currency)}")
    return int(found[1]) * 10**digits + int((found[2] or "").ljust(digits, "0") or 0)
