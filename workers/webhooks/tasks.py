"""The task, by the name that the schedule of `workers/application.py` has. What it does is in `rounds.py`.

Imports of Django's models stay inside the function: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from workers.application import app


@app.task(name="workers.webhooks.deliver_webhooks")
def deliver_webhooks() -> None:
    from django.db import close_old_connections

    from workers.webhooks import rounds

    try:
        rounds.deliver_webhooks()
    finally:
        close_old_connections()
