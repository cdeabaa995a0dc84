"""Numbers, times, addresses and truth values, as policies and requests write them. Pure.

Each reader answers None for a text that it cannot read, and reads the whole text or nothing: `10abc` is no number.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from frontend.authz.policy_limits import NUMBER_DIGITS_MAX, PARSED_VALUES_KEPT_MAX

_NUMBER = re.compile(r"([+-])?([0-9]{1,40})(?:\.([0-9]{1,40}))?", re.ASCII)
_YEAR = re.compile(r"[0-9]{4}", re.ASCII)
# The W3C subset of ISO 8601: a time of day has a zone, a date alone is midnight UTC.
_DATE = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})"
    r"(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:Z|([+-])([0-9]{2}):([0-9]{2})))?)?)?",
    re.ASCII,
)
_PREFIX_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS_PER_S = 1_000_000_000
_MAPPED_PREFIX_BITS = 96


class IpAddress(NamedTuple):
    """An IPv4-mapped IPv6 address is the IPv4 address."""

    version: int
    number: int

    def is_in(self, network: Network) -> bool:
        return self.version == network.version and self.number & network.mask == network.number


class Network(NamedTuple):
    version: int
    number: int
    mask: int


def read_boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.lower())


@lru_cache(PARSED_VALUES_KEPT_MAX)
def read_number(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text)
    if match is None or len(match[2]) + len(match[3] or "") > NUMBER_DIGITS_MAX:
        return None
    return Decimal(text)


@lru_cache(PARSED_VALUES_KEPT_MAX)
def read_time_ns(text: str) -> int | None:
    """Nanoseconds since 1970. Four digits are a year, any other number is seconds since 1970."""
    number = None if _YEAR.fullmatch(text) else _NUMBER.fullmatch(text)
    if number is not None:
        sign, whole, fraction = number.groups()
        since_ns = int(whole) * _NS_PER_S + _fraction_ns(fraction)
        return -since_ns if sign == "-" else since_ns
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    if zone_minutes is not None and int(zone_minutes) > 59:
        return None
    zone = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
    try:
        at = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
            tzinfo=timezone(-zone if sign == "-" else zone),
        )  # fmt: skip
    except ValueError:
        return None
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * _NS_PER_S + _fraction_ns(fraction)


@lru_cache(PARSED_VALUES_KEPT_MAX)
def read_address(text: str) -> IpAddress | None:
    if "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return IpAddress(address.version, int(address))


def read_network(text: str) -> Network | None:
    """An address alone is a network of one. Bits behind the prefix are masked off."""
    host, slash, length_text = text.partition("/")
    address = read_address(host)
    if address is None or (slash and _PREFIX_LENGTH.fullmatch(length_text) is None):
        return None
    bits = 32 if address.version == 4 else 128
    length = int(length_text) if slash else bits
    if slash and address.version == 4 and ":" in host:
        length -= _MAPPED_PREFIX_BITS
    if not 0 <= length <= bits:
        return None
    mask = ((1 << length) - 1) << (bits - length)
    return Network(address.version, address.number & mask, mask)


def read_bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0")[:9].ljust(9, "0"))


def format_time(epoch_s: int) -> str:
    return (_EPOCH + timedelta(seconds=epoch_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
