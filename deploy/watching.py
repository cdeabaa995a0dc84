"""Watching work that goes on by itself: a line that changes at a terminal, a line a change elsewhere.

The work is the cluster's. Ctrl-C ends the watching, says so, and says how to look again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from deploy import limits, output
from deploy.errors import CommandError
from storage_nodes.ids import node_name
from storage_nodes.protocol.errors import StorageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Watch:
    """One piece of work. `goes_on` is said when the watching ends before it does."""

    def __init__(self, title: str, goes_on: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._goes_on = goes_on
        self._clock = clock
        self._began = clock()
        self._changed_at = self._began
        self._said_at = 0.0
        self._text = ""
        self._left: int | None = None
        self._total = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    async def until(self, is_over: Callable[[], Awaitable[bool]]) -> None:
        """Ask again and again. Errors of the cluster are waited out: it may be electing a leader."""
        try:
            with output.progress_bar() as self._bar:
                self._task = self._bar.add_task(self._title, total=None)
                while not await self._ask(is_over):
                    await asyncio.sleep(limits.WATCH_INTERVAL_S)
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise CommandError(f"no longer watching: {self._title}; {self._goes_on}") from None
        output.say(f"{self._title}: done in {self._clock() - self._began:.1f} s")

    def say(self, text: str) -> None:
        """How it stands."""
        now = self._clock()
        if text != self._text:
            self._text = text
            self._changed_at = now
            self._show(now)
        elif now - self._changed_at > limits.WATCH_STALL_S and now - self._said_at > limits.WATCH_STALL_S:
            self._line(now, f"{text}; nothing has changed for {now - self._changed_at:.0f} s: is every node up? "
                            "./penstock status")  # fmt: skip

    def counted(self, left: int, detail: str) -> None:
        """`left` pieces are still to be done; `detail` says what is being done at present."""
        if self._left is None:
            self._total = left
        done = max(self._total - left, 0)
        self._left = left
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=self._total, completed=done)
        seconds = max(self._clock() - self._began, 0.001)
        self.say(f"{left} replicas left, {done / seconds:.1f} moves/s; {detail}")

    async def _ask(self, is_over: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await is_over()
        except StorageError as error:
            self.say(f"the cluster does not answer: {error}")
            return False

    def _show(self, now: float) -> None:
        if sys.stderr.isatty():
            assert self._bar is not None and self._task is not None, "said while watching"
            self._bar.update(self._task, description=f"{self._title}: {self._text}")
        elif now - self._said_at >= limits.WATCH_LINE_INTERVAL_S:
            self._line(now, self._text)

    def _line(self, now: float, text: str) -> None:
        self._said_at = now
        output.say(f"  {self._title}: {text}")


def count_of(node_ids: Sequence[int]) -> str:
    """`1, 2 and 3`."""
    names = [node_name(node_id) for node_id in node_ids]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
