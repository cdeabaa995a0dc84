"""Servers of the operator's own in the place of embedded ones: named by `NAME`, or by the file that `NAME_FILE` names.

A file keeps the password out of the environments of all processes: it is passed on as a file.
"""

from __future__ import annotations

import os
from pathlib import Path

from deploy.errors import EXIT_USAGE, CommandError

DATABASE_URL = "DATABASE_URL"
BROKER_URL = "CELERY_BROKER_URL"
NAMES = (DATABASE_URL, BROKER_URL)


def is_outside(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def outside_url(name: str) -> str:
    """Empty where none is named. Raises CommandError for a file that says none."""
    url, path = os.environ.get(name), os.environ.get(f"{name}_FILE")
    if url or not path:
        return url or ""
    try:
        url = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CommandError(f"{name}_FILE: cannot read {path}: {why}", EXIT_USAGE) from None
    if not url:
        raise CommandError(f"{name}_FILE: {path} is empty", EXIT_USAGE)
    return url


def named_file(name: str) -> dict[str, str]:
    """The file that the launcher was told of, by its full path: processes run in another folder. Empty: of none."""
    path = os.environ.get(f"{name}_FILE")
    return {f"{name}_FILE": os.path.abspath(path)} if path else {}


def passed_on(name: str, url: str) -> dict[str, str]:
    """What a process is told that needs the server: as the launcher was told, or the URL of an embedded one."""
    return (not os.environ.get(name) and named_file(name)) or {name: url}
