"""The driver of flushes: a slice per turn of the event loop, one group waited for, a thread for what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import pairwise
from typing import Any, cast

import pytest

from storage_nodes.log.node_log import NodeLog
from storage_nodes.node.disk import flushing as flushing_module
from storage_nodes.node.disk.flushing import Flushing

SLICES = 3


class AtOnce(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **_more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args))
        return future


class SlicedLog:
    """Needs SLICES calls to plan a flush, and as many to swap; what it is asked for goes to `calls`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.wanted = True
        self.durable = True
        self._left = SLICES
        self.over: list[bool] = []  # whether each slice that is planned is over as it begins

    def flush_due(self) -> bool:
        return self.wanted

    def begin_flush(self) -> object:
        self.wanted = False
        self.calls.append("begin")
        return self

    def plan_flush(self, _plan: object, _facts: object, is_over: Callable[[], bool]) -> bool:
        self.over.append(is_over())
        return self._slice("plan")

    def flush_ready(self, _plan: object) -> bool:
        return self.durable

    def run_flush(self, _plan: object) -> None:
        self.calls.append("run")

    def flush_done(self, _plan: object) -> bool:
        return self._slice("swap")

    def _slice(self, what: str) -> bool:
        self.calls.append(what)
        self._left = self._left - 1 or SLICES
        return self._left == SLICES


async def turns(count: int, log: SlicedLog) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
        log.calls.append("turn")


def test_flush_gives_the_loop_a_turn_between_any_two_slices() -> None:
    async def scenario() -> None:
        log = SlicedLog()
        flushing = Flushing(asyncio.get_running_loop(), cast(NodeLog, log), AtOnce(), lambda _partition: None)
        flushing.look()
        await turns(4 * SLICES, log)
        steps = [call for call in log.calls if call != "turn"]
        assert steps == ["begin", *["plan"] * SLICES, "run", *["swap"] * SLICES] and not flushing.under_way
        calls = log.calls
        assert all(now == "turn" or now != following for now, following in pairwise(calls))
        assert log.over == [False] * SLICES

    asyncio.run(scenario())


def test_slices_of_a_flush_are_over_after_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing_module, "TURN_SLICE_MS_MAX", 0)

    async def scenario() -> None:
        log = SlicedLog()
        Flushing(asyncio.get_running_loop(), cast(NodeLog, log), AtOnce(), lambda _partition: None).look()
        await turns(2 * SLICES, log)
        assert log.over == [True] * SLICES

    asyncio.run(scenario())


def test_flush_that_must_wait_for_a_group_goes_on_with_it_and_none_begins_meanwhile() -> None:
    async def scenario() -> None:
        log = SlicedLog()
        log.durable = False
        flushing = Flushing(asyncio.get_running_loop(), cast(NodeLog, log), AtOnce(), lambda _partition: None)
        flushing.look()
        await turns(2 * SLICES, log)
        log.wanted = True
        flushing.look()
        await turns(2 * SLICES, log)
        assert "run" not in log.calls and log.calls.count("begin") == 1 and flushing.under_way
        log.durable = True
        flushing.look()
        await turns(2 * SLICES, log)
        assert log.calls.count("run") == 1 and not flushing.under_way
        flushing.look()
        assert log.calls.count("begin") == 2

    asyncio.run(scenario())
