"""Which nodes have so little room that they are closed (docs/storage/disk_care.md): their metrics say."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from http.client import HTTPException
from typing import Any

from deploy import limits
from deploy.ports import LOOPBACK
from deploy.state import State
from storage_nodes.ids import node_name

CLOSED = 2
_LEVEL = re.compile(r"^penstock_node_disk_level (\S+)$", re.MULTILINE)


async def note_closed(state: State, nodes: list[dict[str, Any]]) -> None:
    """Those that are read-only are asked."""
    short = [node for node in nodes if node["read_only"]]
    levels = await asyncio.gather(*(asyncio.to_thread(level_of, state, node["node_id"]) for node in short))
    for node, level in zip(short, levels, strict=True):
        node["disk_closed"] = level >= CLOSED


def level_of(state: State, node_id: int) -> float:
    """0 where it does not answer."""
    port = state.ports.get(f"node-{node_name(node_id)}-metrics")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{port}/metrics", timeout=limits.HEALTH_TIMEOUT_S) as answer:
            found = _LEVEL.search(answer.read().decode())
    except (OSError, HTTPException):
        return 0.0
    return float(found[1]) if found else 0.0
