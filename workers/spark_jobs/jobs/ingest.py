"""The usage stream into the lake: everything that is there when the job begins, from where the last one ended.

    python -m workers.spark_jobs ingest --lake DIR --cluster-id ID --nodes 1=HOST:PORT@ZONE,...

The checkpoint is in the lake. A batch that was cut off is read again, with the same offsets, into the same entry.
"""

from __future__ import annotations

import argparse
import json

from pyspark.sql import DataFrame, SparkSession

from workers.spark_jobs.jobs.command import Answer, add_now, job_parser, now_ms, run_job
from workers.spark_jobs.lake.ingestion import ingest_records
from workers.spark_jobs.lake.manifest import TABLES, Lake, LakeEntry
from workers.spark_jobs.limits import ARROW_BATCHES_MAX
from workers.spark_jobs.session import spark_session
from workers.spark_jobs.source.stream_reading import USAGE_TAG_PREFIX
from workers.spark_jobs.source.stream_source import BATCHES, FORMAT


def ingest_stream(
    spark: SparkSession, lake: Lake, cluster_id: str, nodes: str, seen_ms: int = 0, **options: str
) -> list[LakeEntry]:
    """The entries that were made. `seen_ms`: when; 0 = by this machine's clock. `options` as of the data source; the
    usage stream where they name none."""
    chosen = options if "partitions" in options else {"tag_prefix": USAGE_TAG_PREFIX, **options}
    # Rows of whole batches are large: few of them at a time go from a task of the source to one of the decoder.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ARROW_BATCHES_MAX)
    stream = spark.readStream.format(FORMAT).options(cluster_id=cluster_id, nodes=nodes, rows=BATCHES, **chosen).load()
    checkpoint = lake.checkpoint(cluster_id)
    made: list[LakeEntry] = []

    def ingest_batch(batch: DataFrame, number: int) -> None:
        # The id of the query is the checkpoint's: one that begins from nothing makes entries of other names.
        query_id = json.loads((checkpoint / "metadata").read_text())["id"]
        made.append(ingest_records(lake, batch, f"stream-{query_id}-{number:09d}", seen_ms or now_ms()))

    writing = stream.writeStream.foreachBatch(ingest_batch).option("checkpointLocation", str(checkpoint))
    writing.trigger(availableNow=True).start().awaitTermination()
    return made


def work(options: argparse.Namespace, lake: Lake) -> Answer:
    chosen = {"partitions": options.partitions} if options.partitions else {}
    with spark_session("ingest") as spark:
        made = ingest_stream(
            spark, lake, options.cluster_id, options.nodes, options.now, removed_records=options.removed_records,
            **chosen,
        )  # fmt: skip
    hours = [span for entry in made if (span := entry.hours())]
    return {
        "entries": [entry.name for entry in made],
        **{table: sum(entry.rows(table) for entry in made) for table in TABLES},
        "hour_ms_min": min((first for first, _ in hours), default=None),
        "hour_ms_max": max((last for _, last in hours), default=None),
    }


def main(arguments: list[str]) -> int:
    parser = job_parser("ingest", "The usage stream into the lake.", spanned=False)
    parser.add_argument("--cluster-id", required=True)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--partitions", default="", help="ids of stream partitions in the place of the usage stream's")
    add_now(parser)
    parser.add_argument("--removed-records", choices=["fail", "skip"], default="fail")
    return run_job(parser, work, arguments)
