"""A change of a queue's attributes, as the APIs ask for it: refused where it would strand scheduled messages.

A FIFO queue is given other partitions by closing those it has, and the new ones give nothing before the old ones hold
nothing, scheduled messages included (docs/decisions/0008): one that is due in a year would hold up the queue for a
year. So it is asked first what is scheduled. Nobody is kept from scheduling a message between the question and the
close: that one is not lost, the new partitions wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from asgiref.sync import sync_to_async

from api.queues import actions, layout, selectors
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.models import Queue
from api.settings.environment import environment
from frontend.authn.principal import Principal
from storage_nodes.client.storage_client import StorageClient
from storage_nodes.protocol.errors import StorageError
from storage_nodes.trust.credentials import own_credentials


async def change_attributes(
    actor: Principal,
    account_id: str,
    name: str,
    change: Mapping[str, str],
    check: Callable[[Queue], None] | None = None,
) -> Queue:
    """As `actions.set_queue_attributes`. Raises QueueProblem."""
    if rules.is_fifo(name) and not change.keys().isdisjoint(actions.SPREAD):
        closing = await sync_to_async(_to_be_closed)(account_id, name, change)
        count = await scheduled_count(closing) if closing else 0
        if count:
            raise QueueProblem(
                "InvalidAttributeValue",
                f"The queue holds {count} scheduled messages, and gets no other partitions before they are delivered: "
                "cancel them or wait.",
            )
    return await sync_to_async(actions.set_queue_attributes)(actor, account_id, name, change, check)


def _to_be_closed(account_id: str, name: str, change: Mapping[str, str]) -> list[int]:
    """The open partitions in whose place the change puts others."""
    queue = selectors.queue_of(account_id, name)
    if queue is None:
        return []
    wanted = layout.wanted_of(rules.merged(queue.attributes, change), fifo=True)
    rows = layout.opened(layout.rows_of(queue.layout, queue.partitions))
    return [] if len(rows) == wanted.partitions else [row.partition for row in rows]


async def scheduled_count(partitions: Sequence[int]) -> int:
    """How many scheduled messages they hold. Raises QueueProblem. Such changes are rare: no connection is kept."""
    env = environment()
    nodes = env.nodes()
    if not nodes:
        raise QueueProblem("ServiceUnavailable", "The control plane was not told of storage nodes.")
    client = StorageClient(env.cluster_id, nodes, "control", credentials=own_credentials(env.cluster_id))
    await client.start()
    try:
        return sum(one.scheduled for one in await asyncio.gather(*(client.stats(one) for one in partitions)))
    except StorageError:
        raise QueueProblem("ServiceUnavailable", "The message store cannot be asked at the moment.") from None
    finally:
        await client.close()
