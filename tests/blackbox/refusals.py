"""A trial of how long refusals take, on a whole installation: over the front end alone, and on to the control plane.

refusal-times   secrets that are wrong at their beginning or at their end; keys, queues, people that there are or not.
                Each pair is asked in turns of a random order. Pairs whose times differ by Welch's t beyond WELCH_MAX in
                each of ROUNDS rounds, in the same direction, are violations; so are pairs with other answers
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from frontend.authn.tokens import BEARER_CHECKSUM_CHARS, BEARER_SECRET_CHARS, bearer_checksum, mint_key
from tests.blackbox.raw_http import Endpoint
from tests.blackbox.signed_sqs import signed_request
from tests.blackbox.stage import Stage
from tests.blackbox.trials import Ask, Result, Trial
from tests.support.welch import WELCH_MAX, welch

ROUNDS = 3
SAMPLES_MIN = 100
# Requests of one address are bounded, and so are attempts to sign in: each request comes from another one.
SOURCES = 120
PASSWORD = "a long password that nobody has"


class Pair(NamedTuple):
    """The bytes of one request that is refused, and of another; anew for each sample."""

    name: str
    one: Callable[[], bytes]
    other: Callable[[], bytes]
    samples_max: int = 100_000  # of either, in all rounds: what limits of attempts leave


class Measured(NamedTuple):
    t: float
    milliseconds: tuple[float, float]
    samples: int
    answers: tuple[set[tuple[int, str]], set[tuple[int, str]]]


class Visitors:
    """Connections from many addresses of loopback, kept."""

    def __init__(self, port: int) -> None:
        self._endpoints = [Endpoint(port, "", source=f"127.0.9.{number + 1}") for number in range(SOURCES)]
        self._next = 0

    async def ask(self, request: bytes) -> tuple[float, tuple[int, str]]:
        """Seconds, and what was said."""
        self._next += 1
        answer = await self._endpoints[self._next % SOURCES].exchange(request)
        return answer.seconds, (answer.status, code_of(answer.body))

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.close()


def code_of(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("code", found.get("__type", ""))) if isinstance(found, dict) else ""


async def measure(visitors: Visitors, pair: Pair, seconds: float, samples_max: int) -> Measured:
    """Until the time is over, and SAMPLES_MIN of each are there."""
    times: tuple[list[int], list[int]] = ([], [])
    answers: tuple[set[tuple[int, str]], set[tuple[int, str]]] = (set(), set())
    until_s = time.monotonic() + seconds
    makers = (pair.one, pair.other)
    while len(times[0]) < samples_max and (time.monotonic() < until_s or len(times[0]) < min(SAMPLES_MIN, samples_max)):
        for which in random.sample((0, 1), 2):
            took_s, said = await visitors.ask(makers[which]())
            times[which].append(int(took_s * 1e9))
            answers[which].add(said)
    middle = [sorted(samples)[len(samples) // 2] / 1e6 for samples in times]
    return Measured(welch(*times), (middle[0], middle[1]), len(times[0]), answers)


async def try_pair(visitors: Visitors, pair: Pair, seconds: float, result: Result) -> None:
    """A round that a machine with other work disturbed is followed by another one."""
    found: list[Measured] = []
    for _ in range(ROUNDS):
        found.append(await measure(visitors, pair, seconds / ROUNDS, pair.samples_max // ROUNDS))
        if abs(found[-1].t) < WELCH_MAX:
            break
    last = found[-1]
    result.counts[f"{pair.name}: t"] = round(last.t, 2)
    result.counts[f"{pair.name}: samples"] = sum(one.samples for one in found)
    result.violations |= judge_pair(pair.name, found)


def judge_pair(name: str, found: Sequence[Measured]) -> dict[str, list[str]]:
    told = [f"t {one.t:.1f}, {one.milliseconds[0]:.3f} and {one.milliseconds[1]:.3f} ms" for one in found]
    signs = {one.t > 0 for one in found}
    differ = len(found) == ROUNDS and len(signs) == 1 and all(abs(one.t) >= WELCH_MAX for one in found)
    others = [f"{one.answers[0]} and {one.answers[1]}" for one in found if one.answers[0] != one.answers[1]]
    accepted = [str(one.answers) for one in found if any(said[0] < 400 for side in one.answers for said in side)]
    return {
        f"{name}: takes another time": told if differ else [],
        f"{name}: another answer": others,
        f"{name}: not refused": accepted,
    }


# --- requests -------------------------------------------------------------------------------------------------


def rest(port: int, method: str, path: str, headers: Mapping[str, str], content: object = None) -> bytes:
    body = b"" if content is None else json.dumps(content).encode()
    told = {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **headers,
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", ""]
    return "\r\n".join(lines).encode() + body


class Requests:
    """Of a caller with a key, about things of its own and of another account."""

    def __init__(self, port: int, key: Mapping[str, Any], other: Mapping[str, Any], secret_queue: str) -> None:
        self._port, self._key, self._other, self._secret = port, key, other, secret_queue

    def bearer(self, token: str) -> bytes:
        headers = {"authorization": f"Bearer {token}"}
        return rest(self._port, "POST", "/v1/queues/absent/messages", headers, {"body": "x"})

    def management(self, method: str, path: str) -> bytes:
        return rest(self._port, method, path, {"authorization": f"Bearer {self._key['bearer_token']}"})

    def session(self, token: str) -> bytes:
        return rest(self._port, "GET", "/v1/people/me", {"session-token": token})

    def sqs(self, action: str, params: Mapping[str, Any]) -> bytes:
        return signed_request(self._port, self._key, action, params)

    def wrongly_signed(self, at: int) -> bytes:
        """Another digit of the signature, the first one or the last."""
        right = self.sqs("ListQueues", {})
        place = right.index(b"Signature=") + len(b"Signature=") + at
        digit = b"1" if right[place : place + 1] == b"0" else b"0"
        return right[:place] + digit + right[place + 1 :]

    def foreign(self, name: str) -> bytes:
        url = f"http://127.0.0.1:{self._port}/{self._other['account_id']}/{name}"
        return self.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})

    def foreign_move(self, name: str) -> bytes:
        arn = f"arn:aws:sqs:{self._key['region']}:{self._other['account_id']}:{name}"
        return self.sqs("StartMessageMoveTask", {"SourceArn": arn})

    def sign_in(self, email: str) -> bytes:
        return rest(self._port, "POST", "/v1/session", {}, {"email": email, "password": PASSWORD})


def with_wrong_secret(token: str, at: int) -> str:
    """Of a bearer token: another character at this place of its secret, and the checksum that fits."""
    body = token[:-BEARER_CHECKSUM_CHARS]
    wrong = body[:-BEARER_SECRET_CHARS] + other_character(body[-BEARER_SECRET_CHARS:], at)
    return wrong + bearer_checksum(wrong)


def pairs_of(ask: Requests, key: Mapping[str, Any], other: Mapping[str, Any], secret_queue: str) -> list[Pair]:
    first, last = (with_wrong_secret(key["bearer_token"], place) for place in (0, -1))
    unknown = mint_key()
    return [
        Pair("token wrong at its beginning or end", lambda: ask.bearer(first), lambda: ask.bearer(last)),
        Pair("signature wrong at its beginning or end", lambda: ask.wrongly_signed(0), lambda: ask.wrongly_signed(63)),
        Pair("token of a key that exists or not, asked for again",
             lambda: ask.bearer(first), lambda: ask.bearer(unknown.bearer_token)),
        Pair("token of a key that exists or was never heard of",
             lambda: ask.bearer(first), lambda: ask.bearer(mint_key().bearer_token)),
        Pair("queue of another account that exists or not",
             lambda: ask.foreign(secret_queue), lambda: ask.foreign("absent")),
        Pair("move out of a queue of another account that exists or not",
             lambda: ask.foreign_move(secret_queue), lambda: ask.foreign_move("absent")),
        Pair("key of another account that exists or not",
             lambda: ask.management("DELETE", f"/v1/keys/{other['access_key_id']}"),
             lambda: ask.management("DELETE", f"/v1/keys/{unknown.access_key_id}")),
    ]  # fmt: skip


def pairs_of_people(ask: Requests, emails: Sequence[str], session_token: str) -> list[Pair]:
    """`emails` are of people that there are."""
    body = session_token[5:]
    first, last = (f"{session_token[:5]}{wrong}" for wrong in (other_character(body, 0), other_character(body, -1)))
    known, unknown = iter(range(10**9)), iter(range(10**9))
    return [
        Pair("session wrong at its beginning or end", lambda: ask.session(first), lambda: ask.session(last)),
        Pair("sign-in of a person that exists or not",
             lambda: ask.sign_in(emails[next(known) % len(emails)]),
             lambda: ask.sign_in(f"nobody{next(unknown) % len(emails)}@example.com"),
             samples_max=10 * len(emails)),
    ]  # fmt: skip


def other_character(text: str, at: int) -> str:
    place = at % len(text)
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


async def refusal_times(stage: Stage, seconds: float, result: Result) -> None:
    """On an installation that runs; `seconds` for each pair."""
    key, other = await stage.new_key("asking"), await stage.new_key("asked")
    secret = await stage.new_queue(stage.endpoint(key=other))
    port = stage.installation.port
    ask = Requests(port, key, other, secret)
    people = await asyncio.to_thread(stage.installation.manage, "shell", "-v", "0", "-c", MAKE_PEOPLE)
    pairs = pairs_of(ask, key, other, secret) + pairs_of_people(ask, people["emails"], people["session_token"])
    visitors = Visitors(port)
    try:
        for pair in pairs:
            await try_pair(visitors, pair, seconds, result)
    finally:
        await visitors.close()


PEOPLE = 60
# Straight into the database: signing up takes a hash and a mail each.
MAKE_PEOPLE = f"""
import json
from api import clock
from api.people import passwords
from api.people.models import Person, PersonSession
from api.people.tokens import TokenKind, hash_token, mint_token
now, known = clock.now(), passwords.hash_password("the password that is right")
emails = [f"person{{number}}@example.com" for number in range({PEOPLE})]
people = [Person.objects.create(email=email, password=known, created_at=now,
          email_confirmed_at=now) for email in emails]
token = mint_token(TokenKind.SESSION)
hashed = hash_token(TokenKind.SESSION, token)
PersonSession.objects.create(person=people[0], token_hash=hashed, source="", user_agent="", created_at=now,
                             last_seen_at=now, authenticated_at=now)
print(json.dumps(dict(emails=emails, session_token=token)))
"""


async def _trial(ask: Ask, result: Result) -> None:
    stage = Stage()
    try:
        await asyncio.to_thread(stage.up)
        await refusal_times(stage, ask.seconds, result)
    finally:
        await asyncio.to_thread(stage.close)


# For each of the nine pairs.
TRIALS: dict[str, Trial] = {"refusal-times": Trial(_trial, seconds=60.0, overtime_s=1_200.0)}
