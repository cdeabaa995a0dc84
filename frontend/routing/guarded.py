"""Storage calls with a bulkhead and a circuit breaker, so that a failing node or partition does not slow down calls to
the others.

Bulkhead: the calls under way for one node, and for one partition, have a share of all slots each; beyond it they are
refused at once. Long polls have slots of their own and are not counted here.

Breaker: a call fails when the client has tried until its deadline and nobody served the partition.

    of a partition   STORAGE_FAILURES_MAX such calls in a row, whatever the reason: it has no leader, or no majority
    of a node        the same, of calls in which it could not be reached or fell silent. One that answers pings is
                     there, however long it lets the calls for a partition wait

A send that asked for all replicas waits for one that is away: where its node is there, it tells nothing about the
partition, which serves everybody else.

While either is open, calls for the partition fail at once with UNAVAILABLE and a hint when to come again, but for one
every STORAGE_PROBE_INTERVAL_MS, of each partition: partitions whose leader has moved are used again after their first
probe, and need not wait for the sick node. The first success closes both. A refusal is an answer, and opens nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType

from frontend.limits import (
    STORAGE_CALLS_PER_NODE_MAX,
    STORAGE_CALLS_PER_PARTITION_MAX,
    STORAGE_FAILURES_MAX,
    STORAGE_PROBE_INTERVAL_MS,
    STORAGE_TARGETS_MAX,
)
from frontend.metering.meters import Meters
from frontend.routing.storage import MessageStorage
from storage_nodes.client.storage_client import ALL_STATES
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import (
    AcquireReply,
    ParkedGroupsReply,
    QueueBrowseReply,
    QueueStats,
    ScheduledReply,
    SendReply,
    VisibilityMode,
)

# Nobody answered, be it that the node is away or that the partition is slow; and what else says that nobody serves it.
_UNANSWERED = frozenset((ErrorCode.UNREACHABLE, ErrorCode.OUTCOME_UNKNOWN))
_UNSERVED = _UNANSWERED | {ErrorCode.NOT_LEADER, ErrorCode.NO_QUORUM, ErrorCode.SHUTTING_DOWN, ErrorCode.QUARANTINED}


class _Side:
    """A node, or a partition: calls under way, failures in a row, and (a partition) when the next probe may go."""

    __slots__ = ("calls", "failures", "probe_at_ms")

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.probe_at_ms = 0.0

    @property
    def is_open(self) -> bool:
        return self.failures >= STORAGE_FAILURES_MAX


class _Slot:
    """`with slot:` around one call."""

    __slots__ = ("_for_all", "_guards", "_node", "_partition", "_target", "_weight")

    def __init__(
        self, guards: Guards, partition: int, target: _Side, node: _Side, weight: int, for_all: bool = False
    ) -> None:
        self._guards = guards
        self._partition = partition
        self._target = target
        self._node = node
        self._weight = weight
        self._for_all = for_all

    def __enter__(self) -> None:
        self._target.calls += self._weight
        self._node.calls += self._weight

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guards.ended(self._partition, self._target, self._node, self._weight, error, self._for_all)


class Guards:
    """Bulkheads and breakers; pure but for the clock. `leader_of` says whom the client would ask first."""

    def __init__(self, leader_of: Callable[[int], int], now_ms: Callable[[], float] | None = None) -> None:
        self._leader_of = leader_of
        self._now_ms = now_ms or (lambda: time.monotonic() * 1000)
        self._targets: dict[int, _Side] = {}
        self._nodes: dict[int, _Side] = {}
        self.on_refused: Callable[[], None] = lambda: None

    def slot(self, partition: int, weight: int = 1, for_all: bool = False) -> _Slot:
        """For one call, or one that is not counted; `for_all`: that waits for all replicas. Raises StorageError
        (UNAVAILABLE)."""
        return _Slot(self, partition, *self.sides(partition, weight), weight, for_all)

    def sides(self, partition: int, weight: int = 1) -> tuple[_Side, _Side]:
        """The partition and the node that a call has to do with: `calls` of both is for who makes it, and `ended`
        behind it. Raises StorageError (UNAVAILABLE)."""
        target = self._targets.get(partition) or self._new_target(partition)
        node_id = self._leader_of(partition)
        node = self._nodes.get(node_id) or self._nodes.setdefault(node_id, _Side())
        if target.failures >= STORAGE_FAILURES_MAX or node.failures >= STORAGE_FAILURES_MAX:
            self._require_probe(target)
        if weight and (target.calls >= STORAGE_CALLS_PER_PARTITION_MAX or node.calls >= STORAGE_CALLS_PER_NODE_MAX):
            raise self._refusal("too many calls for one part of the message store are under way", 0)
        return target, node

    def ended(
        self,
        partition: int,
        target: _Side,
        node: _Side,
        weight: int,
        error: BaseException | None = None,
        for_all: bool = False,
    ) -> None:
        """A call that was counted with this weight."""
        target.calls -= weight
        node.calls -= weight
        if error is None:
            if target.failures or node.failures:
                self.succeeded(partition, target)
        elif isinstance(error, StorageError) and not (for_all and error.node_is_there):
            self.failed(target, node, error)

    def succeeded(self, partition: int, target: _Side) -> None:
        """Whoever answered is the one that the client takes for the leader now."""
        target.failures = 0
        node = self._nodes.get(self._leader_of(partition))
        if node is not None:
            node.failures = 0

    def failed(self, target: _Side, node: _Side, error: StorageError) -> None:
        if error.code not in _UNSERVED:
            return
        target.failures += 1
        if target.failures == STORAGE_FAILURES_MAX:
            target.probe_at_ms = self._now_ms() + STORAGE_PROBE_INTERVAL_MS
        asked = self._nodes.get(error.asked) if error.asked else node
        if asked is not None:
            # One that said no is there.
            is_there = error.node_is_there or error.code not in _UNANSWERED
            asked.failures = 0 if is_there else asked.failures + 1

    @property
    def nodes_open(self) -> int:
        return sum(node.is_open for node in self._nodes.values())

    @property
    def partitions_open(self) -> int:
        return sum(target.is_open for target in self._targets.values())

    def _new_target(self, partition: int) -> _Side:
        if len(self._targets) >= STORAGE_TARGETS_MAX:
            self._targets = {key: side for key, side in self._targets.items() if side.calls or side.failures}
        target = self._targets[partition] = _Side()
        return target

    def _require_probe(self, target: _Side) -> None:
        now_ms = self._now_ms()
        if now_ms < target.probe_at_ms:
            raise self._refusal("this part of the message store does not answer", target.probe_at_ms - now_ms)
        target.probe_at_ms = now_ms + STORAGE_PROBE_INTERVAL_MS

    def _refusal(self, text: str, retry_after_ms: float) -> StorageError:
        self.on_refused()
        return StorageError(ErrorCode.UNAVAILABLE, text, retry_after_ms=int(retry_after_ms))


class GuardedStorage:
    """A `Storage` whose calls go through the guards. The calls that every message takes do so step by step: a slot
    would cost them an object and three calls."""

    def __init__(self, storage: MessageStorage, guards: Guards) -> None:
        self._storage = storage
        self._guards = guards
        self._slot = guards.slot
        self._sides = guards.sides

    def add_gauges(self, meters: Meters) -> None:
        guards = self._guards
        meters.gauge("storage_nodes_given_up", lambda: guards.nodes_open)
        meters.gauge("storage_partitions_given_up", lambda: guards.partitions_open)
        guards.on_refused = partial(meters.count, "storage_calls_refused")

    async def send(
        self, partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM
    ) -> SendReply:
        target, node = self._sides(partition)
        target.calls += 1
        node.calls += 1
        try:
            reply = await self._storage.send(partition, bodies, plain, acks)
        except BaseException as error:
            self._guards.ended(partition, target, node, 1, error, acks == Acks.ALL)
            raise
        target.calls -= 1
        node.calls -= 1
        if target.failures or node.failures:
            self._guards.succeeded(partition, target)
        return reply

    async def acquire(
        self,
        partition: int,
        max_messages: int,
        visibility_ms: int,
        wait_ms: int = 0,
        attempt: bytes = b"",
        tags: Sequence[bytes] = (),
    ) -> AcquireReply:
        weight = 0 if wait_ms else 1
        target, node = self._sides(partition, weight)
        target.calls += weight
        node.calls += weight
        try:
            reply = await self._storage.acquire(partition, max_messages, visibility_ms, wait_ms, attempt, tags)
        except BaseException as error:
            self._guards.ended(partition, target, node, weight, error)
            raise
        target.calls -= weight
        node.calls -= weight
        if target.failures or node.failures:
            self._guards.succeeded(partition, target)
        return reply

    async def delete(self, partition: int, receipts: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        target, node = self._sides(partition)
        target.calls += 1
        node.calls += 1
        try:
            codes = await self._storage.delete(partition, receipts)
        except BaseException as error:
            self._guards.ended(partition, target, node, 1, error)
            raise
        target.calls -= 1
        node.calls -= 1
        if target.failures or node.failures:
            self._guards.succeeded(partition, target)
        return codes

    async def change_visibility(
        self,
        partition: int,
        changes: Sequence[tuple[int, int, int]],
        mode: VisibilityMode = VisibilityMode.SET,
        epoch: int = 0,
        deadline_ms: int = 0,
    ) -> list[ErrorCode]:
        with self._slot(partition):
            return await self._storage.change_visibility(partition, changes, mode, epoch, deadline_ms)

    async def browse(
        self, partition: int, from_offset: int, messages_max: int, states: int = ALL_STATES
    ) -> QueueBrowseReply:
        with self._slot(partition):
            return await self._storage.browse(partition, from_offset, messages_max, states)

    async def remove(self, partition: int, offsets: Sequence[int], moved: bool = False) -> list[ErrorCode]:
        with self._slot(partition):
            return await self._storage.remove(partition, offsets, moved)

    async def purge(self, partition: int) -> int:
        with self._slot(partition):
            return await self._storage.purge(partition)

    async def scheduled(
        self, partition: int, messages_max: int, after: tuple[int, int] = (-1, -1), until_ms: int = 2**63 - 1
    ) -> ScheduledReply:
        with self._slot(partition):
            return await self._storage.scheduled(partition, messages_max, after, until_ms)

    async def reschedule(self, partition: int, changes: Sequence[tuple[int, int]]) -> list[ErrorCode]:
        with self._slot(partition):
            return await self._storage.reschedule(partition, changes)

    async def parked_groups(self, partition: int, after: bytes, groups_max: int) -> ParkedGroupsReply:
        with self._slot(partition):
            return await self._storage.parked_groups(partition, after, groups_max)

    async def unpark(self, partition: int, groups: list[bytes]) -> list[ErrorCode]:
        with self._slot(partition):
            return await self._storage.unpark(partition, groups)

    async def stats(self, partition: int) -> QueueStats:
        with self._slot(partition):
            return await self._storage.stats(partition)
