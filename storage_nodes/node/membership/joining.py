"""A new node asks the manager of the cluster that it is to join to be registered.

From the moment the others fold that, they let the node in and feed it the cluster log, in which it finds itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from storage_nodes.client.storage_client import StorageClient
from storage_nodes.config import NodeConfig
from storage_nodes.protocol.errors import StorageError
from storage_nodes.trust.credentials import Credentials

ASK_AGAIN_S = 1.0
# Registered, but not fed after asking so often: something is wrong that an operator must hear of.
ASKED_IN_VAIN = 15

_log = structlog.get_logger()


async def ask_to_join(
    config: NodeConfig, is_registered: Callable[[], bool], credentials: Credentials | None = None
) -> None:
    """Ask until the cluster log that reaches us has us in it."""
    own = config.own_address
    others = [node for node in config.nodes if node.node_id != own.node_id]
    if not others:
        _log.error("nobody to join: the node list names no other node", node=own.node_id)
        return
    client = StorageClient(config.cluster_id, others, config.process_name, credentials=credentials)
    await client.start()
    try:
        registered = 0
        while not is_registered():
            try:
                await client.register_node(own)
                registered += 1
                if registered == 1:
                    _log.info("registered with the cluster", node=own.node_id)
                elif registered == ASKED_IN_VAIN:
                    _log.error(
                        "registered, but not fed: a node that was a member before and lost its directory must be "
                        "started without PENSTOCK_NODE_JOIN",
                        node=own.node_id,
                    )
            except StorageError as error:
                _log.warning("not registered with the cluster yet", node=own.node_id, reason=str(error))
            await asyncio.sleep(ASK_AGAIN_S)
    finally:
        await client.close()
