"""Waiting without time: in turns of the event loop, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def settle(condition: Callable[[], bool], turns: int = 500) -> None:
    """Let the event loop run until the condition holds; fails after so many turns."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    with contextlib.suppress(AssertionError):
        assert condition()
    raise AssertionError("the condition did not come true")


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("the call waits")
