"""Every task of Celery, by the name that the schedule of `workers/application.py` or a hint of `api/hints.py` has. What
they do is in the folders of their kinds.

Imports of Django's models stay inside the functions: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import structlog

from workers.application import app

_log = structlog.get_logger(__name__)
_usage_told = ""


# --- queues --------------------------------------------------------------------------------------------------


@app.task(name="workers.lifecycle.provision_queue")
def provision_queue(queue_id: int) -> None:
    _reconcile(queue_id)


@app.task(name="workers.lifecycle.configure_queue")
def configure_queue(queue_id: int) -> None:
    _reconcile(queue_id)


@app.task(name="workers.lifecycle.delete_queue")
def delete_queue(queue_id: int) -> None:
    _reconcile(queue_id)


@app.task(name="workers.lifecycle.resync")
def resync() -> None:
    from workers.lifecycle import reconciling

    _run(reconciling.resync)


@app.task(name="workers.lifecycle.forget_old_keys")
def forget_old_keys() -> None:
    from workers.lifecycle import reconciling
    from workers.storage import storage

    _run(lambda: reconciling.forget_old_keys(storage()))


@app.task(name="workers.moves.move_messages")
def move_messages(task_id: int) -> None:
    """A worker moves messages on threads that are for moves alone (`workers/watcher.py`), the accounts in turns: a hint
    only says that there is something to look for, and holds no thread that a new queue waits for."""
    from workers.watcher import wake_watcher

    wake_watcher()


@app.task(name="workers.cron.hand_over_ticks")
def hand_over_ticks() -> None:
    from workers.cron.firing import hand_over
    from workers.storage import storage

    _run(lambda: hand_over(storage()))


def _reconcile(queue_id: int) -> None:
    from workers.lifecycle.reconciling import reconcile_queue
    from workers.storage import storage
    from workers.watcher import wake_watcher

    try:
        _run(lambda: reconcile_queue(queue_id, storage()))
    finally:
        # The next step or attempt, if there is one, stands in the row.
        wake_watcher()


# --- accounts and people -------------------------------------------------------------------------------------


@app.task(name="workers.lifecycle.people_upkeep")
def people_upkeep() -> None:
    """Closes accounts whose grace period is over, with their queues and keys, and forgets what has expired."""
    from api.people.actions.account_life import finish_closing
    from api.people.actions.upkeep import forget_expired

    def work() -> None:
        finish_closing()
        forget_expired()

    _run(work)


@app.task(name="workers.lifecycle.remove_old_audit_entries")
def remove_old_audit_entries() -> None:
    from api.audit.actions import remove_old_entries
    from api.settings.environment import environment

    _run(lambda: remove_old_entries(environment().audit_days))


# --- metrics, alarms and webhooks ----------------------------------------------------------------------------


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


@app.task(name="workers.webhooks.deliver_webhooks")
def deliver_webhooks() -> None:
    from workers.webhooks import rounds

    _run(rounds.deliver_webhooks)


# --- usage and billing: each round leaves a row of how it went, which operators read in the console ----------


@app.task(name="workers.billing.refresh_drafts")
def refresh_drafts() -> None:
    from workers.billing import rounds

    _run(lambda: noted_round("drafts", rounds.refresh_drafts))


@app.task(name="workers.billing.issue_months")
def issue_months() -> None:
    from workers.billing import rounds

    _run(lambda: noted_round("invoices", rounds.issue_months))
    _run(lambda: noted_round("differences", rounds.find_differences))


@app.task(name="workers.billing.watch_budgets")
def watch_budgets() -> None:
    from workers.billing import rounds

    _run(lambda: noted_round("budgets", rounds.watch_budgets))


@app.task(name="workers.billing.read_meter")
def read_meter() -> None:
    from workers.billing import rounds

    _run(lambda: noted_round("meter", rounds.read_meter))


@app.task(name="workers.usage.settle_usage", acks_late=False, reject_on_worker_lost=False)
def settle_usage() -> None:
    """Outside late acknowledgements: a round takes minutes, the broker's visibility is 60 s.

    What lets one worker work is a claim in the database that is renewed while a job runs (`ScheduleLock`), not the
    message: a message that is lost, doubled or late costs nothing, the next round does what is due."""
    from workers.usage.running import BUSY, run_round

    why_not = ""

    def work() -> int:
        nonlocal why_not
        done = run_round()
        why_not = "" if done.why_not == BUSY else done.why_not
        return done.settled_hours

    def noted() -> None:
        noted_round("usage", work, lambda: why_not)
        _tell_usage_once(why_not)

    _run(noted)


def noted_round(name: str, work: Callable[[], int], trouble: Callable[[], str] = lambda: "") -> None:
    """`name` is one of api.billing.work_notes.Work. `trouble`: asked after the work, why it did not do all. What the
    work raises is noted, and goes on."""
    began_s, done = monotonic(), 0
    try:
        done = work()
    except Exception as error:
        _note(name, began_s, done, f"{type(error).__name__}: {error}")
        raise
    _note(name, began_s, done, trouble())


def _note(name: str, began_s: float, done: int, trouble: str) -> None:
    from django.db import Error as DatabaseError

    from api.billing.work_notes import Work, note_round

    try:
        note_round(Work(name), int((monotonic() - began_s) * 1000), done, trouble)
    except DatabaseError as error:
        _log.warning("work_not_noted", work=name, error=type(error).__name__)


def _tell_usage_once(why_not: str) -> None:
    """A reason that stays is a line of the log, and not one every five minutes."""
    global _usage_told
    if why_not and why_not != _usage_told:
        _log.warning("usage_not_settled", why=why_not)
    _usage_told = why_not


def _run(work: Callable[[], object]) -> None:
    from django.db import close_old_connections

    try:
        work()
    finally:
        close_old_connections()
