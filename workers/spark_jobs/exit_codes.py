"""What `python -m workers.spark_jobs` ends with; 0: all was done, 1: the job failed."""

from __future__ import annotations

EXIT_USAGE = 2
# What Spark needs is not there.
EXIT_MISSING = 3
# Files were refused; the others were taken.
EXIT_REFUSED = 4
# The cluster of SPARK_MASTER does not answer.
EXIT_NO_MASTER = 5
