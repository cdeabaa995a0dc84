"""Stalls of the event loop are counted, and a loop that goes on has none."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from prometheus_client import CollectorRegistry, Histogram

from storage_nodes.node.loop_stalls import LoopStalls, own_part_s


def stalls_of(registry: CollectorRegistry, name: str = "stalls") -> tuple[float, float]:
    """How many, and how many of them of at most 0.1 s."""
    count = registry.get_sample_value(f"{name}_count")
    short = registry.get_sample_value(f"{name}_bucket", {"le": "0.1"})
    assert count is not None and short is not None
    return count, short


def counted(registry: CollectorRegistry) -> LoopStalls:
    both = (Histogram(name, "", buckets=(0.1,), registry=registry) for name in ("stalls", "own"))
    return LoopStalls(asyncio.get_running_loop(), *both)


async def test_stall_is_counted_with_its_length() -> None:
    registry = CollectorRegistry()
    stalls = counted(registry)
    stalls.start()
    await asyncio.sleep(0.03)
    before, _ = stalls_of(registry)
    time.sleep(0.25)
    await asyncio.sleep(0.03)
    after, short = stalls_of(registry)
    assert after > before and after - short >= 1, "one of more than 0.1 s"
    stalls.stop()
    time.sleep(0.25)
    await asyncio.sleep(0.03)
    assert stalls_of(registry)[0] == after


async def test_what_blocks_the_loop_is_its_own_stall() -> None:
    registry = CollectorRegistry()
    stalls = counted(registry)
    stalls.start()
    time.sleep(0.5)  # far longer than a thread waits for a CPU, even on a busy machine
    await asyncio.sleep(0.03)
    stalls.stop()
    own, short = stalls_of(registry, "own")
    assert own - short >= 1, "one of more than 0.1 s"


async def test_nothing_says_how_long_a_thread_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    stalls = counted(registry)

    def refuse(*_: object) -> int:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        stalls.start()
    time.sleep(0.25)
    await asyncio.sleep(0.03)
    stalls.stop()
    assert stalls_of(registry, "own") == stalls_of(registry)


@pytest.mark.parametrize(
    ("late_s", "computed_s", "waited_s", "own_s"),
    [
        (0.10, 0.00, 0.00, 0.10),  # it blocked
        (0.10, 0.01, 0.11, 0.01),  # others had the CPU
        (0.10, 0.11, 0.01, 0.10),  # it computed; the wait was before
        (0.10, 0.07, 0.05, 0.07),
    ],
)
def test_own_part_of_a_stall(late_s: float, computed_s: float, waited_s: float, own_s: float) -> None:
    assert own_part_s(late_s, computed_s, waited_s) == pytest.approx(own_s)
