"""Clusters of real node processes for the tests of this folder: three nodes, or one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog

from benchmarks.storage_cluster import StorageCluster
from tests.storage_nodes.node.node_programs import HOMING_NODE, SMALL_FILES_NODE
from tests.storage_nodes.node.warm_nodes import Incubator, WarmCluster


@pytest.fixture(autouse=True)
def logging_of_its_own() -> None:
    """What a node says goes to stdout, whatever tests of another plane have configured in this process."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def incubator() -> Iterator[Incubator]:
    incubator = Incubator()
    yield incubator
    incubator.close()


@pytest.fixture
def cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(3, incubator)


@pytest.fixture
def small_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(1, incubator)


@pytest.fixture(scope="module")
def shared_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    """For tests of one file that kill no node: each has partitions of its own."""
    yield from cluster_of(3, incubator)


@pytest.fixture(scope="module")
def shared_small_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(1, incubator)


@pytest.fixture
def homing_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(3, incubator, HOMING_NODE)


@pytest.fixture
def small_files_cluster(incubator: Incubator) -> Iterator[StorageCluster]:
    yield from cluster_of(3, incubator, SMALL_FILES_NODE)


def cluster_of(nodes: int, incubator: Incubator, program: str = "") -> Iterator[StorageCluster]:
    cluster = WarmCluster(nodes, incubator)
    if program:
        cluster.command = [sys.executable, "-c", program]
    cluster.start_all()
    yield cluster
    cluster.stop()
    cluster.remove()
