"""Harm from inside a storage node: its wall clock, the seconds its machine slept, how late its disk syncs, and how much
of its memory budget others hold.

The processes run with `inside/` on their PYTHONPATH, whose sitecustomize maps one small file a node; what is written
here is seen there at once. Nothing of the product knows of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tests.blackbox.faults.inside.sitecustomize import LAYOUT

VARIABLE = "PENSTOCK_BLACKBOX_HARM"
INSIDE = Path(__file__).parent / "inside"


class NodeHarm:
    """What one node is told. All zero: no harm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wall_offset_s = self.drift = self.since_s = self.slept_s = self.sync_s = self.held_part = 0.0
        path.write_bytes(bytes(LAYOUT.size))

    def wall(self, offset_s: float, drift: float = 0.0) -> None:
        """The wall clock is off by so much, and by `drift` more for every second from now on."""
        self.wall_offset_s, self.drift, self.since_s = offset_s, drift, time.monotonic()
        self._write()

    def wall_off_s(self) -> float:
        return self.wall_offset_s + self.drift * (time.monotonic() - self.since_s)

    def slept(self, seconds: float) -> None:
        """The machine was suspended for so long in all: the boot clock counts it, the monotonic one does not."""
        self.slept_s = seconds
        self._write()

    def syncs_take(self, seconds: float) -> None:
        """Every sync takes at least so long, those under way included; 0 lets all of them go."""
        self.sync_s = seconds
        self._write()

    def memory_is_held(self, part: float) -> None:
        """Others hold this part of each share of its memory budget (of what peers fill, less)."""
        self.held_part = part
        self._write()

    def _write(self) -> None:
        data = LAYOUT.pack(
            self.wall_offset_s, self.drift, self.since_s, self.slept_s, self.sync_s, self.held_part
        )  # fmt: skip
        with self.path.open("r+b", buffering=0) as file:
            file.write(data)


class Harm:
    """All nodes of a cluster or an installation; `settings` is the environment they must be started with."""

    def __init__(self, directory: Path, node_ids: Sequence[int]) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.nodes = {node_id: NodeHarm(directory / f"harm-{node_id}") for node_id in node_ids}

    def settings(self) -> dict[str, str]:
        inherited = os.environ.get("PYTHONPATH", "")
        return {
            VARIABLE: str(self._directory / "harm-{node}"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(INSIDE), inherited])),
        }

    def all_syncs_take(self, seconds: float) -> None:
        for node in self.nodes.values():
            node.syncs_take(seconds)

    def none(self) -> None:
        for node in self.nodes.values():
            node.wall(0.0)
            node.syncs_take(0.0)
            node.memory_is_held(0.0)
