"""How long a refusal takes tells nothing: the steps of it are counted, and the comparisons of secrets are measured."""

from __future__ import annotations

import hmac
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from frontend import refusal_times
from frontend.authn.principal import Principal
from frontend.authn.tokens import bearer_token_matches, hash_bearer_token
from frontend.errors import RequestError
from frontend.limits import REFUSAL_STEP_S
from frontend.messages import admission
from frontend.queues.names import Address
from frontend.refusal_times import TIMER_STEP_S, refusal_time_s
from tests.support.frontend_plane import ACCOUNT, HOST, OTHER_ACCOUNT, Installation
from tests.support.welch import WELCH_MAX, welch

SAMPLES = 100_000
# A machine that does other work may disturb a round; what leaks does so in each of them.
ROUNDS = 5
# Where an object lies in memory also tells in its time, by a fraction of a nanosecond: each input is many objects.
COPIES = 256
PEPPER = b"p" * 32


class SteppedTime:
    """Stands where refusals ask for the time and to sleep; look-ups take as long as they are told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept = 0

    def time(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now_s += seconds


@pytest.fixture
def stepped(front: Installation, monkeypatch: pytest.MonkeyPatch) -> SteppedTime:
    stepped = SteppedTime()
    monkeypatch.setattr(refusal_times, "asyncio", stepped)
    monkeypatch.setattr(front.plane, "steady_s", stepped.time)
    monkeypatch.setattr(front.plane.authenticator, "_steady_s", stepped.time)
    return stepped


# --- is there such a queue in another account? ---


@pytest.mark.parametrize("look_up_s", [0.0, 0.001, 0.03, 0.06])
async def test_refusal_about_a_foreign_queue_takes_as_long_at_hand_or_not_or_absent(
    front: Installation, stepped: SteppedTime, look_up_s: float
) -> None:
    look = front.metadata._look

    def slow_look(*what: str) -> None:
        stepped.now_s += look_up_s
        look(*what)

    front.metadata._look = slow_look  # type: ignore[method-assign]
    seen = []
    for is_cold in (False, True):
        for name in ("secret", "nothing"):
            front.metadata.cold = is_cold
            front.metadata.lookups.clear()
            began_s = stepped.now_s
            url = f"http://{HOST}/{OTHER_ACCOUNT}/{name}"
            reply = await front.sqs("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
            assert (reply.status, reply.error) == (403, "AccessDeniedException")
            looked = [what for what in front.metadata.lookups if what[0] != "key"]
            assert looked == [("look up", ACCOUNT, OTHER_ACCOUNT, name)], "one, whatever was at hand"
            # The look-up of the caller's key, where the cache is cold, comes before.
            key_s = look_up_s * (len(front.metadata.lookups) - 1)
            seen.append(stepped.now_s - began_s - key_s)
    due_s = REFUSAL_STEP_S * (1 if look_up_s < REFUSAL_STEP_S else 2)
    assert all(due_s - 1e-9 <= one <= due_s + TIMER_STEP_S + 1e-9 for one in seen), seen
    assert stepped.slept == 2 * 4, "in two parts each"


@pytest.mark.parametrize("name", ["secret", "nothing"])
async def test_foreign_queue_is_not_told_apart_while_nothing_can_be_looked_up(front: Installation, name: str) -> None:
    """At hand or known to be absent: both are refused as what would have to be looked up."""

    async def down(*_: str) -> None:
        front.metadata.down = True
        front.metadata._look()

    front.metadata.repeat_look_up = down  # type: ignore[method-assign]
    reply = await front.sqs("SendMessage", {"QueueUrl": f"http://{HOST}/{OTHER_ACCOUNT}/{name}", "MessageBody": "x"})
    assert reply.status == 503


@pytest.mark.parametrize(("took_s", "steps"), [(0.0, 1), (0.049, 1), (0.05, 2), (0.12, 3)])
def test_refusal_is_told_at_the_end_of_a_step(took_s: float, steps: int) -> None:
    assert refusal_time_s(0.0, took_s) == pytest.approx(steps * REFUSAL_STEP_S)


# --- secrets ---


def measured(check: Callable[[bytes], object], one: bytes, other: bytes, samples: int) -> float:
    """Welch's t of the two inputs, in turns of a random order."""
    copies = [(which, bytes(bytearray(given))) for which, given in enumerate((one, other)) for _ in range(COPIES)]
    random.shuffle(copies)
    clock = time.perf_counter_ns
    times: tuple[list[int], list[int]] = ([], [])
    for which, given in random.choices(copies, k=2 * samples):
        began_ns = clock()
        check(given)
        took_ns = clock() - began_ns
        times[which].append(took_ns)
    return welch(*times)


def leaks(check: Callable[[bytes], object], one: bytes, other: bytes, samples: int = SAMPLES) -> bool:
    """In every round, and with the same sign."""
    found = []
    for _ in range(ROUNDS):
        found.append(measured(check, one, other, samples))
        if abs(found[-1]) < WELCH_MAX or found[-1] * found[0] < 0:
            return False
    return True


def compared_byte_by_byte(right: bytes, given: bytes) -> bool:
    return all(mine == theirs for mine, theirs in zip(right, given, strict=True))


TOKEN = "pstk_" + "A" * 76
RIGHT = hash_bearer_token(ACCOUNT, TOKEN, PEPPER)
WRONG_FIRST = bytes([RIGHT[0] ^ 1]) + RIGHT[1:]
WRONG_LAST = RIGHT[:-1] + bytes([RIGHT[-1] ^ 1])


def test_secret_that_is_wrong_in_its_first_or_last_byte_takes_as_long() -> None:
    assert not leaks(lambda stored: bearer_token_matches(ACCOUNT, TOKEN, PEPPER, stored), WRONG_FIRST, WRONG_LAST)


def test_measurement_finds_a_comparison_that_ends_at_the_first_difference() -> None:
    assert leaks(lambda given: compared_byte_by_byte(RIGHT, given), WRONG_FIRST, WRONG_LAST, SAMPLES // 10)


@pytest.mark.parametrize("kind", ["known", "disabled", "unknown"])
async def test_token_of_a_known_or_unknown_key_is_compared_once(
    front: Installation, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The same work: a digest of the token, and one comparison of two digests."""
    minted = front.add_key(ACCOUNT, bearer_hash=WRONG_LAST, active=kind != "disabled")
    if kind == "unknown":
        del front.metadata.keys[minted.access_key_id]
    compared: list[tuple[int, int]] = []
    digests: list[int] = []
    compare, digest = hmac.compare_digest, hmac.digest

    def counting_compare(one: Any, other: Any) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    def counting_digest(key: bytes, message: bytes, kind: Any) -> bytes:
        digests.append((len(message) + 8) // 64)
        return digest(key, message, kind)

    monkeypatch.setattr(hmac, "compare_digest", counting_compare)
    monkeypatch.setattr(hmac, "digest", counting_digest)
    reply = await front.rest("/v1/queues/orders/messages", {"messages": [{"body": "x"}]}, token=minted.bearer_token)
    assert reply.status == 401
    assert compared == [(6, 6), (32, 32)] and digests == [1], "the checksum, and what is stored"


@pytest.mark.parametrize("look_up_s", [0.0, 0.007, 0.03])
@pytest.mark.parametrize("kind", ["known", "disabled", "expired", "unknown"])
async def test_refused_key_is_told_as_late_at_hand_or_not_or_absent(
    front: Installation, stepped: SteppedTime, kind: str, look_up_s: float
) -> None:
    minted = front.add_key(ACCOUNT, bearer_hash=WRONG_LAST, active=kind != "disabled")
    record = front.metadata.keys[minted.access_key_id]
    if kind == "expired":
        front.metadata.keys[minted.access_key_id] = msgspec.structs.replace(record, expires_at_ms=1)
    if kind == "unknown":
        del front.metadata.keys[minted.access_key_id]
    look = front.metadata._look

    def slow_look(*what: str) -> None:
        stepped.now_s += look_up_s
        look(*what)

    front.metadata._look = slow_look  # type: ignore[method-assign]
    for is_cold in (False, True):
        front.metadata.cold = is_cold
        began_s = stepped.now_s
        reply = await front.rest("/v1/queues/orders/messages", {"body": "x"}, token=minted.bearer_token)
        assert reply.status == 401
        assert REFUSAL_STEP_S - 1e-9 <= stepped.now_s - began_s <= REFUSAL_STEP_S + TIMER_STEP_S + 1e-9


class TickingTime:
    """A loop whose timers ring at whole milliseconds of its clock, as those of libuv."""

    def __init__(self) -> None:
        self.now_s = 0.0

    async def sleep(self, seconds: float) -> None:
        rings_ms = int(self.now_s * 1_000 + 1e-6) + round(max(seconds, 0.0) * 1_000)
        self.now_s = max(self.now_s, rings_ms / 1_000)

    def time(self) -> float:
        return self.now_s


@pytest.mark.parametrize("about", ["a key", "a queue of another account"])
async def test_refusal_does_not_tell_at_which_part_of_a_millisecond_the_request_came(
    front: Installation, monkeypatch: pytest.MonkeyPatch, about: str
) -> None:
    """A caller that makes a token first asks at another part of it than one that has a token."""
    ticking = TickingTime()
    monkeypatch.setattr("asyncio.sleep", ticking.sleep)
    monkeypatch.setattr(refusal_times, "random", random.Random(7))
    monkeypatch.setattr(front.plane, "steady_s", ticking.time)
    caller, absent = Principal(ACCOUNT, front.key.access_key_id), Address(OTHER_ACCOUNT, "nothing")

    async def refuse() -> None:
        if about == "a key":
            await refusal_times.wait_to_refuse(ticking.now_s, ticking.time)
            return
        with pytest.raises(RequestError):
            await admission.find_authorised(front.plane, caller, "SendMessage", absent)

    means_ms = []
    for part_ms in (0.1, 0.3, 0.6, 0.9):
        waits_ms = []
        for number in range(1_000):
            ticking.now_s = began_s = number + part_ms / 1_000
            await refuse()
            waits_ms.append((ticking.now_s - began_s) * 1_000)
        means_ms.append(statistics.fmean(waits_ms))
    assert max(means_ms) - min(means_ms) < 0.1, means_ms
