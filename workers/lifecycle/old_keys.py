"""Data keys that were replaced long ago are forgotten, where storage says that no scheduled message may need them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from api.limits import LIFECYCLE_STEP_MS_MAX
from api.queues.data_keys import forget_replaced_keys, replaced_long_ago
from storage_nodes.protocol.errors import StorageError
from workers.lifecycle.steps import PartitionAdmin
from workers.storage import StorageRunner

_log = structlog.get_logger(__name__)


def forget_old_keys(storage: StorageRunner[PartitionAdmin]) -> int:
    """How many versions went. A queue that cannot be asked keeps its keys until the next round."""
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
