"""A slice of a move task: claim it, move messages for some seconds, give it back.

The row of the task says what is done (`api/queues/moving.py`): progress is noted after every batch, and a cancel or a
pause is heard there. A worker that dies leaves a claim that runs out; the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from api import limits
from api.queues import moving
from api.queues.models import MoveStatus
from storage_nodes.protocol.errors import StorageError
from workers.moves.leasing import LeaseSlice
from workers.moves.scanning import ScanSlice
from workers.moves.work import MoveFailed, MoveStorage, Tools
from workers.sealing import tell_key_uses
from workers.storage import StorageRunner

_log = structlog.get_logger(__name__)


def move_slice(
    task_id: int,
    storage: StorageRunner[MoveStorage],
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int | None:
    """Milliseconds until the next slice is due; None when the task has ended, is paused, or is another worker's."""
    claim = moving.claim_move(task_id)
    if claim is None:
        return None
    try:
        kind = LeaseSlice if claim.scan is None else ScanSlice
        return kind(claim, Tools(storage, monotonic, sleep)).run()
    except MoveFailed as failure:
        _log.warning("move_task_failed", task_id=task_id, reason=str(failure))
        moving.end_move(claim, MoveStatus.FAILED, str(failure))
        return None
    except (StorageError, TimeoutError, OSError) as error:
        _log.warning("move_task_interrupted", task_id=task_id, error=str(error))
        moving.release_move(claim, limits.MOVE_RETRY_MS, failed=True)
        return limits.MOVE_RETRY_MS
    finally:
        tell_key_uses()
