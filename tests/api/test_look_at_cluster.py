"""What operators see of real storage nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.cluster import selectors
from benchmarks.storage_cluster import StorageCluster
from storage_nodes.model import PartitionKind


def test_a_node_that_the_settings_do_not_name_yet_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was added after this process had been started."""
    cluster = StorageCluster(3, str(tmp_path))
    env = SimpleNamespace(cluster_id=cluster.cluster_id, nodes=lambda: cluster.addresses[:2])
    monkeypatch.setattr(selectors, "environment", lambda: env)

    async def scenario() -> None:
        client = await cluster.client()
        await cluster.create_partition(client, PartitionKind.QUEUE, "t")
        await client.close()
        view = await selectors.look_at_cluster()
        assert view is not None and view.silent == []
        assert [(node.node_id, node.read_only, node.quarantined) for node in view.nodes] == [
            (1, False, []),
            (2, False, []),
            (3, False, []),
        ]
        cluster.kill(3)
        view = await selectors.look_at_cluster()
        assert view is not None and view.silent == [3] and view.nodes[2].read_only is None

    cluster.start_all()
    try:
        asyncio.run(scenario())
    finally:
        cluster.stop()
