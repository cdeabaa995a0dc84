"""Messages whose time matters: those that must not expire early, those with a delay, those that are scheduled.

A wave is a queue of short retention that is filled, left alone until shortly before its messages may go, and then
drained: whatever the clocks did meanwhile, all of them must still be there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from storage_nodes.client import StorageClient
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import QueueConfig
from storage_nodes.protocol.records import HEADER_DELAY_MS, HEADER_DUE, decode_body, encode_body
from tests.blackbox.checkers import ACQUIRE, DELETE, SEND
from tests.blackbox.history import DRAINED, OK, Event, Place, Recorder, Value
from tests.blackbox.payload import text_of, value_of
from tests.blackbox.timing import DELAY_WORD, EPOCH_WORD, Terms
from tests.blackbox.workload import ACQUIRE_MAX, RETRY_PAUSE_S, class_of

BODY_BYTES = 100
RETENTION_S = 60.0
LONG_RETENTION_S = 345_600.0
WAVES = 8
WAVE_MESSAGES = 40
WAVE_SENDS = 8
# A wave is drained from so long before its messages may go, and no longer than until shortly before.
DRAIN_BEFORE_S = 12.0
DRAIN_UNTIL_S = 3.0
LEASE_S = 30.0
WAIT_MS = 300
DELAYS_S = (1.0, 3.0, 6.0)
DELAYED_PAUSE_S = 0.4

Headers = Sequence[tuple[bytes, bytes]]


class TimedQueue:
    """One queue partition, every call in the history; `wall_s` is the right time of day."""

    def __init__(self, recorder: Recorder, client: StorageClient, name: str, partition: int, terms: Terms) -> None:
        self.recorder = recorder
        self.client = client
        self.name = name
        self.partition = partition
        self.terms = terms
        self._sent = 0
        # What releases a scheduled message stores it anew: its place is then no place to compare.
        self.places_move = False

    async def send(self, count: int, headers: Headers = (), delay_s: float = 0.0) -> Event:
        values = [(self.name, self._sent + number) for number in range(count)]
        self._sent += count
        note = f"{DELAY_WORD} {delay_s}" if delay_s else ""
        invoked = self.recorder.invoke(SEND, self.name, self.partition, values, note)
        bodies = [encode_body(text_of(value, BODY_BYTES).encode(), headers=headers) for value in values]
        try:
            reply = await self.client.send(self.partition, bodies, plain=not headers)
        except StorageError as error:
            return self.recorder.complete(invoked, class_of(error), note=str(error))
        offsets = range(reply.first_offset, reply.first_offset + count)
        return self.recorder.complete(invoked, OK, places=self._places(values, offsets))

    async def receive(self, delete: bool = True) -> int | None:
        """One acquire and the delete of all of it; how many there were, None where it was refused."""
        invoked = self.recorder.invoke(ACQUIRE, self.name, self.partition)
        try:
            reply = await self.client.acquire(self.partition, ACQUIRE_MAX, int(self.terms.lease_s * 1000), WAIT_MS)
        except StorageError as error:
            self.recorder.complete(invoked, class_of(error), note=str(error))
            return None
        values = [value_of(decode_body(message.body).value) for message in reply.messages]
        places = self._places(values, [message.offset for message in reply.messages])
        self.recorder.complete(invoked, OK, values, places, f"{EPOCH_WORD} {reply.epoch}")
        if delete and values:
            receipts = [(message.offset, message.delivery) for message in reply.messages]
            await self._delete(values, places, receipts)
        return len(values)

    async def _delete(self, values: list[Value], places: list[Place], receipts: list[tuple[int, int]]) -> None:
        invoked = self.recorder.invoke(DELETE, self.name, self.partition, values)
        try:
            codes = await self.client.delete(self.partition, receipts)
        except StorageError as error:
            self.recorder.complete(invoked, class_of(error), note=str(error))
            return
        done = [index for index, code in enumerate(codes) if not code]
        self.recorder.complete(invoked, OK, [values[index] for index in done], [places[index] for index in done])

    def _places(self, values: Sequence[Value], offsets: Sequence[int]) -> list[Place]:
        return [f"{name}:{number}" for name, number in values] if self.places_move else list(offsets)


class ClockLoad:
    """All of it, on partitions of its own."""

    def __init__(
        self, recorder: Recorder, rng: random.Random, wall_s: Callable[[], float], retention_s: float = RETENTION_S
    ) -> None:
        self._recorder = recorder
        self._rng = rng
        self._wall_s = wall_s
        self._retention_s = retention_s
        self._running = True
        self._tasks: list[asyncio.Task[None]] = []
        self.waves: list[TimedQueue] = []
        self.still_held: dict[str, str] = {}

    async def start(self, maker: StorageClient, client: StorageClient) -> None:
        self._maker = maker

        async def made(name: str, terms: Terms) -> TimedQueue:
            config = QueueConfig(retention_ms=int(terms.retention_s * 1000))
            info = await maker.create_partition(PartitionKind.QUEUE, name, config)
            return TimedQueue(self._recorder, client, name, info.partition, terms)

        for number in range(WAVES):
            self.waves.append(await made(f"wave{number}", Terms(self._retention_s, LEASE_S)))
        self.delayed = await made("delayed", Terms(LONG_RETENTION_S, LEASE_S))
        self.scheduled = await made("scheduled", Terms(LONG_RETENTION_S, LEASE_S))
        self.scheduled.places_move = True
        for number, wave in enumerate(self.waves):
            self._tasks.append(asyncio.create_task(self._wave(wave, self._retention_s * number / WAVES)))
        for queue in (self.delayed, self.scheduled):
            self._tasks.append(asyncio.create_task(self._send_delayed(queue)))
            self._tasks.append(asyncio.create_task(self._drain_always(queue)))

    def queues(self) -> list[TimedQueue]:
        return [*self.waves, self.delayed, self.scheduled]

    async def send_delayed(self, delay_s: float, count: int) -> None:
        await self.delayed.send(count, [(HEADER_DELAY_MS, b"%d" % int(delay_s * 1000))], delay_s)

    async def stop(self) -> None:
        """The waves under way end as usual; what is delayed becomes due and is received. A queue that then still holds
        something is not drained: what it holds is late, and not lost."""
        self._running = False
        await asyncio.gather(*self._tasks)
        for queue in (self.delayed, self.scheduled):
            stats = await self._maker.stats(queue.partition)
            held = {name: getattr(stats, name) for name in ("waiting", "in_flight", "delayed", "scheduled")}
            if any(held.values()):
                told = ", ".join(f"{name} {count}" for name, count in held.items())
                self.still_held[queue.name] = f"{queue.name}, after everything was due: {told}"
        drained = [queue.partition for queue in self.queues() if queue.name not in self.still_held]
        self._recorder.mark(DRAINED, "timed queues", drained)

    async def _wave(self, wave: TimedQueue, pause_s: float) -> None:
        now_s = self._recorder.now_s
        begin_s = now_s() + pause_s
        while self._running:
            await self._until(begin_s)
            if not self._running:
                return
            begin_s = now_s()
            for _ in range(WAVE_SENDS):
                await wave.send(WAVE_MESSAGES // WAVE_SENDS)
            filled_s = now_s()
            await self._until(begin_s + self._retention_s - DRAIN_BEFORE_S, always=True)
            # Twice nothing, after whatever is there: the answers that prove that nothing is missing, or that it is.
            nothing = 0
            while nothing < 2 and now_s() < begin_s + self._retention_s - DRAIN_UNTIL_S:
                received = await wave.receive()
                nothing += received == 0
                if received is None:
                    await asyncio.sleep(RETRY_PAUSE_S)
            begin_s = max(filled_s + self._retention_s, now_s())

    async def _until(self, at_s: float, always: bool = False) -> None:
        while (self._running or always) and self._recorder.now_s() < at_s:
            await asyncio.sleep(0.2)

    async def _send_delayed(self, queue: TimedQueue) -> None:
        while self._running:
            delay_s = self._rng.choice(DELAYS_S)
            if queue is self.scheduled:
                due_ms = int((self._wall_s() + delay_s) * 1000)
                await queue.send(1, [(HEADER_DUE, b"%d" % due_ms)], delay_s)
            else:
                await self.send_delayed(delay_s, 1)
            await asyncio.sleep(DELAYED_PAUSE_S)

    async def _drain_always(self, queue: TimedQueue) -> None:
        """Until nothing came for longer than the longest delay and a failover."""
        idle_since_s = self._recorder.now_s()
        while self._running or self._recorder.now_s() < idle_since_s + max(DELAYS_S) + 4.0:
            received = await queue.receive()
            if received is None:
                await asyncio.sleep(RETRY_PAUSE_S)
            if received or self._running:
                idle_since_s = self._recorder.now_s()
