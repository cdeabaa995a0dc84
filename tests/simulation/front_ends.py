"""Front ends: processes with a client of the product's own, `StorageClient`, on the simulated loop and network.

Each does many calls at once, bursts among them, gives some up, and is restarted now and then: the client object is
dropped with all it had under way, and a new one is made. What a call of such a client stores is judged by the referee:
once where it was acknowledged, at most once where it was not, since nobody but the client itself repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from storage_nodes.client import StorageClient
from storage_nodes.model import Acks, NodeAddress, PartitionKind
from storage_nodes.protocol.errors import StorageError
from storage_nodes.protocol.messages import AcquireReply, PartitionInfo, VisibilityMode
from storage_nodes.protocol.records import HEADER_DEDUP, HEADER_GROUP, encode_body
from tests.simulation.guards import NotDeterministic
from tests.simulation.log_oracle import BrokenInvariant
from tests.simulation.network import Network
from tests.simulation.process_loop import ProcessLoop
from tests.simulation.transport import SimTransport
from tests.simulation.watch import watch_node_end, watch_own_end

if TYPE_CHECKING:
    from tests.simulation.world import World

FIRST_ID = 1_000
PRODUCERS_MAX = 4
CONSUMERS_MAX = 3
BURST_MAX = 12
# By then a lease that arrived has been given to a caller, or is on its way back.
HANDED_BACK_WITHIN_US = 2_000_000

Lease = tuple[int, int, int]  # partition, offset, delivery


class Receive(NamedTuple):
    """A call that asks for messages; with an attempt it may be repeated."""

    partition: int
    messages_max: int
    visibility_ms: int
    attempt: bytes


def make_client(front_end: FrontEnd) -> StorageClient:
    """The one place that knows how a client is made."""
    nodes = [NodeAddress(node_id, "sim", node_id, f"zone-{node_id}") for node_id in front_end.world.node_ids]
    return StorageClient("sim", nodes, f"front-end-{front_end.process_id}", chance=front_end.random)


class FrontEnd:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.process_id = FIRST_ID + number
        self.random = random.Random(f"{world.seed}-front-end-{number}")
        self.is_up = False
        self.lives = 0
        self.calls = 0
        self._under_way: set[int] = set()  # calls that send, of this life
        self.acked = 0
        self.loop: ProcessLoop
        self._client: StorageClient
        self._late: set[Lease] = set()  # arrived, and nobody has them yet
        self._pause_s = self.random.choice([0.002, 0.05, 0.4])
        self._bursts = self.random.choice([0.0, 0.1, 0.5])

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.lives += 1
            self._under_way = set()
            self._late = set()
            self.loop = ProcessLoop(self, self.world.scheduler)  # type: ignore[abstract]
            self.loop.post(self._begin)

    def end(self) -> None:
        """The process is gone, whatever was under way."""
        if self.is_up:
            self.is_up = False
            self.loop.end()
            self.world.network.ended(self)

    def restart(self) -> None:
        self.end()
        self.world.scheduler.after(self.random.randrange(1_000, 500_000), self.start)

    @property
    def is_idle(self) -> bool:
        return self.is_up and not self._under_way

    def _begin(self) -> None:
        self._client = make_client(self)
        real_change = self._client.change_visibility

        async def change_visibility(partition: int, changes: Sequence[tuple[int, int, int]], *more: Any) -> Any:
            self.world.referee.changes(partition, changes, *more[:1])
            self._late.difference_update((partition, offset, delivery) for offset, delivery, _ in changes)
            return await real_change(partition, changes, *more)

        self._client.change_visibility = change_visibility  # type: ignore[method-assign]
        self.loop.create_task(self._client.start())
        for _ in range(self.random.randrange(1, PRODUCERS_MAX + 1)):
            self.loop.create_task(self._produce())
        for _ in range(self.random.randrange(CONSUMERS_MAX + 1)):
            self.loop.create_task(self._consume())

    # --- End and Owner --------------------------------------------------------------------------------------------

    @property
    def network(self) -> Network:
        return self.world.network

    def post(self, callback: Any, *args: Any) -> None:
        if self.is_up:
            self.loop.post(callback, *args)

    def connected(self, here: SimTransport) -> None:
        watch_node_end(self.world, here.peer)
        watch_own_end(here, self._leased)

    def entered(self) -> None:
        pass

    def turned(self) -> None:
        pass

    def unhandled(self, error: BaseException) -> None:
        if isinstance(error, BrokenInvariant | NotDeterministic):
            raise error
        text = f"front end {self.process_id}: {type(error).__name__}: {error}"
        raise BrokenInvariant("CLIENT BUG", text) from error

    # --- senders --------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        world, chance = self.world, self.random
        while not world.draining:
            count = chance.randrange(2, BURST_MAX + 1) if chance.random() < self._bursts else 1
            await asyncio.gather(*(self._send_one() for _ in range(count)))
            await asyncio.sleep(chance.random() * self._pause_s * world.faults.leisure)

    async def _send_one(self) -> None:
        world, chance = self.world, self.random
        info = self._some_partition()
        number = self.calls = self.calls + 1
        is_fifo = ":fifo:" in info.tag
        bodies = [self._body(index, is_fifo) for index in range(chance.choice([1, 1, 1, 3]))]
        acks = chance.choice([Acks.QUORUM] * 8 + [Acks.ALL, Acks.LEADER, Acks.NONE])
        if info.kind == PartitionKind.QUEUE:
            call = self._client.send(info.partition, bodies, not is_fifo, acks)
        else:
            call = self._client.stream_append(info.partition, bodies, acks)
        world.referee.calls(bodies)
        patience_s = chance.choice([None, None, None, 0.05, 1.5])
        under_way = self._under_way
        under_way.add(number)
        try:
            async with asyncio.timeout(patience_s):
                await call
        except (StorageError, TimeoutError):
            world.referee.call_ended(bodies, "unknown")
        else:
            self.acked += 1
            if not world.is_dropped(info.partition):
                world.referee.call_ended(bodies, "ok")
        finally:
            under_way.discard(number)  # also when what is left of a former life is cleared away

    def _some_partition(self) -> PartitionInfo:
        """Mostly the queue that everybody uses."""
        partitions = self.world.partitions
        if self.random.random() < 0.7:
            return partitions[self.world.partition]
        return partitions[self.random.choice(sorted(p for p in partitions if p != self.world.dead_partition))]

    def _body(self, index: int, is_fifo: bool) -> bytes:
        name = b"%d/%d/%d/%d" % (self.process_id, self.lives, self.calls, index)
        size = self.random.choice([5, 40, 300])
        if self.world.faults.large_bytes and self.random.random() < 0.3:
            size = self.world.faults.large_bytes // 4
        filler = b"x" * self.random.randrange(size)
        headers = [(HEADER_GROUP, b"g%d" % (self.calls % 3)), (HEADER_DEDUP, name)] if is_fifo else []
        return encode_body(b"%b|%b" % (name, filler), None, headers)

    # --- receivers ------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        world, chance = self.world, self.random
        visibility_ms = chance.choice([300, 1_500, 5_000])
        forgets = chance.choice([0.0, 0.1, 0.4])
        while True:
            partition = world.partition
            if world.dead_partition >= 0 and chance.random() < 0.3:
                partition = world.dead_partition
            count, wait_ms = chance.choice([1, 3, 10]), chance.choice([0, 0, 300, 3_000])
            asked = self._receive(Receive(partition, count, visibility_ms, b""))
            patience_s = chance.choice([None, None, 0.02, 0.3])
            try:
                async with asyncio.timeout(patience_s):
                    reply = await self._client.acquire(*asked[:3], wait_ms, asked.attempt)
            except (StorageError, TimeoutError):
                if asked.attempt:
                    world.given_up.append(asked)
                await asyncio.sleep(0.05)
                continue
            partition = asked.partition
            world.referee.taken(partition, reply)
            receipts = [(message.offset, message.delivery) for message in reply.messages]
            self._late.difference_update((partition, *receipt) for receipt in receipts)
            if receipts and (world.draining or chance.random() >= forgets):
                with contextlib.suppress(StorageError):
                    if not world.draining and chance.random() < 0.1:
                        changes = [(offset, delivery, chance.choice([0, 500])) for offset, delivery in receipts]
                        await self._client.change_visibility(partition, changes, VisibilityMode.SET)
                    await self._client.delete(partition, receipts)
            await asyncio.sleep(chance.randrange(1, 60) / 1_000 * world.faults.leisure)

    def _receive(self, asked: Receive) -> Receive:
        """Of a FIFO queue perhaps one with an attempt, or one that was given up, once more."""
        world, chance = self.world, self.random
        if not world.faults.fifo or chance.random() < 0.5:
            return asked
        if world.given_up and chance.random() < 0.8:
            return world.given_up.pop(0)._replace(visibility_ms=chance.choice([300, 1_500, 5_000]))
        if ":fifo:" not in world.partitions[asked.partition].tag:
            return asked
        return asked._replace(attempt=b"%d/%d" % (self.process_id, chance.getrandbits(32)))

    def _leased(self, partition: int, reply: AcquireReply) -> None:
        """An answer arrives: soon somebody has what it leases, or it is handed back."""
        leases = {(partition, message.offset, message.delivery) for message in reply.messages}
        if leases:
            self._late |= leases
            self.world.scheduler.after(HANDED_BACK_WITHIN_US, self.check_handed_back, self.lives, leases)

    def check_handed_back(self, life: int, leases: set[Lease]) -> None:
        """LATE LEASE: what is leased to a client goes to a caller, or back."""
        kept = self._late & leases
        if kept and self.is_up and life == self.lives:
            text = f"front end {self.process_id} keeps {sorted(kept)} (partition, offset, delivery)"
            self.world.oracle.fail("LATE LEASE handed back", text)
