"""Trial `wire`: stock SQS calls at two front ends, on queues of four kinds, while everything is harmed in turn.

    standard    producers and consumers that share no client; messages up to 240 KB; consumers that hand back, keep and
                forget
    fifo        groups, deduplication ids; what is not known is sent again
    dying       a part is poison, which no consumer deletes: after two receives it goes to the dead-letter queue
    letters     that dead-letter queue

Harm, one after the other: the storage node that leads most is killed, or stands still; either front end is killed; the
disk of one node is slow; one node, then another, has little memory (`pressure.py`); nodes of two releases run side by
side (`wire_versions.py`). Then all is healed, the queues are drained, and what the clients saw is judged
(`wire_judge.py`).
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from tests.blackbox import wire_versions
from tests.blackbox.pressure import Pressure
from tests.blackbox.signed_sqs import SqsEndpoint
from tests.blackbox.stage import READY_TIMEOUT_S, FrontEnd, Stage, second_front_end, serves, staged, until
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.wire_clients import Consumer, Producer
from tests.blackbox.wire_history import Fault, Outcome, WireHistory
from tests.blackbox.wire_judge import judge

RECEIVES_MAX = 2
VISIBILITY_S = 8
# A short run has no time for it.
SHORT_RUN_S, SHORT_VISIBILITY_S = 30.0, 3
PAUSED_S = 3.0
SLOW_SYNC_S = 0.3
SLOW_S = 6.0
CALM_S = (4.0, 10.0)
# Nothing is left once so many visibilities passed without a message.
DRAINED_VISIBILITIES = 3
DRAIN_S_MAX = 180.0
LITTLE_MEMORY = "little memory"
QUEUES: dict[str, dict[str, str]] = {
    "standard": {},
    "fifo.fifo": {"FifoQueue": "true"},
    "letters": {},
    "dying": {},
}


async def _wire(ask: Ask, result: Result) -> None:
    with staged() as stage:
        async with second_front_end(stage) as second:
            await harm_and_judge(stage, second, ask, result)


async def harm_and_judge(stage: Stage, second: FrontEnd, ask: Ask, result: Result, only: Collection[str] = ()) -> None:
    """`only`: kinds of harm; all where none is named."""
    history, chance = WireHistory(), random.Random(ask.seed)
    ports = (stage.installation.port, second.port)
    await _make_queues(stage)
    producing, consuming = asyncio.Event(), asyncio.Event()
    visibility_s = VISIBILITY_S if ask.seconds >= SHORT_RUN_S else SHORT_VISIBILITY_S

    def endpoint(number: int) -> SqsEndpoint:
        return SqsEndpoint(ports[number % 2], stage.installation.key)

    def consumer(queue: str, number: int, is_moody: bool, hidden_s: int = visibility_s) -> Consumer:
        return Consumer(endpoint(number), queue, history, ask.seed * 100 + number, hidden_s, is_moody)

    producers = [Producer(endpoint(n), "standard", history, ask.seed * 100 + n, 0.4) for n in (1, 2)]
    producers += [Producer(endpoint(n), "fifo.fifo", history, ask.seed * 100 + n, 0.5) for n in (3, 4)]
    producers += [Producer(endpoint(5), "dying", history, ask.seed * 100 + 5, 1.0, poison_part=0.2)]
    consumers = [consumer("standard", n, True) for n in (11, 12, 13)] + [
        consumer("fifo.fifo", n, True) for n in (14, 15, 16)
    ]
    consumers += [consumer("dying", 17, False, 2), consumer("dying", 18, False, 2), consumer("letters", 19, False)]
    pressure = Pressure(stage, endpoint, history, consumers, ask.seed * 100_000, ask.seconds < SHORT_RUN_S)
    tasks = [asyncio.create_task(producer.run(producing)) for producer in producers]
    drains = [asyncio.create_task(one.run(consuming)) for one in consumers]
    try:
        await _harm(stage, second, history, chance, ask.seconds, pressure, only)
        producing.set()
        await asyncio.gather(*tasks)
        for one in consumers:
            one.is_moody = False
        await until(
            lambda: _is_drained(consumers, DRAINED_VISIBILITIES * visibility_s), DRAIN_S_MAX, "the queues are not empty"
        )
        consuming.set()
        await asyncio.gather(*drains)
    finally:
        for task in (*tasks, *drains):
            task.cancel()
        await asyncio.gather(*tasks, *drains, return_exceptions=True)
    _conclude(history, result)
    result.counts |= {"refused for want of memory": pressure.refused, "503 with Retry-After": pressure.unavailable}
    result.violations["little memory changed nothing"] = pressure.never_bit


async def _is_drained(consumers: list[Consumer], calm_s: float) -> bool:
    return all(time.monotonic() - consumer.last_found_s > calm_s for consumer in consumers)


async def _make_queues(stage: Stage) -> None:
    sqs = stage.installation.sqs()

    def make() -> None:
        for name, attributes in QUEUES.items():
            sqs.create_queue(QueueName=name, Attributes=attributes)
        url = sqs.get_queue_url(QueueName="letters")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": {RECEIVES_MAX}}}'
        dying = sqs.get_queue_url(QueueName="dying")["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=dying, Attributes={"RedrivePolicy": policy})

    await asyncio.to_thread(make)


# --- harm ---


async def _harm(
    stage: Stage,
    second: FrontEnd,
    history: WireHistory,
    chance: random.Random,
    seconds: float,
    pressure: Pressure,
    only: Collection[str],
) -> None:
    ends_s = time.monotonic() + seconds
    kinds: dict[str, Callable[[], Awaitable[None]]] = {
        "a storage node killed": lambda: _kill_node(stage, chance),
        "a storage node stood still": lambda: _pause_node(stage, chance),
        "a front end killed": lambda: _kill_front_end(stage),
        "the other front end killed": lambda: _restart_second(stage, second),
        "a slow disk": lambda: _slow_disk(stage, chance),
        LITTLE_MEMORY: lambda: pressure.press(chance),
        wire_versions.NAME: lambda: wire_versions.mixed_versions(stage, chance),
    }
    kinds = {name: harm for name, harm in kinds.items() if not only or name in only}
    order: list[str] = []
    while time.monotonic() < ends_s:
        await asyncio.sleep(chance.uniform(*CALM_S))
        if not order:
            order = chance.sample(list(kinds), len(kinds))
        name, began_s = order.pop(), time.monotonic()
        await kinds[name]()
        history.faults.append(Fault(name, began_s, time.monotonic()))
    await asyncio.to_thread(stage.installation.wait_healthy)


async def _leader(stage: Stage, chance: random.Random) -> int:
    """A node that leads partitions of queues."""

    def look() -> list[int]:
        return [row["leader"] for row in stage.installation.status()["partitions"] if row["leader"]]

    led = await asyncio.to_thread(look)
    return chance.choice(led) if led else 1


async def _kill_node(stage: Stage, chance: random.Random) -> None:
    node = await _leader(stage, chance)
    await asyncio.to_thread(stage.installation.kill, "storage-node", node)
    await asyncio.to_thread(stage.installation.wait_healthy)


async def _pause_node(stage: Stage, chance: random.Random) -> None:
    pid = await asyncio.to_thread(stage.pid_of, "storage-node", await _leader(stage, chance))
    stage.pause(pid)
    try:
        await asyncio.sleep(PAUSED_S)
    finally:
        stage.resume(pid)


async def _kill_front_end(stage: Stage) -> None:
    await asyncio.to_thread(stage.installation.kill, "frontend")
    await until(lambda: serves(stage.endpoint()), READY_TIMEOUT_S, "front end")


async def _restart_second(stage: Stage, second: FrontEnd) -> None:
    await asyncio.to_thread(second.stop, signal.SIGKILL)
    await asyncio.to_thread(second.start)
    await until(lambda: serves(stage.endpoint(second.port)), READY_TIMEOUT_S, "second front end")


async def _slow_disk(stage: Stage, chance: random.Random) -> None:
    node = stage.harm.nodes[chance.choice(list(stage.harm.nodes))]
    node.syncs_take(SLOW_SYNC_S)
    try:
        await asyncio.sleep(SLOW_S)
    finally:
        node.syncs_take(0.0)


# --- verdict ---


def _conclude(history: WireHistory, result: Result) -> None:
    violations, explained = judge(history, ["fifo.fifo"], {"dying": ("letters", RECEIVES_MAX)})
    result.violations.update(violations)
    sent: Counter[Any] = Counter(event.outcome for event in history.sent)
    deletes = [event for event in history.settled if event.is_delete]
    result.counts.update(
        {
            "faults": len(history.faults),
            "sends acknowledged": sent[Outcome.OK],
            "sends unknown": sent[Outcome.UNKNOWN],
            "sends refused": sent[Outcome.REFUSED],
            "received": len(history.received),
            "deletes acknowledged": sum(event.outcome is Outcome.OK for event in deletes),
            "dead letters": len({event.key for event in history.received if event.queue == "letters"}),
            "explained duplicates": sum(explained.values()),
        }
    )
    result.notes += [
        f"received again before the visibility ended, by {name}: {count}" for name, count in explained.items()
    ]
    if not sent[Outcome.OK] or not history.faults:
        result.failure = "nothing was sent, or nothing was harmed"


TRIALS: dict[str, Trial] = {"wire": Trial(_wire, 300.0, overtime_s=600.0)}
