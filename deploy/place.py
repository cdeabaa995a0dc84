"""Where an installation is. Standard library alone: the launcher asks before anything is installed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

_BESIDE_THE_SCRIPT = Path(__file__).resolve().parent.parent / ".penstock"
STATE_FILE = os.path.join("run", "state.json")


def data_directory(chosen: str | os.PathLike[str] | None) -> Path:
    """The one that a command was given, or the one that it takes otherwise."""
    return Path(chosen or os.environ.get("PENSTOCK_DATA_DIR") or _BESIDE_THE_SCRIPT).expanduser().resolve()


def no_installation(data: Path) -> str:
    start = f"./penstock up --data-dir {shlex.quote(str(data))}"
    return f"there is no installation in {data} yet. Start one with: {start}"
