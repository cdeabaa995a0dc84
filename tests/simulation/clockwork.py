"""Simulated time: one heap of events for the whole world, and an asyncio event loop per process that runs on it.

Events are ordered by (time, tie-break drawn from the seed), so a seed is one interleaving. A process has its own loop:
callbacks posted to it run in order, like those of a real loop, and what they put off with `call_soon` runs a turn
later, so other processes come between. A loop may be paused (everything waits) or dead (nothing happens any more).

The code under test runs on real asyncio tasks and futures; only the loop below them is this one.
"""

from __future__ import annotations

import asyncio
import random
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol

# What a turn of the loop takes.
TURN_US = 20
_DIGEST_MASK = (1 << 64) - 1


class Scheduler:
    """The heap, the time, and the digest of everything that happened."""

    def __init__(self, seed: str) -> None:
        self.now_us = 0
        self.steps = 0
        self.digest = 0
        self.trace: Callable[[str], None] | None = None
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._tie = random.Random(f"{seed}-order").getrandbits
        self._sequence = 0

    def at(self, time_us: int, call: Callable[..., None], *args: Any) -> None:
        self._sequence = sequence = self._sequence + 1
        now_us = self.now_us
        heappush(self._heap, (time_us if time_us > now_us else now_us, self._tie(20), sequence, call, args))

    def after(self, delay_us: int, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now_us + delay_us, call, *args)

    def sleep(self, duration_us: int) -> None:
        """Nobody does anything for so long; then everything that is overdue happens, in its order."""
        self.now_us += duration_us

    def step(self) -> None:
        self.run(self.steps + 1)

    def run(self, steps: float = inf, until_us: float = inf) -> None:
        """Until there were so many steps, or it is so late."""
        heap, trace = self._heap, self.trace
        while self.steps < steps and self.now_us < until_us:
            time_us, tie, _sequence, call, args = heappop(heap)
            if time_us > self.now_us:
                self.now_us = time_us
            self.steps += 1
            self.digest = (self.digest * 1_000_003 ^ time_us + tie) & _DIGEST_MASK  # as `note`
            if trace is not None:
                trace(f"step {self.steps} {time_us / 1e6:.6f}s {call.__qualname__}")
            call(*args)

    def note(self, number: int) -> None:
        """Mix something that happened into the digest."""
        self.digest = (self.digest * 1_000_003 ^ number) & _DIGEST_MASK


class Owner(Protocol):
    """Who a loop belongs to."""

    def unhandled(self, error: BaseException) -> None: ...
    def entered(self) -> None: ...
    def turned(self) -> None: ...


class SimHandle:
    """`unbegun`: the coroutine of the task whose first turn this is."""

    __slots__ = ("args", "callback", "cancelled", "due_s", "unbegun")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], due_s: float = 0.0) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False
        self.due_s = due_s
        self.unbegun: Coroutine[Any, Any, Any] | None = None

    def cancel(self) -> None:
        self.cancelled = True

    def when(self) -> float:
        return self.due_s


class SimLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as the storage node uses."""

    def __init__(self, scheduler: Scheduler, owner: Owner) -> None:
        self.scheduler = scheduler
        self.dead = False
        self.paused_until_us = 0
        self._unhandled, self._entered, self._turned = owner.unhandled, owner.entered, owner.turned
        self._ready: deque[SimHandle] = deque()  # empty, unless a turn is booked or runs
        self._booked = False
        self._running = False

    # --- what happens -----------------------------------------------------------------------------------------

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Something outside happened: run this now, unless the process is paused or has a turn ahead already. What
        happens in a turn of another process waits until that turn is over: no turn runs within another."""
        if self.dead:
            return
        if self._booked or self._running:
            self._ready.append(SimHandle(callback, args))
        elif _get_running_loop() is not None:
            self._ready.append(SimHandle(callback, args))
            self._book(self.scheduler.now_us)
        elif self.paused_until_us > self.scheduler.now_us:
            self._ready.append(SimHandle(callback, args))
            self._book(self.paused_until_us)
        else:
            self._turn_of(callback, args)

    def resume(self) -> None:
        """A process that stands still goes on."""
        if self.paused_until_us > self.scheduler.now_us:
            self.paused_until_us = self.scheduler.now_us
            self._book(self.scheduler.now_us)

    def _turn(self) -> None:
        """One that was booked."""
        self._booked = False
        if self.dead:
            return
        if self.paused_until_us > self.scheduler.now_us:
            self._book(self.paused_until_us)
            return
        ready = self._ready
        self._entered()
        self._running = True
        _set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.cancelled:
                    continue
                try:
                    handle.callback(*handle.args)
                except Exception as error:
                    self._unhandled(error)
                if self.dead:
                    return
        finally:
            _set_running_loop(None)
            self._running = False
        self._turned()
        if ready and not self._booked:
            self._book(self.scheduler.now_us + TURN_US)

    def _turn_of(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """A turn of this alone: as `_turn`, without a handle."""
        self._entered()
        self._running = True
        _set_running_loop(self)
        try:
            callback(*args)
        except Exception as error:
            self._unhandled(error)
        finally:
            _set_running_loop(None)
            self._running = False
        if self.dead:
            return
        self._turned()
        if self._ready and not self._booked:
            self._book(self.scheduler.now_us + TURN_US)

    def _book(self, time_us: int) -> None:
        self._booked = True
        self.scheduler.at(time_us, self._turn)

    def _on_timer(self, handle: SimHandle) -> None:
        if handle.cancelled or self.dead:
            return
        if self._booked or self._running:
            self._ready.append(handle)
        elif self.paused_until_us > self.scheduler.now_us:
            self._ready.append(handle)
            self._book(self.paused_until_us)
        else:
            self._turn_of(handle.callback, handle.args)

    # Signatures are narrower than asyncio's: only what the node and the asyncio module itself pass.
    # --- asyncio ----------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: object = None
    ) -> Any:
        handle = SimHandle(callback, args)
        if not self.dead:
            self._ready.append(handle)
            if not self._booked and not self._running:
                self._book(self.scheduler.now_us + TURN_US)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: object = None
    ) -> Any:
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: object = None
    ) -> Any:
        handle = SimHandle(callback, args, when)
        if not self.dead:
            self.scheduler.at(max(round(when * 1e6), self.scheduler.now_us + TURN_US), self._on_timer, handle)
        return handle

    def time(self) -> float:
        return self.scheduler.now_us / 1e6

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: object) -> Any:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self)
        task.add_done_callback(self._task_done)
        if self.dead:
            coro.close()  # nothing was booked
        else:
            self._ready[-1].unbegun = coro
        return task

    def end(self) -> None:
        """The process is gone: nothing happens here any more."""
        self.dead = True
        for handle in self._ready:
            if handle.unbegun is not None:
                handle.unbegun.close()  # booked and never begun: no forgotten `await`

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if not self.dead and not task.cancelled() and (error := task.exception()) is not None:
            self._unhandled(error)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self.dead and isinstance(error, BaseException):
            self._unhandled(error)
