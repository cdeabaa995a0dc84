"""Which streams there are, for those who read all of them.

A node that has just started knows of none, or of those of before its last checkpoint; one that is cut off knows old
ones. To take these for all would pass over what a stream says, so only the manager of the cluster is believed.
"""

from __future__ import annotations

import asyncio

from storage_nodes.client.storage_client import CALL_TIMEOUT_S, StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError

PAUSE_S = 0.1


async def streams_tagged(client: StorageClient, prefix: str, timeout_s: float = CALL_TIMEOUT_S) -> list[int]:
    """Ids of the stream partitions whose tag begins so, in order. Raises StorageError: NO_QUORUM where no manager
    answers in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                manager = (await client.describe([])).manager
                if manager:
                    info = await client.describe_node(manager)
                    if info.manager == manager:
                        streams = (one for one in info.partitions if one.kind == PartitionKind.STREAM)
                        return sorted(one.partition for one in streams if one.tag.startswith(prefix))
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        raise StorageError(ErrorCode.NO_QUORUM, "no manager of the cluster says which streams there are") from None
