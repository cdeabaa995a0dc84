"""Tasks of SQS: lease whatever comes, move it, until nothing comes.

    lease     up to a batch of messages at the source
    resolve   where each goes: the task's destination, or the queue it came from
    send      to the targets; answered when a majority has fsynced
    delete    at the source, only what was sent (R30: a crash between repeats the send, and loses nothing)

A worker that dies leaves leases that run out; the next one goes on where the source stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from api import limits
from api.queues import moving
from frontend.crypto.envelope import EnvelopeError
from frontend.messages.storage_errors import check_taken
from frontend.queues.extensions import is_paused
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import AcquireReply
from storage_nodes.protocol.records import RecordError
from workers.moves.letters import Leased, body_for, open_message, place_of
from workers.moves.work import MoveFailed, MoveStorage, Slice, Step


class LeaseSlice(Slice):
    def step(self) -> Step:
        count = self.batch_max()
        routes = self.source.routes
        partitions = self.source.partitions if routes is None else routes.receivable_partitions()
        partition, reply = self.in_storage(lambda client: _lease(client, partitions, count))
        if not reply.messages:
            return self._source_is_empty()
        routed: list[tuple[ResolvedQueue, Leased]] = []
        failure: MoveFailed | None = None
        for message in reply.messages:
            try:
                leased = open_message(self.source, partition, message)
                routed.append((self.target_of(leased.letter.dead), leased))
            except (EnvelopeError, RecordError):
                failure = MoveFailed("A message cannot be read.")
            except MoveFailed as reason:
                failure = reason
            if failure is not None:
                break
        moved = int(self.in_storage(lambda client: self._deliver(client, partition, routed))) if routed else 0
        if failure is not None:
            moving.note_progress(self.claim, moved)
            held = [(message.offset, message.delivery, 0) for message in reply.messages[len(routed) :]]
            self.in_storage(lambda client: client.change_visibility(partition, held))
            raise failure
        return Step(moved)

    def _source_is_empty(self) -> Step:
        """Done, unless a worker that died holds some: those will be seen once its leases have run out. A paused queue
        gives nothing before it is resumed, and is not empty for that. Of a FIFO queue that gets other partitions only
        the former ones were looked at."""
        if is_paused(self.source.record.attributes):
            return Step(wait_ms=limits.MOVE_RETRY_MS)
        routes = self.source.routes
        is_partial = routes is not None and bool(routes.former)
        stats = [] if self.claim.leases_expired and not is_partial else self.stats()
        if any(one.in_flight or (is_partial and one.waiting) for one in stats):
            return Step(wait_ms=limits.MOVE_RETRY_MS)
        return Step(over=True)

    async def _deliver(self, client: MoveStorage, partition: int, routed: list[tuple[ResolvedQueue, Leased]]) -> int:
        bodies: dict[int, list[bytes]] = {}
        for target, leased in routed:
            bodies.setdefault(place_of(target, leased), []).append(body_for(target, leased, self.ids))
        for target_partition, sent in bodies.items():
            check_taken(await client.send(target_partition, sent, False))
        receipts = [(leased.message.offset, leased.message.delivery) for _, leased in routed]
        codes = await client.delete(partition, receipts)
        return sum(code == ErrorCode.OK for code in codes)


async def _lease(client: MoveStorage, partitions: Sequence[int], count: int) -> tuple[int, AcquireReply]:
    """From the first partition that has something."""
    for partition in partitions:
        reply = await client.acquire(partition, count, limits.MOVE_VISIBILITY_MS)
        if reply.messages:
            break
    return partition, reply
