"""The tasks, by the names that `api/hints.py` sends. What they do is in `reconciling.py`.

Imports of Django's models stay inside the functions: the schedule's process loads this module too, without Django.
"""

from __future__ import annotations

from workers.application import app


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
    from django.db import close_old_connections

    from workers.lifecycle import reconciling

    try:
        reconciling.resync()
    finally:
        close_old_connections()


@app.task(name="workers.lifecycle.people_upkeep")
def people_upkeep() -> None:
    """Closes accounts whose grace period is over, with their queues and keys, and forgets what has expired."""
    from django.db import close_old_connections

    from api.people.actions.account_life import finish_closing
    from api.people.actions.upkeep import forget_expired

    try:
        finish_closing()
        forget_expired()
    finally:
        close_old_connections()


@app.task(name="workers.lifecycle.forget_old_keys")
def forget_old_keys() -> None:
    from django.db import close_old_connections

    from workers.lifecycle import old_keys
    from workers.storage import storage

    try:
        old_keys.forget_old_keys(storage())
    finally:
        close_old_connections()


@app.task(name="workers.lifecycle.remove_old_audit_entries")
def remove_old_audit_entries() -> None:
    from django.db import close_old_connections

    from api.audit.actions import remove_old_entries
    from api.settings.environment import environment

    try:
        remove_old_entries(environment().audit_days)
    finally:
        close_old_connections()


def _reconcile(queue_id: int) -> None:
    from django.db import close_old_connections

    from workers.lifecycle.reconciling import reconcile_queue
    from workers.storage import storage
    from workers.watcher import wake_watcher

    try:
        reconcile_queue(queue_id, storage())
    finally:
        close_old_connections()
        # The next step or attempt, if there is one, stands in the row.
        wake_watcher()
