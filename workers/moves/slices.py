"""A slice of a move task: claim it, move messages for some seconds, give it back.

    lease     up to a batch of messages at the source
    resolve   where each goes: the task's destination, or the queue it came from
    send      to the targets; answered when a majority has fsynced
    delete    at the source, only what was sent (R30: a crash between repeats the send, and loses nothing)
    note      progress in the database; a cancel is heard here

A worker that dies leaves a claim and leases that run out; the next one goes on where the source stands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import structlog

from api import limits
from api.queues import moving
from api.queues.models import MoveStatus
from api.queues.moving import MoveClaim
from api.secrets import keyring, receipt_key
from frontend.crypto.envelope import EnvelopeError
from frontend.crypto.message_ids import MessageIds
from frontend.routing.queues import QueueView
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import NOT_TAKEN, AcquireReply, QueueStats, SendReply
from storage_nodes.protocol.records import RecordError
from workers.limits import MOVE_PAUSE_SLEPT_S_MAX, MOVE_STEP_S_MAX
from workers.moves.letters import Leased, body_for, open_message, place_of

_log = structlog.get_logger(__name__)


class Storage(Protocol):
    """The part of `StorageClient` that is used here."""

    async def send(self, partition: int, bodies: list[bytes], plain: bool = True) -> SendReply: ...

    async def acquire(
        self, partition: int, max_messages: int, visibility_ms: int, wait_ms: int = 0
    ) -> AcquireReply: ...

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]: ...

    async def change_visibility(self, partition: int, changes: Sequence[tuple[int, int, int]]) -> list[ErrorCode]: ...

    async def stats(self, partition: int) -> QueueStats: ...


class StorageRunner(Protocol):
    """`workers.storage.StorageThread`: runs work with the storage client, in bounded time."""

    def run(self, work: Callable[[Any], Awaitable[Any]], timeout_s: float) -> Any: ...


class MoveFailed(Exception):
    """The task cannot go on; the text is its FailureReason."""


def move_slice(
    task_id: int,
    storage: StorageRunner,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int | None:
    """Milliseconds until the next slice is due; None when the task has ended (or somebody else is at it)."""
    claim = moving.claim_move(task_id)
    if claim is None:
        return None
    try:
        return _Slice(claim, storage, monotonic, sleep).run()
    except MoveFailed as failure:
        _log.warning("move_task_failed", task_id=task_id, reason=str(failure))
        moving.end_move(claim, MoveStatus.FAILED, str(failure))
        return None
    except (StorageError, TimeoutError, OSError) as error:
        _log.warning("move_task_interrupted", task_id=task_id, error=str(error))
        moving.release_move(claim, limits.MOVE_RETRY_MS, failed=True)
        return limits.MOVE_RETRY_MS


class _Slice:
    def __init__(
        self,
        claim: MoveClaim,
        storage: StorageRunner,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        if claim.source is None:
            raise MoveFailed("The source queue does not exist any more.")
        if claim.destination is None and not claim.sources_only:
            raise MoveFailed("The destination queue does not exist any more.")
        self._claim = claim
        self._storage = storage
        self._monotonic = monotonic
        self._sleep = sleep
        self._source = QueueView(claim.source, keyring())
        self._destination = None if claim.destination is None else QueueView(claim.destination, keyring())
        self._ids = MessageIds(receipt_key())
        self._owners: dict[int, QueueView | None] = {}
        self._left = claim.left

    def run(self) -> int | None:
        claim = self._claim
        if not claim.counted:
            waiting = sum(one.waiting for one in self._stats())
            moving.note_count(claim, waiting if claim.left is None else min(waiting, claim.left))
        ends_s = self._monotonic() + limits.MOVE_SLICE_MS / 1000
        while True:
            if self._left == 0:
                moving.end_move(claim, MoveStatus.COMPLETED)
                return None
            began_s = self._monotonic()
            moved = self._move_batch()
            if moved is None:
                return self._source_is_empty()
            if not moving.note_progress(claim, moved):
                return None
            self._left = None if self._left is None else max(0, self._left - moved)
            pause_s = moved / claim.messages_per_s - (self._monotonic() - began_s)
            if self._monotonic() + pause_s >= ends_s or pause_s > MOVE_PAUSE_SLEPT_S_MAX:
                pause_ms = max(0, round(pause_s * 1000))
                moving.release_move(claim, pause_ms)
                return pause_ms
            if pause_s > 0:
                self._sleep(pause_s)

    def _source_is_empty(self) -> int | None:
        """Done, unless a worker that died holds some: those will be seen once its leases have run out. Of a FIFO queue
        that gets other partitions only the former ones were looked at."""
        routes = self._source.routes
        is_partial = routes is not None and bool(routes.former)
        stats = [] if self._claim.steady and not is_partial else self._stats()
        if any(one.in_flight or (is_partial and one.waiting) for one in stats):
            moving.release_move(self._claim, limits.MOVE_RETRY_MS)
            return limits.MOVE_RETRY_MS
        moving.end_move(self._claim, MoveStatus.COMPLETED)
        return None

    def _stats(self) -> list[QueueStats]:
        async def ask(client: Storage) -> list[QueueStats]:
            return [await client.stats(partition) for partition in self._source.partitions]

        return self._run(ask)

    def _move_batch(self) -> int | None:
        """How many were moved; None where there was nothing to lease."""
        count = min(limits.MOVE_BATCH_MESSAGES_MAX, self._claim.messages_per_s)
        if self._left is not None:
            count = min(count, self._left)
        routes = self._source.routes
        partitions = self._source.partitions if routes is None else routes.receivable_partitions()
        partition, reply = self._run(lambda client: _lease(client, partitions, count))
        if not reply.messages:
            return None
        routed: list[tuple[QueueView, Leased]] = []
        failure: MoveFailed | None = None
        for message in reply.messages:
            try:
                leased = open_message(self._source, partition, message)
                routed.append((self._target_of(leased), leased))
            except (EnvelopeError, RecordError):
                failure = MoveFailed("A message cannot be read.")
            except MoveFailed as reason:
                failure = reason
            if failure is not None:
                break
        moved = int(self._run(lambda client: self._deliver(client, partition, routed))) if routed else 0
        if failure is not None:
            moving.note_progress(self._claim, moved)
            held = [(message.offset, message.delivery, 0) for message in reply.messages[len(routed) :]]
            self._run(lambda client: client.change_visibility(partition, held))
            raise failure
        return moved

    def _target_of(self, leased: Leased) -> QueueView:
        if self._destination is not None:
            return self._destination
        dead = leased.letter.dead
        if dead is None:
            raise MoveFailed("CouldNotDetermineMessageSource")
        if dead.partition not in self._owners:
            record = moving.owner_of_partition(self._claim.account_id, dead.partition)
            self._owners[dead.partition] = None if record is None else QueueView(record, keyring())
        owner = self._owners[dead.partition]
        if owner is None:
            raise MoveFailed("AWS.SimpleQueueService.NonExistentQueue")
        return owner

    async def _deliver(self, client: Storage, partition: int, routed: list[tuple[QueueView, Leased]]) -> int:
        bodies: dict[int, list[bytes]] = {}
        for target, leased in routed:
            bodies.setdefault(place_of(target, leased), []).append(body_for(target, leased, self._ids))
        for target_partition, sent in bodies.items():
            reply = await client.send(target_partition, sent, False)
            if any(original == NOT_TAKEN for _, original in reply.duplicates):
                raise StorageError(ErrorCode.UNAVAILABLE, "the partitions of the target change at the moment")
        receipts = [(leased.message.offset, leased.message.delivery) for _, leased in routed]
        codes = await client.delete(partition, receipts)
        return sum(code == ErrorCode.OK for code in codes)

    def _run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return self._storage.run(work, MOVE_STEP_S_MAX)


async def _lease(client: Storage, partitions: Sequence[int], count: int) -> tuple[int, AcquireReply]:
    """From the first partition that has something."""
    for partition in partitions:
        reply = await client.acquire(partition, count, limits.MOVE_VISIBILITY_MS)
        if reply.messages:
            break
    return partition, reply
