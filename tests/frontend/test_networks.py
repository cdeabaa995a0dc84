"""Whom calls without a key are counted for."""

from __future__ import annotations

import pytest

from frontend.http import network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:208", "192.0.2.8"),
        ("not: an address", "not: an address"),
        ("", ""),
    ],
)
def test_network_is_what_one_holder_has_whole(address: str, network: str) -> None:
    """IPv4 addresses as a proxy writes them that has one socket for both are no common network."""
    assert network_of(address) == network
