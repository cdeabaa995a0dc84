"""Clusters of real node processes for the tests of this folder: three nodes, or one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.storage_cluster import StorageCluster


@pytest.fixture
def cluster() -> Iterator[StorageCluster]:
    cluster = StorageCluster()
    cluster.start_all()
    yield cluster
    cluster.stop()
    cluster.remove()


@pytest.fixture
def small_cluster() -> Iterator[StorageCluster]:
    cluster = StorageCluster(1)
    cluster.start_all()
    yield cluster
    cluster.stop()
    cluster.remove()
