"""Trials of sends that a cluster cannot take at once: large messages while nodes are away, slow commits, a held disk.

large-kill     200 single sends of 1 MiB at once, each once, and the leader is killed among them
large-stall    the same, and two of three nodes stand still for 4 s
slow-commits   every sync of every node takes 5 s, for a minute, under sends and receives
memory         100 queues are sent messages of 256 KiB while no disk syncs for 2 s
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable

from storage_nodes import limits
from tests.blackbox.payload import text_of, value_of
from tests.blackbox.raw_http import Answer, Endpoint
from tests.blackbox.stage import MIB, NODES, Stage, staged, watch_memory
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import (
    ACCEPTED,
    Given,
    Sent,
    judge_drain,
    judge_leases,
    judge_memory,
    judge_refusals,
    judge_sends,
)

BURST = 200
# The most that a body may have; what names the value is part of it.
LARGE_BYTES = MIB
WITHIN_S = 15.0
KILL_AFTER_S = 0.3
STALL_S = 4.0
CALL_TIMEOUT_S = 60.0
# Longer than any run: what is handed out stays so, and every stored copy comes once.
LEASE_S = 3600
DRAIN_TIMEOUT_S = 60.0
RECEIVERS = 4
NOTHING_TIMES = 3

SYNC_S = 5.0
SLOW_WRITERS = 16
SLOW_BYTES = 1024
SLOW_PAUSE_S = 0.1

QUEUES = 100
SENDERS_PER_QUEUE = 4
MEMORY_BYTES = 256 * 1024
WARM_S = 3.0
AFTER_S = 15.0
# How much a node's resident set may grow: the budget of what it holds for others, and what the allocator does not give
# back of what passed through it.
BUDGET_MIB = getattr(limits, "NODE_MEMORY_BYTES_DEFAULT", 256 * MIB) / MIB
GROWTH_MIB_MAX = 1.25 * BUDGET_MIB


async def send(endpoint: Endpoint, queue: str, value: tuple[str, int], size_bytes: int) -> Sent:
    """One send, once."""
    answer = await endpoint.post(
        f"/v1/queues/{queue}/messages", {"body": text_of(value, size_bytes)}, timeout_s=CALL_TIMEOUT_S
    )
    return noted(value, answer)


def noted(value: tuple[str, int], answer: Answer) -> Sent:
    return Sent(f"{value[0]}:{value[1]}", answer.status, answer.seconds, answer.headers.get("retry-after", ""))


async def receive(
    endpoint: Endpoint, queue: str, wait_s: int = 1, most: int = 10
) -> tuple[list[Given], list[str]] | None:
    """What one receive gave, and its receipts; None where it was refused."""
    ask = {"max_messages": most, "wait_seconds": wait_s, "visibility_seconds": LEASE_S}
    answer = await endpoint.post(f"/v1/queues/{queue}/messages/receive", ask, timeout_s=CALL_TIMEOUT_S)
    if answer.status not in ACCEPTED:
        return None
    messages = answer.json()["messages"]
    values = ["{}:{}".format(*value_of(message["body"])) for message in messages]
    given = [Given(value, message["delivery_count"]) for value, message in zip(values, messages, strict=True)]
    return given, [message["receipt"] for message in messages]


async def drained(endpoint: Endpoint, queue: str) -> list[Given]:
    """Everything that can be received, none of it deleted."""
    found: list[Given] = []
    nothing = 0
    end = time.monotonic() + DRAIN_TIMEOUT_S
    while nothing < NOTHING_TIMES:
        assert time.monotonic() < end, f"{queue} does not drain in {DRAIN_TIMEOUT_S:.0f} s: {len(found)} received"
        got = await receive(endpoint, queue)
        nothing = nothing + 1 if got is not None and not got[0] else 0
        found += got[0] if got else []
    return found


# --- large messages -------------------------------------------------------------------------------------------

Fault = Callable[[Stage, random.Random], Awaitable[Callable[[], Awaitable[None]]]]


async def kill_leader(stage: Stage, rng: random.Random) -> Callable[[], Awaitable[None]]:
    leader = await asyncio.to_thread(stage.newest_queue_leader)
    pid = await asyncio.to_thread(stage.pid_of, "storage-node", leader)

    async def fault() -> None:
        await asyncio.sleep(KILL_AFTER_S)
        os.kill(pid, signal.SIGKILL)

    return fault


async def stall_majority(stage: Stage, rng: random.Random) -> Callable[[], Awaitable[None]]:
    pids = [await asyncio.to_thread(stage.pid_of, "storage-node", node) for node in rng.sample(NODES, 2)]

    async def fault() -> None:
        for pid in pids:
            stage.pause(pid)
        await asyncio.sleep(STALL_S)
        for pid in pids:
            stage.resume(pid)

    return fault


async def large(prepare: Fault, ask: Ask, result: Result) -> None:
    """Bursts until the time is over, at least one, each on a queue of its own."""
    rng = random.Random(ask.seed)
    with staged() as stage:
        endpoint = stage.endpoint()
        end = time.monotonic() + ask.seconds
        bursts = 0
        while not bursts or time.monotonic() < end:
            queue = await stage.new_queue(endpoint)
            fault = await prepare(stage, rng)
            harm = asyncio.create_task(fault())
            names = [(f"burst{bursts}", number) for number in range(BURST)]
            sent = await asyncio.gather(*(send(endpoint, queue, name, LARGE_BYTES) for name in names))
            await harm
            await asyncio.to_thread(stage.installation.wait_healthy)
            given = await drained(endpoint, queue)
            _, in_flight = await stage.counts(queue)
            bursts += 1
            note_burst(sent, given, in_flight, result)
        await endpoint.close()


def note_burst(sent: list[Sent], given: list[Given], in_flight: int, result: Result) -> None:
    for kind, found in judge_drain(judge_sends(sent, given, WITHIN_S), len(given), in_flight).items():
        result.violations.setdefault(kind, []).extend(found)
    counts = result.counts
    counts["bursts"] = counts.get("bursts", 0) + 1
    counts["sent"] = counts.get("sent", 0) + len(sent)
    counts["acked"] = counts.get("acked", 0) + sum(one.status in ACCEPTED for one in sent)
    counts["copies"] = counts.get("copies", 0) + len(given)
    slowest_s = max((one.seconds for one in sent if one.status in ACCEPTED), default=0.0)
    counts["slowest ack s"] = max(counts.get("slowest ack s", 0.0), round(slowest_s, 2))


# --- slow commits ---------------------------------------------------------------------------------------------


class SlowLoad:
    """Senders that send each value once, and receivers that delete what they get."""

    def __init__(self, endpoint: Endpoint, queue: str) -> None:
        self.sent: list[Sent] = []
        self.given: list[Given] = []
        self.refused_receives = 0
        self.sending = self.receiving = True
        self._endpoint = endpoint
        self._queue = queue
        self._nothing = 0
        self._undeleted: list[str] = []

    async def write(self, name: str) -> None:
        number = 0
        while self.sending:
            self.sent.append(await send(self._endpoint, self._queue, (name, number), SLOW_BYTES))
            number += 1
            await asyncio.sleep(SLOW_PAUSE_S)

    async def read(self) -> None:
        while self.receiving:
            got = await receive(self._endpoint, self._queue, wait_s=2)
            if got is None:
                self.refused_receives += 1
                await asyncio.sleep(SLOW_PAUSE_S)
                continue
            self._nothing = 0 if got[0] else self._nothing + 1
            self.given += got[0]
            if got[1]:
                await self._delete(got[1])

    async def _delete(self, receipts: list[str]) -> None:
        path = f"/v1/queues/{self._queue}/messages/ack"
        answer = await self._endpoint.post(path, {"receipts": receipts}, timeout_s=CALL_TIMEOUT_S)
        if answer.status not in ACCEPTED:
            self._undeleted += receipts
        else:
            self._undeleted += [row["receipt"] for row in answer.json()["failed"]]

    async def empty(self) -> None:
        """Nothing came several times in a row, and what was received is deleted, at the second try where it must be."""
        end = time.monotonic() + DRAIN_TIMEOUT_S
        self._nothing = 0
        while self._nothing < NOTHING_TIMES * RECEIVERS:
            assert time.monotonic() < end, f"{self._queue} does not drain in {DRAIN_TIMEOUT_S:.0f} s"
            await asyncio.sleep(SLOW_PAUSE_S)
        again, self._undeleted = self._undeleted, []
        for at in range(0, len(again), 10):
            await self._delete(again[at : at + 10])
        assert not self._undeleted, f"{len(self._undeleted)} deletes fail for good"


async def slow_commits(ask: Ask, result: Result) -> None:
    with staged() as stage:
        endpoint = stage.endpoint()
        queue = await stage.new_queue(endpoint)
        load = SlowLoad(endpoint, queue)
        writers = [asyncio.create_task(load.write(f"w{number}")) for number in range(SLOW_WRITERS)]
        readers = [asyncio.create_task(load.read()) for _ in range(RECEIVERS)]
        await asyncio.sleep(WARM_S)
        stage.harm.all_syncs_take(SYNC_S)
        await asyncio.sleep(ask.seconds)
        stage.harm.all_syncs_take(0.0)
        await asyncio.sleep(WARM_S)
        load.sending = False
        await asyncio.gather(*writers)
        await load.empty()
        load.receiving = False
        await asyncio.gather(*readers)
        there, in_flight = await stage.counts(queue)
        await endpoint.close()
    found = judge_sends(load.sent, load.given, within_s=float("inf"))
    # That a send is refused while nothing can be committed is no break; that it is there twice, or lost, is.
    refused = found.pop("not acknowledged")
    result.violations = {**found, **judge_leases(load.given, in_flight, there)}
    result.counts = {
        "sent": len(load.sent),
        "acked": len(load.sent) - len(refused),
        "handed out": len(load.given),
        "sends refused": len(refused),
        "receives refused": load.refused_receives,
        "slowest ack s": round(max((one.seconds for one in load.sent if one.status in ACCEPTED), default=0.0), 2),
    }
    result.notes = refused[:3]


# --- memory ---------------------------------------------------------------------------------------------------


async def memory(ask: Ask, result: Result) -> None:
    samples: dict[int, list[float]] = {}
    sent: list[Sent] = []
    with staged() as stage:
        endpoint = stage.endpoint()
        queues = [await stage.new_queue(endpoint) for _ in range(QUEUES)]
        pids = {node: await asyncio.to_thread(stage.pid_of, "storage-node", node) for node in NODES}
        watch = asyncio.create_task(watch_memory(pids, samples))
        sending = True

        async def sender(queue: str, number: int) -> None:
            count = 0
            while sending:
                sent.append(await send(endpoint, queue, (f"{queue}-{number}", count), MEMORY_BYTES))
                count += 1

        for queue in queues:
            sent.append(await send(endpoint, queue, (f"{queue}-warm", 0), MEMORY_BYTES))
        before = {node: values[-1] for node, values in samples.items()}
        stage.harm.all_syncs_take(ask.seconds)
        tasks = [asyncio.create_task(sender(q, number)) for q in queues for number in range(SENDERS_PER_QUEUE)]
        await asyncio.sleep(ask.seconds)
        stage.harm.all_syncs_take(0.0)
        await asyncio.sleep(WARM_S)
        sending = False
        await asyncio.gather(*tasks)
        began_s = time.monotonic()
        after = await asyncio.gather(*(send(endpoint, queue, (f"{queue}-after", 0), MEMORY_BYTES) for queue in queues))
        after_s = time.monotonic() - began_s
        watch.cancel()
        alive = {node: await asyncio.to_thread(stage.pid_of, "storage-node", node) for node in NODES}
        await endpoint.close()
    growth = {node: [sample - before[node] for sample in values] for node, values in samples.items()}
    refused = [one for one in sent if one.status not in ACCEPTED]
    late = [one.value for one in after if one.status not in ACCEPTED or one.seconds > AFTER_S]
    result.violations = {
        **judge_refusals(refused),
        **judge_memory(growth, GROWTH_MIB_MAX),
        "not going on": late,
        "node ended": [f"node {node}" for node in NODES if alive[node] != pids[node]],
    }
    result.counts = {
        "sent": len(sent),
        "acked": len(sent) - len(refused),
        "refused": len(refused),
        "after s": round(after_s, 2),
        **{f"node {node} MiB before": round(before[node]) for node in NODES},
        **{f"node {node} MiB peak": round(max(samples[node])) for node in NODES},
    }


def _large(prepare: Fault) -> Trial:
    async def run(ask: Ask, result: Result) -> None:
        await large(prepare, ask, result)

    return Trial(run, seconds=1.0)


TRIALS: dict[str, Trial] = {
    "large-kill": _large(kill_leader),
    "large-stall": _large(stall_majority),
    "slow-commits": Trial(slow_commits, seconds=60.0),
    "memory": Trial(memory, seconds=2.0),
}
