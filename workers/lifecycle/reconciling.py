"""One hint: claim the row, reconcile its partitions, note it; again if the desired state has changed by then. And what
is done without a hint: rows that make no progress are found, and what was kept for a time is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from api import clock
from api.audit.refusals import close_refusal_windows
from api.changes import trim_changes
from api.encryption.actions import delete_due_keys, forget_old_uses
from api.hints import Hint, send_hint
from api.idempotency.actions import forget_old_outcomes
from api.limits import LIFECYCLE_STEP_MS_MAX, RECONCILE_ROUNDS_MAX
from api.queues import lifecycle, moving
from api.queues.data_keys import forget_replaced_keys, replaced_long_ago
from api.queues.keeping import end_due_extensions, end_due_keeping
from api.queues.redrive import forget_expired_grants
from storage_nodes.protocol.errors import StorageError
from workers.lifecycle.steps import PartitionAdmin, reconcile_partitions
from workers.storage import StorageRunner

_log = structlog.get_logger(__name__)


def reconcile_queue(queue_id: int, storage: StorageRunner[PartitionAdmin]) -> int | None:
    """Returns the milliseconds until the next attempt (the row says so too); None when nothing is pending, or another
    worker holds the row."""
    for _ in range(RECONCILE_ROUNDS_MAX):
        claim = lifecycle.claim_queue(queue_id)
        if claim is None:
            return None
        try:
            step = partial(reconcile_partitions, claim=claim, now_ms=clock.ticking_ms())
            done = storage.run(step, LIFECYCLE_STEP_MS_MAX / 1000)
        except (StorageError, TimeoutError, OSError) as error:
            _log.warning("queue_not_reconciled", queue=str(claim.queue_uuid), state=claim.state, error=str(error))
            return lifecycle.fail_queue(claim, f"{type(error).__name__}: {error}") or None
        reconciled = lifecycle.complete_queue(claim, done)
        if done.again_ms:
            return done.again_ms if reconciled else None
        _log.info("queue_reconciled", queue=str(claim.queue_uuid), desired=claim.state, reconciled=reconciled)
    return 0


def resync() -> int:
    """Sends the hints of all rows that make no progress, trims the log of changes, and ends what is kept for a time:
    keys, counts of their use, grants, deleted queues, counts of refused calls, answers that can be repeated. How many
    hints went out."""
    trim_changes()
    delete_due_keys()
    forget_old_uses()
    forget_expired_grants()
    end_due_keeping()
    close_refusal_windows()
    forget_old_outcomes()
    end_due_extensions()
    overdue = [*lifecycle.overdue_hints(), *((Hint.MOVE_MESSAGES, task_id) for task_id in moving.overdue_moves())]
    return sum(send_hint(Hint(hint), row_id) for hint, row_id in overdue)


def forget_old_keys(storage: StorageRunner[PartitionAdmin]) -> int:
    """Data keys that were replaced long ago, where storage says that no scheduled message may need them. How many
    versions went. A queue that cannot be asked keeps its keys until the next round."""
    forgotten = 0
    for found in replaced_long_ago():
        try:
            scheduled = storage.run(partial(_scheduled, found.partitions), LIFECYCLE_STEP_MS_MAX / 1000)
        except (StorageError, TimeoutError, OSError) as error:
            _log.warning("scheduled_not_counted", queue=found.queue_id, error=str(error))
            continue
        if not scheduled:
            forgotten += forget_replaced_keys(found.queue_id)
    return forgotten


async def _scheduled(partitions: Sequence[int], admin: PartitionAdmin) -> int:
    return sum([(await admin.stats(partition)).scheduled for partition in partitions])
