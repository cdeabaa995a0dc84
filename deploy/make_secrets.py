"""Files that only their owner may read: secrets, keys, certificates.

`python -m deploy.make_secrets DIR` makes the shared keys missing in DIR: for containers; `up` does it itself.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

SECRET_NAMES = ("master.key", "internal.key", "receipt.key", "django.key", "pepper.key")


def write_private_once(path: Path, content: str | bytes) -> None:
    """Nothing where the file is there."""
    if not path.exists():
        write_private(path, content)


def write_private(path: Path, content: str | bytes) -> None:
    """The file is complete under its name, or what it was before."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m deploy.make_secrets DIR\n")
        return 2
    for name in SECRET_NAMES:
        write_private_once(Path(arguments[0]) / name, secrets.token_hex(32))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
