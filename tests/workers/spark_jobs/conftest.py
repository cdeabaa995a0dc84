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
        with spark_session("tests", partitions=1) as session:
            # Small frames: compiling costs more than it brings.
            session.conf.set("spark.sql.codegen.wholeStage", "false")
            session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            session.conf.set("spark.sql.adaptive.enabled", "false")
            yield session


@pytest.fixture(scope="session", autouse=True)
def threads_end_before_the_database() -> None:
    """In the place of the fixture of the folder above, which starts a database."""
