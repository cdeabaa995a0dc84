"""Bulkheads and circuit breakers: what is slow or broken must not take the rest of the process with it.

A bulkhead bounds how many calls of one kind are under way and refuses the next one at once. A circuit breaker stops
asking someone who does not answer:

    closed     calls pass; failures_max failures in a row open it
    open       calls are refused until the cool-down is over
    half open  one call passes as a probe; its outcome closes or opens the breaker again
"""

from __future__ import annotations

from types import TracebackType

from frontend.errors import unavailable


class Bulkhead:
    """`with bulkhead:` around one call. Raises Refusal (503) when full."""

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


class CircuitBreaker:
    """Pure; the clock is a parameter. Every allowed call must be reported by `succeeded` or `failed`."""

    __slots__ = ("_cool_down_s", "_failures", "_failures_max", "_open_until_s", "_probing")

    def __init__(self, failures_max: int, cool_down_s: float) -> None:
        assert failures_max > 0 and cool_down_s > 0
        self._failures_max = failures_max
        self._cool_down_s = cool_down_s
        self._failures = 0
        self._open_until_s = 0.0
        self._probing = False

    def allows(self, now_s: float) -> bool:
        if self._failures < self._failures_max:
            return True
        if self._probing or now_s < self._open_until_s:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._probing = False

    def failed(self, now_s: float) -> None:
        self._failures += 1
        self._probing = False
        if self._failures >= self._failures_max:
            self._open_until_s = now_s + self._cool_down_s

    def retry_after_s(self, now_s: float) -> int:
        return max(1, round(self._open_until_s - now_s))
