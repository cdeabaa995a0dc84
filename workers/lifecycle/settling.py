"""One hint: claim the row, fulfil the wish, settle it; again if the wish has changed meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import structlog

from api import clock
from api.changes import trim_changes
from api.hints import Hint, send_hint
from api.limits import LIFECYCLE_STEP_MS_MAX, SETTLE_ROUNDS_MAX
from api.queues import lifecycle, moving
from api.queues.lifecycle import Fulfilled
from storage_nodes.protocol.errors import StorageError
from workers.lifecycle.steps import Storage, fulfil

_log = structlog.get_logger(__name__)


class StorageRunner(Protocol):
    """`workers.storage.StorageThread`: runs work with the storage client, in bounded time."""

    def run(self, work: Callable[[Storage], Awaitable[Fulfilled]], timeout_s: float) -> Fulfilled: ...


def settle(queue_id: int, storage: StorageRunner) -> int | None:
    """Milliseconds until it should be tried again (the row says so too); None when nothing is owed, or somebody else
    is at it."""
    for _ in range(SETTLE_ROUNDS_MAX):
        claim = lifecycle.claim_queue(queue_id)
        if claim is None:
            return None
        try:
            step = partial(fulfil, claim=claim, now_ms=clock.ticking_ms())
            done = storage.run(step, LIFECYCLE_STEP_MS_MAX / 1000)
        except (StorageError, TimeoutError, OSError) as error:
            _log.warning("queue_not_settled", queue=str(claim.queue_uuid), state=claim.state, error=str(error))
            return lifecycle.fail_queue(claim, f"{type(error).__name__}: {error}") or None
        settled = lifecycle.settle_queue(claim, done)
        if done.again_ms:
            return done.again_ms if settled else None
        _log.info("queue_settled", queue=str(claim.queue_uuid), wish=claim.state, settled=settled)
    return 0


def reconcile() -> int:
    """Sends the hints of all rows that stand still, and trims the log of changes. How many hints went out."""
    trim_changes()
    overdue = [*lifecycle.overdue_hints(), *((Hint.MOVE_MESSAGES, task_id) for task_id in moving.overdue_moves())]
    return sum(send_hint(Hint(hint), row_id) for hint, row_id in overdue)
