"""Bulkheads: how many calls of one kind may be under way. The next one is refused at once, so that what is slow does
not take the rest of the process with it. The breakers of storage calls are in `guarded.py`.

Where accounts share a bulkhead, no holder may use more of it than is still free for the others: one alone gets half,
two get a third each. So the next holder finds a place, whatever one holder does.
"""

from __future__ import annotations

from types import TracebackType

from frontend.errors import RequestError, unavailable
from frontend.limits import RETRY_AFTER_S


class Bulkhead:
    """`with bulkhead:` around one call, or `with bulkhead.place(holder):` where holders share it. `enter` is the first
    half of the former; the second one is to take one off `calls`.

    Raises RequestError: 503 when full, RequestThrottled where a holder has its share.
    """

    __slots__ = ("_calls_max", "_held", "_what", "calls")

    def __init__(self, what: str, calls_max: int) -> None:
        assert calls_max > 0
        self._what = what
        self._calls_max = calls_max
        self._held: dict[str, int] = {}
        self.calls = 0

    def place(self, holder: str, held_max: int | None = None) -> Place:
        """One call of this holder, which may have `held_max` at once if there are as many. Raises when entered."""
        return Place(self, holder, self._calls_max if held_max is None else held_max)

    def held_by(self, holder: str) -> int:
        return self._held.get(holder, 0)

    def take(self, holder: str, held_max: int) -> None:
        held = self._held.get(holder, 0)
        # Full is full for everybody, also where the holder has its share: another place may be free next time.
        self._refuse_when_full()
        if held >= min(held_max, self._calls_max - self.calls):
            text = f"Too many calls of the kind {self._what} of one holder are under way."
            raise RequestError("RequestThrottled", text, RETRY_AFTER_S)
        self._held[holder] = held + 1
        self.calls += 1

    def leave(self, holder: str) -> None:
        left = self._held[holder] - 1
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]
        self.calls -= 1

    def enter(self) -> None:
        if self.calls >= self._calls_max:
            self._refuse_when_full()
        self.calls += 1

    __enter__ = enter

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls -= 1

    def _refuse_when_full(self) -> None:
        if self.calls >= self._calls_max:
            raise unavailable(f"Too many calls of the kind {self._what} are under way.")


class Place:
    """One holder's place, while it is entered."""

    __slots__ = ("_bulkhead", "_held_max", "_holder")

    def __init__(self, bulkhead: Bulkhead, holder: str, held_max: int) -> None:
        self._bulkhead = bulkhead
        self._holder = holder
        self._held_max = held_max

    def __enter__(self) -> None:
        self._bulkhead.take(self._holder, self._held_max)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bulkhead.leave(self._holder)
