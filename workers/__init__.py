"""Celery: `celery -A workers worker` does what the control plane wishes, `celery -A workers beat` keeps the schedule.

A task is a hint to look at a row (see `api/queues/lifecycle.py`): it may be lost, doubled or late. Django is set up in
the worker only, so the schedule's process stays small.
"""

from __future__ import annotations

from workers.application import app

__all__ = ["app"]
