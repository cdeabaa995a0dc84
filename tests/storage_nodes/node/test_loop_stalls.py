"""Stalls of the event loop are counted, and a loop that goes on has none."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry, Histogram

from storage_nodes.node.loop_stalls import LoopStalls


def stalls_of(registry: CollectorRegistry) -> tuple[float, float]:
    """How many, and how many of them of at most 0.1 s."""
    count = registry.get_sample_value("stalls_count")
    short = registry.get_sample_value("stalls_bucket", {"le": "0.1"})
    assert count is not None and short is not None
    return count, short


async def test_stall_is_counted_with_its_length() -> None:
    registry = CollectorRegistry()
    stalls = LoopStalls(asyncio.get_running_loop(), Histogram("stalls", "", buckets=(0.1,), registry=registry))
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
