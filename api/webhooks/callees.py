"""The URL of a webhook, parsed strictly: a host has one spelling, so what was checked is what is called. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from api.webhooks import limits
from api.webhooks.addresses import Address, CallPolicy

_PREFIX = "https://"
_HTTPS = 443
_PRINTABLE = re.compile(r"[!-~]+")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What some parsers read as a number: decimal, octal, hexadecimal.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IPV4 = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}")
_NAME_CHARACTERS_MAX = 253


class CalleeError(ValueError):
    """The text says what is wrong, and quotes nothing."""


class Callee(NamedTuple):
    """`host`: a name in small letters, or an address without brackets. `target`: path and query."""

    host: str
    port: int
    target: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _HTTPS else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{_PREFIX}{self.authority}{self.target}"

    @property
    def shown(self) -> str:
        """Without path and query, which often are a secret."""
        return f"{_PREFIX}{self.authority}/" + ("" if self.target == "/" else "...")


def parse_callee(url: str, policy: CallPolicy) -> Callee:
    """Raises CalleeError."""
    if len(url) > limits.WEBHOOK_URL_CHARACTERS_MAX:
        raise CalleeError(f"A URL of a webhook has at most {limits.WEBHOOK_URL_CHARACTERS_MAX} characters.")
    if not _PRINTABLE.fullmatch(url):
        raise CalleeError("A URL of a webhook has printable ASCII characters without spaces; encode all others.")
    if url[: len(_PREFIX)].lower() != _PREFIX:
        raise CalleeError("A URL of a webhook begins with https://.")
    end = re.search(r"[/?#\\]", rest := url[len(_PREFIX) :])
    authority, target = (rest[: end.start()], rest[end.start() :]) if end else (rest, "/")
    if "@" in authority:
        raise CalleeError("A URL of a webhook has no user name and no password.")
    if "#" in target or "\\" in target:
        raise CalleeError("A URL of a webhook has no fragment and no backslash.")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise CalleeError("The URL has no host name that can be called.")
    port = int(found["port"] or _HTTPS)
    if port not in policy.ports:
        raise CalleeError(f"Webhooks call these ports: {', '.join(map(str, sorted(policy.ports)))}.")
    host, address = _host(found["host"].lower())
    if address is not None and not policy.allows(address):
        raise CalleeError("This address is not one of the public internet, and webhooks may not call it.")
    return Callee(host, port, target if target.startswith("/") else f"/{target}", address)


def _host(text: str) -> tuple[str, Address | None]:
    """Raises CalleeError."""
    try:
        if text.startswith("["):
            address: Address = ipaddress.IPv6Address(text[1:-1])
            return str(address), address
        if _IPV4.fullmatch(text):
            address = ipaddress.IPv4Address(text)
            return str(address), address
    except ValueError:
        raise CalleeError("The host of the URL is no address that can be called.") from None
    labels = text.split(".")
    if len(text) > _NAME_CHARACTERS_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise CalleeError("The URL has no host name that can be called.")
    if _NUMBER.fullmatch(labels[-1]):
        raise CalleeError("Write an IPv4 address as four decimal numbers.")
    return text, None
