"""The log lines the end-to-end tests send: Loghub's, or generated ones where they are not there."""

from __future__ import annotations

import functools
import os
import random
import warnings
from pathlib import Path

LINES = 10_000
PLACES = (os.environ.get("PENSTOCK_LOGHUB"), str(Path(__file__).resolve().parents[3] / "shared" / "data" / "loghub"))


@functools.cache
def log_lines() -> tuple[bytes, ...]:
    """10,000 lines without their newline; a carriage return stays."""
    for place in filter(None, PLACES):
        files = sorted(Path(place).glob("*_2k.log"))
        if files:
            return tuple(line for file in files for line in file.read_bytes().removesuffix(b"\n").split(b"\n"))
    warnings.warn("Loghub's files are not here (set PENSTOCK_LOGHUB): generated lines are sent instead", stacklevel=2)
    return generated_lines()


def generated_lines() -> tuple[bytes, ...]:
    """Of the same kind: repeated texts, carriage returns, lengths from short to 2,500 bytes, some beyond ASCII."""
    chance = random.Random(7)
    words = ["INFO", "WARN", "block", "blk_-6952", "10.250.19.102", "größer", "terminating", "\u4e16\u754c"]
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 40))) for _ in range(LINES // 2)]
    lines = [chance.choice(texts) + chance.choice(["\r", "\r", "", " "]) for _ in range(LINES - 1)]
    return tuple(line.encode() for line in [*lines, "x" * 2_500])
