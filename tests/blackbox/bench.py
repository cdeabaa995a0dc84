"""One run: a cluster, load on it, what faults need to know of it, and the end: heal, drain, read back every replica."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

from benchmarks.storage_cluster import READY_TIMEOUT_S
from storage_nodes.client import StorageClient
from storage_nodes.model import NodeState, PartitionKind
from storage_nodes.protocol.errors import StorageError
from tests.blackbox.checkers import APPEND, SEND, check_replicas, sends_of
from tests.blackbox.clusters import NodeCluster
from tests.blackbox.history import DRAINED, FAULT, HEALED, OK, Recorder
from tests.blackbox.workload import RETRY_PAUSE_S, Load, OneAttemptClient

ASK_TIMEOUT_S = 1.0
RECOVERY_TIMEOUT_S = 30.0
CATCH_UP_TIMEOUT_S = 30.0
DRAIN_TIMEOUT_S = 60.0
SCRUB_TIMEOUT_S = 120.0
MOVE_TIMEOUT_S = 60.0


class BenchError(Exception):
    """The cluster did not do in time what it must do for the run to go on; the text says what."""


class Bench:
    """What a scenario's cycle is given."""

    def __init__(
        self, cluster: NodeCluster, recorder: Recorder, rng: random.Random, body_bytes: int, pause_s: float
    ) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.rng = rng
        self.cycles = 0
        self.notes: Counter[str] = Counter()
        self.findings: list[str] = []  # violations that no history shows
        self.expected_exits: set[int] = set()
        self._body_bytes = body_bytes
        self._pause_s = pause_s
        self._clients: list[StorageClient] = []

    async def start(self) -> None:
        self.cluster.start_all()
        self.patient = await self._client(StorageClient(self.cluster.cluster_id, self.cluster.addresses, "patient"))
        queue = await self._create(PartitionKind.QUEUE, "blackbox-queue")
        stream = await self._create(PartitionKind.STREAM, "blackbox-stream")
        self.load = Load(self.recorder, self.rng, queue, stream, self._body_bytes, self._pause_s)
        writing, consuming = await self.one_attempt("writing"), await self.one_attempt("consuming")
        self.barriers = await self.one_attempt("barriers")
        self.load.start(writing, consuming)

    async def one_attempt(self, name: str, only_node: int = 0) -> StorageClient:
        """A client of all nodes, or of one that it will never leave."""
        addresses = self.cluster.addresses if not only_node else [self.cluster.addresses[only_node - 1]]
        return await self._client(OneAttemptClient(self.cluster.cluster_id, addresses, name))

    # --- for faults -------------------------------------------------------------------------------------------

    async def leader(self, partition: int) -> int:
        """Who leads, by the highest epoch that a running node knows; waits until there is one."""
        end = time.monotonic() + RECOVERY_TIMEOUT_S
        while time.monotonic() < end:
            known = await asyncio.gather(*(self._known_leader(node, partition) for node in self.cluster.running()))
            _epoch, leader = max(known, default=(0, 0))
            if leader in self.cluster.running():
                return leader
            await asyncio.sleep(RETRY_PAUSE_S)
        raise BenchError(f"partition {partition} has no leader after {RECOVERY_TIMEOUT_S:.0f} s")

    async def led_by(self, node: int) -> list[int]:
        partitions = (self.load.queue, self.load.stream)
        return [partition for partition in partitions if await self.leader(partition) == node]

    async def holders(self, partition: int) -> list[int]:
        """The nodes that are to hold a replica, by what any running node knows; one that just started may not yet."""
        end = time.monotonic() + RECOVERY_TIMEOUT_S
        while not (rows := (await self.patient.describe([partition])).partitions):
            if time.monotonic() > end:
                raise BenchError(f"partition {partition} is not known after {RECOVERY_TIMEOUT_S:.0f} s")
            await asyncio.sleep(RETRY_PAUSE_S)
        return rows[0].replicas

    def fault(self, name: str, partitions: list[int], note: str = "") -> None:
        self.recorder.mark(FAULT, name, partitions, note)

    def healed(self, name: str) -> None:
        self.recorder.mark(HEALED, name)

    async def recovered(self, since_s: float | None = None) -> None:
        """Both partitions acknowledged a write that began after now."""
        since_s = self.recorder.now_s() if since_s is None else since_s
        for partition, operation in ((self.load.queue, SEND), (self.load.stream, APPEND)):
            end = time.monotonic() + RECOVERY_TIMEOUT_S
            while not self.acked_since(partition, operation, since_s):
                self.load.raise_failures()
                if time.monotonic() > end:
                    words = f"partition {partition}: no write acknowledged in {RECOVERY_TIMEOUT_S:.0f} s"
                    raise BenchError(f"{words}; {await self._words(partition, since_s)}")
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _words(self, partition: int, since_s: float) -> str:
        """Who leads, by each running node, as (epoch, leader), and what became of the writes since then."""
        nodes = self.cluster.running()
        known = await asyncio.gather(*(self._known_leader(node, partition) for node in nodes))
        answers = Counter(
            f"{event.kind} {event.note}"
            for event in self.recorder.events[self._index_at(since_s) :]
            if event.partition == partition and event.operation in (SEND, APPEND)
        )
        return f"leaders by node: {dict(zip(nodes, known, strict=True))}; answers: {answers.most_common(8)}"

    async def caught_up(self) -> None:
        """Every replica holds everything acknowledged so far."""
        for operation in (SEND, APPEND):
            if not await self.load.barrier(self.barriers, operation, CATCH_UP_TIMEOUT_S):
                raise BenchError(f"{operation}: not all replicas caught up in {CATCH_UP_TIMEOUT_S:.0f} s")

    async def settled(self) -> None:
        """By what every node says, nothing moves, and whoever is to hold no replica has none any more."""
        end = time.monotonic() + MOVE_TIMEOUT_S
        while (unrest := await self._unrest()) is not None:
            if time.monotonic() > end:
                raise BenchError(f"membership is not at rest after {MOVE_TIMEOUT_S:.0f} s: {unrest}")
            await asyncio.sleep(RETRY_PAUSE_S)

    async def emptied(self, victim: int) -> None:
        """The cluster no longer has this node among those that hold anything."""
        end = time.monotonic() + MOVE_TIMEOUT_S
        while victim in [*await self.holders(self.load.queue), *await self.holders(self.load.stream)]:
            if time.monotonic() > end:
                raise BenchError(f"node {victim} is not emptied after {MOVE_TIMEOUT_S:.0f} s")
            await asyncio.sleep(RETRY_PAUSE_S)

    async def all_active(self) -> None:
        """No node is being emptied any more."""
        end = time.monotonic() + RECOVERY_TIMEOUT_S
        for node in self.cluster.node_ids:
            while True:
                try:
                    await self.patient.set_node_state(node, NodeState.ACTIVE)
                    break
                except StorageError as error:
                    if time.monotonic() > end:
                        raise BenchError(f"node {node} cannot be taken back: {error}") from error
                    await asyncio.sleep(RETRY_PAUSE_S)

    async def _unrest(self) -> str | None:
        for node in self.cluster.node_ids:
            try:
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    info = await self.patient.describe_node(node, [self.load.queue, self.load.stream])
            except (StorageError, TimeoutError):
                return f"node {node} does not answer"
            for row in info.partitions:
                if row.move is not None:
                    return f"node {node} knows of {row.move} of partition {row.partition}"
                # 0 is what a node says that has no replica.
                if node not in row.replicas and row.leader_since_ms:
                    return f"node {node} still has a replica of partition {row.partition}"
            if any(row.state != NodeState.ACTIVE for row in info.nodes):
                return f"node {node} does not know all nodes as active"
        return None

    async def scrubbed(self, nodes: list[int]) -> None:
        """These nodes read all their stored files, and whatever they found is repaired: damage to what nobody reads is
        found in no other way."""
        end = time.monotonic() + SCRUB_TIMEOUT_S
        for node in nodes:
            await self.patient.scrub(node, start=True)
        for node in nodes:
            while (reply := await self.patient.scrub(node)).running or reply.unrepaired:
                if time.monotonic() > end:
                    raise BenchError(f"node {node} is not scrubbed and repaired in {SCRUB_TIMEOUT_S:.0f} s: {reply}")
                await asyncio.sleep(RETRY_PAUSE_S)

    def acked_since(self, partition: int, operation: str, since_s: float) -> bool:
        begun: set[int] = set()
        for event in self.recorder.events[self._index_at(since_s) :]:
            if event.partition == partition and event.operation == operation:
                if event.kind == "invoke":
                    begun.add(event.call)
                elif event.kind == OK and event.call in begun:
                    return True
        return False

    def _index_at(self, since_s: float) -> int:
        events = self.recorder.events
        index = len(events)
        while index and events[index - 1].time_s > since_s:
            index -= 1
        return index

    async def _known_leader(self, node: int, partition: int) -> tuple[int, int]:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                info = await self.patient.describe_node(node)
        except (StorageError, TimeoutError):
            return (0, 0)
        return next(((row.epoch, row.leader) for row in info.partitions if row.partition == partition), (0, 0))

    # --- the end ----------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Heal, catch up, drain, stop, read back every node's own log."""
        self.cluster.heal()
        await self.recovered()
        await self.load.stop_writers()
        await self.settled()
        await self.caught_up()
        await self._drain()
        await self.scrubbed(self.cluster.running())
        await self.caught_up()
        await self.load.stop_consumers()
        self.load.raise_failures()
        queue_holders, stream_holders = await self.holders(self.load.queue), await self.holders(self.load.stream)
        await self.close()
        self._note_exits()
        self.cluster.stop()
        copies = await asyncio.to_thread(self.cluster.copies, self.load.stream, stream_holders)
        stream_events = (event for event in self.recorder.events if event.partition == self.load.stream)
        self.findings += [f"replica: {text}" for text in check_replicas(copies, sends_of(stream_events, APPEND).acked)]
        states = await asyncio.to_thread(self.cluster.queue_states, self.load.queue, queue_holders)
        if len(set(states.values())) != 1:
            self.findings.append(f"replica: the queue's logs fold to different states: {states}")
        self.notes["deletes refused because the lease was lost"] = self.load.deletes_refused
        self.notes["records compared on three replicas"] = min(map(len, copies.values()))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _drain(self) -> None:
        end = time.monotonic() + DRAIN_TIMEOUT_S
        while True:
            stats = await self.patient.stats(self.load.queue)
            if not (stats.waiting or stats.in_flight or stats.delayed):
                break
            if time.monotonic() > end:
                raise BenchError(f"the queue does not drain: {stats}")
            await asyncio.sleep(0.1)
        watermark: int | None = None
        while watermark is None or self.load.positions.get("drain", 0) < watermark:
            watermark = await self.load.read_once(self.barriers, "drain")
            if time.monotonic() > end:
                raise BenchError("the stream cannot be read to its end")
        self.recorder.mark(DRAINED, "drained", [self.load.queue, self.load.stream])

    def _note_exits(self) -> None:
        self.cluster.reap()
        for node, code in self.cluster.exits:
            if code in self.expected_exits:
                self.notes[f"nodes that stopped by themselves with exit code {code}"] += 1
            else:
                self.findings.append(f"node {node} stopped by itself with exit code {code}")

    async def _client(self, client: StorageClient) -> StorageClient:
        await client.start()
        self._clients.append(client)
        return client

    async def _create(self, kind: PartitionKind, tag: str) -> int:
        end = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                return (await self.patient.create_partition(kind, tag)).partition
            except StorageError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
