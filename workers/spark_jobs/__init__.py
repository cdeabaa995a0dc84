"""Usage on Spark: the `__usage` stream to a Parquet lake, the lake to rollups, settlements and reports.

Spark counts, Django prices: no money here, and neither Django nor Celery. Design: docs/usage.md, record:
docs/usage_records.md. Jobs are processes: `python -m workers.spark_jobs JOB`.
"""
