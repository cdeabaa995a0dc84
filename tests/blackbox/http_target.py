"""The second target: a whole installation, through its public HTTP API.

Values travel as REST messages. A place is the message's id, with a number where the same id is delivered for a first
time again: the front end seals a message once, and its storage client repeats what has an unknown outcome, so that a
standard queue may hold a message twice. These duplicates are counted and are no violation (at least once).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2

from tests.blackbox.checkers import ACQUIRE, DELETE, SEND, availability, check_queue, failover_times_s
from tests.blackbox.history import DRAINED, FAIL, FAULT, HEALED, OK, UNKNOWN, Event, Recorder, Value
from tests.blackbox.payload import text_of, value_of
from tests.blackbox.scenarios import BODY_BYTES, Outcome
from tests.support.installation import RunningInstallation

VISIBILITY_S = 4
WRITERS = 4
CONSUMERS = 2
BATCH = 5
RETRY_PAUSE_S = 0.05
# Slower than the consumers, so that the drain at the end is short.
SEND_PAUSE_S = 0.1
RECOVERY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 15.0
SURELY_REFUSED = range(400, 500)


class HttpBench:
    """Load over HTTP on one queue of an installation."""

    def __init__(self, installation: RunningInstallation, recorder: Recorder, rng: random.Random) -> None:
        self.installation = installation
        self.recorder = recorder
        self.rng = rng
        self.cycles = 0
        self._name, _ = installation.new_queue(VisibilityTimeout=str(VISIBILITY_S))
        key = installation.key
        headers = {"Authorization": f"Bearer {key['bearer_token']}"}
        self._http = httpx2.AsyncClient(base_url=key["endpoint"], headers=headers, timeout=REQUEST_TIMEOUT_S)
        self._writing = self._consuming = True
        self._first_deliveries: Counter[str] = Counter()

    async def run(self, cycle: Callable[[HttpBench], Awaitable[None]], seconds: float) -> None:
        writers = [asyncio.create_task(self._write(f"w{number}")) for number in range(WRITERS)]
        consumers = [asyncio.create_task(self._consume(f"c{number}")) for number in range(CONSUMERS)]
        await self.recovered()
        end = time.monotonic() + seconds
        while not self.cycles or time.monotonic() < end:
            await cycle(self)
            self.cycles += 1
        await asyncio.to_thread(self.installation.wait_healthy)
        self._writing = False
        await asyncio.gather(*writers)
        await self._drained()
        self._consuming = False
        await asyncio.gather(*consumers)
        await self._http.aclose()

    async def recovered(self) -> None:
        since_s = time.monotonic()
        while True:
            begun = {event.call for event in self._since(since_s) if event.operation == SEND and event.kind == "invoke"}
            if any(event.kind == OK and event.call in begun for event in self._since(since_s)):
                return
            if time.monotonic() > since_s + RECOVERY_TIMEOUT_S:
                raise TimeoutError(f"no send acknowledged in {RECOVERY_TIMEOUT_S:.0f} s")
            await asyncio.sleep(RETRY_PAUSE_S)

    def _since(self, since_s: float) -> list[Event]:
        return [event for event in self.recorder.events[-10_000:] if event.time_s >= since_s]

    async def _drained(self) -> None:
        """Nothing came for two leases."""
        end = time.monotonic() + DRAIN_TIMEOUT_S
        while True:
            since_s = time.monotonic() - 2 * VISIBILITY_S
            recent = [event for event in self._since(since_s) if event.operation in (ACQUIRE, SEND)]
            answered = [event for event in recent if event.operation == ACQUIRE and event.kind == OK]
            if answered and not any(event.values for event in recent):
                break
            if time.monotonic() > end:
                raise TimeoutError("the queue does not drain")
            await asyncio.sleep(0.5)
        self.recorder.mark(DRAINED, "drained", [0])

    # --- calls ------------------------------------------------------------------------------------------------

    async def _post(self, invoked: Event, action: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None after the completion was recorded by its class."""
        try:
            answer = await self._http.post(f"/v1/queues/{self._name}/messages{action}", json=body)
        except httpx2.HTTPError as error:
            refused = isinstance(error, httpx2.ConnectError)
            self.recorder.complete(invoked, FAIL if refused else UNKNOWN, note=repr(error))
            return None
        if answer.status_code != 200:
            kind = FAIL if answer.status_code in SURELY_REFUSED else UNKNOWN
            self.recorder.complete(invoked, kind, note=f"{answer.status_code} {answer.text[:200]}")
            return None
        found: dict[str, Any] = answer.json()
        return found

    async def _write(self, name: str) -> None:
        counter = 0
        while self._writing:
            values: list[Value] = [(name, counter + number) for number in range(BATCH)]
            counter += BATCH
            invoked = self.recorder.invoke(SEND, name, 0, values)
            messages = [{"body": text_of(value, BODY_BYTES)} for value in values]
            answer = await self._post(invoked, "", {"messages": messages})
            if answer is None:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            # Every message has its own outcome; one without an id is of unknown outcome and stays without completion.
            sent = [(value, row["id"]) for value, row in zip(values, answer["messages"], strict=True) if "id" in row]
            kind = OK if sent else UNKNOWN
            self.recorder.complete(invoked, kind, [value for value, _ in sent], [place for _, place in sent])
            await asyncio.sleep(SEND_PAUSE_S)

    async def _consume(self, name: str) -> None:
        while self._consuming:
            invoked = self.recorder.invoke(ACQUIRE, name, 0)
            answer = await self._post(invoked, "/receive", {"max_messages": 10, "wait_seconds": 1})
            if answer is None:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            messages = answer["messages"]
            values = [value_of(message["body"]) for message in messages]
            places = [self._place(message["id"], message["delivery_count"]) for message in messages]
            counts = " ".join(str(message["delivery_count"]) for message in messages)
            self.recorder.complete(invoked, OK, values, places, note=f"deliveries {counts}" if messages else "")
            if messages:
                await self._delete(name, values, places, [message["receipt"] for message in messages])

    def _place(self, message_id: str, delivery: int) -> str:
        """The id does not tell copies of a repeated send apart; a first delivery that was there before does."""
        if delivery == 1:
            self._first_deliveries[message_id] += 1
            copy = self._first_deliveries[message_id]
            return message_id if copy == 1 else f"{message_id}#{copy}"
        return message_id

    async def _delete(self, name: str, values: list[Value], places: list[str], receipts: list[str]) -> None:
        invoked = self.recorder.invoke(DELETE, name, 0, values)
        answer = await self._post(invoked, "/ack", {"receipts": receipts})
        if answer is not None:
            failed = {row["receipt"] for row in answer["failed"]}
            done = [index for index, receipt in enumerate(receipts) if receipt not in failed]
            self.recorder.complete(invoked, OK, [values[i] for i in done], [places[i] for i in done])


# --- faults ---------------------------------------------------------------------------------------------------


async def _kill(bench: HttpBench, role: str, number: int) -> None:
    rows = await asyncio.to_thread(bench.installation.processes, role)
    pids = [row["pid"] for row in rows if row["id"] == number]
    assert len(pids) == 1, f"{role} {number} is not in the status: {rows}"
    bench.recorder.mark(FAULT, f"kill {role}", [0], f"number {number}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[0], signal.SIGKILL)
    await bench.recovered()
    await asyncio.to_thread(bench.installation.wait_healthy)
    bench.recorder.mark(HEALED, f"kill {role}")


async def quiet(bench: HttpBench) -> None:
    await asyncio.sleep(1.0)
    await bench.recovered()


async def kill_leading_node(bench: HttpBench) -> None:
    """Our queue is the newest of the installation and has one partition: the one with the highest number."""
    rows = (await asyncio.to_thread(bench.installation.status))["partitions"]
    newest = max((row for row in rows if row["tag"].startswith("queue:")), key=lambda row: row["partition"])
    await _kill(bench, "storage-node", newest["leader"])


async def kill_front_end(bench: HttpBench) -> None:
    await _kill(bench, "frontend", 1)


SCENARIOS: dict[str, Callable[[HttpBench], Awaitable[None]]] = {
    "http-quiet": quiet,
    "http-kill-leader": kill_leading_node,
    "http-kill-front-end": kill_front_end,
}


def run_scenario(name: str, seconds: float, seed: int, history_path: Path | None = None) -> Outcome:
    """As for bare nodes: cycles until the time is over, then the verdict; everything is taken down again."""
    recorder = Recorder(history_path)
    directory = Path(tempfile.mkdtemp(prefix="penstock-blackbox-"))
    installation = RunningInstallation(directory / "data")
    started_s = time.monotonic()
    failure = ""
    bench: HttpBench | None = None
    try:
        installation.up()
        bench = HttpBench(installation, recorder, random.Random(seed))
        asyncio.run(bench.run(SCENARIOS[name], seconds))
    except (TimeoutError, AssertionError) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        installation.command("down", check=False)
        shutil.rmtree(directory, ignore_errors=True)
        recorder.close()
    windows = availability(recorder.events, 0)
    return Outcome(
        name,
        seed,
        time.monotonic() - started_s,
        bench.cycles if bench else 0,
        {"queue": check_queue(recorder.events, 0, duplicates_allowed=True)},
        failover_times_s(recorder.events, 0),
        windows.windows,
        windows.served,
        [],
        {},
        failure,
    )
