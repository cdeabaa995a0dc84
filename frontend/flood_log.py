"""Warnings that anyone who can connect may cause: a flood of them must not fill the log. The clock is a parameter."""

from __future__ import annotations

from typing import Any, Protocol

from frontend.limits import FLOOD_TOLD_EVERY_S


class Warns(Protocol):
    def warning(self, event: str, **fields: Any) -> Any: ...


class FloodGate:
    """Of one kind of line: passes one in FLOOD_TOLD_EVERY_S at most, and counts the others."""

    def __init__(self) -> None:
        self._told_s = -FLOOD_TOLD_EVERY_S
        self._left_out = 0

    def passes(self, now_s: float) -> int | None:
        """How many were left out before this one; None: it is left out."""
        if now_s - self._told_s < FLOOD_TOLD_EVERY_S:
            self._left_out += 1
            return None
        left_out, self._left_out, self._told_s = self._left_out, 0, now_s
        return left_out


class FloodLog:
    """One kind of warning; a line says how many were left out before it."""

    def __init__(self, log: Warns, event: str) -> None:
        self._log = log
        self._event = event
        self._gate = FloodGate()

    def warn(self, now_s: float, **fields: Any) -> None:
        left_out = self._gate.passes(now_s)
        if left_out is not None:
            self._log.warning(self._event, **fields, left_out=left_out)
