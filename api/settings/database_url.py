"""Reads `postgresql://user:password@host:port/name?host=/socket/dir&option=value`."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit


class DatabaseAddress(NamedTuple):
    """Empty strings where the URL is silent: libpq's own defaults then hold."""

    name: str
    user: str
    password: str
    host: str
    port: str
    options: dict[str, str]


def parse_database_url(url: str) -> DatabaseAddress:
    """Raises ValueError; its text never quotes the URL, which may hold a password."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("DATABASE_URL must start with postgresql://")
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ValueError("DATABASE_URL must name a database")
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", unquote(parts.hostname or ""))
    port = options.pop("port", str(parts.port or ""))
    return DatabaseAddress(name, unquote(parts.username or ""), unquote(parts.password or ""), host, port, options)
