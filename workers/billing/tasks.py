"""The tasks, by the names that the schedule of `workers/application.py` has. What they do is in `rounds.py`.

Imports of Django's models stay inside the functions: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from collections.abc import Callable

from workers.application import app


@app.task(name="workers.billing.refresh_drafts")
def refresh_drafts() -> None:
    from workers.billing import rounds

    _run("drafts", rounds.refresh_drafts)


@app.task(name="workers.billing.issue_months")
def issue_months() -> None:
    from workers.billing import rounds

    _run("invoices", rounds.issue_months)
    _run("differences", rounds.find_differences)


@app.task(name="workers.billing.watch_budgets")
def watch_budgets() -> None:
    from workers.billing import rounds

    _run("budgets", rounds.watch_budgets)


@app.task(name="workers.billing.read_meter")
def read_meter() -> None:
    from workers.billing import rounds

    _run("meter", rounds.read_meter)


def _run(name: str, work: Callable[[], int]) -> None:
    """`name` is one of api.billing.work_notes.Work."""
    from django.db import close_old_connections

    from workers.billing.noted import noted_round

    try:
        noted_round(name, work)
    finally:
        close_old_connections()
