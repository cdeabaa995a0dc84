"""`MemoryStorage` that tests watch and that fails when they say so.

It notes calls and what they ask for, and answers in the place of the storage where a failure was ordered. What the
storage does is not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from storage_nodes.client.storage_client import ALL_STATES
from storage_nodes.model import Acks
from storage_nodes.node.replicas.queue_checks import check_count
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    AcquireReply,
    ParkedGroupsReply,
    QueueBrowseReply,
    QueueConfig,
    QueueStats,
    ScheduledReply,
    SendReply,
    VisibilityMode,
)
from storage_nodes.protocol.records import decode_body
from tests.support.memory_storage import MemoryStorage


class ObservedStorage(MemoryStorage):
    def __init__(self, now_s: Callable[[], float], partitions: Sequence[int] = ()) -> None:
        super().__init__(now_s, partitions)
        # What was asked for: (call, partition), and of sends and changes how.
        self.calls: list[tuple[str, int]] = []
        self.plain: list[bool] = []
        self.acks: list[Acks] = []
        self.modes: list[VisibilityMode] = []
        self.cancelled = 0  # polls that their callers gave up
        # Every call is refused with this.
        self.fail_with: ErrorCode | None = None
        self.fail_text = ""
        # What deletes and changes of visibility are answered with, undone.
        self.codes: list[ErrorCode] | None = None
        # Called with each call and its partition, before it is made; may raise.
        self.before: Callable[[str, int], None] = lambda call, partition: None
        self.page_max = 2**31  # scheduled messages that a partition shows at a time

    async def send(
        self, partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM
    ) -> SendReply:
        self._observe("send", partition)
        assert not (plain and any(decode_body(body).headers for body in bodies)), "plain promises that none has headers"
        self.plain.append(plain)
        self.acks.append(acks)
        return await super().send(partition, bodies, plain, acks)

    async def acquire(
        self,
        partition: int,
        max_messages: int,
        visibility_ms: int,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: Sequence[bytes] = (),
    ) -> AcquireReply:
        self._observe("acquire", partition)
        try:
            return await super().acquire(partition, max_messages, visibility_ms, wait_ms, attempt, tags)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        self._observe("delete", partition)
        if self.codes is not None:
            check_count(len(receipts))
            return self.codes
        return await super().delete(partition, receipts)

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode = VisibilityMode.SET,
        epoch: int = 0,
        deadline_ms: int = 0,
    ) -> list[ErrorCode]:
        self._observe("change_visibility", partition)
        self.modes.append(mode)
        if self.codes is not None:
            check_count(len(changes))
            return self.codes
        return await super().change_visibility(partition, changes, mode, epoch, deadline_ms)

    async def browse(
        self, partition: int, from_offset: int, messages_max: int, states: int = ALL_STATES
    ) -> QueueBrowseReply:
        self._observe("browse", partition)
        return await super().browse(partition, from_offset, messages_max, states)

    async def remove(self, partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        self._observe("remove", partition)
        return await super().remove(partition, offsets, moved)

    async def purge(self, partition: int) -> int:
        self._observe("purge", partition)
        return await super().purge(partition)

    async def scheduled(
        self, partition: int, messages_max: int, after: tuple[int, int] = (-1, -1), until_ms: int = 2**63 - 1
    ) -> ScheduledReply:
        self._observe("scheduled", partition)
        return await super().scheduled(partition, min(messages_max, self.page_max), after, until_ms)

    async def reschedule(self, partition: int, changes: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        self._observe("reschedule", partition)
        return await super().reschedule(partition, changes)

    async def parked_groups(self, partition: int, after: bytes, groups_max: int) -> ParkedGroupsReply:
        self._observe("parked_groups", partition)
        return await super().parked_groups(partition, after, groups_max)

    async def unpark(self, partition: int, groups: list[bytes]) -> list[ErrorCode]:
        self._observe("unpark", partition)
        return await super().unpark(partition, groups)

    async def stats(self, partition: int) -> QueueStats:
        self._observe("stats", partition)
        return await super().stats(partition)

    async def configure(self, partition: int, config: QueueConfig) -> int:
        self._observe("configure", partition)
        return await super().configure(partition, config)

    def _observe(self, call: str, partition: int) -> None:
        self.before(call, partition)
        self.calls.append((call, partition))
        if self.fail_with is not None:
            raise StorageError(self.fail_with, self.fail_text)
