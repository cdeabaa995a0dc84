"""The tasks, by the names that the schedule of `workers/application.py` has. What they do is in `rounds.py`.

Imports of Django's models stay inside the functions: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from collections.abc import Callable

from workers.application import app


@app.task(name="workers.series.collect_series")
def collect_series() -> None:
    from workers.series import rounds

    _run(rounds.collect_series)


@app.task(name="workers.series.roll_series")
def roll_series() -> None:
    from workers.series import rounds

    _run(rounds.roll_series)


@app.task(name="workers.series.judge_alarms")
def judge_alarms() -> None:
    from workers.series import alarms

    _run(alarms.judge_alarms)


@app.task(name="workers.series.mail_alarms")
def mail_alarms() -> None:
    from workers.series import alarms

    _run(alarms.mail_alarms)


def _run(work: Callable[[], int]) -> None:
    from django.db import close_old_connections

    try:
        work()
    finally:
        close_old_connections()
