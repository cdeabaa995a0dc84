"""One Spark session for all tests of this folder, on one JVM; and frames from few words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.workers.spark_jobs.frames import java_or_skip


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    java_or_skip()
    from workers.spark_jobs.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_MASTER", "local[2]")
        patch.setenv("PENSTOCK_SPARK_MEMORY_MIB", "768")
        with spark_session("tests", partitions=2) as session:
            yield session
