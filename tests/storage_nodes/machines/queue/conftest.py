"""The partition that most tests of the queue machine use."""

from __future__ import annotations

import pytest

from tests.storage_nodes.machines.queue.partition import Partition


@pytest.fixture
def partition() -> Partition:
    return Partition()
