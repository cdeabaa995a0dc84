"""What a slice of any move task does: batch after batch at its rate, progress noted, until the slice ends.

leasing.py    tasks of SQS: whatever can be leased, until nothing can
scanning.py   tasks of REST: what a filter wants of what the queue held when the task began
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from api import limits
from api.queues import moving
from api.queues.models import MoveStatus
from api.queues.moving import MoveClaim, ScanProgress
from api.quotas.selectors import may_send, sends_per_s
from api.secrets import receipt_key
from frontend.crypto.message_ids import MessageIds
from frontend.errors import RequestError
from frontend.queues.resolver import ResolvedQueue
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import AcquireReply, DeadSource, QueueBrowseReply, QueueStats, SendReply
from workers.limits import MOVE_PAUSE_SLEPT_S_MAX, MOVE_STEP_S_MAX, MOVE_STOPPED_PAUSE_MS
from workers.sealing import encryption_key_uses, sealed_messages
from workers.storage import StorageRunner

_view_of = partial(moving.view_of, data_key_uses=sealed_messages, encryption_key_uses=encryption_key_uses)
T = TypeVar("T")
# In the words of SQS.
_QUEUE_IS_GONE = "AWS.SimpleQueueService.NonExistentQueue"


class MoveStorage(Protocol):
    """The part of `StorageClient` that is used here."""

    async def send(self, partition: int, bodies: list[bytes], plain: bool = True) -> SendReply: ...

    async def acquire(
        self, partition: int, max_messages: int, visibility_ms: int, wait_ms: int = 0
    ) -> AcquireReply: ...

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]: ...

    async def change_visibility(self, partition: int, changes: Sequence[tuple[int, int, int]]) -> list[ErrorCode]: ...

    async def browse(self, partition: int, from_offset: int, messages_max: int) -> QueueBrowseReply: ...

    async def remove(self, partition: int, offsets: Sequence[int]) -> list[ErrorCode]: ...

    async def stats(self, partition: int) -> QueueStats: ...


class MoveFailed(Exception):
    """The task cannot go on; the text is its FailureReason."""


class MoveHeld(MoveFailed):
    """A message goes to a queue to which nothing may be sent now: the task waits."""


class Tools(NamedTuple):
    """Storage and time."""

    storage: StorageRunner[MoveStorage]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


class Step(NamedTuple):
    """What a batch came to. `over`: there is nothing left; `wait_ms`: there is, but not now."""

    moved: int = 0
    scan: ScanProgress | None = None
    over: bool = False
    wait_ms: int = 0


class Slice(ABC):
    """One claim of a task, until the slice ends."""

    def __init__(self, claim: MoveClaim, tools: Tools) -> None:
        if claim.source is None:
            raise MoveFailed("The source queue does not exist any more.")
        if claim.destination is None and not claim.sources_only:
            raise MoveFailed(_QUEUE_IS_GONE)
        self.claim = claim
        self._storage, self._monotonic, self._sleep = tools
        self.source = _usable(_view_of(claim.source))
        to = claim.destination
        self._destination = None if to is None else _usable(_view_of(to))
        self.ids = MessageIds(receipt_key())
        self._owners: dict[int, ResolvedQueue | None] = {}
        self.left = claim.left
        self.pace = claim.messages_per_s
        if self.stores:
            self._slow_down(sends_per_s(claim.account_id))
            if self._destination is not None:
                self._slow_down(self._destination.record.sends_per_s)

    @property
    def stores(self) -> bool:
        """Does it make messages?"""
        return self.claim.scan is None or not self.claim.scan.dry_run

    @abstractmethod
    def step(self) -> Step:
        """One batch."""

    def run(self) -> int | None:
        """Milliseconds until the next slice is due; None when the task has ended, or is paused. While the account may
        not send, or nothing may be sent to the destination, the task waits."""
        claim = self.claim
        if self.stores and not self._may_send():
            return self._wait()
        self.count_once()
        ends_s = self._monotonic() + limits.MOVE_SLICE_MS / 1000
        while True:
            if self.left == 0:
                moving.end_move(claim, MoveStatus.COMPLETED)
                return None
            began_s = self._monotonic()
            try:
                step = self.step()
            except MoveHeld:
                return self._wait()
            if (step.moved or step.scan is not None) and not moving.note_progress(claim, step.moved, step.scan):
                return None
            if step.over:
                moving.end_move(claim, MoveStatus.COMPLETED)
                return None
            if step.wait_ms:
                moving.release_move(claim, step.wait_ms)
                return step.wait_ms
            self.left = None if self.left is None else max(0, self.left - step.moved)
            pause_s = step.moved / self.pace - (self._monotonic() - began_s)
            if self._monotonic() + pause_s >= ends_s or pause_s > MOVE_PAUSE_SLEPT_S_MAX:
                pause_ms = max(0, round(pause_s * 1000))
                moving.release_move(claim, pause_ms)
                return pause_ms
            if pause_s > 0:
                self._sleep(pause_s)

    def _may_send(self) -> bool:
        to = self._destination
        return may_send(self.claim.account_id) and (to is None or not to.record.sending_stopped)

    def _wait(self) -> int:
        moving.release_move(self.claim, MOVE_STOPPED_PAUSE_MS)
        return MOVE_STOPPED_PAUSE_MS

    def _slow_down(self, messages_per_s: int) -> None:
        """0: not for this."""
        if messages_per_s:
            self.pace = min(self.pace, messages_per_s)

    # --- what both kinds do -------------------------------------------------------------------------------------

    def count_once(self) -> None:
        if not self.claim.counted:
            waiting = sum(one.waiting for one in self.stats())
            moving.note_count(self.claim, waiting if self.left is None else min(waiting, self.left))

    def stats(self) -> list[QueueStats]:
        async def ask(client: MoveStorage) -> list[QueueStats]:
            return [await client.stats(partition) for partition in self.source.partitions]

        return self.in_storage(ask)

    def batch_max(self) -> int:
        count = min(limits.MOVE_BATCH_MESSAGES_MAX, self.pace)
        return count if self.left is None else min(count, self.left)

    def target_of(self, dead: DeadSource | None) -> ResolvedQueue:
        """Where a message goes that died there. Raises MoveFailed, MoveHeld."""
        if self._destination is not None:
            return self._destination
        if dead is None:
            raise MoveFailed("CouldNotDetermineMessageSource")
        if dead.partition not in self._owners:
            record = moving.owner_of_partition(self.claim.account_id, dead.partition)
            self._owners[dead.partition] = None if record is None else _usable(_view_of(record))
        owner = self._owners[dead.partition]
        if owner is None:
            raise MoveFailed(_QUEUE_IS_GONE)
        if self.stores:
            if owner.record.sending_stopped:
                raise MoveHeld("Nothing may be sent to the queue now.")
            self._slow_down(owner.record.sends_per_s)
        return owner

    def in_storage(self, work: Callable[[MoveStorage], Awaitable[T]]) -> T:
        return self._storage.run(work, MOVE_STEP_S_MAX)


def _usable(view: ResolvedQueue) -> ResolvedQueue:
    """Raises MoveFailed where the encryption key of the queue cannot be used."""
    if view.encryption is not None:
        try:
            view.encryption.require(view.record.account_id)
        except RequestError as refusal:
            raise MoveFailed(f"{refusal.code}: {refusal.message}") from None
    return view
