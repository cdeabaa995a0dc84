"""One Spark session for all tests of this folder, on one JVM; and frames from few words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.storage_cluster import StorageCluster
from storage_nodes.model import PartitionKind, format_node_list
from tests.support.java import SOON_COMPILED
from tests.workers.spark_jobs.frames import java_or_skip
from tests.workers.spark_jobs.streams import Streams


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    java_or_skip()
    from workers.spark_jobs import session as sessions
    from workers.spark_jobs.session import spark_session

    in_earnest = sessions.settings

    def soon_compiled(*given: Any) -> dict[str, str]:
        options = in_earnest(*given)
        java = f"{options['spark.driver.extraJavaOptions']} {SOON_COMPILED}"
        return {**options, "spark.driver.extraJavaOptions": java}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "settings", soon_compiled)
        patch.setenv("SPARK_MASTER", "local[2]")
        patch.setenv("PENSTOCK_SPARK_MEMORY_MIB", "768")
        with spark_session("tests", partitions=1) as session:
            # Small frames: compiling costs more than it brings.
            session.conf.set("spark.sql.codegen.wholeStage", "false")
            session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            session.conf.set("spark.sql.adaptive.enabled", "false")
            yield session


@pytest.fixture(scope="session", autouse=True)
def threads_end_before_the_database() -> None:
    """In the place of the fixture of the folder above, which starts a database."""


@pytest.fixture
def streams() -> Iterator[Streams]:
    cluster = StorageCluster(1)
    cluster.start_all()

    async def create() -> list[int]:
        client = await cluster.client()
        tags = [f"__usage:{number}" for number in range(2)]
        made = [await cluster.create_partition(client, PartitionKind.STREAM, tag) for tag in tags]
        await client.close()
        return made

    yield Streams(cluster, format_node_list(cluster.addresses), asyncio.run(create()))
    cluster.stop()
    cluster.remove()
