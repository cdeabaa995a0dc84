"""What the front end asks of storage: the part of `storage_nodes.client.StorageClient` that it uses.

All calls raise StorageError after the client's own retries. Cancelling an `acquire` cancels the poll at the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage_nodes.client.storage_client import ALL_STATES
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import (
    AcquireReply,
    ParkedGroupsReply,
    QueueBrowseReply,
    QueueStats,
    ScheduledReply,
    SendReply,
    VisibilityMode,
)


class MessageStorage(Protocol):
    async def send(
        self, partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM
    ) -> SendReply: ...

    async def acquire(
        self,
        partition: int,
        max_messages: int,
        visibility_ms: int,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: Sequence[bytes] = (),
    ) -> AcquireReply: ...

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]: ...

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode = VisibilityMode.SET,
        epoch: int = 0,
        deadline_ms: int = 0,
    ) -> list[ErrorCode]: ...

    async def browse(
        self, partition: int, from_offset: int, messages_max: int, states: int = ALL_STATES
    ) -> QueueBrowseReply: ...

    async def remove(self, partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]: ...

    async def purge(self, partition: int) -> int: ...

    async def scheduled(
        self, partition: int, messages_max: int, after: tuple[int, int] = (-1, -1), until_ms: int = 2**63 - 1
    ) -> ScheduledReply: ...

    async def reschedule(self, partition: int, changes: Sequence[tuple[int, int]]) -> list[ErrorCode]: ...

    async def parked_groups(self, partition: int, after: bytes, groups_max: int) -> ParkedGroupsReply: ...

    async def unpark(self, partition: int, groups: list[bytes]) -> list[ErrorCode]: ...

    async def stats(self, partition: int) -> QueueStats: ...
