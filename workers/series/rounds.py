"""One round of work each. Safe to run twice, and beside itself."""

from __future__ import annotations

from uuid import UUID

import structlog

from api import clock
from api.billing.provisional import meter_reading
from api.series import collecting, limits, rolling
from api.settings.server_urls import DATABASE_URL, server_url
from storage_nodes.protocol.errors import StorageError
from workers.schedule import ScheduleLock
from workers.series.levels import read_levels
from workers.storage import storage

_log = structlog.get_logger(__name__)


def collect_series() -> int:
    """What the live meter saw since, and what queues hold. How many queues were used."""
    claim = ScheduleLock(server_url(DATABASE_URL), limits.COLLECT_CLAIM_KEY)
    try:
        # Leaders are asked once, however many workers take a tick.
        if not claim.hold():
            return 0
        used = collecting.collect(meter_reading(), clock.now())
        if used is None:
            return 0
        _look(used)
        return len(used)
    finally:
        claim.release()


def roll_series() -> int:
    """Buckets that are over, and rows that are too old. How many buckets were rolled up."""
    now, rolled = clock.now(), 0
    for bucket in rolling.buckets_due(now):
        if rolled == limits.ROLLED_AT_ONCE_MAX:
            break
        rolled += rolling.roll_up(bucket)
    rolling.remove_old(now)
    return rolled


def _look(used: list[UUID]) -> None:
    queues = collecting.queues_to_look_at(used)
    if not queues:
        return
    try:
        levels = storage().run(lambda client: read_levels(client, queues), 2 * limits.LEVEL_S_MAX)
    except (StorageError, TimeoutError, OSError) as error:
        _log.warning("levels_not_read", queues=len(queues), error=type(error).__name__)
        return
    collecting.note_levels(levels, clock.now())
