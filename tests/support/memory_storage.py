"""Storage for tests of the front end: in one process and in memory, with a clock that the test moves.

`MemoryStorage` is a `MessageStorage` over real replicas (`memory_node.py`); the contract suite
(tests/storage_nodes/node/test_contract_*.py) holds it to what a real node does. A poll waits in real time; it is woken
by what the clock makes due, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from storage_nodes.client.storage_client import ALL_STATES
from storage_nodes.model import Acks
from storage_nodes.node.transport.connections import Token
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    AcquireReply,
    AcquireRequest,
    BrowsedMessage,
    ChangeVisibilityRequest,
    CodesReply,
    ConfigureReply,
    ConfigureRequest,
    DeleteRequest,
    Opcode,
    ParkedGroupsReply,
    ParkedGroupsRequest,
    PurgeReply,
    PurgeRequest,
    QueueBrowseReply,
    QueueBrowseRequest,
    QueueConfig,
    QueueRemoveRequest,
    QueueStats,
    QueueStatsRequest,
    RescheduleRequest,
    ScheduledReply,
    ScheduledRequest,
    SendReply,
    SendRequest,
    UnparkRequest,
    VisibilityMode,
)
from tests.support.memory_node import EPOCH, Call, MemoryNode

R = TypeVar("R")

# A poll that waits looks so often whether the clock was moved.
LOOK_S = 0.01


class MemoryStorage:
    def __init__(self, now_s: Callable[[], float], partitions: Sequence[int] = ()) -> None:
        self.node = MemoryNode(now_s)
        self.polls = 0  # that wait now
        self.cancelled = 0  # polls that their callers gave up
        for partition in partitions:
            self.create(partition)

    # --- partitions -------------------------------------------------------------------------------------------

    def create(self, partition: int, config: QueueConfig | None = None) -> None:
        """An empty one, whatever was there."""
        self.node.create(partition, config)

    def provide(self, partition: int, fifo: bool = False) -> None:
        """A partition of this kind; one that has no messages may take the place of one of the other kind."""
        replica = self.node.replicas.get(partition)
        if replica is None or replica.machine.is_fifo != fifo:
            assert replica is None or not self.messages(partition), "its messages would be gone"
            self.create(partition, QueueConfig(fifo=fifo))

    def drop(self, partition: int) -> None:
        self.node.drop(partition)

    def set_config(self, partition: int, **fields: Any) -> None:
        config = msgspec.structs.replace(self.config(partition), **fields)
        _reply(self.node.ask(Opcode.CONFIGURE, partition, ConfigureRequest(partition, config))[1], ConfigureReply)

    async def configure(self, partition: int, config: QueueConfig) -> int:
        request = ConfigureRequest(partition, config)
        return self._ask(Opcode.CONFIGURE, partition, request, ConfigureReply).messages

    # --- MessageStorage ---------------------------------------------------------------------------------------

    async def send(
        self, partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM
    ) -> SendReply:
        return self._ask(Opcode.SEND, partition, SendRequest(partition, bodies, plain, acks), SendReply)

    async def acquire(
        self,
        partition: int,
        max_messages: int,
        visibility_ms: int,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: Sequence[bytes] = (),
    ) -> AcquireReply:
        request = AcquireRequest(partition, max_messages, visibility_ms, wait_ms, attempt, list(tags))
        token, call = self._call(Opcode.ACQUIRE, partition, request)
        if call.answered is None:
            await self._wait(partition, token, call, wait_ms / 1000)
        if isinstance(call.answered, StorageError) and call.answered.code is ErrorCode.CANCELLED:
            return AcquireReply(EPOCH, [])
        return _reply(call, AcquireReply)

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        return self._codes(Opcode.DELETE, partition, DeleteRequest(partition, list(receipts)))

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode = VisibilityMode.SET,
        epoch: int = 0,
        deadline_ms: int = 0,
    ) -> list[ErrorCode]:
        request = ChangeVisibilityRequest(partition, list(changes), mode, epoch, deadline_ms)
        return self._codes(Opcode.CHANGE_VISIBILITY, partition, request)

    async def browse(
        self, partition: int, from_offset: int, messages_max: int, states: int = ALL_STATES
    ) -> QueueBrowseReply:
        request = QueueBrowseRequest(partition, from_offset, messages_max, states)
        return self._ask(Opcode.QUEUE_BROWSE, partition, request, QueueBrowseReply)

    async def remove(self, partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        return self._codes(Opcode.QUEUE_REMOVE, partition, QueueRemoveRequest(partition, list(offsets), moved))

    async def purge(self, partition: int) -> int:
        return self._ask(Opcode.PURGE, partition, PurgeRequest(partition), PurgeReply).purged

    async def scheduled(
        self, partition: int, messages_max: int, after: tuple[int, int] = (-1, -1), until_ms: int = 2**63 - 1
    ) -> ScheduledReply:
        request = ScheduledRequest(partition, messages_max, *after, until_ms)
        return self._ask(Opcode.SCHEDULED, partition, request, ScheduledReply)

    async def reschedule(self, partition: int, changes: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        return self._codes(Opcode.RESCHEDULE, partition, RescheduleRequest(partition, list(changes)))

    async def parked_groups(self, partition: int, after: bytes, groups_max: int) -> ParkedGroupsReply:
        request = ParkedGroupsRequest(partition, after, groups_max)
        return self._ask(Opcode.PARKED_GROUPS, partition, request, ParkedGroupsReply)

    async def unpark(self, partition: int, groups: list[bytes]) -> list[ErrorCode]:
        return self._codes(Opcode.UNPARK, partition, UnparkRequest(partition, groups))

    async def stats(self, partition: int) -> QueueStats:
        return self._ask(Opcode.QUEUE_STATS, partition, QueueStatsRequest(partition), QueueStats)

    # --- how tests look ---------------------------------------------------------------------------------------

    def messages(self, partition: int) -> list[BrowsedMessage]:
        """Those that stand in the partition, in whatever state."""
        found: list[BrowsedMessage] = []
        offset, end = 0, 1
        while offset < end:
            request = QueueBrowseRequest(partition, offset, 1_000)
            page = _reply(self.node.ask(Opcode.QUEUE_BROWSE, partition, request)[1], QueueBrowseReply)
            found += page.messages
            offset, end = page.next_offset, page.log_end
        return found

    def replace_body(self, partition: int, offset: int, body: bytes) -> None:
        """What somebody might do who has the disk of a node."""
        self.node.replicas[partition].replace_body(offset, body)

    def config(self, partition: int) -> QueueConfig:
        return self.node.replicas[partition].machine.config

    def contents(self) -> dict[int, list[BrowsedMessage]]:
        """Of all partitions."""
        return {partition: self.messages(partition) for partition in self.node.replicas}

    def count(self) -> int:
        """Messages in all partitions."""
        return sum(map(len, self.contents().values()))

    # --- inside -----------------------------------------------------------------------------------------------

    def _call(self, opcode: Opcode, partition: int, request: object) -> tuple[Token, Call]:
        """A call of `MessageStorage`; what tests look at by themselves goes past it. Raises StorageError."""
        return self.node.ask(opcode, partition, request)

    def _ask(self, opcode: Opcode, partition: int, request: object, reply: type[R]) -> R:
        return _reply(self._call(opcode, partition, request)[1], reply)

    def _codes(self, opcode: Opcode, partition: int, request: object) -> list[ErrorCode]:
        return list(map(ErrorCode, self._ask(opcode, partition, request, CodesReply).codes))

    async def _wait(self, partition: int, token: Token, call: Call, wait_s: float) -> None:
        answered = asyncio.Event()
        call.notify = answered.set
        self.polls += 1
        try:
            async with asyncio.timeout(wait_s):
                while not answered.is_set():
                    await _until(answered)
                    self.node.run()
        except TimeoutError:
            self.node.give_up(partition, token)
        except asyncio.CancelledError:
            self.cancelled += 1
            if call.undelivered is not None:
                call.undelivered()
            self.node.give_up(partition, token)
            raise
        finally:
            self.polls -= 1


async def _until(answered: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_S):
            await answered.wait()
    except TimeoutError:
        pass


def _reply(call: Call, reply: type[R]) -> R:
    """Raises StorageError."""
    answered = call.answered
    assert answered is not None, "all but polls is answered at once"
    if isinstance(answered, StorageError):
        raise answered
    return msgspec.msgpack.decode(answered, type=reply)
