"""What operators change of the cluster: nodes are drained and taken back, replicas moved. The cluster does the work and
goes on by itself; `selectors.look_at_cluster` shows how far it is.

The audit entry is written before the cluster is asked: an answer can be lost, and what was asked for must stand in the
trail all the same. Adding and decommissioning a node start and stop a process, so they are commands of the launcher.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction

from api.audit.actions import record
from api.settings.environment import environment
from frontend.authn.principal import Principal
from storage_nodes.client.storage_client import StorageClient
from storage_nodes.ids import node_name
from storage_nodes.model import NodeState
from storage_nodes.protocol.errors import StorageError
from storage_nodes.trust.credentials import own_credentials

_NO_ACCOUNT = ""


class ClusterProblem(Exception):
    """The cluster refused, or does not answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def drain_node(actor: Principal, node_id: int) -> None:
    """It gets no replicas and gives away those it holds. Raises ClusterProblem."""
    _note(actor, "node.drain", f"node:{node_name(node_id)}")
    _ask(lambda client: client.set_node_state(node_id, NodeState.DRAINING))


def activate_node(actor: Principal, node_id: int) -> None:
    """Takes a drained node back; moves that are under way still end. Raises ClusterProblem."""
    _note(actor, "node.activate", f"node:{node_name(node_id)}")
    _ask(lambda client: client.set_node_state(node_id, NodeState.ACTIVE))


def move_replica(actor: Principal, partition: int, source: int, target: int) -> None:
    """Raises ClusterProblem."""
    _note(actor, "replica.move", f"partition:{partition}", source=node_name(source), target=node_name(target))
    _ask(lambda client: client.move_replica(partition, source, target))


def cancel_move(actor: Principal, partition: int, number: int) -> None:
    """If its group can still do without the target. Raises ClusterProblem."""
    _note(actor, "replica.cancel_move", f"partition:{partition}", number=number)
    _ask(lambda client: client.cancel_move(partition, number))


@transaction.atomic
def _note(actor: Principal, action: str, subject: str, **details: object) -> None:
    record(actor, _NO_ACCOUNT, action, subject, **details)


def _ask(call: Callable[[StorageClient], Awaitable[Any]]) -> None:
    async_to_sync(_asked)(call)


async def _asked(call: Callable[[StorageClient], Awaitable[Any]]) -> None:
    env = environment()
    addresses = env.nodes()
    if not addresses:
        raise ClusterProblem(503, "The control plane was not told of storage nodes.")
    client = StorageClient(env.cluster_id, addresses, "control", credentials=own_credentials(env.cluster_id))
    await client.start()
    try:
        await call(client)
    except StorageError as error:
        text = error.message or "The storage cluster does not answer at the moment."
        raise ClusterProblem(409 if error.message else 503, f"{text[:1].upper()}{text[1:].rstrip('.')}.") from None
    finally:
        await client.close()
