"""Deleted queues of accounts that keep them for some days, and deletion protection.

    active -> kept       DeleteQueue. The name is free after its cooldown; the partitions stay, with longer retention
    kept   -> active     restored, under its name or another one
    kept   -> deleting   the days are over, or the account does not want to wait; from here on as everywhere

The row of a queue that is kept, or was, has `kept_until` and no claim on its name: the metadata service does not read
it, and nothing is announced of it. Lock order: account, then queue.

Messages age on while their queue is kept, so retention is longer by the days of grace, and after a restore by the time
that the queue was kept, until no message of before is left. More than RETENTION_MS_MAX storage does not keep.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import QuerySet

from api import clock, limits
from api.accounts.models import Account
from api.audit.actions import LIFECYCLE, record
from api.changes import next_version
from api.encryption.selectors import existing_of
from api.hints import Hint, send_hint
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import Queue, QueueStatus
from api.queues.redrive import announce_queue, grant_keys, grant_to_new, shred_keys, wake_sources
from frontend.authn.principal import Principal

_NOT_KEPT = "No deleted queue of this account is kept under this id."


def check_deletion(account: Account) -> None:
    """Raises QueueProblem where the account protects its queues."""
    if account.deletion_protection:
        raise QueueProblem(
            "UnsupportedOperation",
            "Deletion protection is on for this account, so its queues cannot be deleted. Switch it off first: "
            'PATCH /v1/account with {"deletion_protection": false}.',
        )


def keep(queue: Queue, grace: timedelta, shreds: bool) -> None:
    """The queue is being deleted; the caller holds its row and saves it."""
    assert queue.deleted_at is not None
    queue.state = QueueStatus.KEPT
    queue.kept_until = queue.deleted_at + grace
    queue.shreds = shreds
    queue.retention_extra_ms += grace // timedelta(milliseconds=1)
    queue.retention_extra_until = None


@transaction.atomic
def restore_queue(actor: Principal, account_id: str, queue_uuid: uuid.UUID, name: str = "") -> Queue:
    """The queue with all that it held when it was deleted, usable from the commit on. Its leases and its place in
    dead-letter relations are as those of any queue now. `name` has passed `attributes.check_name`; none: its own.
    Raises QueueProblem."""
    Account.objects.select_for_update().get(id=account_id)
    queue = _lock_kept(account_id, queue_uuid)
    former, queue.name = queue.name, name or queue.name
    _check_name(queue, former)
    now = clock.now()
    assert queue.kept_until is not None
    # Of the grace only what was used; what an earlier restore had left stays, for its messages may still be there.
    queue.retention_extra_ms -= (queue.kept_until - now) // timedelta(milliseconds=1)
    queue.retention_extra_until = now + timedelta(seconds=int(queue.attributes["MessageRetentionPeriod"]))
    queue.deleted_at, queue.kept_until, queue.shreds = None, None, False
    queue.modified_at = now
    queue.encryption_keys = existing_of(queue.encryption_keys)
    _change_state(queue, QueueStatus.ACTIVE, now)
    grant_keys(queue)
    grant_to_new(queue)
    record(actor, account_id, "queue.restore", f"queue:{queue.name}", uuid=str(queue.uuid), former_name=former)
    wake_sources(account_id, queue.name)
    announce_queue(queue)
    transaction.on_commit(partial(send_hint, Hint.CONFIGURE_QUEUE, queue.pk))
    return queue


@transaction.atomic
def let_go(actor: Principal, account_id: str, queue_uuid: uuid.UUID) -> Queue:
    """The queue is not kept any longer: its partitions and keys go now. Raises QueueProblem."""
    check_deletion(Account.objects.select_for_update().get(id=account_id))
    queue = _lock_kept(account_id, queue_uuid)
    _let_go(actor, queue)
    return queue


def end_due_keeping() -> int:
    """Lets go of the queues whose days are over. How many. Safe to run twice, and beside itself."""
    due = Queue.objects.filter(state=QueueStatus.KEPT, kept_until__lte=clock.now()).order_by("kept_until")
    ended = 0
    for account_id, queue_uuid in list(due.values_list("account_id", "uuid")[: limits.KEPT_ENDED_AT_ONCE_MAX]):
        with transaction.atomic():
            Account.objects.select_for_update().get(id=account_id)
            queue = Queue.objects.select_for_update().filter(uuid=queue_uuid, state=QueueStatus.KEPT).first()
            if queue is not None and queue.kept_until is not None and queue.kept_until <= clock.now():
                _let_go(LIFECYCLE, queue)
                ended += 1
    return ended


def let_go_all(actor: Principal, account_id: str) -> None:
    """The account ends; the caller holds its row, and what the queues shared of their keys ends with it."""
    for queue in Queue.objects.select_for_update().filter(account_id=account_id, state=QueueStatus.KEPT):
        queue.shreds = True
        _let_go(actor, queue)


def end_due_extensions() -> int:
    """Gives restored queues their own retention back, when no message from before can be left. How many."""
    due = _restored().filter(retention_extra_until__lte=clock.now()).values_list("pk", flat=True)
    ended = 0
    for queue_id in list(due[: limits.KEPT_ENDED_AT_ONCE_MAX]):
        with transaction.atomic():
            now = clock.now()
            queue = _restored().select_for_update().filter(pk=queue_id, retention_extra_until__lte=now).first()
            if queue is not None:
                queue.retention_extra_ms, queue.retention_extra_until = 0, None
                _change_state(queue, QueueStatus.ACTIVE, now)
                transaction.on_commit(partial(send_hint, Hint.CONFIGURE_QUEUE, queue.pk))
                ended += 1
    return ended


def move_extension(queue: Queue, before_s: int, after_s: int) -> None:
    """The retention of a restored queue changes: its messages of before may live as much longer or shorter. The caller
    holds the row and saves it."""
    if queue.retention_extra_until is not None:
        queue.retention_extra_until += timedelta(seconds=after_s - before_s)


def _restored() -> QuerySet[Queue]:
    """Not those that were deleted since: a new generation of theirs would make partitions again."""
    return Queue.objects.filter(state=QueueStatus.ACTIVE)


def _let_go(actor: Principal, queue: Queue) -> None:
    _change_state(queue, QueueStatus.DELETING, clock.now())
    if queue.shreds:
        shred_keys(queue)
    record(actor, queue.account_id, "queue.let_go", f"queue:{queue.name}", uuid=str(queue.uuid), shred=queue.shreds)
    transaction.on_commit(partial(send_hint, Hint.DELETE_QUEUE, queue.pk))


def _change_state(queue: Queue, state: QueueStatus, now: datetime) -> None:
    queue.state = state
    queue.generation += 1
    queue.version = next_version()
    queue.next_attempt_at = now if queue.claim is None else queue.next_attempt_at
    queue.save()


def _lock_kept(account_id: str, queue_uuid: uuid.UUID) -> Queue:
    rows = Queue.objects.select_for_update().filter(account_id=account_id, uuid=queue_uuid, state=QueueStatus.KEPT)
    queue = rows.first()
    if queue is None:
        raise QueueProblem("QueueDoesNotExist", _NOT_KEPT)
    return queue


def _check_name(queue: Queue, former: str) -> None:
    if rules.is_fifo(queue.name) != rules.is_fifo(former):
        raise QueueProblem(
            "InvalidParameterValueException", "A queue stays of its type: FIFO, or not, as its name ends."
        )
    others = Queue.objects.filter(account_id=queue.account_id, name=queue.name, kept_until__isnull=True)
    if others.exclude(state=QueueStatus.DELETED).exists():
        raise QueueProblem(
            "QueueNameExists", "Another queue has this name now. Restore the deleted one under another name."
        )
