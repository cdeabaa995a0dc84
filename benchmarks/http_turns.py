"""The whole service over HTTP with SigV4, beside that of another checkout: both run, and are asked in turns.

    ./penstock bench http-turns [--beside CHECKOUT] [--rounds 5]

Each has an installation of its own (three nodes, fsync on). Every case is asked of one and the other, the first one
alternating; told are medians of the rounds, the median of their ratios, and the CPU of the front end a call. Without
CHECKOUT both are of this one: how far apart equal ones are.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.http import LONE_SENDS, MESSAGE_BYTES
from benchmarks.http_load import HttpConnection, LoadTarget, Signer, ask_sqs, cycle_until, open_connections
from benchmarks.process_cost import cpu_s
from benchmarks.report import Report, percentile
from benchmarks.temporary_installation import LAUNCHER, TemporaryInstallation

# Of calls one at a time and of cycles; sends have as many as in `http`.
CONNECTIONS = 32
SEND_CONNECTIONS = 64
ROUNDS = 5
TURN_S = 3.0
WARM_UP_S = 2.0
TEXTS = 256
BATCH = 10


class CallTurn(NamedTuple):
    """Messages a second, and the CPU of the front end and of the storage nodes a call; or two percentiles of a time."""

    figure: float
    second: float
    nodes_us: float = 0.0


class ServiceSide:
    """One of the two installations: its connections, and what its front end costs."""

    def __init__(self, installation: TemporaryInstallation) -> None:
        self._target = LoadTarget(**installation.target())
        self._signer = Signer(self._target)
        self._connections: list[HttpConnection] = []
        roles = installation.processes().items()
        self._front_end = [process.pid for name, own in roles if name.startswith("frontend") for process in own]
        self._nodes = [process.pid for name, own in roles if name.startswith("storage") for process in own]
        self._url = ""

    async def open(self) -> None:
        self._connections = await open_connections(self._target.host, self._target.port, SEND_CONNECTIONS)
        await self.new_queue(0)

    async def new_queue(self, number: int) -> None:
        """For one round: what an earlier one left is not received."""
        asked = {"QueueName": f"turns-{number}"}
        self._url = str((await ask_sqs(self._connections[0], self._signer, "CreateQueue", asked))["QueueUrl"])

    async def lone_sends(self) -> CallTurn:
        """One after the other, with nothing else going on: p50 and p99 in ms."""
        request = self._signer.request("SendMessage", json.dumps(self._send(0)).encode())
        taken_ms = []
        for _ in range(LONE_SENDS):
            began_s = time.perf_counter()
            await self._ask("SendMessage", self._connections[0], request)
            taken_ms.append((time.perf_counter() - began_s) * 1000)
        return CallTurn(percentile(taken_ms, 50), percentile(taken_ms, 99))

    async def sends(self, size: int, seconds: float = TURN_S) -> CallTurn:
        action = "SendMessage" if size == 1 else "SendMessageBatch"
        asked = [json.dumps(self._send(number) if size == 1 else self._batch(number)) for number in range(TEXTS)]
        requests = [self._signer.request(action, body.encode()) for body in asked]

        async def worker(connection: HttpConnection, ends_s: float) -> int:
            calls = 0
            while time.perf_counter() < ends_s:
                await self._ask(action, connection, requests[calls % TEXTS])
                calls += 1
            return calls * size

        return await self._measured(worker, size, seconds, SEND_CONNECTIONS)

    async def receives_and_deletes(self) -> tuple[CallTurn, CallTurn]:
        """Of what was sent before, one at a time: first one kind of call, then the other."""
        asked = {"QueueUrl": self._url, "VisibilityTimeout": 600}
        receive = self._signer.request("ReceiveMessage", json.dumps(asked).encode())
        receipts: list[str] = []

        async def take(connection: HttpConnection, ends_s: float) -> int:
            had = 0
            while time.perf_counter() < ends_s:
                answer = await self._ask("ReceiveMessage", connection, receive)
                found = [message["ReceiptHandle"] for message in json.loads(answer).get("Messages", ())]
                receipts.extend(found)
                had += len(found)
            return had

        async def remove(connection: HttpConnection, ends_s: float) -> int:
            removed = 0
            while receipts:
                asked = {"QueueUrl": self._url, "ReceiptHandle": receipts.pop()}
                await ask_sqs(connection, self._signer, "DeleteMessage", asked)
                removed += 1
            return removed

        return await self._measured(take, 1), await self._measured(remove, 1)

    async def cycles(self, size: int) -> CallTurn:
        """Send, receive and delete."""

        texts = itertools.cycle(_BODIES)

        async def worker(connection: HttpConnection, ends_s: float) -> int:
            return await cycle_until(connection, self._signer, self._url, size, partial(next, texts), ends_s)

        return await self._measured(worker, size)

    async def _measured(
        self,
        worker: Callable[[HttpConnection, float], Awaitable[int]],
        size: int,
        seconds: float = TURN_S,
        connections: int = CONNECTIONS,
    ) -> CallTurn:
        began_s, began = time.perf_counter(), self._cpu_s()
        done = sum(await asyncio.gather(*(worker(one, began_s + seconds) for one in self._connections[:connections])))
        if not done:
            raise RuntimeError("nothing was done in a turn")
        rate_s = done / (time.perf_counter() - began_s)
        spent = [(now - before) / done * size * 1e6 for now, before in zip(self._cpu_s(), began, strict=True)]
        return CallTurn(rate_s, *spent)

    @staticmethod
    async def _ask(action: str, connection: HttpConnection, request: bytes) -> bytes:
        """The body of the answer. Raises RuntimeError where it is not a success."""
        status, body = await connection.ask(request)
        if status != 200:
            raise RuntimeError(f"{action} answered {status}: {body[:300]!r}")
        return body

    def _cpu_s(self) -> tuple[float, float]:
        """Of the front end, and of all nodes."""
        return sum(map(cpu_s, self._front_end)), sum(map(cpu_s, self._nodes))

    def _send(self, number: int) -> dict[str, str]:
        return {"QueueUrl": self._url, "MessageBody": _BODIES[number % TEXTS]}

    def _batch(self, number: int) -> dict[str, object]:
        bodies = [_BODIES[(number + at) % TEXTS] for at in range(BATCH)]
        return {
            "QueueUrl": self._url,
            "Entries": [{"Id": str(at), "MessageBody": one} for at, one in enumerate(bodies)],
        }


_BODIES = [base64.b64encode(os.urandom(MESSAGE_BYTES * 3 // 4)).decode() for _ in range(TEXTS)]
_LONE = "one send at a time"
_SENDS, _TENS = "SendMessage", "SendMessageBatch, ten"
_RECEIVES, _DELETES = "ReceiveMessage, one at a time", "DeleteMessage"
_CYCLES, _CYCLES_OF_TEN = "send + receive + delete, one at a time", "the same in batches of ten"
_CASES = (_LONE, _SENDS, _RECEIVES, _DELETES, _TENS, _CYCLES, _CYCLES_OF_TEN)
RoundTurns = dict[str, list[CallTurn]]


async def one_round(sides: list[ServiceSide], turns: list[RoundTurns], number: int) -> None:
    """Every case, of one and the other; the first one alternates."""
    order = [0, 1] if number % 2 == 0 else [1, 0]
    for at in order:
        await sides[at].new_queue(3 * number + 1)
        turns[at][_LONE].append(await sides[at].lone_sends())
    for at in order:
        turns[at][_SENDS].append(await sides[at].sends(1))
    for at in order:
        receives, deletes = await sides[at].receives_and_deletes()
        turns[at][_RECEIVES].append(receives)
        turns[at][_DELETES].append(deletes)
    for at in order:
        await sides[at].new_queue(3 * number + 2)
        turns[at][_TENS].append(await sides[at].sends(BATCH))
    for case, size in ((_CYCLES, 1), (_CYCLES_OF_TEN, BATCH)):
        for at in order:
            await sides[at].new_queue(3 * number + 3)
            turns[at][case].append(await sides[at].cycles(size))


def tell(report: Report, theirs: RoundTurns, ours: RoundTurns) -> None:
    for case in _CASES:
        units = ("ms, p50", "ms, p99") if case == _LONE else ("msg/s", "us of the front end a call", "us of the nodes")
        for place, unit in enumerate(units):
            before, after = [one[place] for one in theirs[case]], [one[place] for one in ours[case]]
            report.add(f"{case}, there", statistics.median(before), unit)
            report.add(f"{case}, here", statistics.median(after), unit)
            ratios = [new / old for new, old in zip(after, before, strict=True)]
            report.add(f"  here to there, median of the rounds ({unit})", statistics.median(ratios), "ratio")
            report.add(f"  here to there, least ({unit})", min(ratios), "ratio")
            report.add(f"  here to there, greatest ({unit})", max(ratios), "ratio")


async def run(report: Report, beside: Path, rounds: int) -> None:
    with ExitStack() as running:
        started = [running.enter_context(TemporaryInstallation(launcher)) for launcher in (beside, LAUNCHER)]
        sides = [ServiceSide(installation) for installation in started]
        for side in sides:
            await side.open()
            await side.sends(1, WARM_UP_S)
        turns: list[RoundTurns] = [{case: [] for case in _CASES} for _ in sides]
        for number in range(rounds):
            sys.stderr.write(f"round {number + 1} of {rounds}\n")
            await one_round(sides, turns, number)
        tell(report, *turns)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./penstock bench http-turns")
    parser.add_argument("--beside", type=Path, default=LAUNCHER.parent, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    report = Report("http-turns")
    uvloop.run(run(report, options.beside.resolve() / LAUNCHER.name, options.rounds))
    report.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
