"""Damage to files of a node: its kind, file and place are drawn.

One case is not drawn, since nothing can tell it from a torn tail (docs/status.md): that the newest slot of the mark and
the last group of the write-ahead log are damaged at once. Where the write-ahead log is damaged too, the mark is lost as
a whole. While a process uses them, files of the write-ahead log do not vanish, and the mark is spared: it is written
anew all the time.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from storage_nodes.log.manifest import manifest_version
from tests.storage_nodes.log.faulty_disk import FaultyDisk

KINDS = ("flip", "flip", "unreadable", "unreadable", "cut", "remove", "zero", "extra")
MARK = "/node/synced"
WAL = "/node/wal/"
SPARED = ("/node/trash/", "/node/damage.log")  # nothing there is needed
# Share of places among the last bytes of a file, where the newest part is.
LATE_SHARE = 0.3
LATE_BYTES = 120
# Share of damages after one to the write-ahead log that hit the mark: what a repair knows is in these two.
MARK_TOO_SHARE = 0.3


class Damage(NamedTuple):
    kind: str
    path: str
    position: int


class Damages:
    """Of one run, `left` of which are still to come."""

    def __init__(self, rnd: random.Random, left: int) -> None:
        self.done: list[Damage] = []
        self.left = left
        self._rnd = rnd
        self._mark_may_be_short = False
        self._manifests_left = -1  # -1: none was hit

    def do(self, disk: FaultyDisk, in_use: bool = False) -> None:
        """One of them."""
        self.left -= 1
        path = self._draw_file(disk, in_use)
        data = disk.data_of(path)
        used = len(bytes(data).rstrip(b"\0"))
        at = self._rnd.randrange(max(used, 1))
        if self._rnd.random() < LATE_SHARE:
            at = max(used - 1 - self._rnd.randrange(LATE_BYTES), 0)
        kinds = [kind for kind in KINDS if kind != "remove" or not (in_use and path.startswith(WAL))]
        kind = self._rnd.choice(kinds)
        if path == MARK:
            if self.hit(WAL):
                kind, at = "cut", 0
            self._mark_may_be_short = True
        self._apply(disk, Damage(kind, path, at))
        self.done.append(Damage(kind, path, at))
        if manifest_version(os.path.basename(path)) is not None:
            hit = {damage.path for damage in self.done}
            self._manifests_left = sum(other not in hit for other in _manifests(disk))

    def hit(self, *prefixes: str) -> bool:
        return any(damage.path.startswith(prefixes) for damage in self.done)

    @property
    def lost_manifests(self) -> bool:
        """Were all of them hit that there were?"""
        return self._manifests_left == 0

    def partitions(self) -> Iterator[int]:
        """Whose own files were hit."""
        for damage in self.done:
            name = os.path.basename(damage.path)
            if name.endswith((".seg", ".ckp")) and not name.startswith("incoming"):
                yield int(name.split("-")[0], 16)

    def explains(self, path: str) -> bool:
        """May a read find damage there? Files of the write-ahead log change their names while they are used."""
        return any(path == damage.path or (path.startswith(WAL) and self.hit(WAL)) for damage in self.done)

    def _draw_file(self, disk: FaultyDisk, in_use: bool) -> str:
        """Each group of files is as likely as the others, however many there are."""
        if self.hit(WAL) and not self.hit(MARK) and not in_use and self._rnd.random() < MARK_TOO_SHARE:
            return MARK
        groups: dict[str, list[str]] = defaultdict(list)
        for path in disk.paths():
            directory, name = os.path.split(path)
            spare = name.startswith("spare")
            if path.startswith(SPARED) or (in_use and (path == MARK or spare)):
                continue
            if not (path.startswith(WAL) and self._mark_may_be_short):
                groups["spare" if spare else path if path == MARK else directory].append(path)
        return self._rnd.choice(groups[self._rnd.choice(sorted(groups))])

    def _apply(self, disk: FaultyDisk, damage: Damage) -> None:
        kind, path, at = damage
        data = disk.data_of(path)
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << self._rnd.randrange(8)
        elif kind == "unreadable":
            disk.make_unreadable(path, at)
        elif kind == "cut":
            del data[at:]
        elif kind == "remove":
            disk.lose(path)
        elif kind == "zero":
            length = len(data[at : at + self._rnd.choice((64, 200, 512, 2_000))])
            data[at : at + length] = bytes(length)
        elif kind == "extra":
            data += self._rnd.randbytes(self._rnd.choice((1, 64, 5_000)))
        disk.settle()


def _manifests(disk: FaultyDisk) -> list[str]:
    return [path for path in disk.paths() if manifest_version(os.path.basename(path)) is not None]
