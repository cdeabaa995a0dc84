"""`python -m workers.spark_jobs JOB ...`: runs one job, or says what Spark needs that is not there.

It imports nothing of Spark before it has looked: a job's module would end with an error of Python's.
"""

from __future__ import annotations

import importlib
import json
import sys

from workers.spark_jobs.java import missing_parts
from workers.spark_jobs.jobs.command import EXIT_MISSING, EXIT_USAGE

JOBS = {
    "ingest": "workers.spark_jobs.jobs.ingest",
    "ingest_files": "workers.spark_jobs.jobs.ingest_files",
    "quantities": "workers.spark_jobs.jobs.quantities",
    "report": "workers.spark_jobs.jobs.report",
    "rollup": "workers.spark_jobs.jobs.rollup",
    "settle": "workers.spark_jobs.jobs.settle",
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in JOBS:
        sys.stderr.write(f"python -m workers.spark_jobs JOB ...; jobs: {', '.join(JOBS)}\n")
        return EXIT_USAGE
    missing = missing_parts()
    if missing:
        sys.stdout.write(json.dumps({"missing": missing}) + "\n")
        sys.stderr.write("\n".join(missing) + "\n")
        return EXIT_MISSING
    return int(importlib.import_module(JOBS[arguments[0]]).main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
