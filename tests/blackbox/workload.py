"""Load on a cluster of storage nodes through the storage client, every call in the history.

The clients make one attempt a call (`OneAttemptClient`), so that the class of every answer is seen and nothing is
repeated in secret. After `fail` a writer sends the same values again, after `unknown` it goes on with new ones: a value
can then stand at one place only, and a second one is a fault.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from storage_nodes.client import StorageClient
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import Acks, NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply
from storage_nodes.protocol.records import decode_body
from tests.blackbox.checkers import ACQUIRE, APPEND, DELETE, READ, SEND
from tests.blackbox.history import FAIL, OK, UNKNOWN, Event, Recorder, Value
from tests.blackbox.payload import body_of, value_of
from tests.blackbox.timing import EPOCH_WORD

BATCH_MAX = 5
RETRY_PAUSE_S = 0.02
VISIBILITY_MS = 3_000
ACQUIRE_MAX = 100
WAIT_MS = 200
READ_BYTES = 256 * 1024
# One delivery in so many is not deleted, so that leases expire under load too.
KEEP_ONE_IN = 50


class OneAttemptClient(StorageClient):
    """Learns where the leader is from an error, and raises it. It speaks to the nodes that it was given, and to no
    others that it hears of."""

    def __init__(self, cluster_id: str, nodes: Sequence[NodeAddress], name: str = "client") -> None:
        super().__init__(cluster_id, nodes, name, attempts_max=1)

    async def start(self) -> None:
        await super().start()
        self._links._learn_nodes = lambda info: None  # type: ignore[method-assign]
        self._links._find = lambda partition: None  # type: ignore[method-assign]


class Load:
    """Writers and readers of one queue partition and one stream partition."""

    def __init__(
        self, recorder: Recorder, rng: random.Random, queue: int, stream: int, body_bytes: int, pause_s: float
    ) -> None:
        self.recorder = recorder
        self._rng = rng
        self.queue = queue
        self.stream = stream
        self._body_bytes = body_bytes
        self._pause_s = pause_s
        self._writing = True
        self._consuming = True
        self._counters: dict[str, int] = {}
        self.positions: dict[str, int] = {}
        # Leases may be lost in a failover (the message comes again); how often is worth knowing.
        self.deletes_refused = 0
        # What the writers ask for. Only the test that wants acknowledged messages to be lost lowers it.
        self.acks = Acks.QUORUM
        self.writers: list[asyncio.Task[None]] = []
        self.consumers: list[asyncio.Task[None]] = []

    def start(self, writing: StorageClient, consuming: StorageClient, writers: int = 4, consumers: int = 2) -> None:
        for number in range(writers):
            self.writers.append(asyncio.create_task(self._write(writing, f"w{number}", SEND)))
            if number % 2 == 0:
                self.writers.append(asyncio.create_task(self._write(writing, f"a{number}", APPEND)))
        for number in range(consumers):
            self.consumers.append(asyncio.create_task(self._consume(consuming, f"c{number}")))
            self.consumers.append(asyncio.create_task(self._tail(consuming, f"r{number}")))

    async def stop_writers(self) -> None:
        self._writing = False
        await asyncio.gather(*self.writers)

    async def stop_consumers(self) -> None:
        self._consuming = False
        await asyncio.gather(*self.consumers)

    def raise_failures(self) -> None:
        """A bug of this program must not look like a quiet cluster."""
        for task in (*self.writers, *self.consumers):
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    # --- writing ----------------------------------------------------------------------------------------------

    async def _write(self, client: StorageClient, name: str, operation: str) -> None:
        while self._writing:
            values = self.next_values(name, 1 + self._rng.randrange(BATCH_MAX))
            while (await self.send(client, name, operation, values)).kind == FAIL and self._writing:
                await asyncio.sleep(RETRY_PAUSE_S)
            await asyncio.sleep(self._pause_s)

    def next_values(self, name: str, count: int) -> list[Value]:
        first = self._counters.get(name, 0)
        self._counters[name] = first + count
        return [(name, first + number) for number in range(count)]

    async def send(
        self, client: StorageClient, name: str, operation: str, values: Sequence[Value], acks: Acks | None = None
    ) -> Event:
        """One attempt; its completion."""
        partition = self.queue if operation == SEND else self.stream
        acks = self.acks if acks is None else acks
        invoked = self.recorder.invoke(operation, name, partition, values)
        bodies = [body_of(value, self._body_bytes) for value in values]
        try:
            reply: SendReply
            if operation == SEND:
                reply = await client.send(partition, bodies, acks=acks)
            else:
                reply = await client.stream_append(partition, bodies, acks=acks)
        except StorageError as error:
            return self.recorder.complete(invoked, class_of(error), note=str(error))
        places = range(reply.first_offset, reply.first_offset + len(values))
        return self.recorder.complete(invoked, OK, places=list(places))

    async def barrier(self, client: StorageClient, operation: str, timeout_s: float) -> bool:
        """A write that every voter has fsynced: all replicas then hold everything before it."""
        end = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < end:
            completion = await self.send(client, "barrier", operation, self.next_values("barrier", 1), Acks.ALL)
            if completion.kind == OK:
                return True
            await asyncio.sleep(RETRY_PAUSE_S)
        return False

    # --- the queue's other side -------------------------------------------------------------------------------

    async def _consume(self, client: StorageClient, name: str) -> None:
        while self._consuming:
            if not await self.acquire_and_delete(client, name):
                await asyncio.sleep(RETRY_PAUSE_S)

    async def acquire_and_delete(self, client: StorageClient, name: str) -> bool:
        """One acquire and the delete of most of it; False where it was refused."""
        invoked = self.recorder.invoke(ACQUIRE, name, self.queue)
        try:
            reply = await client.acquire(self.queue, ACQUIRE_MAX, VISIBILITY_MS, WAIT_MS)
        except StorageError as error:
            self.recorder.complete(invoked, class_of(error), note=str(error))
            return False
        messages = reply.messages
        values = [value_of(decode_body(message.body).value) for message in messages]
        places = [message.offset for message in messages]
        self.recorder.complete(invoked, OK, values, places, f"{EPOCH_WORD} {reply.epoch}")
        chosen = self._chosen(len(messages)) if self._writing else list(range(len(messages)))
        if not chosen:
            return True
        receipts = [(messages[index].offset, messages[index].delivery) for index in chosen]
        return await self._delete(client, name, [values[index] for index in chosen], receipts)

    async def _delete(
        self, client: StorageClient, name: str, values: list[Value], receipts: list[tuple[int, int]]
    ) -> bool:
        invoked = self.recorder.invoke(DELETE, name, self.queue, values)
        try:
            codes = await client.delete(self.queue, receipts)
        except StorageError as error:
            self.recorder.complete(invoked, class_of(error), note=str(error))
            return False
        done = [index for index, code in enumerate(codes) if code is ErrorCode.OK]
        self.deletes_refused += len(codes) - len(done)
        self.recorder.complete(invoked, OK, [values[i] for i in done], [receipts[i][0] for i in done])
        return True

    def _chosen(self, count: int) -> list[int]:
        return [index for index in range(count) if self._rng.randrange(KEEP_ONE_IN)]

    # --- the stream's other side ------------------------------------------------------------------------------

    async def _tail(self, client: StorageClient, name: str) -> None:
        while self._consuming:
            if await self.read_once(client, name, WAIT_MS) is None:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def read_once(self, client: StorageClient, name: str, wait_ms: int = 0) -> int | None:
        """One poll from where this reader stands; the high watermark it was told, None where it was refused."""
        position = self.positions.get(name, 0)
        invoked = self.recorder.invoke(READ, name, self.stream)
        try:
            reply = await client.stream_read(self.stream, position, READ_BYTES, wait_ms)
        except StorageError as error:
            self.recorder.complete(invoked, class_of(error), note=str(error))
            return None
        records = [record for batch in reply.batches for record in iterate_bodies(batch) if record[0] >= position]
        values = [value_of(decode_body(body).value) for _, body in records]
        self.recorder.complete(invoked, OK, values, [offset for offset, _ in records])
        self.positions[name] = reply.next_offset
        return reply.high_watermark


def class_of(error: StorageError) -> str:
    return UNKNOWN if error.traits.outcome_unknown else FAIL
