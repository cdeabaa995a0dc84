"""Handshakes that are under way at one port. Where one too many begins, the oldest gives way: a process of ours is done
within milliseconds, and a stranger who opens connections and shows nothing displaces its own."""

from __future__ import annotations

from typing import Protocol

from storage_nodes.limits import HANDSHAKES_MAX


class GivesWay(Protocol):
    def give_way(self) -> None:
        """Ends the connection, and calls `end`, soon."""


class OpenHandshakes:
    """Oldest first."""

    def __init__(self) -> None:
        self._open: dict[GivesWay, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, handshake: GivesWay) -> None:
        self._open[handshake] = None
        if len(self._open) > HANDSHAKES_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.give_way()

    def end(self, handshake: GivesWay) -> None:
        self._open.pop(handshake, None)
