"""Damage to a stopped node's files: one bit flipped, or an end cut off. Every damage can be undone."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import NamedTuple

BLOCK_BYTES = 4096
TRIES = 1_000


class Damage(NamedTuple):
    """What was done, and the bytes that were there."""

    path: Path
    kind: str
    position: int
    original: bytes
    size_bytes: int

    def undo(self) -> None:
        with self.path.open("r+b") as file:
            file.seek(self.position)
            file.write(self.original)
            file.truncate(self.size_bytes)

    def __str__(self) -> str:
        return f"{self.kind} of {self.path.name} at {self.position} of {self.size_bytes}"


def damageable(directory: Path) -> list[Path]:
    """Files that hold something: write-ahead log, manifests, segments; not those thrown away."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(path for path in files if not {"trash", "lost+found"} & set(path.parts))


def flip_bit(path: Path, rng: random.Random) -> Damage | None:
    """One bit of a block that is not all zeros (a write-ahead log is zero-filled ahead). None if there is none."""
    size_bytes = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(TRIES):
            position = rng.randrange(size_bytes)
            file.seek(position - position % BLOCK_BYTES)
            if not any(file.read(BLOCK_BYTES)):
                continue
            file.seek(position)
            original = file.read(1)
            file.seek(position)
            file.write(bytes([original[0] ^ (1 << rng.randrange(8))]))
            file.flush()
            os.fsync(file.fileno())
            return Damage(path, "bit flip", position, original, size_bytes)
    return None


def truncate(path: Path, rng: random.Random) -> Damage:
    """Cut at a random place of the file's used part."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    position = rng.randrange(used) if used else 0
    with path.open("r+b") as file:
        file.truncate(position)
    return Damage(path, "truncation", position, data[position:], len(data))
