"""The task, by the name that `api/hints.py` sends. What it does is in `slices.py`.

Imports of Django's models stay inside the function: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from celery import Task

from workers.application import app


@app.task(name="workers.moves.move_messages", bind=True)
def move_messages(self: Task, task_id: int) -> None:
    from django.db import close_old_connections

    from workers.moves.slices import move_slice
    from workers.storage import storage

    try:
        pause_ms = move_slice(task_id, storage())
    finally:
        close_old_connections()
    if pause_ms is not None:
        self.apply_async((task_id,), countdown=pause_ms / 1000)
