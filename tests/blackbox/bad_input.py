"""Trials of bad input: each is refused or cut, the log says why, and nobody else waits.

bad-producer     a batch whose sequence goes back, overlaps, leaps, or repeats; an older epoch; numbers out of range
bad-reader-node  clients of a node that ask for much and never read, greet one byte a second, or never greet
bad-reader-http  callers of the front end that ask for much and never read
bad-body         a body, and a header, that arrive one byte a second
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from storage_nodes.client import StorageClient
from storage_nodes.log.record_batch import iterate_bodies
from storage_nodes.model import PartitionKind
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import encode_frame
from storage_nodes.protocol.messages import Hello, Opcode, StreamReadRequest, encode_message
from storage_nodes.protocol.records import decode_body
from tests.blackbox.bursts import GROWTH_MIB_MAX as NODE_GROWTH_MIB_MAX
from tests.blackbox.clusters import NodeCluster
from tests.blackbox.payload import body_of, value_of
from tests.blackbox.raw_node import RawNode, cut_after, produce, produced, push, refusals_in, silent_socket
from tests.blackbox.stage import MIB, Stage, rss_mib, staged, watch_memory
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED, judge_memory, judge_others

ALONE_S = 3.0
OTHERS_PAUSE_S = 0.02
OTHERS_WITHIN_S = 1.0
# How much a front end may grow by callers that do not read, whatever they ask for; a node has its budget (`bursts.py`).
GROWTH_MIB_MAX = 160.0
SEQUENCE_MAX = 2**31 - 1
LEAP = 1_000_000_000
ACQUIRE_MAX = 100
SILENT = 8
ASKS = 500
LARGE = 24
READ_BYTES = MIB
NEVER = float("inf")
# A log line that says why a connection was cut has one of these words.
REASONS = ("slow", "late", "not read", "never read", "does not read", "stopped reading", "no progress", "timed out",
           "timeout", "one byte", "cut", "greet", "did not arrive", "too long")  # fmt: skip


class Others:
    """Somebody else's calls, one after the other: how long each took."""

    def __init__(self, call: Callable[[], Awaitable[bool]]) -> None:
        self.alone_s: list[float] = []
        self.beside_s: list[float] = []
        self.failed = 0
        self._call = call
        self._beside = False
        self._task: asyncio.Task[None] | None = None

    async def alone(self) -> None:
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(ALONE_S)
        self._beside = True

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            done = await self._call()
            self.failed += not done
            (self.beside_s if self._beside else self.alone_s).append(time.monotonic() - began_s)
            await asyncio.sleep(OTHERS_PAUSE_S)

    def judge(self) -> dict[str, list[str]]:
        found = judge_others(self.alone_s, self.beside_s, OTHERS_WITHIN_S)
        return {**found, "others refused": [f"{self.failed} calls"] if self.failed else []}


def reasons_in(log: str) -> list[str]:
    return [line for line in log.splitlines() if any(reason in line.lower() for reason in REASONS)]


# --- producers ------------------------------------------------------------------------------------------------


class ProducerTrial:
    """One partition, spoken to by one producer. Every step notes what should have been and was not."""

    def __init__(self, name: str, node: RawNode, opcode: int, partition: int, rng: random.Random) -> None:
        self.name = name
        self.violations: list[str] = []
        self.steps = 0
        self.stored = 0
        self._node = node
        self._opcode = opcode
        self._partition = partition
        self._producer = rng.getrandbits(62)
        self._written = 0

    def values(self, count: int) -> list[tuple[str, int]]:
        first, self._written = self._written, self._written + count
        return [(self.name, first + number) for number in range(count)]

    async def taken(self, what: str, epoch: int, sequence: int, count: int) -> int:
        """A batch that must be stored; its first offset."""
        payload = self._payload(self.values(count), epoch, sequence)
        self.stored += count
        return await self._offset(what, payload)

    async def repeated(self, what: str, epoch: int, sequence: int, count: int, offset: int) -> None:
        """The same batch again, whatever stands in it: answered as before, stored once."""
        found = await self._offset(what, self._payload(self.values(count), epoch, sequence))
        if found != offset:
            self.violations.append(f"{self.name} {what}: stored again at {found}, was at {offset}")

    async def once(self, what: str, epoch: int, sequence: int, known: int, count: int, offset: int) -> None:
        """A batch whose first `known` records stand at `offset` already: refused, or only the others are stored."""
        self.steps += 1
        try:
            found = await produced(self._node, self._opcode, self._payload(self.values(count), epoch, sequence))
        except StorageError:
            return
        self.stored += count - known
        if found != offset:
            self.violations.append(f"{self.name} {what}: answered {found}, its first record is at {offset}")

    async def refused(self, what: str, epoch: int, sequence: int, count: int, producer: int | None = None) -> None:
        self.steps += 1
        try:
            found = await produced(
                self._node, self._opcode, self._payload(self.values(count), epoch, sequence, producer)
            )
        except StorageError as error:
            if error.code in (ErrorCode.INTERNAL, ErrorCode.OUTCOME_UNKNOWN) or not str(error):
                self.violations.append(f"{self.name} {what}: answered {error.code.name} {str(error)!r}")
            return
        except (EOFError, TimeoutError) as error:
            self.violations.append(f"{self.name} {what}: {error!r}")
            await self._node.open()
            return
        self.violations.append(f"{self.name} {what}: accepted at {found}")

    def _payload(self, values: list[tuple[str, int]], epoch: int, sequence: int, producer: int | None = None) -> bytes:
        bodies = [body_of(value, 64) for value in values]
        return produce(self._partition, bodies, self._producer if producer is None else producer, epoch, sequence)

    async def _offset(self, what: str, payload: bytes) -> int:
        self.steps += 1
        try:
            return await produced(self._node, self._opcode, payload)
        except StorageError as error:
            self.violations.append(f"{self.name} {what}: refused, {error.code.name} {error}")
            return -1

    async def run(self) -> None:
        first = await self.taken("begins anywhere", 0, 100, 5)
        await self.repeated("repeats", 0, 100, 5, first)
        second = await self.taken("goes on", 0, 105, 3)
        await self.repeated("repeats what is before the last", 0, 100, 5, first)
        await self.once("overlaps at its beginning", 0, 106, 2, 4, second + 1)
        await self.refused("goes back and overlaps at its end", 0, 97, 5)
        await self.refused("leaps", 0, LEAP, 1)
        await self.refused("is negative", 0, -5, 1)
        await self.refused("passes the largest number", 0, SEQUENCE_MAX - 1, 5)
        await self.refused("has a negative epoch", -3, 110, 1)
        await self.refused("has a producer out of range", 0, 110, 1, producer=-7)
        await self.taken("goes on after all that", 0, 110, 2)
        newer = await self.taken("takes a new epoch", 1, 0, 2)
        await self.refused("has an older epoch", 0, 112, 1)
        await self.repeated("repeats in the new epoch", 1, 0, 2, newer)
        await self.taken("goes on in the new epoch", 1, 2, 1)


async def bad_producer(ask: Ask, result: Result) -> None:
    rng = random.Random(ask.seed)
    cluster = NodeCluster()
    cluster.start_all()
    client = await cluster.client()
    try:
        trials = []
        for kind, name, opcode in (
            (PartitionKind.QUEUE, "queue", Opcode.SEND),
            (PartitionKind.STREAM, "stream", Opcode.STREAM_APPEND),
        ):
            partition = await cluster.create_partition(client, kind, name)
            leader = await _leader(client, partition)
            node = RawNode(cluster.cluster_id, cluster.addresses[leader - 1])
            await node.open()
            trial = ProducerTrial(name, node, opcode, partition, rng)
            await trial.run()
            found = await _contents(client, kind, partition)
            if len(found) != trial.stored:
                trial.violations.append(f"{name} holds {len(found)} messages, {trial.stored} were to be stored")
            node.close()
            trials.append(trial)
        cluster.reap()
        ended = [f"node {node} ended with exit code {code}" for node, code in cluster.exits]
        result.violations = {"sequences": [text for trial in trials for text in trial.violations], "node ended": ended}
        result.counts = {"batches": sum(one.steps for one in trials), "stored": sum(one.stored for one in trials)}
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def _leader(client: StorageClient, partition: int) -> int:
    end = time.monotonic() + 20.0
    while True:
        rows = (await client.describe([partition])).partitions
        if rows and rows[0].leader:
            return rows[0].leader
        assert time.monotonic() < end, f"partition {partition} has no leader"
        await asyncio.sleep(0.05)


async def _contents(client: StorageClient, kind: int, partition: int) -> list[tuple[str, int]]:
    if kind == PartitionKind.QUEUE:
        found: list[tuple[str, int]] = []
        while messages := (await client.acquire(partition, ACQUIRE_MAX, 600_000, 300)).messages:
            found += [value_of(decode_body(message.body).value) for message in messages]
        return found
    offset, values = 0, []
    while (reply := await client.stream_read(partition, offset, MIB)).batches:
        for batch in reply.batches:
            values += [value_of(decode_body(body).value) for at, body in iterate_bodies(batch) if at >= offset]
        offset = reply.next_offset
    return values


# --- readers that do not read ---------------------------------------------------------------------------------


async def bad_reader_node(ask: Ask, result: Result) -> None:
    cluster = NodeCluster()
    cluster.start_all()
    client = await cluster.client()
    samples: dict[int, list[float]] = {}
    try:
        stream = await cluster.create_partition(client, PartitionKind.STREAM, "large")
        queue = await cluster.create_partition(client, PartitionKind.QUEUE, "others")
        for number in range(LARGE):
            await client.stream_append(stream, [body_of(("large", number), READ_BYTES // 2)])
        victim = await _leader(client, stream)
        address = cluster.addresses[victim - 1]
        pid = cluster.processes[victim].pid
        before_mib = rss_mib(pid)

        async def somebody_sends() -> bool:
            await client.send(queue, [body_of(("other", 0), 200)])
            return True

        others = Others(somebody_sends)
        await others.alone()
        watch = asyncio.create_task(watch_memory({victim: pid}, samples))
        hello = encode_frame(Opcode.HELLO, 0, 1, encode_message(Hello(cluster.cluster_id, "never reads")))
        read = encode_message(StreamReadRequest(stream, 0, READ_BYTES))
        asks = b"".join(encode_frame(Opcode.STREAM_READ, 0, 2 + number, read) for number in range(ASKS))
        readers = [silent_socket(address.host, address.port) for _ in range(SILENT)]
        for reader in readers:
            push(reader, hello + asks)
        slow, mute = silent_socket(address.host, address.port), silent_socket(address.host, address.port)
        cuts = await asyncio.gather(
            *(cut_after(reader, ask.seconds) for reader in readers),
            cut_after(slow, ask.seconds, hello * 10),
            cut_after(mute, ask.seconds),
        )
        await others.stop()
        watch.cancel()
        # Where another node took the lead beside them, all that they ask is refused: nothing waits for them.
        refused = [
            number
            for number, reader in enumerate(readers)
            if cuts[number] == NEVER and await refusals_in(reader, ASKS) == ASKS
        ]
        for connection in (*readers, slow, mute):
            connection.close()
        cluster.reap()
        result.violations = {
            **_uncut(["never reads"] * SILENT + ["greets a byte a second", "never greets"], cuts, refused),
            "asked in vain": [f"all {SILENT} readers"] if len(refused) == SILENT else [],
            **judge_memory(samples, before_mib + NODE_GROWTH_MIB_MAX),
            **others.judge(),
            "no reason in the log": [] if reasons_in(cluster.log_of(victim)) else [f"node {victim}"],
            "node ended": [f"node {node} ended with exit code {code}" for node, code in cluster.exits],
        }
        _note_cuts(result, cuts, others, before_mib, samples)
        result.counts["readers refused"] = len(refused)
        result.notes = reasons_in(cluster.log_of(victim))[:3]
    finally:
        await client.close()
        cluster.stop()
        cluster.remove()


async def bad_reader_http(ask: Ask, result: Result) -> None:
    """What they ask for is leased to nobody in the end: its lease is short, and the queue is their own."""
    with staged() as stage:
        endpoint = stage.endpoint()
        queue = await stage.new_queue(endpoint, visibility_timeout_seconds=1)
        other = await stage.new_queue(endpoint)
        for number in range(LARGE):
            sent = await endpoint.post(f"/v1/queues/{queue}/messages", {"body": "x" * (MIB - number)})
            assert sent.status in ACCEPTED, f"send: {sent.status} {sent.note}"
        pid = await asyncio.to_thread(stage.pid_of, "frontend")
        samples: dict[int, list[float]] = {}
        before_mib = rss_mib(pid)
        others = Others(_sends(stage, other))
        await others.alone()
        log_before = len(stage.front_end_log())
        watch = asyncio.create_task(watch_memory({1: pid}, samples))
        body = b'{"max_messages": 10, "visibility_seconds": 0}'
        asked = endpoint.head("POST", f"/v1/queues/{queue}/messages/receive", len(body)) + body
        readers = [silent_socket(endpoint.host, endpoint.port) for _ in range(SILENT)]
        for reader in readers:
            push(reader, asked * 20)
        cuts = await asyncio.gather(*(cut_after(reader, ask.seconds) for reader in readers))
        await _finish_http(stage, result, others, watch, ["never reads"] * SILENT, cuts, log_before)
        result.violations |= judge_memory(samples, before_mib + GROWTH_MIB_MAX)
        _note_cuts(result, cuts, others, before_mib, samples)
        for reader in readers:
            reader.close()
        await endpoint.close()


async def bad_body(ask: Ask, result: Result) -> None:
    with staged() as stage:
        endpoint = stage.endpoint()
        queue = await stage.new_queue(endpoint)
        others = Others(_sends(stage, queue))
        await others.alone()
        log_before = len(stage.front_end_log())
        watch = asyncio.create_task(asyncio.sleep(0))
        head = endpoint.head("POST", f"/v1/queues/{queue}/messages", 4000)
        body, header = (silent_socket(endpoint.host, endpoint.port) for _ in range(2))
        push(body, head)
        cuts = await asyncio.gather(
            cut_after(body, ask.seconds, b'{"body": "' + b"x" * 3000),
            cut_after(header, ask.seconds, head),
        )
        await _finish_http(
            stage, result, others, watch, ["a body byte a second", "a header byte a second"], cuts, log_before
        )
        _note_cuts(result, cuts, others, 0.0, {})
        body.close()
        header.close()
        await endpoint.close()


def _sends(stage: Stage, queue: str) -> Callable[[], Awaitable[bool]]:
    endpoint = stage.endpoint()

    async def send() -> bool:
        answer = await endpoint.post(f"/v1/queues/{queue}/messages", {"body": "somebody else's"})
        return answer.status in ACCEPTED

    return send


async def _finish_http(
    stage: Stage, result: Result, others: Others, watch: asyncio.Task[None], names: Sequence[str],
    cuts: Sequence[float], log_before: int,
) -> None:  # fmt: skip
    await others.stop()
    watch.cancel()
    said = reasons_in(stage.front_end_log()[log_before:])
    result.violations = {
        **_uncut(names, cuts),
        **others.judge(),
        "no reason in the log": [] if said else ["front end"],
    }
    result.notes = said[:3]


def _uncut(names: Sequence[str], cuts: Sequence[float], but: Sequence[int] = ()) -> dict[str, list[str]]:
    uncut = [number for number, after_s in enumerate(cuts) if after_s == NEVER and number not in but]
    return {"not cut": [names[number] for number in uncut]}


def _note_cuts(
    result: Result, cuts: Sequence[float], others: Others, before_mib: float, samples: dict[int, list[float]]
) -> None:
    peak_mib = max((max(values) for values in samples.values()), default=0.0)
    result.counts = {
        "connections": len(cuts),
        "cut": sum(after_s != NEVER for after_s in cuts),
        "last cut s": round(max((after_s for after_s in cuts if after_s != NEVER), default=0.0), 1),
        "others' calls": len(others.beside_s),
        "others' slowest ms": round(max(others.beside_s, default=0.0) * 1000),
        "MiB before": round(before_mib),
        "MiB peak": round(peak_mib),
    }


TRIALS: dict[str, Trial] = {
    "bad-producer": Trial(bad_producer, seconds=1.0),
    "bad-reader-node": Trial(bad_reader_node, seconds=60.0),
    "bad-reader-http": Trial(bad_reader_http, seconds=90.0),
    "bad-body": Trial(bad_body, seconds=45.0),
}
