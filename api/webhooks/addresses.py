"""Which addresses on the network may be called for a customer. Pure: numbers in, yes or no out.

Nothing is called but what every host on the internet could call as well. IPv6 addresses that carry an IPv4 address are
judged by that one (mapped, NAT64), or refused where the address leads through a relay (6to4, Teredo, compatible).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HTTPS = 443
# The registries of special addresses of IPv4, multicast, what is reserved, and a service of a cloud that has a public
# address (168.63.129.16, of Azure).
_REFUSED_IPV4 = [
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
        "240.0.0.0/4",
    )
]  # fmt: skip
# Of IPv6 one block is given to hosts of the internet. In it: protocols (Teredo is one), documentation, 6to4.
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_IPV6 = [
    ipaddress.IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_BITS = 0xFFFFFFFF


class CallPolicy(NamedTuple):
    """What the operator of the installation lets webhooks reach. `networks`: beside the internet."""

    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset((_HTTPS,))

    def allows(self, address: Address) -> bool:
        """Is it in one of the operator's networks, or a host of the internet?"""
        return self.names(address) or _is_public(unwrapped(address))

    def names(self, address: Address) -> bool:
        """Is it in one of the operator's networks?"""
        inner = unwrapped(address)
        return any(inner.version == network.version and inner in network for network in self.networks)


def unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & _IPV4_BITS)
    return address


def parse_networks(text: str) -> tuple[Network, ...]:
    """`10.1.0.0/16,fd00:1::/64`. Raises ValueError."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def parse_ports(text: str) -> frozenset[int]:
    """`443,8443`. Raises ValueError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and 1 <= int(part) <= 65_535 for part in parts):
        raise ValueError("must be ports from 1 to 65535, with commas between them")
    return frozenset(map(int, parts))


def all_allowed(policy: CallPolicy, addresses: Iterable[Address]) -> bool:
    """A name that also leads to an address that is refused is refused as a whole."""
    found = list(addresses)
    return bool(found) and all(policy.allows(address) for address in found)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _REFUSED_IPV4)
    if address.scope_id is not None:
        return False
    return address in _GLOBAL_IPV6 and not any(address in network for network in _REFUSED_IPV6)
