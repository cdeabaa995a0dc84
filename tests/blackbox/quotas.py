"""Trials of quotas on two front ends, and of keys that nobody made.

ten-times       one account asks both front ends for ten times its quota: it gets its quota within a tenth, in all, and
                a neighbour that keeps within its own loses less than a tenth of what it gets alone
invented-keys   1,000 keys a second that do not exist, with right checksums, from many addresses: how often PostgreSQL
                is read for keys, and whether an account that exists is served meanwhile

Who asks is a process of its own each, and asks at times that are fixed beforehand, whatever is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psycopg

from frontend.authn.tokens import mint_key
from frontend.limits import UNKNOWN_KEYS_PER_S
from tests.blackbox.checkers import percentile
from tests.blackbox.faults.servers import Postgres
from tests.blackbox.raw_http import Endpoint
from tests.blackbox.stage import Stage, second_front_end
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED

QUOTA_PER_S = 50
TIMES = 10
NEIGHBOUR_PER_S = 25
# The burst of a rate is over, and the shares of the front ends have settled.
SETTLED_S = 10.0
WITHIN = 0.1
# A client that was too slow has shown nothing.
ASKED_LEAST = 0.8
CALL_TIMEOUT_S = 15.0
START_S = 3.0

INVENTED_PER_S = 1_000
ADDRESSES = 200
# One read of PostgreSQL for each look-up that a front end lets through, at most. What is read anyway is taken off.
READS_PER_S_MAX = float(UNKNOWN_KEYS_PER_S)
SERVED_WITHIN_S = 1.0
FLUSHED_S = 2.0
KEY_READS = "SELECT coalesce(sum(seq_scan + idx_scan), 0) FROM pg_stat_user_tables WHERE relname = 'access_key'"


class Outcome(NamedTuple):
    """One call: when it was to begin, counted from the begin of all, how it was answered, and how long that took.
    `note`: why there was no answer."""

    at_s: float
    status: int
    seconds: float
    note: str = ""


class Caller(NamedTuple):
    """Sends to a queue, at both front ends in turns, so many times a second. `addresses`: loopback's, that it calls
    from; with `is_invented` under a new key each time."""

    endpoints: tuple[Endpoint, ...]
    queue: str
    per_s: float
    addresses: int = 0
    is_invented: bool = False


class FromAddress(Endpoint):
    """Calls from one address of loopback, under a key that nobody made."""

    def __init__(self, port: int, source: str) -> None:
        super().__init__(port, "", source=source)

    def invent(self) -> None:
        self.token = mint_key().bearer_token


def call_apart(caller: Caller, begin_s: float, seconds: float) -> list[Outcome]:
    """In a process of its own; `begin_s` is of the machine's monotonic clock, which all processes share."""
    outcomes: list[Outcome] = []
    path = f"/v1/queues/{caller.queue}/messages"

    async def one(endpoint: Endpoint, at_s: float) -> None:
        if isinstance(endpoint, FromAddress):
            endpoint.invent()
        answer = await endpoint.post(path, {"body": "x"}, CALL_TIMEOUT_S)
        outcomes.append(Outcome(at_s, answer.status, answer.seconds, answer.note))

    async def run() -> None:
        endpoints: Sequence[Endpoint] = caller.endpoints
        if caller.is_invented:
            ports = itertools.cycle(endpoint.port for endpoint in endpoints)
            endpoints = [FromAddress(next(ports), f"127.1.{n // 250}.{n % 250 + 1}") for n in range(caller.addresses)]
        turns = itertools.cycle(endpoints)
        tasks = set()
        for number in range(int(seconds * caller.per_s)):
            at_s = number / caller.per_s
            await asyncio.sleep(begin_s + at_s - time.monotonic())
            tasks.add(task := asyncio.create_task(one(next(turns), at_s)))
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        for endpoint in endpoints:
            await endpoint.close()

    asyncio.run(run())
    return outcomes


async def call_together(callers: Sequence[Caller], seconds: float) -> list[list[Outcome]]:
    """What each was answered."""
    begin_s = time.monotonic() + START_S
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(callers), mp_context=context) as processes:
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(processes, call_apart, one, begin_s, seconds) for one in callers]
        return await asyncio.gather(*running)


def rate_of(outcomes: Sequence[Outcome], seconds: float, *more: int) -> float:
    """Calls a second that were accepted, or answered with one of `more`, of those that begin after SETTLED_S."""
    passed = [one for one in outcomes if one.at_s >= SETTLED_S and (one.status in ACCEPTED or one.status in more)]
    return len(passed) / (seconds - SETTLED_S)


def judge_shares(
    greedy_per_s: float, asked_per_s: float, alone_per_s: float, beside_per_s: float
) -> dict[str, list[str]]:
    """Violations of `ten-times`."""
    wrong = abs(greedy_per_s - QUOTA_PER_S) > WITHIN * QUOTA_PER_S
    enough = asked_per_s >= ASKED_LEAST * TIMES * QUOTA_PER_S
    lost = beside_per_s < (1 - WITHIN) * alone_per_s or not alone_per_s
    return {
        "not its quota": [f"{greedy_per_s:.1f} of {QUOTA_PER_S} a second"] if wrong else [],
        "did not ask enough": [] if enough else [f"{asked_per_s:.0f} a second"],
        "neighbour lost": [f"{beside_per_s:.1f} a second, alone {alone_per_s:.1f}"] if lost else [],
    }


def odd_statuses(outcomes: Sequence[Outcome], expected: Sequence[int]) -> list[str]:
    """What was answered otherwise than expected, and how often; LOST is no answer, and says why."""
    found = Counter((one.status, one.note) for one in outcomes if one.status not in expected)
    return [f"{count} times {status} {note}".rstrip() for (status, note), count in sorted(found.items())]


async def ten_times(stage: Stage, seconds: float, result: Result) -> None:
    """On an installation that runs."""
    greedy_key, own_key = await stage.new_key("greedy"), await stage.new_key("neighbour")
    quota = f"requests_per_s={QUOTA_PER_S}"
    await asyncio.to_thread(stage.installation.command, "quotas", "set", "--account", "greedy", quota)
    async with second_front_end(stage) as second:
        ports = (stage.installation.port, second.port)
        queues = [await stage.new_queue(stage.endpoint(key=key)) for key in (greedy_key, own_key)]
        greedy = Caller(tuple(stage.endpoint(port, greedy_key) for port in ports), queues[0], TIMES * QUOTA_PER_S)
        own = Caller(tuple(stage.endpoint(port, own_key) for port in ports), queues[1], NEIGHBOUR_PER_S)
        alone_s = (seconds + SETTLED_S) / 2
        (alone,) = await call_together([own], alone_s)
        crowd, beside = await call_together([greedy, own], seconds)
    rates = {
        "asked a second": rate_of(crowd, seconds, 429),
        "got a second": rate_of(crowd, seconds),
        "neighbour alone a second": rate_of(alone, alone_s),
        "neighbour beside a second": rate_of(beside, seconds),
    }
    asked, got, alone_per_s, beside_per_s = rates.values()
    result.violations |= judge_shares(got, asked, alone_per_s, beside_per_s)
    result.violations |= {
        "answered otherwise": odd_statuses(crowd, (*ACCEPTED, 429)) + odd_statuses(beside, ACCEPTED),
    }
    result.counts |= {name: round(value, 1) for name, value in rates.items()}
    result.counts |= {"quota": QUOTA_PER_S}


async def invented_keys(stage: Stage, url: str, seconds: float, result: Result) -> None:
    """On an installation that runs, with PostgreSQL at `url`."""
    key = await stage.new_key("known")
    endpoint = stage.endpoint(key=key)
    queue = await stage.new_queue(endpoint)
    own = Caller((stage.endpoint(key=key),), queue, NEIGHBOUR_PER_S)
    invented = Caller((stage.endpoint(key=key),), queue, INVENTED_PER_S, ADDRESSES, is_invented=True)
    reads = [await asyncio.to_thread(_key_reads, url)]
    await call_together([own], seconds)
    reads.append(await asyncio.to_thread(_key_reads, url))
    crowd, beside = await call_together([invented, own], seconds)
    reads.append(await asyncio.to_thread(_key_reads, url))
    await endpoint.close()
    usual, beyond = ((after - before) / (seconds + START_S) for before, after in itertools.pairwise(reads))
    slow_s = percentile([one.seconds for one in beside], 0.99)
    asked_per_s = len(crowd) / seconds
    refused = Counter(one.status for one in crowd)
    result.violations |= {
        "read too often": [f"{beyond - usual:.0f} a second"] if beyond - usual > READS_PER_S_MAX else [],
        "was let in": [f"{count} times {status}" for status, count in refused.items() if status in ACCEPTED],
        "answered otherwise": odd_statuses(crowd, (*ACCEPTED, 401, 429)) + odd_statuses(beside, ACCEPTED),
        "known key slow": [f"p99 {slow_s:.2f} s"] if not slow_s <= SERVED_WITHIN_S else [],
        "nothing was looked up": [] if refused[401] else ["no 401"],
        "did not ask enough": [] if asked_per_s >= ASKED_LEAST * INVENTED_PER_S else [f"{asked_per_s:.0f} a second"],
    }
    result.counts |= {
        "invented a second": round(asked_per_s),
        "looked up a second": round(refused[401] / seconds, 1),
        "reads a second": round(beyond, 1),
        "reads a second without": round(usual, 1),
        "p99 ms of a known key": round(slow_s * 1000, 1),
    }


def _key_reads(url: str) -> float:
    time.sleep(FLUSHED_S)  # sessions tell what they counted a little later
    with psycopg.connect(url) as connection:
        row = connection.execute(KEY_READS).fetchone()
    assert row is not None
    return float(row[0])


async def _ten_times(ask: Ask, result: Result) -> None:
    stage = Stage()
    try:
        await asyncio.to_thread(stage.up)
        await ten_times(stage, ask.seconds, result)
    finally:
        await asyncio.to_thread(stage.close)


async def _invented_keys(ask: Ask, result: Result) -> None:
    server = Postgres(Path(tempfile.mkdtemp(prefix="penstock-blackbox-")) / "postgres")
    stage = Stage({"DATABASE_URL": server.url})
    try:
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.make_database)
        await asyncio.to_thread(stage.up)
        await invented_keys(stage, server.url, ask.seconds, result)
    finally:
        await asyncio.to_thread(stage.close)
        await asyncio.to_thread(server.stop)
        shutil.rmtree(server.directory.parent, ignore_errors=True)


TRIALS: dict[str, Trial] = {
    "ten-times": Trial(_ten_times, seconds=40.0),
    "invented-keys": Trial(_invented_keys, seconds=20.0),
}
