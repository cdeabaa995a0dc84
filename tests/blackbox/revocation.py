"""A trial of a key that ends while it has polls parked and websockets open, on two front ends.

revoked-key   one key polls (SQS and REST, 20 s each) and subscribes on two front ends: on a queue that is always sent
              to, and on queues that nothing is sent to until the key has ended. It is revoked, denied everything by a
              policy, or runs out after a rotation, one after the other. What is given to it later than 2 s after the
              answer of the control plane is a violation, and so is a message that its other consumers never get
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.blackbox.raw_http import Answer, Endpoint
from tests.blackbox.signed_sqs import SqsEndpoint
from tests.blackbox.stage import Stage, second_front_end
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED

CUT_WITHIN_S = 2.0
REFUSED = (401, 403)
POLL_S = 20
CALL_TIMEOUT_S = POLL_S + 15.0
# What the key got and does not delete comes back to the others after so long.
LEASE_S = 5
SEND_EVERY_S = 0.05
QUIET_EVERY_S = 0.25
ASK_EVERY_S = 0.1
CREDIT = 1_000
READY_TIMEOUT_S = 15.0
# A socket that nothing comes for is closed when its key is looked at again (SOCKET_RENEW_S, SOCKET_RECHECK_S).
CLOSED_WITHIN_S = 25.0
DRAIN_TIMEOUT_S = 60.0
GRACE_S = 2
DENY_ALL = {"Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}


class Handout(NamedTuple):
    """A message that somebody got: by which way, what it said, when (monotonic)."""

    way: str
    value: str
    at_s: float


class Notes:
    """What callers saw of one way of ending the key."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.others: set[str] = set()
        self.given: list[Handout] = []
        self.parked: list[tuple[str, float, float]] = []  # way, from and until when it waited
        self.served: list[Handout] = []  # new calls of the key that were served
        self.refusals: dict[str, str] = {}  # how each way of the key ended, and each kind of new call
        self.ended: set[str] = set()
        self.failed: list[str] = []


class Cut(NamedTuple):
    """What is known at the end of one way."""

    how: str
    answered_s: float
    ways: list[str]
    notes: Notes


def judge_cut(cut: Cut, within_s: float) -> dict[str, list[str]]:
    """Violations. A way that was given nothing before, and a moment at which nobody waited, prove nothing."""
    notes, limit_s = cut.notes, cut.answered_s + within_s
    before = {one.way for one in notes.given if one.at_s <= cut.answered_s}
    waited = {way for way, from_s, until_s in notes.parked if from_s < cut.answered_s < until_s}
    busy = [way for way in cut.ways if "quiet" not in way]
    quiet = [way for way in cut.ways if "quiet" in way]
    late = [one for one in notes.given if one.at_s > limit_s]
    found = {
        "given too late": [f"{one.way}: {one.value}, {one.at_s - cut.answered_s:.2f} s after" for one in late],
        "served too late": [
            f"{one.way}: {one.at_s - cut.answered_s:.2f} s after" for one in notes.served if one.at_s > limit_s
        ],
        "never given anything before": [way for way in busy if way not in before],
        "was not waiting": [way for way in quiet if way not in waited],
        "not cut off": [way for way in cut.ways if way not in notes.ended],
        "lost": sorted(set(notes.accepted) - notes.others),
        "failed": notes.failed,
    }
    return {f"{cut.how}: {name}": items for name, items in found.items()}


def latest_s(cut: Cut) -> float:
    """How long after the answer the last message was given; negative where it was before."""
    return max((one.at_s for one in cut.notes.given), default=cut.answered_s) - cut.answered_s


class Ending:
    """One key on two front ends, from its making until all that was sent has come to the others."""

    def __init__(self, stage: Stage, ports: tuple[int, int], seconds: float) -> None:
        self._stage = stage
        self._ports = ports
        self._seconds = seconds
        self._notes = Notes()
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = itertools.count(1)
        self._key: Mapping[str, Any] = {}
        self._owner: list[SqsEndpoint] = []

    async def run(self, how: str, end: Callable[[Endpoint, str], Awaitable[float]]) -> Cut:
        account = f"customer-{how}"
        owner_key = await self._stage.new_key(account)
        self._key = await self._stage.new_key(account)
        self._owner = [SqsEndpoint(port, owner_key) for port in self._ports]
        shared = await self._stage.new_queue(self._owner[0])
        ways, quiet = [], []
        stop = asyncio.Event()
        async with self._tasks_until_done():
            for number, port in enumerate(self._ports):
                for kind, work in (("sqs", self._poll_sqs), ("rest", self._poll_rest), ("socket", self._subscribe)):
                    calm = await self._stage.new_queue(self._owner[number])
                    for name, queue in ((f"{kind} {number}", shared), (f"quiet {kind} {number}", calm)):
                        ways.append(name)
                        self._tasks.append(asyncio.create_task(self._guarded(name, work(name, port, queue))))
                    quiet.append(calm)
                self._tasks.append(asyncio.create_task(self._consume(self._owner[number], shared)))
            sending = asyncio.create_task(self._send(stop, shared))
            own = await self._stage.new_queue(self._owner[0])
            for number, port in enumerate(self._ports):
                self._tasks.append(asyncio.create_task(self._ask_anew(number, port, own)))
            await asyncio.sleep(self._seconds / 2)
            answered_s = await end(self._owner[0], self._key["access_key_id"])
            await self._send_quiet(quiet, answered_s + self._seconds)
            stop.set()
            await sending
            self._tasks += [asyncio.create_task(self._consume(self._owner[0], queue)) for queue in quiet]
            await self._all_is_over(ways, answered_s)
        return Cut(how, answered_s, ways, self._notes)

    @contextlib.asynccontextmanager
    async def _tasks_until_done(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for endpoint in self._owner:
                await endpoint.close()

    async def _all_is_over(self, ways: list[str], answered_s: float) -> None:
        """The key's calls have ended, and the others have all; or it has been too long."""
        end_s = max(time.monotonic(), answered_s + CLOSED_WITHIN_S) + DRAIN_TIMEOUT_S
        while time.monotonic() < end_s:
            if set(ways) <= self._notes.ended and set(self._notes.accepted) <= self._notes.others:
                return
            await asyncio.sleep(ASK_EVERY_S)

    # --- the key that ends ---

    async def _guarded(self, way: str, work: Awaitable[str]) -> None:
        """What ends otherwise than by a refusal is told, and cannot be taken for one."""
        try:
            self._notes.refusals[way] = await work
            self._notes.ended.add(way)
        except (OSError, EOFError, ValueError, TimeoutError, KeyError, AssertionError) as error:
            self._notes.failed.append(f"{way}: {error!r}")

    async def _poll_sqs(self, way: str, port: int, queue: str) -> str:
        endpoint = SqsEndpoint(port, self._key)
        url = endpoint.queue_url(queue)
        params = {
            "QueueUrl": url, "WaitTimeSeconds": POLL_S, "MaxNumberOfMessages": 1, "VisibilityTimeout": LEASE_S,
        }  # fmt: skip
        return await self._poll(way, lambda: endpoint.sqs("ReceiveMessage", params, CALL_TIMEOUT_S), "Messages", "Body")

    async def _poll_rest(self, way: str, port: int, queue: str) -> str:
        endpoint = self._stage.endpoint(port, self._key)
        path = f"/v1/queues/{queue}/messages/receive"
        asked = {"wait_seconds": POLL_S, "max_messages": 1, "visibility_seconds": LEASE_S}
        return await self._poll(way, lambda: endpoint.post(path, asked, CALL_TIMEOUT_S), "messages", "body")

    async def _poll(self, way: str, ask: Callable[[], Awaitable[Answer]], messages: str, body: str) -> str:
        """Until it is refused; how."""
        while True:
            answer = await ask()
            self._notes.parked.append((way, answer.began_s, answer.ended_s))
            if answer.status in REFUSED:
                return str(answer.status)
            assert answer.status in ACCEPTED, f"{answer.status} {answer.body[:200]!r} {answer.note}"
            for message in answer.json().get(messages, ()):
                self._notes.given.append(Handout(way, message[body], answer.ended_s))

    async def _subscribe(self, way: str, port: int, queue: str) -> str:
        """Until it is closed; the code."""
        headers = {"Authorization": f"Bearer {self._key['bearer_token']}"}
        address = f"ws://127.0.0.1:{port}/v1/queues/{queue}/subscribe"
        async with connect(address, additional_headers=headers, open_timeout=READY_TIMEOUT_S) as socket:
            from_s = time.monotonic()
            try:
                await socket.send(json.dumps({"type": "credit", "n": CREDIT}))
                async for text in socket:
                    frame = json.loads(text)
                    if frame["type"] == "message":
                        self._notes.given.append(Handout(way, frame["body"], time.monotonic()))
                        await socket.send(json.dumps({"type": "credit", "n": 1}))
            except ConnectionClosed:
                pass
            self._notes.parked.append((way, from_s, time.monotonic()))
            assert socket.close_code not in (None, 1000, 1006), f"closed with {socket.close_code}"
            return str(socket.close_code)

    async def _ask_anew(self, number: int, port: int, queue: str) -> None:
        """New calls of the key, of every kind: when each was served, and how it was refused."""
        rest, sqs = self._stage.endpoint(port, self._key), SqsEndpoint(port, self._key)
        url = sqs.queue_url(queue)
        try:
            while True:
                sent = await rest.post(f"/v1/queues/{queue}/messages", {"body": "mine"}, CALL_TIMEOUT_S)
                self._note_new(f"new send by REST {number}", sent)
                for action, params in (("SendMessage", {"MessageBody": "mine"}), ("GetQueueAttributes", {})):
                    asked = {"QueueUrl": url, **params}
                    self._note_new(f"new {action} {number}", await sqs.sqs(action, asked, CALL_TIMEOUT_S))
                await self._open_anew(number, port, queue)
                await asyncio.sleep(ASK_EVERY_S)
        finally:
            await rest.close()
            await sqs.close()

    async def _open_anew(self, number: int, port: int, queue: str) -> None:
        way = f"new socket {number}"
        headers = {"Authorization": f"Bearer {self._key['bearer_token']}"}
        address = f"ws://127.0.0.1:{port}/v1/queues/{queue}/subscribe"
        try:
            async with connect(address, additional_headers=headers, open_timeout=READY_TIMEOUT_S) as socket:
                frame = json.loads(await asyncio.wait_for(socket.recv(), READY_TIMEOUT_S))
                if frame["type"] == "error":
                    self._notes.refusals[way] = frame["code"]  # by a policy: after the upgrade, and then it is closed
                    return
                self._notes.served.append(Handout(way, "", time.monotonic()))
        except InvalidStatus as error:
            self._notes.refusals[way] = str(error.response.status_code)
        except ConnectionClosed:
            self._notes.refusals[way] = str(socket.close_code)
        except (OSError, EOFError, TimeoutError) as error:
            self._notes.failed.append(f"{way}: {error!r}")

    def _note_new(self, way: str, answer: Answer) -> None:
        if answer.status in ACCEPTED:
            self._notes.served.append(Handout(way, "", answer.ended_s))
        elif answer.status in REFUSED:
            self._notes.refusals[way] = str(answer.status)
        else:
            self._notes.failed.append(f"{way}: {answer.status} {answer.body[:120]!r} {answer.note}")

    # --- the others ---

    async def _send_one(self, endpoint: Endpoint, queue: str) -> None:
        value = f"{queue}:{next(self._numbers)}"
        answer = await endpoint.post(f"/v1/queues/{queue}/messages", {"body": value}, CALL_TIMEOUT_S)
        if answer.status in ACCEPTED:
            self._notes.accepted.append(value)
        else:
            self._notes.failed.append(f"send: {answer.status} {answer.body[:120]!r} {answer.note}")

    async def _send(self, stop: asyncio.Event, queue: str) -> None:
        for endpoint in itertools.cycle(self._owner):
            if stop.is_set():
                return
            await self._send_one(endpoint, queue)
            await asyncio.sleep(SEND_EVERY_S)

    async def _send_quiet(self, queues: list[str], until_s: float) -> None:
        """To the queues on which the key's calls are parked, from the answer on: a message each, again and again."""
        while time.monotonic() < until_s:
            for endpoint, queue in zip(itertools.cycle(self._owner), queues, strict=False):
                await self._send_one(endpoint, queue)
            await asyncio.sleep(QUIET_EVERY_S)

    async def _consume(self, endpoint: Endpoint, queue: str) -> None:
        path = f"/v1/queues/{queue}/messages"
        while True:
            got = await endpoint.post(f"{path}/receive", {"wait_seconds": 1, "max_messages": 10}, CALL_TIMEOUT_S)
            if got.status not in ACCEPTED:
                self._notes.failed.append(f"receive: {got.status} {got.body[:120]!r} {got.note}")
                await asyncio.sleep(ASK_EVERY_S)
                continue
            if found := got.json()["messages"]:
                receipts = [message["receipt"] for message in found]
                await endpoint.post(f"{path}/ack", {"receipts": receipts}, CALL_TIMEOUT_S)
                self._notes.others |= {message["body"] for message in found}


# --- ways to end a key: each says when the control plane had answered, or when the key's time was over ---


async def _revoke(owner: Endpoint, access_key_id: str) -> float:
    return _done(await owner.call("DELETE", f"/v1/keys/{access_key_id}"))


async def _deny(owner: Endpoint, access_key_id: str) -> float:
    body = json.dumps({"policy": DENY_ALL}).encode()
    return _done(await owner.call("PUT", f"/v1/keys/{access_key_id}/policy", body))


async def _rotate(owner: Endpoint, access_key_id: str) -> float:
    until_s = _done(await owner.post(f"/v1/keys/{access_key_id}/rotation", {"grace_seconds": GRACE_S})) + GRACE_S
    await asyncio.sleep(until_s - time.monotonic())
    return until_s


def _done(answer: Answer) -> float:
    assert answer.status in ACCEPTED, f"{answer.status} {answer.body[:300]!r} {answer.note}"
    return answer.ended_s


ENDINGS: dict[str, Callable[[Endpoint, str], Awaitable[float]]] = {
    "revoked": _revoke,
    "denied": _deny,
    "expired": _rotate,
}


async def revoked_key(stage: Stage, seconds: float, result: Result, endings: tuple[str, ...] = tuple(ENDINGS)) -> None:
    """On an installation that runs. Each key is used for half of `seconds`, and watched for `seconds` afterwards."""
    async with second_front_end(stage) as second:
        ports = (stage.installation.port, second.port)
        for how in endings:
            cut = await Ending(stage, ports, seconds).run(how, ENDINGS[how])
            result.violations |= judge_cut(cut, CUT_WITHIN_S)
            result.counts |= _counts(cut)
            refusals = ", ".join(f"{way} {status}" for way, status in sorted(cut.notes.refusals.items()))
            result.notes.append(f"{how}: {refusals}")


def _counts(cut: Cut) -> dict[str, float]:
    notes = cut.notes
    served_s = max((one.at_s for one in notes.served), default=cut.answered_s) - cut.answered_s
    told = {
        "sent": len(notes.accepted),
        "given to the key": len(notes.given),
        "last given s": round(latest_s(cut), 3),
        "last served s": round(served_s, 3),
    }
    return {f"{cut.how} {name}": value for name, value in told.items()}


async def _trial(ask: Ask, result: Result) -> None:
    stage = Stage()
    try:
        await asyncio.to_thread(stage.up)
        await revoked_key(stage, ask.seconds, result)
    finally:
        await asyncio.to_thread(stage.close)


TRIALS: dict[str, Trial] = {"revoked-key": Trial(_trial, seconds=12.0, overtime_s=600.0)}
