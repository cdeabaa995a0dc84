"""Files that only their owner may read: secrets, keys, certificates."""

from __future__ import annotations

import os
from pathlib import Path


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
