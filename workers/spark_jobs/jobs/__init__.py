"""Jobs: a process each, `python -m workers.spark_jobs.jobs.NAME`. They read clocks and files; transforms do the rest."""
