"""The Spark session of a job: the same job on this machine or on a cluster, by `SPARK_MASTER`.

Unset means `local[*]` with a bounded heap. With a cluster the code goes along (a zip of the two packages that tasks
import); its machines need Python with the packages of requirements/reports.txt. All ports are bound to one address:
`PENSTOCK_SPARK_HOST`, 127.0.0.1 unless it is set. A cluster that does not answer is told in two lines (`masters.py`).
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
from workers.spark_jobs.masters import GAVE_UP, MASTER, is_local, require_master, took_no_job
from workers.spark_jobs.source.stream_source import StreamDataSource

ROOT = Path(__file__).resolve().parent.parent.parent
# What tasks import, and no more: the data source's client, and the transforms.
SHIPPED = ("storage_nodes", "workers/__init__.py", "workers/spark_jobs")
LOCAL_MASTER = "local[*]"
HOST, MEMORY, SCRATCH = "PENSTOCK_SPARK_HOST", "PENSTOCK_SPARK_MEMORY_MIB", "SPARK_LOCAL_DIRS"
LOG_LEVEL = "PENSTOCK_SPARK_LOG_LEVEL"
# Until the cluster has taken the job: what fails before is an error of Python's too, and Java's traces say no more.
# Without an appender Spark would take a configuration of its own.
QUIET_LOG = """
rootLogger.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.name = stderr
appender.stderr.type = Console
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class TooManyDescriptors(Exception):
    """This process has more files open than a process that hears calls of Spark may have."""


@contextmanager
def spark_session(job: str, partitions: int = 0) -> Iterator[SparkSession]:
    """A session with the data source registered; stopped at the end. `partitions`: of shuffles, 0 = twice the cores.

    Raises TooManyDescriptors, ValueError, MasterAway."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    check_descriptors()
    master = os.environ.get(MASTER) or LOCAL_MASTER
    require_master(master)
    # Before the JVM starts: its heap cannot grow afterwards. Python workers are this very Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = find_java()
    if java is not None:
        os.environ["JAVA_HOME"] = java.home
    os.environ["SPARK_LOCAL_IP"] = bound_to = os.environ.get(HOST) or "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as scratch:
        session = _begun(master, job, settings(bound_to, scratch, driver_memory_mib(), partitions), Path(scratch))
        try:
            session.sparkContext.setLogLevel(os.environ.get(LOG_LEVEL) or "ERROR")
            if not is_local(master):
                session.sparkContext.addPyFile(str(pack(Path(scratch))))
            session.dataSource.register(StreamDataSource)
            yield session
        finally:
            session.stop()


def _begun(master: str, job: str, chosen: dict[str, str], scratch: Path) -> SparkSession:
    """Raises MasterAway where a cluster takes no job: Spark gives up after a minute."""
    if not is_local(master) and not os.environ.get(LOG_LEVEL):
        quiet = scratch / "log4j2.properties"
        quiet.write_text(QUIET_LOG)
        java = f'{chosen["spark.driver.extraJavaOptions"]} -Dlog4j2.configurationFile="{quiet.as_uri()}"'
        chosen = {**chosen, "spark.driver.extraJavaOptions": java}
    builder = SparkSession.builder.master(master).appName(f"penstock {job}")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if is_local(master):
            raise
        raise took_no_job(master, reason_of(error)) from error


def reason_of(error: Exception) -> str:
    """The first line of what Java said, without its frames."""
    lines = str(getattr(error, "java_exception", None) or error).splitlines()
    said = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    return GAVE_UP if "stopped SparkContext" in said else said


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
