"""Celery: `celery -A workers worker` brings storage to the desired state, `celery -A workers beat` keeps the schedule.

A task is a hint to look at a row (see `api/queues/lifecycle.py`): it may be lost, doubled or late. Django is set up in
the worker only, so the schedule's process stays small. Spark's jobs (`workers/spark_jobs`) are processes of their own,
without Celery: the application is loaded when it is asked for.
"""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(name)
    from workers.application import app

    return app
