"""A queue partition on its way out: it takes no requests any more, and its last usage goes to the usage stream
(docs/decisions/0043-last-windows-are-exported-before-a-partition-goes.md).

    RETIRE -> RetiredCommand committed -> `RetiredQueueReplica` -> last window exported
           -> UsageExportedCommand committed -> may be deleted

RetiredCommand is in the log, so the next leader refuses too, and goes on where this one stopped.
"""

from __future__ import annotations

import msgspec

from storage_nodes.node.replicas.leased import no_lease
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.replicas.replica import Replica
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import RetireReply, RetireRequest, encode_message

_request = msgspec.msgpack.Decoder(RetireRequest)


class RetiredQueueReplica(QueueReplica):
    """Refuses all requests that need a leader: what they did would be in no bill. A replica becomes one when it folds
    RetiredCommand, so that those of other partitions are not asked for each message whether they are retired."""

    __slots__ = ()

    def require_leader(self) -> None:
        super().require_leader()
        raise StorageError(ErrorCode.UNKNOWN_PARTITION, f"partition {self.partition} is being deleted")


def become_retired(replica: Replica) -> None:
    """At a leader, whenever it learns that its partition is retired."""
    assert isinstance(replica, QueueReplica), "only queues are metered"
    replica.__class__ = RetiredQueueReplica


def retire(replica: QueueReplica, token: Token, payload: bytes) -> None:
    """Answers RETIRE. Raises StorageError."""
    request = _request.decode(payload)
    QueueReplica.require_leader(replica)
    if not replica.holds_lease():
        raise no_lease()  # what another leader was told may be missing here: an account, whose usage would go
    if request.tag != replica.tag:
        raise StorageError(ErrorCode.INVALID_REQUEST, "the tag names another partition")
    replica.staged(replica.machine.usage.retire(replica.now_ms()))
    replica.schedule()
    is_confirmed = replica.is_quiet and replica.machine.usage.may_be_deleted
    token.connection.answer(token, encode_message(RetireReply(is_confirmed)))
