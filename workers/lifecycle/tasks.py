"""The tasks, by the names that `api/hints.py` sends. What they do is in `settling.py`.

Imports of Django's models stay inside the functions: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from celery import Task

from workers.application import app
from workers.limits import RETRY_HINT_S_MAX


@app.task(name="workers.lifecycle.provision_queue", bind=True)
def provision_queue(self: Task, queue_id: int) -> None:
    _settle(self, queue_id)


@app.task(name="workers.lifecycle.configure_queue", bind=True)
def configure_queue(self: Task, queue_id: int) -> None:
    _settle(self, queue_id)


@app.task(name="workers.lifecycle.delete_queue", bind=True)
def delete_queue(self: Task, queue_id: int) -> None:
    _settle(self, queue_id)


@app.task(name="workers.lifecycle.reconcile")
def reconcile() -> None:
    from django.db import close_old_connections

    from workers.lifecycle.settling import reconcile as send_overdue_hints

    try:
        send_overdue_hints()
    finally:
        close_old_connections()


def _settle(task: Task, queue_id: int) -> None:
    from django.db import close_old_connections

    from workers.lifecycle.settling import settle
    from workers.storage import storage

    try:
        retry_ms = settle(queue_id, storage())
    finally:
        close_old_connections()
    if retry_ms is not None and retry_ms <= RETRY_HINT_S_MAX * 1000:
        # Longer pauses are left to the reconcile tick.
        task.apply_async((queue_id,), countdown=retry_ms / 1000 + 0.05)
