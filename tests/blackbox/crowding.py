"""A trial of one account that takes of every shared place all that it can get: a neighbour must not notice.

one-account   searches of the message browser, readers that do not read, long polls, move tasks, and comparisons of
              definitions of one account, more of each than it gets; the calls of another account, one after the other,
              each within a second at p99.
              These are made and timed by a process of their own, as are the polls: a crowd keeps the one that makes it
              busy, and a client that cannot follow would not be answered by the best of servers
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from frontend.limits import FILES_KEPT
from tests.blackbox.checkers import percentile
from tests.blackbox.raw_http import Answer, Endpoint
from tests.blackbox.stage import Stage, core_time
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED

CALL_TIMEOUT_S = 30.0
P99_WITHIN_S = 1.0
# What a client hears that asks for more than its share, or than there is.
REFUSED = (429, 503)
PAUSE_S = 0.2
POLL_S = 20
# From the moment on at which it is asked: what a crowded client of this size needs besides the wait.
POLL_TIMEOUT_S = POLL_S + 60.0
# Beyond its share of polls the account is refused at once; then it comes again.
REFUSED_PAUSE_S = 15.0
POLL_PROCESSES = 2
POLLS_BEGUN_PER_S = 500
NEIGHBOUR_PAUSE_S = 0.02
# The crowd outlasts the neighbour's calls by this: a process has to start, and its last call to end.
SETTLED_S = 10.0
BODY = "x" * 2_000
BATCH = 50
# At a message a second a move task lasts for the whole trial.
MOVED_MESSAGES = 200
# A document that the control plane compares for seconds, near the largest body that it takes.
COMPARED_QUEUES = 200
COMPARED_STATEMENTS = 8
# Descriptors that the polls and readers leave for everything else, here and in the front end, which keeps some back.
SPARE_FILES = 500


class Crowd(NamedTuple):
    """How many of each the account has open at a time."""

    searches: int = 8
    readers: int = 128
    polls: int = 20_000
    moves: int = 100
    comparisons: int = 20
    messages: int = 2_000

    def that_fits(self) -> Crowd:
        """Each poll and reader takes a descriptor of the front end, which has as many as this process may have."""
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self
        return self._replace(polls=min(self.polls, max(files - FILES_KEPT - SPARE_FILES - self.readers, 1)))

    @property
    def ramp_s(self) -> float:
        """How long it takes until every poll was begun."""
        return self.polls / POLLS_BEGUN_PER_S


class Greedy:
    """The account that takes all. Every answer of its own is counted, none is judged but those of 500."""

    def __init__(self, stage: Stage, endpoint: Endpoint, crowd: Crowd) -> None:
        self.statuses: Counter[str] = Counter()
        self._stage = stage
        self._endpoint = endpoint
        self._crowd = crowd
        self._queue = ""
        self._definitions = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._processes = ProcessPoolExecutor(POLL_PROCESSES, mp_context=multiprocessing.get_context("spawn"))
        self._polls: list[asyncio.Future[Counter[str]]] = []

    async def prepare(self) -> None:
        self._queue = await self._stage.new_queue(self._endpoint)
        account = await self._endpoint.call("GET", "/v1/account")
        self._definitions = definitions_of(account.json()["account_id"])
        for _ in range(self._crowd.messages // BATCH):
            messages = {"messages": [{"body": BODY}] * BATCH}
            sent = await self._endpoint.post(f"/v1/queues/{self._queue}/messages", messages, CALL_TIMEOUT_S)
            assert sent.status in ACCEPTED, f"send: {sent.status} {sent.body[:200]!r}"
        for number in range(self._crowd.moves):
            await self._prepare_move(number)

    async def _prepare_move(self, number: int) -> None:
        """Only out of a dead-letter queue are messages moved."""
        letters = {"name": f"letters-{number}"}
        rule = {"dead_letter_queue": {**letters, "max_receives": 3}}
        for path, content in (
            ("/v1/queues", letters),
            ("/v1/queues", {"name": f"source-{number}", **rule}),
            (f"/v1/queues/letters-{number}/messages", {"messages": [{"body": "x"}] * MOVED_MESSAGES}),
        ):
            made = await self._endpoint.post(path, content, CALL_TIMEOUT_S)
            assert made.status in ACCEPTED, f"{path}: {made.status} {made.body[:200]!r}"

    async def begin(self, seconds: float) -> None:
        """For so long. Returns when every poll was begun."""
        loop = asyncio.get_running_loop()
        for number in range(POLL_PROCESSES):
            mine = range(number, self._crowd.polls, POLL_PROCESSES)
            crowd = (self._fresh(), self._queue, [one / POLLS_BEGUN_PER_S for one in mine], seconds)
            self._polls.append(loop.run_in_executor(self._processes, poll_apart, *crowd))
        for count, work in (
            (self._crowd.searches, self._search),
            (self._crowd.readers, self._read_nothing),
            (self._crowd.comparisons, self._compare),
        ):
            self._tasks += [asyncio.create_task(self._again(work)) for _ in range(count)]
        self._tasks.append(asyncio.create_task(self._move()))
        await asyncio.sleep(self._crowd.ramp_s)

    async def end(self) -> None:
        """Waits until the polls have ended, by themselves."""
        for found in await asyncio.gather(*self._polls):
            self.statuses += found
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._processes.shutdown()
        await self._endpoint.close()

    def _fresh(self) -> Endpoint:
        return Endpoint(self._endpoint.port, self._endpoint.token, self._endpoint.host)

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await work()
            await asyncio.sleep(PAUSE_S)

    async def _post(self, what: str, path: str, content: object) -> Answer:
        answer = await self._endpoint.post(f"/v1/queues/{self._queue}/{path}", content, CALL_TIMEOUT_S)
        self.statuses[f"{what} {answer.status}"] += 1
        return answer

    async def _search(self) -> None:
        await self._post("search", "messages/find", {"filter": {"body_contains": "is not there"}, "limit": 5})

    async def _compare(self) -> None:
        path = "/v1/definitions/comparison"
        answer = await self._endpoint.call("POST", path, self._definitions, CALL_TIMEOUT_S)
        self.statuses[f"comparison {answer.status}"] += 1

    async def _read_nothing(self) -> None:
        """Asks for a page of messages, and reads none of the answer."""
        body = json.dumps({"limit": 100}).encode()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(self._endpoint.host, self._endpoint.port, limit=1024)
            try:
                head = self._endpoint.head("POST", f"/v1/queues/{self._queue}/messages/peek", len(body))
                writer.write((head + body) * 20)
                self.statuses["reader"] += 1
                await asyncio.sleep(CALL_TIMEOUT_S)
            finally:
                writer.close()

    async def _move(self) -> None:
        """One move task after the other is started, each of a queue of its own. All of them go on."""
        asked = {"destination": self._queue, "messages_per_second": 1}
        for number in range(self._crowd.moves):
            answer = await self._endpoint.post(f"/v1/queues/letters-{number}/moves", asked, CALL_TIMEOUT_S)
            self.statuses[f"move {answer.status}"] += 1

    def never_got(self) -> list[str]:
        """What the account did not get a single one of: then the trial says nothing about it."""
        got = ("search 200", "poll 200", "reader", "move 201", "comparison 200")
        return [what for what in got if not self.statuses[what]]


def definitions_of(account_id: str) -> bytes:
    """A document of many queues, each with a policy of its own."""
    statement = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sqs:SendMessage", "Resource": "*"}
    source = {"ArnLike": {"aws:SourceArn": "arn:aws:sqs:*:*:" + "a" * 20}}
    statements = [{"Sid": f"s{one}", **statement, "Condition": source} for one in range(COMPARED_STATEMENTS)]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    tags = {f"t{one}": "v" * 200 for one in range(5)}
    queues = [
        {"name": f"compared-{one}", "attributes": {"Policy": policy}, "tags": tags} for one in range(COMPARED_QUEUES)
    ]
    document = {"format": "penstock.definitions/1", "account_id": account_id, "queues": queues, "policies": []}
    return json.dumps(document).encode()


def poll_apart(endpoint: Endpoint, queue: str, begins_s: list[float], seconds: float) -> Counter[str]:
    """Long polls, in a process of their own: when each is begun, and how they were answered. The queue's messages are
    in flight, behind a long visibility: most polls wait."""
    statuses: Counter[str] = Counter()
    path = f"/v1/queues/{queue}/messages/receive"
    asked = {"max_messages": 1, "wait_seconds": POLL_S, "visibility_seconds": 600}

    async def poll(begin_s: float) -> None:
        await asyncio.sleep(begin_s)
        while True:
            answer = await endpoint.post(path, asked, POLL_TIMEOUT_S)
            statuses[f"poll {answer.status}"] += 1
            await asyncio.sleep(PAUSE_S if answer.status in ACCEPTED else REFUSED_PAUSE_S)

    async def run() -> None:
        tasks = [asyncio.create_task(poll(begin_s)) for begin_s in begins_s]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await endpoint.close()

    asyncio.run(run())
    return statuses


class Neighbour:
    """The other account: peek, poll and CreateQueue in turns, and how long each took."""

    CALLS = ("peek", "poll", "CreateQueue")

    def __init__(self, endpoint: Endpoint, queue: str) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in self.CALLS}
        self.failed: list[str] = []
        self._endpoint = endpoint
        self._queue = queue

    async def run(self, until_s: float) -> None:
        number = 0
        while time.monotonic() < until_s:
            number += 1
            path = f"/v1/queues/{self._queue}/messages"
            await self._endpoint.post(path, {"body": "mine"}, CALL_TIMEOUT_S)
            await self._timed("peek", f"{path}/peek", {"limit": 5})
            # There is a message: the poll need not wait.
            got = await self._timed("poll", f"{path}/receive", {"max_messages": 10, "wait_seconds": 5})
            await self._timed("CreateQueue", "/v1/queues", {"name": f"{self._queue}-{number}"})
            if got.status in ACCEPTED and (found := got.json()["messages"]):
                receipts = [message["receipt"] for message in found]
                await self._endpoint.post(f"{path}/ack", {"receipts": receipts}, CALL_TIMEOUT_S)
            await asyncio.sleep(NEIGHBOUR_PAUSE_S)

    async def _timed(self, name: str, path: str, content: object) -> Answer:
        answer = await self._endpoint.post(path, content, CALL_TIMEOUT_S)
        self.seconds[name].append(answer.seconds)
        if answer.status not in ACCEPTED:
            self.failed.append(
                f"{name}: {answer.status} after {answer.seconds:.1f} s {answer.body[:120]!r} {answer.note}"
            )
        return answer

    def p99_s(self, name: str) -> float:
        return percentile(self.seconds[name], 0.99)


def run_apart(endpoint: Endpoint, queue: str, seconds: float) -> tuple[dict[str, list[float]], list[str]]:
    """A neighbour's times and failures, in a process of its own."""

    async def run() -> Neighbour:
        neighbour = Neighbour(endpoint, queue)
        await neighbour.run(time.monotonic() + seconds)
        await endpoint.close()
        return neighbour

    neighbour = asyncio.run(run())
    return neighbour.seconds, neighbour.failed


async def neighbour_apart(endpoint: Endpoint, queue: str, seconds: float) -> Neighbour:
    fresh = Endpoint(endpoint.port, endpoint.token, endpoint.host)
    found = Neighbour(fresh, queue)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as processes:
        loop = asyncio.get_running_loop()
        found.seconds, found.failed = await loop.run_in_executor(processes, run_apart, fresh, queue, seconds)
    return found


def judge_neighbour(neighbour: Neighbour, within_s: float) -> dict[str, list[str]]:
    """Violations: calls that failed, were never made, or were slow."""
    made = {name: neighbour.p99_s(name) for name, seconds in neighbour.seconds.items() if seconds}
    return {
        "neighbour failed": neighbour.failed,
        "neighbour never asked": [name for name, seconds in neighbour.seconds.items() if not seconds],
        "neighbour slow": [f"{name} p99 {p99_s:.2f} s" for name, p99_s in made.items() if p99_s > within_s],
    }


async def one_account(stage: Stage, crowd: Crowd, seconds: float, within_s: float, result: Result) -> None:
    """On an installation that runs, and has other accounts besides these two."""
    greedy = Greedy(stage, stage.endpoint(key=await stage.new_key("crowding")), crowd)
    own = stage.endpoint(key=await stage.new_key("crowded"))
    await greedy.prepare()
    alone = await neighbour_apart(own, await stage.new_queue(own), seconds / 4)
    queue = await stage.new_queue(own)
    parked: list[float] = []
    front_end = await asyncio.to_thread(stage.pid_of, "frontend")
    await greedy.begin(crowd.ramp_s + seconds + SETTLED_S)
    try:
        parked.append(await stage.metric("penstock_polls_parked"))
        before, began_s = core_time(front_end), time.monotonic()
        beside = await neighbour_apart(own, queue, seconds)
        used, lasted_s = core_time(front_end).since(before), time.monotonic() - began_s
        parked.append(await stage.metric("penstock_polls_parked"))
    finally:
        await greedy.end()
    wrong = [f"{what}: {count}" for what, count in greedy.statuses.items() if what.endswith((" 500", " 502"))]
    result.violations = {
        **judge_neighbour(beside, within_s), "answers of 500": wrong, "the account never got": greedy.never_got(),
    }  # fmt: skip
    result.counts = {
        **{f"p99 ms {name} alone": round(alone.p99_s(name) * 1000, 1) for name in Neighbour.CALLS},
        **{f"p99 ms {name} beside": round(beside.p99_s(name) * 1000, 1) for name in Neighbour.CALLS},
        **{f"calls {name}": len(beside.seconds[name]) for name in Neighbour.CALLS},
        **dict(sorted(greedy.statuses.items())),
        "polls": crowd.polls,
        "parked at the begin": parked[0],
        "parked at the end": parked[1],
        "front end ran percent": round(100 * used.ran_s / lasted_s),
        "front end waited for a core percent": round(100 * used.waited_s / lasted_s),
    }


async def _trial(ask: Ask, result: Result) -> None:
    stage = Stage()
    crowd = Crowd().that_fits()
    if crowd != Crowd():
        result.notes.append(f"{crowd.polls} polls: the front end cannot open further files")
    try:
        stage.up()
        await one_account(stage, crowd, ask.seconds, P99_WITHIN_S, result)
    finally:
        stage.close()


TRIALS: dict[str, Trial] = {"one-account": Trial(_trial, seconds=120.0, overtime_s=600.0)}
