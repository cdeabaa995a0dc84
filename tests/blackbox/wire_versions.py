"""Harm of the trial `wire`: storage nodes of two releases side by side, upgraded one at a time, one of them rolled
back.

The release before is the one that runs; the later one speaks one feature level more (`faults/releases.py`), so the
harm can be done again and again. Each node is stopped in good order and started with the other release. In the end all
nodes speak the later level, and the cluster must be there, without a quarantined partition.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import Any

from tests.blackbox.stage import NODES, READY_TIMEOUT_S, Stage, until

NAME = "mixed versions"
MIXED_S = 2.0
RISES_S = 30.0


async def mixed_versions(stage: Stage, chance: random.Random) -> None:
    before = int((await _status(stage))["feature_level"])
    first, second, third = chance.sample(NODES, len(NODES))
    for node, level in ((first, before + 1), (second, before + 1), (first, before)):
        await _start_with(stage, node, level)
        await asyncio.sleep(MIXED_S)
        status = await _status(stage)
        assert status["feature_level"] == before, f"the level rose while a node speaks {before}: {status['nodes']}"
    for node in (first, third):
        await _start_with(stage, node, before + 1)

    async def has_risen() -> bool:
        status = await _status(stage)
        assert not status["quarantined"], status["quarantined"]
        return bool(status["feature_level"] == before + 1)

    await until(has_risen, RISES_S, "the level of the cluster, once all nodes speak it")


async def _start_with(stage: Stage, node: int, level: int) -> None:
    """An orderly stop; the launcher starts it again. The others lead on meanwhile."""
    pid = await asyncio.to_thread(stage.pid_of, "storage-node", node)
    stage.releases.speaks(node, level)
    os.kill(pid, signal.SIGTERM)

    async def is_back() -> bool:
        status = await _status(stage)
        rows = [row for row in status["nodes"] if row["node_id"] == node]
        return bool(rows) and rows[0]["alive"] and rows[0]["feature_level_max"] == level

    await until(is_back, READY_TIMEOUT_S, f"node {node} with the other release")
    await asyncio.to_thread(stage.installation.wait_healthy)


async def _status(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(stage.installation.status)
    return found
