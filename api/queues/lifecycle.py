"""Claiming and settling queues: the database half of the lifecycle. Its storage half is `workers/lifecycle`.

    claim     conditional update: the row owes work, its time has come, nobody holds it -> the row names it
    work      outside any transaction, idempotent; a crash leaves a claim that runs out after CLAIM_LEASE_MS
    settle    conditional on the claim: `settled_generation` = the generation that was claimed
    fail      conditional on the claim: gives the row back, with a pause that doubles

A wish that changes while the work is done leaves `generation` ahead of `settled_generation`, so work is still owed.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import NamedTuple

import msgspec
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from api import limits
from api.accounts.models import Account
from api.audit.actions import LIFECYCLE, record
from api.changes import announce, next_version
from api.hints import Hint
from api.queues.attributes import redrive_of
from api.queues.models import Queue, QueueState
from api.queues.redrive import target_of, wake_sources
from api.schedules.models import Schedule
from frontend.metadata.records import RecordKind, queue_change_key
from frontend.sqs.extensions import dedup_window_ms, is_paused, parks_groups, retry_of
from storage_nodes.protocol.messages import QueueConfig


class Claim(NamedTuple):
    """A wish to be fulfilled, as it was when it was claimed."""

    claim: uuid.UUID
    queue_id: int
    queue_uuid: uuid.UUID
    state: str
    generation: int
    config: QueueConfig
    partitions: list[int]


@transaction.atomic
def claim_queue(queue_id: int) -> Claim | None:
    """None: nothing is owed now, or somebody is at it."""
    now = timezone.now()
    rows = Queue.objects.select_for_update(skip_locked=True).exclude(generation=F("settled_generation"))
    queue = rows.filter(pk=queue_id, next_attempt_at__lte=now).first()
    if queue is None:
        return None
    queue.claim = uuid.uuid4()
    queue.next_attempt_at = now + timedelta(milliseconds=limits.CLAIM_LEASE_MS)
    queue.save(update_fields=["claim", "next_attempt_at"])
    return Claim(
        queue.claim,
        queue.pk,
        queue.uuid,
        queue.state,
        queue.generation,
        _config(queue),
        list(queue.partitions),
    )


def _config(queue: Queue) -> QueueConfig:
    """What its partitions are to enforce."""
    attributes = queue.attributes
    config = QueueConfig(
        retention_ms=int(attributes["MessageRetentionPeriod"]) * 1000,
        fifo=queue.fifo,
        dedup_window_ms=dedup_window_ms(attributes),
        paused=is_paused(attributes),
        park_groups=parks_groups(attributes),
    )
    retry = retry_of(attributes)
    if retry is not None:
        config = msgspec.structs.replace(config, **retry.config())
    redrive, target = redrive_of(attributes), target_of(queue)
    if redrive is None or target is None:
        return config
    return msgspec.structs.replace(
        config, max_receives=redrive.receives_max, dead_letter_partition=target.partitions[0]
    )


@transaction.atomic
def settle_queue(claim: Claim, partitions: list[int]) -> bool:
    """The claimed wish is fulfilled. False: the claim was lost meanwhile, nothing is written."""
    if claim.state == QueueState.CREATING:
        # Sources may be woken: rows of several queues are written.
        Account.objects.select_for_update(of=("self",)).get(queues__pk=claim.queue_id)
    queue = Queue.objects.select_for_update().filter(pk=claim.queue_id, claim=claim.claim).first()
    if queue is None:
        return False
    now = timezone.now()
    queue.claim = None
    queue.next_attempt_at = now
    queue.failures = 0
    queue.last_error = ""
    queue.settled_generation = claim.generation
    queue.partitions = partitions
    before = queue.state
    if claim.state == QueueState.CREATING and before == QueueState.CREATING:
        queue.state = QueueState.ACTIVE
        wake_sources(queue.account_id, queue.name)
    elif claim.state == QueueState.DELETING:
        queue.state = QueueState.DELETED
        queue.data_keys.all().delete()  # what was not overwritten on disk can no longer be read
        queue.borrowed_keys.all().delete()
        Schedule.objects.filter(queue=queue).delete()
    queue.version = next_version()
    queue.save()
    if queue.state != before:
        record(LIFECYCLE, queue.account_id, f"queue.{queue.state}", f"queue:{queue.name}", uuid=str(queue.uuid))
    announce(RecordKind.QUEUE, queue_change_key(queue.account_id, queue.name), queue.version)
    return True


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
    queue.next_attempt_at = timezone.now() + timedelta(milliseconds=pause_ms)
    queue.save(update_fields=["claim", "failures", "last_error", "next_attempt_at"])
    return pause_ms


def overdue_hints(age_ms: int = limits.RECONCILE_AGE_MS_MIN) -> list[tuple[Hint, int]]:
    """Hints for rows that stand still: owed for longer than age_ms, and nobody holds them."""
    due = timezone.now() - timedelta(milliseconds=age_ms)
    rows = Queue.objects.exclude(generation=F("settled_generation")).filter(next_attempt_at__lte=due)
    found = rows.order_by("next_attempt_at").values_list("pk", "state")[: limits.RECONCILE_HINTS_MAX]
    return [(_HINTS.get(state, Hint.CONFIGURE_QUEUE), queue_id) for queue_id, state in found]


_HINTS: dict[str, Hint] = {QueueState.CREATING: Hint.PROVISION_QUEUE, QueueState.DELETING: Hint.DELETE_QUEUE}
