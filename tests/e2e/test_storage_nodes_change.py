"""Storage nodes of a running installation come and go, and everything sent before is received after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.installation import RunningInstallation, running, wait_until

pytestmark = pytest.mark.slow
MESSAGES = 500


@pytest.fixture
def own_installation() -> Iterator[RunningInstallation]:
    """Its nodes change, so it is nobody else's."""
    with running() as made:
        yield made


def nodes_of(installation: RunningInstallation) -> dict[int, dict[str, Any]]:
    return {row["node"]: row for row in json.loads(installation.command("node", "list", "--json").stdout)["nodes"]}


def test_node_added_another_decommissioned_messages_and_queues_stay(own_installation: RunningInstallation) -> None:
    installation = own_installation
    lines = b"".join(b"message %d\n" % number for number in range(MESSAGES))
    installation.command("send", "kept", input_bytes=lines)
    refused = installation.command("node", "decommission", "2", check=False)
    assert refused.returncode == 1 and b"add a node first" in refused.stderr
    installation.command("node", "add")
    told = installation.command("node", "decommission", "2").stderr.decode()
    assert "is decommissioned and stopped" in told
    nodes = nodes_of(installation)
    assert sorted(nodes) == [1, 3, 4] and nodes[4]["replicas"] == nodes[1]["replicas"] > 0
    partition = next(row for row in installation.status()["partitions"] if row["tag"] != "cluster")["partition"]
    installation.command("node", "add")
    installation.command("node", "move", str(partition), "--from", "1", "--to", "5")
    installation.down()
    installation.node_count = 4
    installation.up()
    wait_until(lambda: all(node["health"] == "up" for node in nodes_of(installation).values()), 30, 0.3)
    assert sorted(nodes_of(installation)) == [1, 3, 4, 5]
    received = installation.command("receive", "kept", "--idle", "2").stdout.splitlines()
    assert sorted(set(received)) == sorted(lines.splitlines())
    _, url = installation.new_queue()
    installation.sqs().send_message(QueueUrl=url, MessageBody="a queue made after")
