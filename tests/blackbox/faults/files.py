"""Damage to a stopped node's files: one bit flipped, or an end cut off."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import NamedTuple

from storage_nodes.log.salvage import NOTES_NAME

BLOCK_BYTES = 4096
TRIES = 1_000


class Damage(NamedTuple):
    """What was done."""

    path: Path
    kind: str
    position: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.kind} of {self.path.name} at {self.position} of {self.size_bytes}"


def damageable(directory: Path) -> list[Path]:
    """Files that hold something: write-ahead log, mark, manifests, segments, checkpoints; not those thrown away, nor
    the notes of damage."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size]
    kept = [path for path in files if not {"trash", "lost+found"} & set(path.parts)]
    return sorted(path for path in kept if not path.name.startswith(NOTES_NAME))


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
            return Damage(path, "bit flip", position, size_bytes)
    return None


def truncate(path: Path, rng: random.Random) -> Damage:
    """Cut at a random place of the file's used part."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    position = rng.randrange(used) if used else 0
    with path.open("r+b") as file:
        file.truncate(position)
    return Damage(path, "truncation", position, len(data))
