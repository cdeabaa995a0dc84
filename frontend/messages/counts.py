"""How many messages queues hold, of many queues in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from frontend.authn.principal import Principal
from frontend.errors import RequestError
from frontend.messages.admission import admit
from frontend.messages.storage_errors import explain_storage_error
from frontend.queues.names import Address
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import QueueStats

if TYPE_CHECKING:
    from frontend.services import FrontendServices


class QueueCounts(NamedTuple):
    """Of all partitions together. `oldest_sent_ms` is 0 where nothing waits. Since the queue was made count
    `dead_lettered`, `duplicates` that were dropped, `expired`, which outlived their retention, and `purged`."""

    waiting: int
    in_flight: int
    delayed: int
    scheduled: int
    oldest_sent_ms: int
    groups: int
    parked_groups: int
    dead_lettered: int
    duplicates: int
    expired: int
    purged: int


async def count_messages(
    services: FrontendServices, caller: Principal, names: Sequence[str]
) -> list[QueueCounts | RequestError]:
    """One outcome for each queue of the caller's account."""
    calls = [_count(services, caller, Address(caller.account_id, name)) for name in names]
    outcomes: list[QueueCounts | RequestError] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, RequestError):
            raise outcome
        outcomes.append(outcome)
    return outcomes


async def _count(services: FrontendServices, caller: Principal, address: Address) -> QueueCounts:
    queue = await admit(services, caller, "GetQueueAttributes", address)
    with services.storage_calls:
        try:
            stats = await asyncio.gather(*(services.storage.stats(partition) for partition in queue.partitions))
        except StorageError as error:
            raise await explain_storage_error(services, queue, error) from None
    return _sum(stats)


def _sum(stats: Sequence[QueueStats]) -> QueueCounts:
    oldest = [one.oldest_sent_ms for one in stats if one.oldest_sent_ms]
    return QueueCounts(
        sum(one.waiting for one in stats),
        sum(one.in_flight for one in stats),
        sum(one.delayed for one in stats),
        sum(one.scheduled for one in stats),
        min(oldest, default=0),
        sum(one.groups for one in stats),
        sum(one.parked_groups for one in stats),
        sum(one.dead_lettered for one in stats),
        sum(one.duplicates for one in stats),
        sum(one.expired for one in stats),
        sum(one.purged for one in stats),
    )
