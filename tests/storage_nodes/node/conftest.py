"""Clusters of real node processes for the tests of this folder: three nodes, or one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog

from benchmarks.storage_cluster import StorageCluster
from tests.storage_nodes.node.node_programs import HOMING_NODE, SMALL_FILES_NODE


@pytest.fixture(autouse=True)
def logging_of_its_own() -> None:
    """What a node says goes to stdout, whatever tests of another plane have configured in this process."""
    structlog.reset_defaults()


@pytest.fixture
def cluster() -> Iterator[StorageCluster]:
    yield from cluster_of(3)


@pytest.fixture
def small_cluster() -> Iterator[StorageCluster]:
    yield from cluster_of(1)


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[StorageCluster]:
    """For tests of one file that kill no node: each has partitions of its own."""
    yield from cluster_of(3)


@pytest.fixture(scope="module")
def shared_small_cluster() -> Iterator[StorageCluster]:
    yield from cluster_of(1)


@pytest.fixture
def homing_cluster() -> Iterator[StorageCluster]:
    yield from cluster_of(3, HOMING_NODE)


@pytest.fixture
def small_files_cluster() -> Iterator[StorageCluster]:
    yield from cluster_of(3, SMALL_FILES_NODE)


def cluster_of(nodes: int, program: str = "") -> Iterator[StorageCluster]:
    cluster = StorageCluster(nodes)
    if program:
        cluster.command = [sys.executable, "-c", program]
    cluster.start_all()
    yield cluster
    cluster.stop()
    cluster.remove()
