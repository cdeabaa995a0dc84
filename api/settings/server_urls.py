"""Where the database and the broker are: `NAME`, or the file that `NAME_FILE` names, for all processes alike.

A file keeps the password out of the environment, which child processes inherit; so what it holds is not put there.
"""

from __future__ import annotations

import os

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
