"""Numbers, times, addresses: what is read, and what is not."""

from __future__ import annotations

import ipaddress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.authz.condition_values import (
    format_time,
    read_address,
    read_boolean,
    read_bytes,
    read_network,
    read_number,
    read_time_ns,
)
from frontend.authz.policy_limits import NUMBER_DIGITS_MAX

S = 1_000_000_000
MIDNIGHT = 1_795_000_000 - (11 * 3_600 + 6 * 60 + 40)  # 2026-11-18


@pytest.mark.parametrize(
    ("text", "number"), [("0", "0"), ("-0", "0"), ("+7", "7"), ("007", "7"), ("1.50", "1.5"), ("-2.25", "-2.25")]
)
def test_number_is_read(text: str, number: str) -> None:
    assert read_number(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1x", "10abc", "1e3", "0x10", "1.", ".5", "1,5", "--1", "1_000", "NaN", "Infinity", "٣", "1\n"],
)  # fmt: skip
def test_what_is_no_number_is_not_read(text: str) -> None:
    assert read_number(text) is None


def test_number_has_so_many_digits_at_most() -> None:
    assert read_number("9" * NUMBER_DIGITS_MAX) == Decimal("9" * NUMBER_DIGITS_MAX)
    assert read_number("9" * (NUMBER_DIGITS_MAX + 1)) is None
    assert read_number("9" * NUMBER_DIGITS_MAX + ".1") is None
    assert read_number("9" * (NUMBER_DIGITS_MAX - 1) + ".1") is not None


@pytest.mark.parametrize(
    ("text", "since_s"),
    [
        ("2026-11-18T11:06:40Z", 1_795_000_000),
        ("2026-11-18T11:06Z", 1_795_000_000 - 40),
        ("2026-11-18T12:06:40+01:00", 1_795_000_000),
        ("2026-11-18T05:36:40-05:30", 1_795_000_000),
        ("2026-11-18", MIDNIGHT),
        ("2026-11", MIDNIGHT - 17 * 86_400),
        ("2026", 1_767_225_600),
        ("1970-01-01T00:00:00Z", 0),
        ("1795000000", 1_795_000_000),
        ("0", 0),
        ("-1", -1),
        ("99999", 99_999),
        ("999", 999),
    ],
)
def test_time_is_read(text: str, since_s: int) -> None:
    assert read_time_ns(text) == since_s * S


def test_parts_of_a_second_are_read() -> None:
    assert read_time_ns("2026-11-18T11:06:40.000000001Z") == 1_795_000_000 * S + 1
    assert read_time_ns("2026-11-18T11:06:40.5Z") == read_time_ns("1795000000.5")
    assert read_time_ns("-1.25") == -1_250_000_000


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2026-13", "2026-02-30", "2026-11-18T11:06:40", "2026-11-18T11Z", "2026-11-18 11:06:40Z",
     "2026-11-18T24:00:00Z", "2026-11-18T11:60:00Z", "2026-11-18T11:06:60Z", "2026-11-18T11:06:40.Z",
     "2026-11-18t11:06:40z", "2026-11-18T11:06:40+0100", "2026-11-18T11:06:40+24:00", "2026-11-18T11:06:40+01:60",
     "26-11-18", "2026-1-1", "0000-01-01", "2026-11-18T11:06:40.0000000001Z", "2026-11-18T11:06:40Z "],
)  # fmt: skip
def test_what_is_no_time_is_not_read(text: str) -> None:
    assert read_time_ns(text) is None


@given(st.integers(0, 4_000_000_000))
def test_time_that_is_written_is_read_as_the_same(epoch_s: int) -> None:
    assert read_time_ns(format_time(epoch_s)) == epoch_s * S


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("False", False)])
def test_truth_value_is_read(text: str, value: bool) -> None:
    assert read_boolean(text) is value


@pytest.mark.parametrize("text", ["", "1", "0", "yes", " true", "true\n", "t"])
def test_what_is_no_truth_value_is_not_read(text: str) -> None:
    assert read_boolean(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "10.1.2", "10.1.2.256", "010.1.2.3", "10.1.2.3.4", "a", "1", ":::", "fe80::1%eth0", "10.1.2.3 ", "[::1]",
     "::ffff:10.1.2.256"],
)  # fmt: skip
def test_what_is_no_address_is_not_read(text: str) -> None:
    assert read_address(text) is None
    assert read_network(text) is None


@pytest.mark.parametrize(
    "text",
    ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/255.0.0.0", "10.0.0.0/8/8", "/8",
     "10.0.0.0/ 8", "::ffff:10.0.0.0/95"],
)  # fmt: skip
def test_what_is_no_network_is_not_read(text: str) -> None:
    assert read_network(text) is None


def test_ipv4_mapped_address_is_the_ipv4_address() -> None:
    assert read_address("::ffff:10.1.2.3") == read_address("10.1.2.3")
    assert read_network("::ffff:10.0.0.0/104") == read_network("10.0.0.0/8")
    assert read_network("::ffff:10.1.2.3") == read_network("10.1.2.3/32")


def test_bits_behind_the_prefix_are_masked_off() -> None:
    assert read_network("10.1.2.3/8") == read_network("10.0.0.0/8")


addresses = st.ip_addresses(v=4) | st.ip_addresses(v=6, network="2001:db8::/32")


@given(addresses, addresses, st.integers(0, 128))
def test_network_holds_what_the_standard_library_says(
    address: ipaddress.IPv4Address, base: ipaddress.IPv4Address, length: int
) -> None:
    length = min(length, base.max_prefixlen)
    network, read = read_network(f"{base}/{length}"), read_address(str(address))
    assert network is not None and read is not None
    expected = address in ipaddress.ip_network(f"{base}/{length}", strict=False)
    assert read.is_in(network) == expected


@pytest.mark.parametrize(("text", "value"), [("", b""), ("YQ==", b"a"), ("YWI=", b"ab")])
def test_base64_is_read(text: str, value: bytes) -> None:
    assert read_bytes(text) == value


@pytest.mark.parametrize("text", ["YQ", "YQ=", "Y Q==", "YQ==\n", "é", "-_8="])
def test_what_is_no_base64_is_not_read(text: str) -> None:
    assert read_bytes(text) is None
