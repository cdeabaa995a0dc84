"""LAST WINDOW: what a retired queue partition did stands in the usage stream to the last message, and nothing follows.

Where a leader confirms that a partition may be deleted, the committed records of the usage stream are summed, written
apart from the product's readers: of each hour the record that goes furthest. The sums must be the totals of the queue,
whatever crashed on the way: each message that was sent and deleted is billed once, and each that was received, but for
those that were leased for an answer that did not leave. The totals that were confirmed are for good, on every replica,
until the partition is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from storage_nodes.machines.queue.state.metering import DELETED, DELIVERED, MOVED, SENT
from storage_nodes.machines.queue.state.queue_state import QueueState
from storage_nodes.node.replicas.queue_replica import QueueReplica
from storage_nodes.node.transport.inter_partition_client import USAGE_TAG
from storage_nodes.protocol.messages import RetireReply, RetireRequest
from storage_nodes.protocol.records import decode_body
from tests.simulation.books import QueueBook, StreamBook

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

_PARTITION, _HOUR, _UNTIL, _ORIGINS = 1, 4, 5, 9  # of a window's record
_Totals = tuple[int, int, int]
"""Messages sent or moved here, received, deleted."""


class UsageReferee:
    def __init__(self, world: World) -> None:
        self._world = world
        self._confirmed: dict[int, _Totals] = {}
        self.confirmed = 0  # of partitions that were there

    def answered(self, process: SimProcess, request: RetireRequest, reply: RetireReply) -> None:
        partition = request.partition
        replica = process.node.replicas.get(partition) if process.node is not None else None
        if not reply.is_confirmed or not isinstance(replica, QueueReplica):
            return  # not yet, or it is gone
        totals, billed = _totals(replica.machine.state), self._billed(partition)
        meter, book = replica.machine.state.metering, self._world.oracle.books.get(partition)
        open_count = (meter.leased if meter is not None else 0) + (book.kept_back if isinstance(book, QueueBook) else 0)
        is_all = billed[::2] == totals[::2] and totals[1] - open_count <= billed[1] <= totals[1]
        if not is_all:
            text = f"partition {partition}: billed {billed}, by the queue {totals}, {open_count} leases were kept back"
            self._world.oracle.fail("LAST WINDOW", text)
        self._confirmed[partition] = totals
        self.confirmed += 1

    def check(self, node_id: int, replica: QueueReplica) -> None:
        """Of any replica, at any time."""
        confirmed = self._confirmed.get(replica.partition)
        if confirmed is not None and any(map(int.__gt__, _totals(replica.machine.state), confirmed)):
            text = f"node {node_id}, partition {replica.partition}: used since {confirmed} was confirmed"
            self._world.oracle.fail("LAST WINDOW", text)

    def _billed(self, partition: int) -> _Totals:
        oracle = self._world.oracle
        latest: dict[int, list[Any]] = {}
        for stream in [stream for stream, (_, tag) in oracle.cluster.live.items() if tag == USAGE_TAG]:
            book = oracle.books.get(stream)
            for body in book.bodies.values() if isinstance(book, StreamBook) else ():
                row = msgspec.msgpack.decode(decode_body(body).value[2:])
                known = latest.get(row[_HOUR])
                if row[_PARTITION] == partition and (known is None or row[_UNTIL] >= known[_UNTIL]):
                    latest[row[_HOUR]] = row
        origins = [origin[1:] for row in latest.values() for origin in row[_ORIGINS]]
        sent = sum(counters[SENT] + counters[MOVED] for counters in origins)
        return sent, sum(counters[DELIVERED] for counters in origins), sum(counters[DELETED] for counters in origins)


def _totals(state: QueueState) -> _Totals:
    return state.sent, state.received, state.deleted
