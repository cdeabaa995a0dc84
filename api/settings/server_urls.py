"""Where the database and the broker are: `NAME`, or the file that `NAME_FILE` names, for all processes alike; and what
the URL of a database says: `postgresql://user:password@host:port/name?host=/socket/dir&option=value`.

A file keeps the password out of the environment, which child processes inherit; so what it holds is not put there.
"""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

DATABASE_URL = "DATABASE_URL"
BROKER_URL = "CELERY_BROKER_URL"


class SettingsError(Exception):
    """The environment does not describe an installation. The text names every setting that is wrong."""


def server_url(name: str) -> str:
    """Raises SettingsError."""
    url = os.environ.get(name)
    if url:
        return url
    path = os.environ.get(f"{name}_FILE")
    if not path:
        raise SettingsError(f"neither {name} nor {name}_FILE is set")
    try:
        with open(path, encoding="utf-8") as file:
            url = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SettingsError(f"{name}_FILE: cannot read {path}: {why}") from None
    if not url:
        raise SettingsError(f"{name}_FILE: {path} is empty")
    return url


def is_given(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


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
