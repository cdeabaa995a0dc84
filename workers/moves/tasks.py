"""The task, by the name that `api/hints.py` sends. What it does is in `slices.py`.

A worker moves messages on threads that are for moves alone (`workers/watcher.py`), the accounts in turns: a hint only
says that there is something to look for, and holds no thread that a new queue waits for.

The import stays inside the function: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from workers.application import app


@app.task(name="workers.moves.move_messages")
def move_messages(task_id: int) -> None:
    from workers.watcher import wake_watcher

    wake_watcher()
