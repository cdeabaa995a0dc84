"""Jobs: a process each, `python -m workers.spark_jobs JOB`. They read clocks and files; transforms do the rest."""
