"""Clusters of real node processes for the tests of this folder: three nodes, or one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.storage_cluster import StorageCluster


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


def cluster_of(nodes: int) -> Iterator[StorageCluster]:
    cluster = StorageCluster(nodes)
    cluster.start_all()
    yield cluster
    cluster.stop()
    cluster.remove()
