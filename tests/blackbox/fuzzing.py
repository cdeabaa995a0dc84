"""A trial of requests that nobody would send: every operation of both planes, on a whole installation.

fuzz   requests made from docs/openapi.json, in which every route stands, and from the model of SQS: right, nearly right
       and wrong. With a key, with a person's session, and without. An answer of 500 or 502, none at all, or one that is
       neither of the kind that the operation declares nor a problem, is a violation
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from tests.blackbox.fuzz_inputs import JSON, Asked, Inputs
from tests.blackbox.raw_http import LOST, Answer, Endpoint
from tests.blackbox.stage import Stage, until
from tests.blackbox.trials import Ask, Result, Trial
from tests.blackbox.verdicts import ACCEPTED

WORKERS = 4
CALL_TIMEOUT_S = 45.0
MAIL_TIMEOUT_S = 30.0
PASSWORD = "a long password of the trial"
EMAIL = "fuzz@example.com"
TOKEN = r"pst[a-z]_[A-Za-z0-9_-]{43}"  # of a mail
PROBLEM = "application/problem+json"
# What an answer that succeeded may be instead of JSON: exports, and metrics for Prometheus.
OTHER_KINDS = ("text/csv", "application/jsonl", "application/pdf", "text/plain")
# The door: what is answered by these alone has shown nothing of what is behind.
DOOR = (401, 429)
WITHOUT_CREDENTIALS_ONE_IN = 20
SIGN_IN_EVERY_S = 2.0


class Seen:
    """What every operation was answered."""

    def __init__(self) -> None:
        self.statuses: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.planes: Counter[str] = Counter()
        self.failed: list[str] = []
        self.odd: list[str] = []

    def note(self, asked: Asked, answer: Answer) -> None:
        self.statuses[asked.operation][answer.status] += 1
        self.planes[asked.plane] += 1
        told = f"{asked.operation}: {answer.status} to {asked.method} {asked.target[:200]} {asked.body[:300]!r}"
        if answer.status == LOST or answer.status in (500, 501, 502, 504):
            self.failed.append(f"{told} {answer.note or answer.body[:200]!r}")
        elif why := why_odd(asked, answer):
            self.odd.append(f"{told}: {why}")


def why_odd(asked: Asked, answer: Answer) -> str:
    """Why this is not how the operation may answer; empty: it may."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if asked.method == "HEAD" or answer.status == 204:
        return "a body" if answer.body else ""
    if answer.status in ACCEPTED and asked.plane != "sqs" and kind in OTHER_KINDS:
        return ""
    if kind == "text/xml" and asked.plane == "sqs":
        return "" if answer.body.startswith(b"<?xml") else "no XML"
    wanted = PROBLEM if answer.status not in ACCEPTED and asked.plane != "sqs" else "application/"
    if not kind.startswith(wanted):
        return f"is {kind or 'nothing'}"
    try:
        found = json.loads(answer.body)
    except ValueError:
        return "is no JSON"
    if wanted == PROBLEM and not (isinstance(found, dict) and {"type", "status", "code", "title"} <= found.keys()):
        return "is no problem"
    return ""


def judge_fuzz(seen: Seen, operations: list[str]) -> dict[str, list[str]]:
    """Violations; an operation that was never asked, or never came past the door, has shown nothing."""
    return {
        "answers of 500, or none": seen.failed,
        "neither JSON nor a problem": seen.odd,
        "never asked": [one for one in operations if not seen.statuses[one]],
        "never past the door": [
            f"{one}: {dict(seen.statuses[one])}"
            for one in operations
            if seen.statuses[one] and not any(status not in DOOR for status in seen.statuses[one])
        ],
    }


class Fuzzer:
    """Workers that ask one thing after the other."""

    def __init__(self, endpoint: Endpoint, inputs: Inputs, session_token: str) -> None:
        self.seen = Seen()
        self._endpoint = endpoint
        self._nobody = Endpoint(endpoint.port, "none", endpoint.host)
        self._inputs = inputs
        self._session_token = session_token
        self._signed_in_s = 0.0
        self._count = 0

    async def run(self, until_s: float, count_max: int) -> None:
        async def work() -> None:
            while time.monotonic() < until_s and self._count < count_max:
                self._count += 1
                await self._ask(self._inputs.next(), self._count % WITHOUT_CREDENTIALS_ONE_IN == 0)

        await asyncio.gather(*(work() for _ in range(WORKERS)))

    async def close(self) -> None:
        await self._endpoint.close()
        await self._nobody.close()

    async def _ask(self, asked: Asked, without: bool) -> None:
        answer = await self._endpoint.exchange(self._bytes_of(asked, without), CALL_TIMEOUT_S, asked.method == "HEAD")
        self.seen.note(asked, answer)
        if asked.plane == "people" and answer.status == 401 and time.monotonic() - self._signed_in_s > SIGN_IN_EVERY_S:
            # A request has ended the session: one of those that are asked is the sign-out.
            self._signed_in_s = time.monotonic()
            with contextlib.suppress(AssertionError):  # too many attempts: later
                self._session_token = await sign_in(self._nobody)
        if answer.status in ACCEPTED and answer.body and answer.headers.get("content-type", "").startswith(JSON):
            with contextlib.suppress(ValueError):  # which is noted
                self._inputs.remember(json.loads(answer.body))

    def _bytes_of(self, asked: Asked, without: bool) -> bytes:
        endpoint = self._endpoint
        headers = [("host", f"{endpoint.host}:{endpoint.port}"), ("content-length", str(len(asked.body)))]
        if not without:
            headers.append(("authorization", f"Bearer {endpoint.token}"))
            if asked.plane == "people":
                headers[-1] = ("session-token", self._session_token)
        lines = [f"{asked.method} {asked.target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers + asked.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1") + asked.body


async def sign_in(endpoint: Endpoint) -> str:
    """The token of a new session."""
    session = await endpoint.post("/v1/session", {"email": EMAIL, "password": PASSWORD})
    assert session.status in ACCEPTED, f"{session.status} {session.body[:300]!r}"
    return str(session.json()["session_token"])


async def sign_up(stage: Stage, endpoint: Endpoint) -> str:
    """The token of a session of somebody who has just signed up, with an account."""
    mails = stage.installation.data / "mail"
    asked = await endpoint.post("/v1/people", {"email": EMAIL, "password": PASSWORD})
    assert asked.status in ACCEPTED, f"{asked.status} {asked.body[:300]!r}"
    tokens: list[str] = []

    async def is_there() -> bool:
        texts = [path.read_text() for path in mails.rglob("*") if path.is_file()] if mails.is_dir() else []
        tokens.extend(found[0] for text in texts if (found := re.search(TOKEN, text)))
        return bool(tokens)

    await until(is_there, MAIL_TIMEOUT_S, "a mail")
    confirmation = {"token": tokens[0], "password": PASSWORD, "name": "", "account_title": "fuzz"}
    done = await endpoint.post("/v1/people/confirmation", confirmation)
    assert done.status in ACCEPTED, f"{done.status} {done.body[:300]!r}"
    return await sign_in(endpoint)


async def fuzz(stage: Stage, seed: int, seconds: float, count_max: int, result: Result) -> None:
    """On an installation that runs."""
    key: Mapping[str, Any] = await stage.new_key("fuzzed")
    endpoint, inputs = stage.endpoint(key=key), Inputs(seed)
    # Other keys are there to be named, and the queues that inputs name from the start.
    inputs.kept_out = {key["access_key_id"], EMAIL}
    await stage.new_key("fuzzed")
    for name in ("orders", "dead", "line.fifo"):
        made = await endpoint.post("/v1/queues", {"name": name})
        assert made.status in ACCEPTED, f"{name}: {made.status} {made.body[:300]!r}"
    fuzzer = Fuzzer(endpoint, inputs, await sign_up(stage, Endpoint(endpoint.port, "none")))
    await fuzzer.run(time.monotonic() + seconds, count_max)
    await fuzzer.close()
    seen = fuzzer.seen
    result.violations = judge_fuzz(seen, inputs.operations)
    total: Counter[int] = sum(seen.statuses.values(), Counter())
    result.counts = {
        "operations": len(inputs.operations),
        **{f"asked {plane}": count for plane, count in sorted(seen.planes.items())},
        **{f"answers {status}": count for status, count in sorted(total.items())},
    }


async def _trial(ask: Ask, result: Result) -> None:
    stage = Stage()
    try:
        await asyncio.to_thread(stage.up)
        await fuzz(stage, ask.seed, ask.seconds, 1_000_000, result)
    finally:
        await asyncio.to_thread(stage.close)


TRIALS: dict[str, Trial] = {"fuzz": Trial(_trial, seconds=300.0)}
