"""Claiming move tasks and noting their progress: the database half. The storage half is `workers/moves`.

    claim     the task is active, its time has come -> the row names who works on it, for MOVE_CLAIM_LEASE_MS
    progress  conditional on the claim: adds to `moved`, renews the lease; tells of a cancel
    release   conditional on the claim: the slice is over, somebody goes on after a pause
    end       conditional on the claim: COMPLETED, CANCELLED or FAILED

A claim that was never given back belongs to a worker that died, and a failed slice may have left its work half done.
What was leased at the source becomes visible after MOVE_VISIBILITY_MS: until then (`leases_expired_at`) a source that
gives nothing is not taken for an empty one.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Q

from api import clock, limits
from api.audit.actions import LIFECYCLE, record
from api.clock import due_rows
from api.encryption.selectors import records_of
from api.metadata.rows import QUEUE, queue_record
from api.queues.models import ACTIVE_MOVES, MessageMoveTask, MoveStatus, Queue, QueueStatus
from api.secrets import keyring
from frontend.metadata.records import QueueRecord
from frontend.queues.key_uses import DataKeyUses, EncryptionKeyUses
from frontend.queues.resolver import ResolvedQueue

# Tasks that may be worked on: paused ones do nothing until they are resumed or cancelled.
_WORKABLE = Q(status__in=ACTIVE_MOVES) & (Q(paused_at__isnull=True) | Q(status=MoveStatus.CANCELLING))


class MoveClaim(NamedTuple):
    """A task to be worked on, as it was when it was claimed. `destination` None: back to where each came from."""

    claim: uuid.UUID
    task_id: int
    account_id: str
    source: QueueRecord | None
    destination: QueueRecord | None
    sources_only: bool
    messages_per_s: int
    # How many it may still move; None = all.
    left: int | None
    counted: bool
    leases_expired: bool
    scan: ScanTask | None


class ScanTask(NamedTuple):
    """What a task that looks for its messages needs besides. `position`: partition -> [next, end, watched]."""

    uuid: uuid.UUID
    started_ms: int
    filter: dict[str, object] | None
    dry_run: bool
    returned_max: int | None
    returned_percent_max: int | None
    position: dict[str, list[int]]
    moved: int
    returned: int


class ScanProgress(NamedTuple):
    """What a step adds to the counts, and where the next one goes on."""

    position: dict[str, list[int]]
    scanned: int = 0
    matched: int = 0
    skipped: int = 0
    returned: int = 0


@transaction.atomic
def claim_move(task_id: int) -> MoveClaim | None:
    """Returns None where nothing is pending now, another worker holds the task, or it has just ended."""
    now = clock.now()
    rows = MessageMoveTask.objects.select_for_update(skip_locked=True, of=("self",)).select_related("source")
    task = rows.filter(_WORKABLE, pk=task_id, next_attempt_at__lte=now).first()
    if task is None:
        return None
    if task.claim is not None:
        task.leases_expired_at = _lease_expiry_after(now)
    if task.status == MoveStatus.CANCELLING:
        _end(task, MoveStatus.CANCELLED, "")
        return None
    paused = timedelta(milliseconds=task.paused_ms)
    if now - task.started_at - paused > timedelta(hours=limits.MOVE_TASK_HOURS_MAX):
        _end(task, MoveStatus.FAILED, f"The task has run for {limits.MOVE_TASK_HOURS_MAX} hours.")
        return None
    task.claim = uuid.uuid4()
    task.next_attempt_at = now + timedelta(milliseconds=limits.MOVE_CLAIM_LEASE_MS)
    task.save(update_fields=["claim", "next_attempt_at", "leases_expired_at"])
    return MoveClaim(
        task.claim,
        task.pk,
        task.account_id,
        record_of(task.source),
        None if task.destination is None else record_of(task.destination),
        not task.destination_arn,
        task.messages_per_s or limits.MOVE_MESSAGES_PER_S_MAX,
        None if task.messages_max is None else max(0, task.messages_max - task.moved),
        task.to_move is not None,
        now >= task.leases_expired_at,
        _scan_task(task) if task.scans else None,
    )


@transaction.atomic
def note_count(claim: MoveClaim, to_move: int) -> None:
    MessageMoveTask.objects.filter(pk=claim.task_id, claim=claim.claim).update(to_move=to_move)


@transaction.atomic
def note_progress(claim: MoveClaim, moved: int, scan: ScanProgress | None = None) -> bool:
    """False: stop here. The task was cancelled (it ends now), it is paused, or the claim was lost."""
    task = _claimed(claim)
    if task is None:
        return False
    task.moved += moved
    task.failures = 0
    task.next_attempt_at = clock.now() + timedelta(milliseconds=limits.MOVE_CLAIM_LEASE_MS)
    changed = ["moved", "failures", "next_attempt_at"]
    if scan is not None:
        task.position = scan.position
        task.scanned += scan.scanned
        task.matched += scan.matched
        task.skipped += scan.skipped
        task.returned += scan.returned
        changed += ScanProgress._fields
    if task.paused_at is not None and task.status == MoveStatus.RUNNING:
        task.claim = None
        task.save(update_fields=[*changed, "claim"])
        return False
    task.save(update_fields=changed)
    if task.status == MoveStatus.CANCELLING:
        _end(task, MoveStatus.CANCELLED, "")
        return False
    return True


@transaction.atomic
def release_move(claim: MoveClaim, pause_ms: int, failed: bool = False) -> None:
    """The slice is over. After too many failures in a row the task has failed."""
    task = _claimed(claim)
    if task is None:
        return
    now = clock.now()
    if failed:
        task.failures += 1
        task.leases_expired_at = _lease_expiry_after(now)
    if task.failures > limits.MOVE_FAILURES_MAX:
        _end(task, MoveStatus.FAILED, "The message store does not answer.")
        return
    task.claim = None
    task.next_attempt_at = now + timedelta(milliseconds=pause_ms)
    task.save(update_fields=["claim", "failures", "next_attempt_at", "leases_expired_at"])


@transaction.atomic
def end_move(claim: MoveClaim, status: MoveStatus, reason: str = "") -> None:
    task = _claimed(claim)
    if task is not None:
        _end(task, status, reason)


def overdue_moves(age_ms: int = limits.RESYNC_AGE_MS_MIN) -> list[int]:
    """Tasks that stand still: due for longer than age_ms."""
    due = clock.now() - timedelta(milliseconds=age_ms)
    rows = MessageMoveTask.objects.filter(_WORKABLE, next_attempt_at__lte=due)
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[: limits.RESYNC_HINTS_MAX])


def due_moves(age_ms: int) -> tuple[list[int], datetime | None]:
    """(tasks that have been due for longer than age_ms, when the next of the others is due). The accounts take turns:
    first the task of each that waits longest, then the second one of each, and so on."""
    found, coming = due_rows(MessageMoveTask.objects.filter(_WORKABLE), age_ms)
    account_of = dict(MessageMoveTask.objects.filter(pk__in=found).values_list("pk", "account_id"))
    turns: dict[str, int] = {}
    order: list[tuple[int, int, int]] = []
    for task_id in found:
        account_id = account_of.get(task_id, "")
        turns[account_id] = turns.get(account_id, 0) + 1
        order.append((turns[account_id], len(order), task_id))
    return [task_id for _, _, task_id in sorted(order)], coming


def owner_of_partition(account_id: str, partition: int) -> QueueRecord | None:
    """The account's queue that this partition belongs to, if it is still there."""
    has, had = Q(partitions__contains=[partition]), Q(retired__contains=[{"partition": partition}])
    rows = Queue.objects.filter(has | had, account_id=account_id)
    queue = rows.filter(state=QueueStatus.ACTIVE).first()
    return None if queue is None else record_of(queue)


def record_of(queue: Queue) -> QueueRecord | None:
    """As the metadata service tells it to front ends. None where the queue cannot be used."""
    if queue.state != QueueStatus.ACTIVE:
        return None
    with connection.cursor() as cursor:
        cursor.execute(QUEUE, (queue.account_id, queue.name))
        row = cursor.fetchone()
    return None if row is None else queue_record(row)


def view_of(
    found: QueueRecord, data_key_uses: DataKeyUses | None = None, encryption_key_uses: EncryptionKeyUses | None = None
) -> ResolvedQueue:
    """The queue as the message path sees it, with the encryption keys as they are now. What is sealed and opened is
    counted where there is a count."""
    return ResolvedQueue(found, keyring(), records_of(found.encryption_keys), encryption_key_uses, data_key_uses)


def _scan_task(task: MessageMoveTask) -> ScanTask:
    return ScanTask(
        task.uuid,
        int(task.started_at.timestamp() * 1000),
        task.filter,
        task.dry_run,
        task.returned_max,
        task.returned_percent_max,
        task.position,
        task.moved,
        task.returned,
    )


def _claimed(claim: MoveClaim) -> MessageMoveTask | None:
    rows = MessageMoveTask.objects.select_for_update(of=("self",)).select_related("source")
    return rows.filter(pk=claim.task_id, claim=claim.claim).first()


def _lease_expiry_after(now: datetime) -> datetime:
    return now + timedelta(milliseconds=limits.MOVE_VISIBILITY_MS)


def _end(task: MessageMoveTask, status: MoveStatus, reason: str) -> None:
    task.status = status
    task.failure_reason = reason[: limits.MOVE_FAILURE_CHARACTERS_MAX]
    task.claim = None
    task.ended_at = clock.now()
    task.save()
    details = {"task": str(task.uuid), "moved": task.moved, "reason": task.failure_reason}
    record(LIFECYCLE, task.account_id, f"queue.move.{status.lower()}", f"queue:{task.source.name}", **details)
