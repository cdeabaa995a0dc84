"""Sums of byte-milliseconds that do not overflow, at the speed of 64-bit numbers.

A terabyte stored for a month is 2.6e21 byte-ms: beyond 64 bits, and Spark's decimals of that size are slow in sums. So
each addend is a pair, high * RADIX + low with 0 <= low < RADIX; both are summed as 64-bit numbers, and joined once.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from workers.spark_jobs.schemas.frames import BYTE_MS

RADIX = 1_000_000_000
# A level is multiplied by a duration in two parts, so that neither product passes 64 bits for a gap of a century.
_LEVEL_RADIX = 1_000_000
HIGH, LOW = "stored_high", "stored_low"
_RADIX_DIGITS = "decimal(10,0)"


def pair_of(byte_ms: Column) -> tuple[Column, Column]:
    """(high, low) of a 64-bit number that is not negative."""
    return _div(byte_ms, RADIX), byte_ms % RADIX


def pair_of_product(level_bytes: Column, duration_ms: Column) -> tuple[Column, Column]:
    """(high, low) of level * duration."""
    upper = _div(level_bytes, _LEVEL_RADIX) * duration_ms  # in millions
    lower = (level_bytes % _LEVEL_RADIX) * duration_ms
    low = (upper % (RADIX // _LEVEL_RADIX)) * _LEVEL_RADIX + lower
    return _div(upper, RADIX // _LEVEL_RADIX) + _div(low, RADIX), low % RADIX


def joined(high_sum: Column, low_sum: Column) -> Column:
    """The number again, as the decimal that frames hold."""
    high = high_sum.cast("decimal(27,0)") * F.lit(RADIX).cast(_RADIX_DIGITS)
    return (high + low_sum.cast("decimal(19,0)")).cast(BYTE_MS)


def _div(number: Column, by: int) -> Column:
    """Whole division of 64-bit numbers."""
    return F.call_function("div", number, F.lit(by))
