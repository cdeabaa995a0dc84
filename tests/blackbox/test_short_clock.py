"""The way from a real node to a verdict about time: true terms pass, and each promise that was not kept goes red."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from storage_nodes.model import PartitionKind
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DELAY_MS
from tests.blackbox.clock_load import TimedQueue
from tests.blackbox.clusters import NodeCluster
from tests.blackbox.history import Event, Recorder
from tests.blackbox.timing import Terms, check_times

pytestmark = pytest.mark.slow
SLACK_S = 0.5
LEASE_S = 1.5
DELAY_S = 1.0
RETENTION_S = 4.0
TRUE = Terms(RETENTION_S, LEASE_S)


async def told_by_a_node(cluster: NodeCluster) -> tuple[list[Event], list[Event]]:
    """Two queues: one whose messages are leased and come again, one whose messages are left until they expire."""
    recorder = Recorder()
    client = await cluster.client()
    queues = []
    for name, retention_s in (("leased", 600.0), ("left", RETENTION_S)):
        config = QueueConfig(retention_ms=int(retention_s * 1000))
        partition = (await client.create_partition(PartitionKind.QUEUE, name, config)).partition
        queues.append(TimedQueue(recorder, client, name, partition, TRUE))
    leased, left = queues
    await leased.send(2)
    await leased.send(1, [(HEADER_DELAY_MS, b"%d" % int(DELAY_S * 1000))], DELAY_S)
    await left.send(2)
    for _ in range(int((RETENTION_S + 1.0) / 0.3)):
        await leased.receive(delete=False)
        await asyncio.sleep(0.05)
    await left.receive()
    await client.close()
    return tuple([event for event in recorder.events if event.partition == queue.partition] for queue in queues)  # type: ignore[return-value]


def found(events: list[Event], terms: Terms) -> list[str]:
    violations = check_times(events, events[0].partition, terms, SLACK_S).violations
    return [kind for kind, items in violations.items() if items]


def test_node_that_keeps_time_passes_and_one_that_would_not_is_found() -> None:
    cluster = NodeCluster(1)
    cluster.start_all()
    try:
        leased, left = asyncio.run(told_by_a_node(cluster))
    finally:
        cluster.stop()
        cluster.remove()
    assert found(leased, Terms(600.0, LEASE_S)) == []
    assert found(left, TRUE) == []
    # The same histories, had the promise been another one.
    assert found(leased, Terms(600.0, LEASE_S + 2.0)) == ["lease-early"]
    assert found(leased, Terms(600.0, 0.1)) == ["absent"]
    assert found(left, Terms(60.0, LEASE_S)) == ["expired-early"]
    later = [msgspec.structs.replace(event, note=event.note.replace("delay 1.0", "delay 9.0")) for event in leased]
    assert "early" in found(later, Terms(600.0, LEASE_S))
