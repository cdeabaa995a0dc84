"""A trial of one entry that no node can fold, in one queue of a thousand: that queue stops, and nobody else notices.

poisoned-queue    1,000 queues on real processes; callers send to, receive from and delete from all of them, one after
                  the other, before, while and after one queue is sent the entry. Every call of the others is answered;
                  no process ends; `status` says so within a second, and so does the command that is typed then
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

from tests.blackbox.checkers import percentile
from tests.blackbox.raw_http import Endpoint
from tests.blackbox.stage import Stage, staged
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED

POISON = "blackbox-poison"
SETTINGS = {"PENSTOCK_BLACKBOX_POISON": POISON}
QUEUES = 1_000
MAKERS = 4
CALLERS = 8
CALL_S_MAX = 30.0
TOLD_WITHIN_S = 1.0
TOLD_S_MAX = 30.0
LOOK_S = 0.02
COMMANDS = 5


class Callers:
    """All queues but the poisoned one, in turn, each call once."""

    def __init__(self, endpoint: Endpoint, queues: list[str]) -> None:
        self._endpoint = endpoint
        self._turns = itertools.cycle(queues)
        self.seconds: list[float] = []
        self.failed: list[str] = []
        self.reached: set[str] = set()
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            await self._use(next(self._turns))

    async def _use(self, queue: str) -> None:
        path = f"/v1/queues/{queue}/messages"
        sent = await self._call(path, {"body": queue})
        given = await self._call(f"{path}/receive", {"max_messages": 10, "wait_seconds": 5})
        receipts = [message["receipt"] for message in given.get("messages", [])]
        if receipts:
            await self._call(f"{path}/ack", {"receipts": receipts})
        if sent and receipts:
            self.reached.add(queue)

    async def _call(self, path: str, content: object) -> dict[str, Any]:
        answer = await self._endpoint.post(path, content, CALL_S_MAX)
        self.seconds.append(answer.seconds)
        if answer.status not in ACCEPTED:
            self.failed.append(f"{path}: {answer.status} {answer.body[:120]!r} {answer.note}")
            return {}
        return answer.json() if answer.body else {"": ""}


async def poisoned_queue(stage: Stage, count: int, seconds: float, within_s: float, result: Result) -> None:
    endpoint = stage.endpoint()
    names = [f"q-{number}" for number in range(count)]
    await _make(endpoint, names)
    bad = names.pop(count // 2)
    pids = await asyncio.to_thread(_pids, stage)
    callers = Callers(endpoint, names)
    tasks = [asyncio.create_task(callers.run()) for _ in range(CALLERS)]
    try:
        await asyncio.sleep(seconds / 2)
        began_s, began_wall_s = time.monotonic(), time.time()
        # Its group stands in the entry as it is: bodies are encrypted.
        poisoning = asyncio.create_task(
            endpoint.post(f"/v1/queues/{bad}/messages", {"body": "x", "group": POISON}, CALL_S_MAX)
        )
        told = await _told(stage, began_s)
        seen_s = time.monotonic() - began_s
        # An operator who asks in this second: the command must say it, whatever its own start takes.
        command_s = [await asyncio.to_thread(_command_s, stage, bad)]
        callers.reached.clear()
        await asyncio.sleep(seconds / 2)
        while len(callers.reached) < len(names) and time.monotonic() < began_s + seconds + TOLD_S_MAX:
            await asyncio.sleep(LOOK_S)
        poisoned = await poisoning
    finally:
        callers.is_over = True
        await asyncio.gather(*tasks)
    stopped_s = min(row["since"] for row in told) - began_wall_s if told else TOLD_S_MAX
    command_s += [await asyncio.to_thread(_command_s, stage, bad) for _ in range(COMMANDS)]
    pids_now = await asyncio.to_thread(_pids, stage)
    status = await asyncio.to_thread(stage.installation.status)
    others = [row["tag"] for row in status["quarantined"][1:]]
    result.violations = {
        "calls of other queues failed": callers.failed,
        "queues not served after it": sorted(set(names) - callers.reached),
        "other queues stopped": others,
        "processes ended": sorted(f"{name}: {pid}" for name, pid in pids.items() if pids_now.get(name) != pid),
        "told late": [f"{seen_s:.2f} s"] if seen_s > within_s else [],
        "the entry was folded": ["yes"] if not told or poisoned.status in ACCEPTED else [],
        "not in the command": ["yes"] if 0.0 in command_s else [],
    }
    result.counts = {
        "queues": count,
        "calls of others": len(callers.seconds),
        "p99 ms": round(1_000 * percentile(callers.seconds, 0.99), 1),
        "stopped s": round(stopped_s, 2),
        "told s": round(seen_s, 2),
        "status command s": round(sorted(command_s)[COMMANDS // 2], 2),
    }


async def _make(endpoint: Endpoint, names: list[str]) -> None:
    left = iter(names)

    async def make() -> None:
        for name in left:
            made = await endpoint.post("/v1/queues", {"name": name}, CALL_S_MAX)
            assert made.status in (200, 201), f"{name}: {made.status} {made.body[:200]!r} {made.note}"

    await asyncio.gather(*(make() for _ in range(MAKERS)))


async def _told(stage: Stage, began_s: float) -> list[dict[str, Any]]:
    """What `status` says, as soon as it says something."""
    while time.monotonic() < began_s + TOLD_S_MAX:
        found: list[dict[str, Any]] = (await asyncio.to_thread(stage.installation.status))["quarantined"]
        if found:
            return found
        await asyncio.sleep(LOOK_S)
    return []


def _command_s(stage: Stage, bad: str) -> float:
    """How long the command takes that an operator calls; 0 where it does not name the queue. BLOCKING."""
    began_s = time.monotonic()
    said = stage.installation.command("status").stdout.decode()
    return time.monotonic() - began_s if f"(queue {bad} of account" in said and "QUARANTINED" in said else 0.0


def _pids(stage: Stage) -> dict[str, int]:
    return {f"{row['role']} {row['id']}": int(row["pid"]) for row in stage.installation.processes() if row["pid"]}


async def _trial(ask: Ask, result: Result) -> None:
    with staged(SETTINGS) as stage:
        await poisoned_queue(stage, QUEUES, ask.seconds, TOLD_WITHIN_S, result)


TRIALS: dict[str, Trial] = {"poisoned-queue": Trial(_trial, 60.0, overtime_s=400.0)}
