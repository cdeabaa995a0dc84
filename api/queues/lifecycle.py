"""Claims queues whose storage lags behind their desired state: the database half of the lifecycle. Its storage half is
`workers/lifecycle`.

    claim     conditional update: the row is pending, its time has come, no worker holds it -> the row names it
    work      outside any transaction, idempotent; a crash leaves a claim that runs out after CLAIM_LEASE_MS
    complete  conditional on the claim: `observed_generation` = the generation that was claimed
    fail      conditional on the claim: gives the row back, with a pause that doubles

A desired state that changes while the work is done leaves `generation` ahead of `observed_generation`: the row stays
pending.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import F

from api import clock, limits
from api.accounts.models import Account
from api.audit.actions import LIFECYCLE, record
from api.changes import next_version
from api.clock import due_rows
from api.hints import Hint
from api.queues import layout
from api.queues.attributes import redrive_of
from api.queues.layout import LayoutRow, Wanted
from api.queues.models import Queue, QueueStatus
from api.queues.redrive import announce_queue, target_of, wake_sources
from api.schedules.models import CronSchedule
from frontend.authn.principal import Principal
from frontend.queues.extensions import dedup_window_ms, is_paused, parks_groups, retry_of
from storage_nodes.limits import RETENTION_MS_MAX
from storage_nodes.protocol.messages import QueueConfig


class Claim(NamedTuple):
    """A desired state to be reconciled, as it was when it was claimed."""

    claim: uuid.UUID
    queue_id: int
    queue_uuid: uuid.UUID
    state: str
    generation: int
    # That of a partition, but for what `targets` and its row say.
    config: QueueConfig
    fifo: bool
    rows: list[LayoutRow]
    # Partitions to be made: rows without their number. Those of a queue that goes: made perhaps, and never noted.
    planned: list[LayoutRow]
    wanted: Wanted
    retired: list[dict[str, Any]]
    # Where dead letters go: the open partitions of the dead-letter queue, by level.
    targets: list[list[int]]
    # In a row.
    failures: int = 0


class ReconcileResult(NamedTuple):
    """What a reconciliation has done. `again_ms`: when to look again, None = storage has the desired state.
    `usage_lost`: partitions that were deleted without their last usage, and why."""

    rows: list[LayoutRow]
    retired: list[dict[str, Any]]
    again_ms: int | None = None
    usage_lost: Mapping[int, str] = MappingProxyType({})


@transaction.atomic
def claim_queue(queue_id: int) -> Claim | None:
    """Returns None where nothing is pending now, or another worker holds the row."""
    now = clock.now()
    pending = Queue.objects.select_for_update(skip_locked=True).exclude(generation=F("observed_generation"))
    queue = pending.filter(pk=queue_id, next_attempt_at__lte=now).first()
    if queue is None:
        return None
    wanted = layout.wanted_of(queue.attributes, queue.fifo)
    rows = layout.rows_of(queue.layout, queue.partitions, wanted.per_group)
    first = layout.next_number(rows, queue.retired)
    if queue.state == QueueStatus.DELETING:
        planned = [LayoutRow(0, number) for number in range(first, queue.number_end)]
    elif queue.state == QueueStatus.KEPT:
        planned = []  # whatever it was about to change into waits until it is restored
    else:
        planned = layout.missing(rows, wanted, queue.fifo, first)
    # Before any of them is made: who deletes the queue must know of all that there may be.
    queue.number_end = max(queue.number_end, first + len(planned))
    if queue.fifo and planned and rows and queue.state != QueueStatus.DELETING:
        # Likewise before any is closed: from here on there is no way back.
        rows = [row._replace(closing=True) for row in rows]
        queue.layout = layout.stored(rows)
    queue.claim = uuid.uuid4()
    queue.next_attempt_at = now + timedelta(milliseconds=limits.CLAIM_LEASE_MS)
    queue.save(update_fields=["claim", "next_attempt_at", "number_end", "layout"])
    target = target_of(queue)
    targets = [] if target is None else layout.open_by_level(layout.rows_of(target.layout, target.partitions))
    return Claim(
        queue.claim,
        queue.pk,
        queue.uuid,
        queue.state,
        queue.generation,
        _config(queue, targets),
        queue.fifo,
        rows,
        planned,
        wanted,
        list(queue.retired),
        targets,
        queue.failures,
    )


def _config(queue: Queue, targets: list[list[int]]) -> QueueConfig:
    """What its partitions are to enforce; dead letters of each may go elsewhere (workers/lifecycle/steps.py)."""
    attributes = queue.attributes
    config = QueueConfig(
        retention_ms=min(int(attributes["MessageRetentionPeriod"]) * 1000 + queue.retention_extra_ms, RETENTION_MS_MAX),
        fifo=queue.fifo,
        dedup_window_ms=dedup_window_ms(attributes),
        paused=is_paused(attributes),
        park_groups=parks_groups(attributes),
        account_id=queue.account_id,
    )
    retry = retry_of(attributes)
    if retry is not None:
        config = msgspec.structs.replace(config, **retry.config())
    redrive = redrive_of(attributes)
    if redrive is None or not targets:
        return config
    return msgspec.structs.replace(config, max_receives=redrive.receives_max, dead_letter_partition=targets[0][0])


@transaction.atomic
def complete_queue(claim: Claim, done: ReconcileResult) -> bool:
    """Notes that storage has the claimed state, or is a step nearer. False: the claim was lost, nothing is written."""
    moved = layout.open_by_level(claim.rows) != layout.open_by_level(done.rows)
    if moved or claim.state == QueueStatus.DELETING:
        # Sources may be woken: rows of several queues are written. A queue that is gone is counted no more.
        Account.objects.select_for_update(of=("self",)).get(queues__pk=claim.queue_id)
    queue = Queue.objects.select_for_update().filter(pk=claim.queue_id, claim=claim.claim).first()
    if queue is None:
        return False
    queue.claim = None
    queue.next_attempt_at = clock.now() + timedelta(milliseconds=done.again_ms or 0)
    queue.failures = 0
    queue.last_error = ""
    queue.observed_generation = claim.generation
    for partition, reason in done.usage_lost.items():
        details = {"partition": partition, "reason": reason, "uuid": str(queue.uuid)}
        record(LIFECYCLE, queue.account_id, "queue.last_usage_lost", f"queue:{queue.name}", **details)
    if done.again_ms is not None:
        # The configuration is in force, the rounds of the partitions go on: the row stays pending.
        queue.generation = max(queue.generation, claim.generation + 1)
        if (done.rows, done.retired) == (claim.rows, claim.retired):
            reconciled = ["claim", "next_attempt_at", "failures", "last_error", "observed_generation", "generation"]
            queue.save(update_fields=reconciled)
            return True  # nothing that anybody has to hear of
    _note(queue, claim, done)
    before = queue.state
    if claim.state == QueueStatus.CREATING and before == QueueStatus.CREATING:
        queue.state = QueueStatus.ACTIVE
    elif claim.state == QueueStatus.DELETING:
        queue.state = QueueStatus.DELETED
        queue.data_keys.all().delete()  # what was not overwritten on disk can no longer be read
        queue.key_grants.all().delete()
        CronSchedule.objects.filter(queue=queue).delete()
    if moved and queue.state == QueueStatus.ACTIVE:
        wake_sources(queue.account_id, queue.name)
    queue.version = next_version()
    queue.save()
    if queue.state != before:
        record(LIFECYCLE, queue.account_id, f"queue.{queue.state}", f"queue:{queue.name}", uuid=str(queue.uuid))
    announce_queue(queue)
    return True


def _note(queue: Queue, claim: Claim, done: ReconcileResult) -> None:
    """The partitions that there are now."""
    if queue.partitions and layout.closed(done.rows) and not layout.closed(claim.rows):
        partitions = len(layout.opened(done.rows))
        record(LIFECYCLE, queue.account_id, "queue.spread", f"queue:{queue.name}", partitions=partitions)
    queue.retired = done.retired
    if done.rows != claim.rows:  # else a change of attributes may have written more into the rows since
        queue.partitions = [row.partition for row in done.rows]
        queue.layout = layout.stored(done.rows)


@transaction.atomic
def fail_queue(claim: Claim, error: str) -> int:
    """Milliseconds until the next attempt is due; 0 where the claim was lost."""
    queue = Queue.objects.select_for_update().filter(pk=claim.queue_id, claim=claim.claim).first()
    if queue is None:
        return 0
    pause_ms = min(limits.LIFECYCLE_RETRY_MS_MIN * 2 ** min(queue.failures, 16), limits.LIFECYCLE_RETRY_MS_MAX)
    queue.claim = None
    queue.failures += 1
    queue.last_error = error[: limits.LIFECYCLE_ERROR_CHARACTERS_MAX]
    queue.next_attempt_at = clock.now() + timedelta(milliseconds=pause_ms)
    queue.save(update_fields=["claim", "failures", "last_error", "next_attempt_at"])
    return pause_ms


def overdue_hints(age_ms: int = limits.RESYNC_AGE_MS_MIN) -> list[tuple[Hint, int]]:
    """Hints for rows that make no progress: pending for longer than age_ms, and held by no worker."""
    due = clock.now() - timedelta(milliseconds=age_ms)
    rows = Queue.objects.exclude(generation=F("observed_generation")).filter(next_attempt_at__lte=due)
    found = rows.order_by("next_attempt_at").values_list("pk", "state")[: limits.RESYNC_HINTS_MAX]
    return [(_HINTS.get(state, Hint.CONFIGURE_QUEUE), queue_id) for queue_id, state in found]


def due_queues(age_ms: int) -> tuple[list[int], datetime | None]:
    """(rows pending for longer than age_ms that no worker holds, when the next of the others is due)."""
    return due_rows(Queue.objects.exclude(generation=F("observed_generation")), age_ms)


_HINTS: dict[str, Hint] = {QueueStatus.CREATING: Hint.PROVISION_QUEUE, QueueStatus.DELETING: Hint.DELETE_QUEUE}


@transaction.atomic
def retry_queue(actor: Principal, account_id: str, name: str) -> bool:
    """Workers find the row by themselves within seconds. False: nothing is pending, or a worker is at it. A queue
    that is deleted and kept may have had the name, too: its work is asked for as well."""
    pending = Queue.objects.select_for_update().exclude(generation=F("observed_generation"))
    waiting = [queue.pk for queue in pending.filter(account_id=account_id, name=name, claim=None).order_by("pk")]
    if not waiting:
        return False
    Queue.objects.filter(pk__in=waiting).update(next_attempt_at=clock.now())
    record(actor, account_id, "queue.retry", f"queue:{name}")
    return True
