"""The task, by the name that `api/hints.py` sends. What it does is in `slices.py`.

Imports of Django's models stay inside the function: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from workers.application import app


@app.task(name="workers.moves.move_messages")
def move_messages(task_id: int) -> None:
    from django.db import close_old_connections

    from workers.moves.slices import move_slice
    from workers.storage import storage
    from workers.watcher import wake_watcher

    try:
        move_slice(task_id, storage())
    finally:
        close_old_connections()
        # The next slice, if there is one, stands in the row.
        wake_watcher()
