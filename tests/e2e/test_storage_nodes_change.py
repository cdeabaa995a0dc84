"""Storage nodes of a running installation come and go, and everything sent before is received after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from storage_nodes.ids import make_node_id, node_name, place_of_partition
from tests.support.installation import RunningInstallation, running, wait_until

pytestmark = pytest.mark.slow
MESSAGES = 500


@pytest.fixture
def own_installation() -> Iterator[RunningInstallation]:
    """Its nodes change, so it is nobody else's. It is cluster 3: nodes of such ones have names and ids that differ."""
    with running(options=("--cluster-number", "3")) as made:
        yield made


def nodes_of(installation: RunningInstallation) -> dict[str, dict[str, Any]]:
    """By name."""
    return {
        node_name(row["node"]): row
        for row in json.loads(installation.command("node", "list", "--json").stdout)["nodes"]
    }


def test_node_added_another_decommissioned_messages_and_queues_stay(own_installation: RunningInstallation) -> None:
    installation = own_installation
    lines = b"".join(b"message %d\n" % number for number in range(MESSAGES))
    installation.command("send", "kept", input_bytes=lines)
    refused = installation.command("node", "decommission", "3.2", check=False)
    assert refused.returncode == 1 and b"add a node first" in refused.stderr
    installation.command("node", "add")
    told = installation.command("node", "decommission", str(make_node_id(3, 2))).stderr.decode()
    assert "is decommissioned and stopped" in told
    nodes = nodes_of(installation)
    assert sorted(nodes) == ["3.1", "3.3", "3.4"] and nodes["3.4"]["replicas"] == nodes["3.1"]["replicas"] > 0
    partition = next(row for row in installation.status()["partitions"] if row["tag"] != "cluster")["partition"]
    assert place_of_partition(partition)[0] == 3
    installation.command("node", "add")
    installation.command("node", "move", str(partition), "--from", "3.1", "--to", "3.5")
    installation.down()
    installation.node_count = 4
    installation.up()
    wait_until(lambda: all(node["health"] == "up" for node in nodes_of(installation).values()), 30, 0.3)
    assert sorted(nodes_of(installation)) == ["3.1", "3.3", "3.4", "3.5"]
    received = installation.command("receive", "kept", "--idle", "2").stdout.splitlines()
    assert sorted(set(received)) == sorted(lines.splitlines())
    _, url = installation.new_queue()
    installation.sqs().send_message(QueueUrl=url, MessageBody="a queue made after")
