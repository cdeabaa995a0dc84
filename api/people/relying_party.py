"""What passkeys are bound to: the public address of the installation, and the name in it. Pure.

Browsers hold a key pair per name (the RP id) and sign the origin of the page that asks. They know no names that are
addresses, and no passkeys on pages without https, but for `localhost`. An installation whose endpoint is a loopback
address is therefore visited under that name.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

NAME = "Penstock"
_LOCAL = "localhost"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class RelyingParty(NamedTuple):
    """`origin` as browsers write it: without the port that the scheme implies."""

    rp_id: str
    origin: str


def relying_party(endpoint: str) -> RelyingParty | None:
    """None where no browser gives passkeys: the endpoint is an address, or is no https."""
    parts = urlsplit(endpoint)
    host = _visited_name(parts.hostname or "")
    is_trusted = parts.scheme == "https" or (parts.scheme == "http" and host == _LOCAL)
    if host is None or not is_trusted:
        return None
    port = "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    return RelyingParty(host, f"{parts.scheme}://{host}{port}")


def _visited_name(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host or None
    return _LOCAL if address.is_loopback else None
