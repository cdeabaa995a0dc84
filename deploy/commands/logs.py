"""`logs [-f] [NAME...]`: the processes' logs, each line with its process's name in front."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from deploy import limits, output
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation

FOLLOW_INTERVAL_S = 0.3
SHOWN_LINES = 50


def run(options: argparse.Namespace) -> int:
    logs = Installation(options.data_dir).logs
    there = sorted(path.stem for path in logs.glob("*.log"))
    names = options.name or there
    missing = [name for name in names if name not in there]
    if missing or not names:
        hint = f"; there are: {', '.join(there)}" if there else ""
        raise CommandError(f"no log of {', '.join(missing) or 'anything'} in {logs}{hint}", EXIT_USAGE)
    width = max(map(len, names))
    positions = {name: show_end(logs / f"{name}.log", name.ljust(width)) for name in names}
    try:
        while options.follow:
            time.sleep(FOLLOW_INTERVAL_S)
            for name in names:
                positions[name] = show_new(logs / f"{name}.log", name.ljust(width), positions[name])
    except KeyboardInterrupt:
        pass
    return 0


def show_end(path: Path, title: str) -> int:
    content = path.read_bytes()[-limits.LOG_FILE_BYTES_MAX :]
    for line in content.splitlines()[-SHOWN_LINES:]:
        output.verbatim(f"{title} | {line.decode(errors='replace')}")
    return path.stat().st_size


def show_new(path: Path, title: str, position: int) -> int:
    """Whole lines since `position`; a file that became shorter was rotated and is read from its start."""
    size = path.stat().st_size
    start = position if size >= position else 0
    with open(path, "rb") as file:
        file.seek(start)
        content = file.read(size - start)
    complete = content.rfind(b"\n") + 1
    for line in content[:complete].splitlines():
        output.verbatim(f"{title} | {line.decode(errors='replace')}")
    return start + complete
