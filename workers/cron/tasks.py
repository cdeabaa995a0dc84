"""The task, by the name that the schedule of `workers/application.py` has. What it does is in `firing.py`.

Imports of Django's models stay inside the function: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from workers.application import app


@app.task(name="workers.cron.hand_over_ticks")
def hand_over_ticks() -> None:
    from django.db import close_old_connections

    from workers.cron.firing import hand_over
    from workers.storage import storage

    try:
        hand_over(storage())
    finally:
        close_old_connections()
