"""The Spark session of a job: the same job on this machine or on a cluster, by `SPARK_MASTER`.

Unset means `local[*]` with a bounded heap. With a cluster the code goes along (a zip of the two packages that tasks
import); its machines need Python with the packages of requirements/reports.txt. All ports are bound to one address:
`PENSTOCK_SPARK_HOST`, 127.0.0.1 unless it is set.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from storage_nodes.trust.credentials import SETTINGS as CERTIFICATE
from workers.spark_jobs.java import find_java
from workers.spark_jobs.limits import (
    ARROW_ROWS_MAX,
    DRIVER_MEMORY_MIB,
    DRIVER_MEMORY_MIB_MIN,
    EXECUTOR_MEMORY_MIB,
    SELECT_DESCRIPTORS_MAX,
    SESSION_DESCRIPTORS_MAX,
)
from workers.spark_jobs.source.stream_source import StreamDataSource

ROOT = Path(__file__).resolve().parent.parent.parent
# What tasks import, and no more: the data source's client, and the transforms.
SHIPPED = ("storage_nodes", "workers/__init__.py", "workers/spark_jobs")
LOCAL_MASTER = "local[*]"
MASTER, HOST, MEMORY, SCRATCH = "SPARK_MASTER", "PENSTOCK_SPARK_HOST", "PENSTOCK_SPARK_MEMORY_MIB", "SPARK_LOCAL_DIRS"


class TooManyDescriptors(Exception):
    """This process has more files open than a process that hears calls of Spark may have."""


@contextmanager
def spark_session(job: str, partitions: int = 0) -> Iterator[SparkSession]:
    """A session with the data source registered; stopped at the end. `partitions`: of shuffles, 0 = twice the cores.

    Raises TooManyDescriptors, ValueError."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    check_descriptors()
    master = os.environ.get(MASTER) or LOCAL_MASTER
    # Before the JVM starts: its heap cannot grow afterwards. Python workers are this very Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = find_java()
    if java is not None:
        os.environ["JAVA_HOME"] = java.home
    os.environ["SPARK_LOCAL_IP"] = bound_to = os.environ.get(HOST) or "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as scratch:
        builder = SparkSession.builder.master(master).appName(f"penstock {job}")
        for name, value in settings(bound_to, scratch, driver_memory_mib(), partitions).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            session.sparkContext.setLogLevel(os.environ.get("PENSTOCK_SPARK_LOG_LEVEL") or "ERROR")
            if not master.startswith("local"):
                session.sparkContext.addPyFile(str(pack(Path(scratch))))
            session.dataSource.register(StreamDataSource)
            yield session
        finally:
            session.stop()


def settings(bound_to: str, scratch: str, memory_mib: int, partitions: int) -> dict[str, str]:
    cores = os.cpu_count() or 1
    # Executors read the stream of usage themselves, and show the same certificate, from the same paths.
    names = [form for name in CERTIFICATE for form in (name, f"{name}_FILE")]
    shown = {f"spark.executorEnv.{name}": os.environ[name] for name in names if os.environ.get(name)}
    return {
        **shown,
        "spark.driver.memory": f"{memory_mib}m",
        "spark.executor.memory": f"{EXECUTOR_MEMORY_MIB}m",
        "spark.driver.host": bound_to,
        "spark.driver.bindAddress": bound_to,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": os.environ.get(SCRATCH) or scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        # A sum that overflows, a cast that loses digits: an error, never another number.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": str(partitions or 2 * cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS_MAX),
        "spark.sql.parquet.compression.codec": "zstd",
        # One heap of a fixed size, filled and emptied in bulk: what this collector is for.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    }


def check_descriptors() -> None:
    """Refuse to start where a call of the JVM would never be heard, and the job wait for ever: py4j listens with
    select(2), which takes no descriptor from 1,024 on. Raises TooManyDescriptors."""
    with open(os.devnull, "rb") as lowest_free:
        descriptor = lowest_free.fileno()
    if descriptor + SESSION_DESCRIPTORS_MAX > SELECT_DESCRIPTORS_MAX:
        raise TooManyDescriptors(
            f"{descriptor} files are open in this process, and Spark is not heard beyond {SELECT_DESCRIPTORS_MAX}:"
            " run the job in a process of its own"
        )


def driver_memory_mib() -> int:
    """Raises ValueError."""
    memory_mib = int(os.environ.get(MEMORY) or DRIVER_MEMORY_MIB)
    if memory_mib < DRIVER_MEMORY_MIB_MIN:
        raise ValueError(f"{MEMORY} is {memory_mib}; at least {DRIVER_MEMORY_MIB_MIN} are needed")
    return memory_mib


def pack(directory: Path) -> Path:
    """A zip of the packages that tasks import."""
    archive = directory / "penstock_tasks.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in SHIPPED:
            place = ROOT / name
            for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
                packed.write(file, file.relative_to(ROOT))
    return archive
