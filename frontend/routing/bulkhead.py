"""Bulkheads: how many calls of one kind may be under way. The next one is refused at once, so that what is slow does
not take the rest of the process with it. The breakers of storage calls are in `guarded.py`.
"""

from __future__ import annotations

from types import TracebackType

from frontend.errors import unavailable


class Bulkhead:
    """`with bulkhead:` around one call. Raises RequestError (503) when full."""

    __slots__ = ("_calls_max", "_what", "calls")

    def __init__(self, what: str, calls_max: int) -> None:
        assert calls_max > 0
        self._what = what
        self._calls_max = calls_max
        self.calls = 0

    def __enter__(self) -> None:
        if self.calls >= self._calls_max:
            raise unavailable(f"Too many calls of the kind {self._what} are under way.")
        self.calls += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls -= 1
