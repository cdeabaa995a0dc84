"""Trials of servers that go away: PostgreSQL or Valkey, for minutes, while messages go on (docs/guarantees.md).

postgres-away    PostgreSQL is gone. Two front ends, one restarted meanwhile; accounts that were used there before
                 (warm) and accounts that were not (cold). No send, receive or delete may fail
postgres-hangs   the same, and PostgreSQL takes connections but answers nothing
valkey-away      Valkey is gone. Queues are made within 2 s, schedules fire
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.blackbox.checkers import percentile
from tests.blackbox.faults.servers import Postgres, Valkey
from tests.blackbox.raw_http import Answer, Endpoint
from tests.blackbox.stage import READY_TIMEOUT_S, FrontEnd, Stage, second_front_end, serves, until
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED, judge_after

WARM_ACCOUNTS = 2
# One is touched for the first time at each of so many moments, on each front end.
COLD_ACCOUNTS = 6
ROUND_PAUSE_S = 0.1
BEFORE_S = 20.0
AFTER_DELAY_S = 1.0
AFTER_S = 10.0
RESTART_AT_SHARE = 0.4
CONTROL_EVERY_S = 10.0
CONTROL_WITHIN_S = 1.0
READY_EVERY_S = 2.0
P99_FACTOR = 2.0
CALL_TIMEOUT_S = 20.0
CREATE_EVERY_S = 2.0
CREATE_WITHIN_S = 2.0
TICK_S = 5
TICK_LATE_S_MAX = 5.0


class Caller:
    """One account on one front end: sends, receives, deletes, again and again."""

    def __init__(self, name: str, endpoint: Endpoint, queue: str) -> None:
        self.name = name
        self.endpoint = endpoint
        self.queue = queue
        self.sends: list[tuple[float, float]] = []  # when it began, seconds it took; those that were accepted
        self.failed: list[str] = []
        self.calls = 0

    async def run(self, stop: asyncio.Event, excused: set[int]) -> None:
        """Until told; a front end that is just being restarted (its port is in `excused`) is not called."""
        while not stop.is_set():
            if self.endpoint.port not in excused:
                await self.round(excused)
            await asyncio.sleep(ROUND_PAUSE_S)

    async def round(self, excused: set[int]) -> None:
        sent = await self._call("", {"body": f"{self.name} {self.calls}"}, excused)
        if sent is not None:
            self.sends.append((sent.began_s, sent.seconds))
        got = await self._call("/receive", {"max_messages": 10, "wait_seconds": 0}, excused)
        if got is None:
            return
        receipts = [message["receipt"] for message in got.json()["messages"]]
        if receipts:
            done = await self._call("/ack", {"receipts": receipts}, excused)
            if done is not None and done.json()["failed"]:
                self.failed.append(f"{self.name} delete: {done.json()['failed'][0]}")

    async def _call(self, action: str, content: object, excused: set[int]) -> Answer | None:
        self.calls += 1
        path = f"/v1/queues/{self.queue}/messages{action}"
        answer = await self.endpoint.post(path, content, timeout_s=CALL_TIMEOUT_S)
        if answer.status in ACCEPTED:
            return answer
        if self.endpoint.port not in excused:
            words = answer.body[:160].decode(errors="replace") or answer.note
            self.failed.append(f"{self.name} {action or '/send'}: {answer.status} after {answer.seconds:.1f} s {words}")
        return None


class Watch:
    """What a front end says of itself, and how control calls are answered meanwhile."""

    def __init__(self) -> None:
        self.ready: defaultdict[int, int] = defaultdict(int)
        self.degraded = 0
        self.controls: list[Answer] = []

    async def look(self, endpoint: Endpoint, stop: asyncio.Event, excused: set[int]) -> None:
        while not stop.is_set():
            if endpoint.port not in excused:
                answer = await endpoint.call("GET", "/readyz", timeout_s=5.0)
                self.ready[answer.status] += 1
                self.degraded += b"degraded" in answer.body
            await asyncio.sleep(READY_EVERY_S)

    async def control(self, endpoint: Endpoint, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = {"name": f"meanwhile-{number}"}
            self.controls.append(await endpoint.post("/v1/queues", name, timeout_s=CALL_TIMEOUT_S))
            await asyncio.sleep(CONTROL_EVERY_S)

    def judge(self) -> dict[str, list[str]]:
        late = [answer for answer in self.controls if answer.seconds > CONTROL_WITHIN_S]
        told = [(answer.status, answer.headers.get("retry-after", "")) for answer in self.controls]
        wrong = [(status, after) for status, after in told if status != 503 or not after]
        return {
            "not ready": [f"{count} times {status}" for status, count in self.ready.items() if status != 200],
            "does not say degraded": [] if self.degraded else ["/readyz never says it"],
            "control calls late": [f"{answer.status} after {answer.seconds:.1f} s" for answer in late],
            "control calls not 503 with Retry-After": [f"{status} {after or 'without'}" for status, after in wrong],
        }


async def _callers(stage: Stage, ports: tuple[int, int]) -> tuple[list[Caller], dict[int, list[Caller]]]:
    """Warm callers; and cold ones by front end, whose queues were made through the other one."""
    warm, cold = [], {port: [] for port in ports}  # type: ignore[var-annotated]
    for number in range(WARM_ACCOUNTS):
        key = await stage.new_key(f"warm-{number}")
        queue = await stage.new_queue(stage.endpoint(ports[0], key))
        warm += [Caller(f"warm-{number}@{port}", stage.endpoint(port, key), queue) for port in ports]
    for number in range(COLD_ACCOUNTS):
        key = await stage.new_key(f"cold-{number}")
        port, other = ports if number % 2 else ports[::-1]
        queue = await stage.new_queue(stage.endpoint(other, key))
        cold[port].append(Caller(f"cold-{number}@{port}", stage.endpoint(port, key), queue))
    return warm, cold


async def postgres_away(hang: bool, ask: Ask, result: Result) -> None:
    server = Postgres(Path(tempfile.mkdtemp(prefix="penstock-blackbox-")) / "postgres")
    server.start()
    server.make_database()
    stage = Stage({"DATABASE_URL": server.url})
    try:
        stage.up()
        async with second_front_end(stage) as second:
            ports = (stage.installation.port, second.port)
            await _postgres_away(server, hang, stage, second, ports, ask, result)
    finally:
        stage.close()
        server.stop()
        shutil.rmtree(server.directory.parent, ignore_errors=True)


async def _postgres_away(
    server: Postgres, hang: bool, stage: Stage, second: FrontEnd, ports: tuple[int, int], ask: Ask, result: Result
) -> None:
    warm, cold = await _callers(stage, ports)
    stop, excused, watch = asyncio.Event(), set[int](), Watch()
    tasks = [asyncio.create_task(caller.run(stop, excused)) for caller in warm]
    before_s = time.monotonic()
    await asyncio.sleep(BEFORE_S)
    failed_before = [text for caller in warm for text in caller.failed]
    gone_s = time.monotonic()
    await asyncio.to_thread(server.freeze if hang else server.stop)
    away = asyncio.Event()
    watching = [asyncio.create_task(watch.look(stage.endpoint(port), away, excused)) for port in ports]
    watching.append(asyncio.create_task(watch.control(stage.endpoint(ports[0]), away)))
    touched: list[Caller] = []
    restarted = False
    while (passed_s := time.monotonic() - gone_s) < ask.seconds:
        share = passed_s / ask.seconds
        if not restarted and share >= RESTART_AT_SHARE:
            restarted = True
            await _restart(stage, second, excused)
        due = [one for callers in cold.values() for at, one in enumerate(callers) if share >= at / len(callers)]
        for caller in due:
            if caller not in touched:
                touched.append(caller)
                tasks.append(asyncio.create_task(caller.run(stop, excused)))
        await asyncio.sleep(0.1)
    away.set()
    await asyncio.gather(*watching)
    await asyncio.to_thread(server.unfreeze if hang else server.start)
    back_s = time.monotonic()
    await asyncio.sleep(AFTER_DELAY_S + AFTER_S)
    stop.set()
    await asyncio.gather(*tasks)
    await until(lambda: _creates(stage.endpoint(ports[0])), READY_TIMEOUT_S, "a queue made after its return")
    callers = [*warm, *touched]
    before = [took for caller in warm for at, took in caller.sends if before_s + 5.0 <= at < gone_s]
    after_from = back_s + AFTER_DELAY_S
    after = [took for caller in warm for at, took in caller.sends if after_from <= at < after_from + AFTER_S]
    result.violations = {
        "failed before": failed_before,
        "failed calls": [text for caller in callers for text in caller.failed][len(failed_before) :],
        "never used": [caller.name for caller in callers if not caller.sends],
        **watch.judge(),
        **judge_after(before, after, P99_FACTOR),
    }
    result.counts = {
        "away s": ask.seconds,
        "callers": len(callers),
        "calls": sum(caller.calls for caller in callers),
        "p99 before ms": round(percentile(before, 0.99) * 1000, 1),
        "p99 after ms": round(percentile(after, 0.99) * 1000, 1),
        "control calls": len(watch.controls),
        "slowest control s": round(max((one.seconds for one in watch.controls), default=0.0), 2),
    }


async def _restart(stage: Stage, second: FrontEnd, excused: set[int]) -> None:
    """Stopped and started again: it knows nobody but what the metadata service tells it."""
    excused.add(second.port)
    await asyncio.to_thread(second.stop)
    second.start()
    await until(lambda: serves(stage.endpoint(second.port)), READY_TIMEOUT_S, "front end after its restart")
    excused.discard(second.port)


async def _creates(endpoint: Endpoint) -> bool:
    answer = await endpoint.post("/v1/queues", {"name": "afterwards"}, timeout_s=CALL_TIMEOUT_S)
    return answer.status in ACCEPTED


# --- Valkey ---------------------------------------------------------------------------------------------------


async def valkey_away(ask: Ask, result: Result) -> None:
    server = Valkey(Path(tempfile.mkdtemp(prefix="penstock-blackbox-")) / "valkey")
    server.start()
    stage = Stage({"CELERY_BROKER_URL": server.url})
    try:
        stage.up()
        await _valkey_away(server, stage, ask, result)
    finally:
        stage.close()
        server.stop()
        shutil.rmtree(server.directory.parent, ignore_errors=True)


async def _valkey_away(server: Valkey, stage: Stage, ask: Ask, result: Result) -> None:
    endpoint = stage.endpoint()
    ticking = await stage.new_queue(endpoint)
    schedule = {"name": "often", "cron": f"*/{TICK_S} * * * * *", "body": "tick"}
    made = await endpoint.post(f"/v1/queues/{ticking}/schedules", schedule)
    assert made.status in ACCEPTED, f"schedule: {made.status} {made.body[:200]!r}"
    ticks: list[float] = []
    stop = asyncio.Event()
    listening = asyncio.create_task(_listen(endpoint, ticking, ticks, stop))
    await asyncio.sleep(3 * TICK_S)
    assert ticks, "the schedule does not fire with everything there"
    await asyncio.to_thread(server.stop)
    gone_s = time.monotonic()
    creates: list[Answer] = []
    others: list[Answer] = []
    number = 0
    while time.monotonic() - gone_s < ask.seconds:
        number += 1
        path = f"/v1/queues/away-{number}"
        creates.append(await endpoint.post("/v1/queues", {"name": f"away-{number}"}, timeout_s=CALL_TIMEOUT_S))
        if creates[-1].status in ACCEPTED:
            others.append(await endpoint.post(f"{path}/messages", {"body": "used"}, timeout_s=CALL_TIMEOUT_S))
            settings = json.dumps({"visibility_timeout_seconds": 45}).encode()
            others.append(await endpoint.call("PATCH", path, settings, timeout_s=CALL_TIMEOUT_S))
            others.append(await endpoint.call("DELETE", path, timeout_s=CALL_TIMEOUT_S))
        await asyncio.sleep(CREATE_EVERY_S)
    back_s = time.monotonic()
    await asyncio.to_thread(server.start)
    await asyncio.sleep(2 * TICK_S)
    stop.set()
    await listening
    during = [at for at in ticks if gone_s < at < back_s]
    gaps = [later - earlier for earlier, later in itertools.pairwise(ticks)]
    slow = percentile([one.seconds for one in creates], 0.99)
    result.violations = {
        "queues not made": _refused(creates),
        "CreateQueue slow": [f"p99 {slow:.2f} s"] if slow > CREATE_WITHIN_S else [],
        "other calls failed": _refused(others),
        "schedule late": [f"{gap:.1f} s without a tick" for gap in gaps if gap > TICK_S + TICK_LATE_S_MAX],
    }
    expected = int((back_s - gone_s) / TICK_S)
    if len(during) < expected - 1:
        result.violations["ticks missing"] = [f"{len(during)} of {expected}"]
    result.counts = {
        "away s": ask.seconds,
        "CreateQueue": len(creates),
        "p99 s": round(slow, 2),
        "ticks": len(during),
        "ticks due": expected,
        "longest without a tick s": round(max(gaps, default=0.0), 1),
    }


def _refused(answers: list[Answer]) -> list[str]:
    refused = [one for one in answers if one.status not in ACCEPTED]
    return [f"{one.status} after {one.seconds:.1f} s {one.body[:120]!r}" for one in refused]


async def _listen(endpoint: Endpoint, queue: str, ticks: list[float], stop: asyncio.Event) -> None:
    while not stop.is_set():
        path = f"/v1/queues/{queue}/messages"
        got = await endpoint.post(f"{path}/receive", {"max_messages": 10, "wait_seconds": 2}, timeout_s=CALL_TIMEOUT_S)
        messages = got.json()["messages"] if got.status in ACCEPTED else []
        ticks += [time.monotonic()] * len(messages)
        if messages:
            await endpoint.post(f"{path}/ack", {"receipts": [message["receipt"] for message in messages]})
        elif got.status not in ACCEPTED:
            await asyncio.sleep(0.2)


def _postgres_trial(hang: bool) -> Trial:
    async def run(ask: Ask, result: Result) -> None:
        await postgres_away(hang, ask, result)

    return Trial(run, seconds=600.0)


TRIALS: dict[str, Trial] = {
    "postgres-away": _postgres_trial(hang=False),
    "postgres-hangs": _postgres_trial(hang=True),
    "valkey-away": Trial(valkey_away, seconds=600.0),
}
