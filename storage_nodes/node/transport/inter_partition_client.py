"""What partitions of this node have to say to other partitions: queues send dead letters, coordinators of consumer
groups fence. The node is a client of the cluster like any other, so it does not matter where the other one is led."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from storage_nodes.client import StorageClient
from storage_nodes.limits import RETENTION_MS_MAX, USAGE_RECORDS_PER_APPEND_MAX
from storage_nodes.model import NodeAddress, PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import NOT_TAKEN, QueueConfig, VisibilityMode
from storage_nodes.protocol.usage import USAGE_TAG
from storage_nodes.trust.credentials import Credentials

# How long the leader of the other partition is looked for before the sender hears that there is none.
FORWARD_TIMEOUT_S = 3.0

Done = Callable[[StorageError | None], None]
"""Called on the event loop at the end: with what went wrong, or None."""


class InterPartitionClient:
    """One per node; its client is made when first needed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster_id: str,
        nodes: Sequence[NodeAddress],
        name: str,
        credentials: Credentials | None = None,
    ) -> None:
        self._loop = loop
        self._make_client = lambda: StorageClient(
            cluster_id, nodes, name, FORWARD_TIMEOUT_S, random, credentials=credentials
        )
        self._client: StorageClient | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._usage_stream = 0  # its partition; 0 = not known yet
        self._usage_waiting: deque[tuple[list[bytes], Done]] = deque()
        self._appends_usage = False
        self._closed = False

    def send(self, partition: int, bodies: list[bytes], done: Done) -> None:
        """Send messages to a queue partition and call `done` on the event loop once they are committed, or with what
        went wrong."""

        async def send(client: StorageClient) -> None:
            reply = await client.send(partition, bodies, plain=False)
            if any(original == NOT_TAKEN for _, original in reply.duplicates):
                raise StorageError(ErrorCode.UNAVAILABLE, f"partition {partition} takes no messages any more")

        self._begin(send, done)

    def fence(self, partition: int, group: bytes, generation: int, epoch: int, done: Done) -> None:
        """Let only this grant of a consumer group read and commit at a stream partition; `done` as above."""
        self._begin(lambda client: client.group_fence(partition, group, generation, epoch), done)

    def append_usage(self, bodies: list[bytes], done: Done) -> None:
        """Append records to the usage stream, which is made when the first are; `done` as above. One append is under
        way at a time, and what comes meanwhile goes with the next: thousands of partitions close their hour at once."""
        self._usage_waiting.append((bodies, done))
        if not self._appends_usage:
            self._appends_usage = True
            self._loop.call_soon(self._append_waiting_usage)

    def give_back(self, partition: int, leases: Sequence[tuple[int, int]], deadline_ms: int) -> None:
        """Leases, as (offset, delivery), that reached nobody, of a leadership here that is over. They run out where
        nobody takes them back."""
        changes = [(offset, delivery, 0) for offset, delivery in leases]
        mode = VisibilityMode.UNSEEN
        self._begin(
            lambda client: client.change_visibility(partition, changes, mode, deadline_ms=deadline_ms),
            lambda error: None,
        )

    def _append_waiting_usage(self) -> None:
        if self._closed:
            return
        bodies: list[bytes] = []
        asked: list[Done] = []
        while self._usage_waiting and len(bodies) + len(self._usage_waiting[0][0]) <= USAGE_RECORDS_PER_APPEND_MAX:
            records, done = self._usage_waiting.popleft()
            bodies += records
            asked.append(done)

        def ended(error: StorageError | None) -> None:
            self._appends_usage = bool(self._usage_waiting)
            if self._appends_usage:
                self._loop.call_soon(self._append_waiting_usage)
            for done in asked:
                self._loop.call_soon(done, error)  # each apart: one that raises keeps it from nobody else

        self._begin(lambda client: self._append_usage(client, bodies), ended)

    async def _append_usage(self, client: StorageClient, bodies: list[bytes]) -> None:
        if not self._usage_stream:
            # The same tag again answers with the one that exists: nodes need not agree on who makes it.
            config = QueueConfig(retention_ms=RETENTION_MS_MAX)
            self._usage_stream = (await client.create_partition(PartitionKind.STREAM, USAGE_TAG, config)).partition
        try:
            await client.stream_append(self._usage_stream, bodies)
        except StorageError as error:
            if error.code == ErrorCode.UNKNOWN_PARTITION:
                self._usage_stream = 0
            raise

    async def close(self) -> None:
        """Who waits for an answer hears none: the node ends."""
        self._closed = True
        for task in list(self._under_way):
            task.cancel()
        if self._client is not None:
            await self._client.close()

    def _begin(self, call: Callable[[StorageClient], Awaitable[object]], done: Done) -> None:
        task = self._loop.create_task(self._run(call, done))
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    async def _run(self, call: Callable[[StorageClient], Awaitable[object]], done: Done) -> None:
        error: StorageError | None = None
        try:
            if self._client is None:
                self._client = self._make_client()
                await self._client.start()
            await call(self._client)
        except StorageError as refused:
            error = refused
        except Exception as bug:
            # The one that asked goes on; the bug is told below.
            done(StorageError(ErrorCode.INTERNAL, f"{type(bug).__name__}: {bug}"))
            raise
        done(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.result()  # our bug, if anything: for the loop's exception handler
