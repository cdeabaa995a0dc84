"""A FIFO partition, whose messages are sent by the letters of their groups."""

from __future__ import annotations

import pytest

from storage_nodes.machines.queue.effects import Pick
from storage_nodes.protocol.messages import QueueConfig
from tests.storage_nodes.machines.queue.partition import Partition


@pytest.fixture
def partition() -> Partition:
    return Partition(QueueConfig(fifo=True))


def send(partition: Partition, groups: str, delay_ms: int = 0) -> list[int]:
    return list(partition.send_keyed(*[(group.encode(), b"") for group in groups], delay_ms=delay_ms))


def take(partition: Partition, token: str, count: int = 10, **how: int) -> list[Pick]:
    partition.acquire(token, count, **how)
    partition.commit()
    return partition.delivered[token]
