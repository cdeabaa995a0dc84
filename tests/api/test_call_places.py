"""Places of calls in a control-plane process: one account, whatever it calls, leaves places to the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction
from prometheus_client import REGISTRY
from psycopg_pool import PoolTimeout

import api.asgi
from api import limits
from api.call_places import CallPlaces, NoPlace, connection_kept, release_while_waiting
from api.call_sharing import AskedCall, asked_call, sharing_places
from api.definitions import views as definitions_views
from api.iam.selectors import policy_of
from api.outage import DATABASE_AWAY_TEXT, NO_CONNECTION_TEXT
from frontend.http import Receive, Scope, Send, answer
from tests.support.control_plane import Caller, new_caller

CALLS_MAX, DEFINITIONS_MAX = 10, 5
FLOOD_CALLS = 16
# What the slow calls of the flood take, and within what the calls of others are answered.
SLOW_S = 3.0
PROMPT_S = 1.5


class Held:
    """Calls that are under way until they are ended."""

    def __init__(self, places: CallPlaces) -> None:
        self._places = places
        self._stack = contextlib.AsyncExitStack()

    async def begin(self, holder: str, is_definitions: bool = False) -> None:
        await self._stack.enter_async_context(self._places.place(holder, is_definitions))

    async def begin_all(self, holder: str, is_definitions: bool = False) -> int:
        """How many the holder gets."""
        count = 0
        with contextlib.suppress(NoPlace):
            while True:
                await self.begin(holder, is_definitions)
                count += 1
        return count

    async def end(self) -> None:
        await self._stack.aclose()


@pytest.fixture
def quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_WAIT_S_MAX", 0.05)


@pytest.fixture
async def held(quick_refusals: None) -> AsyncIterator[Held]:
    held = Held(CallPlaces(CALLS_MAX, DEFINITIONS_MAX))
    yield held
    await held.end()


# --- the share ---


async def test_one_account_gets_half_of_the_places_and_two_a_third_each(held: Held) -> None:
    assert await held.begin_all("a") == CALLS_MAX // 2
    assert await held.begin_all("b") == 2
    assert [await held.begin_all(one) for one in ("c", "d", "e")] == [1, 1, 0]
    with pytest.raises(NoPlace) as refusal:
        await held.begin("e")
    assert not refusal.value.has_share, "the others have taken everything"
    with pytest.raises(NoPlace) as refusal:
        await held.begin("a")
    assert refusal.value.has_share


async def test_metrics_tell_calls_under_way_and_refused(held: Held) -> None:
    def read(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"penstock_control_calls_{name}", labels) or 0.0

    shares, full = read("refused_total", reason="share"), read("refused_total", reason="full")
    for holder in ("a", "b", "c", "d"):
        await held.begin_all(holder)
    assert read("under_way") == CALLS_MAX // 2 + 4 and read("waiting") == 0
    assert read("refused_total", reason="share") == shares + 4
    with pytest.raises(NoPlace):
        await held.begin("e")
    assert read("refused_total", reason="full") == full + 1
    await held.end()
    assert read("under_way") == 0


async def test_definitions_have_few_places_of_their_own_and_leave_the_account_its_others(held: Held) -> None:
    assert await held.begin_all("a", is_definitions=True) == 2
    assert await held.begin_all("b", is_definitions=True) == 1
    await held.begin("a")


async def test_call_that_waits_gets_the_place_that_its_account_gives_back() -> None:
    places = CallPlaces(CALLS_MAX, DEFINITIONS_MAX)
    first, others = Held(places), Held(places)
    await first.begin("a")
    for _ in range(CALLS_MAX // 2 - 1):
        await others.begin("a")
    waiting = asyncio.create_task(others.begin("a"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await first.end()
    await asyncio.wait_for(waiting, 1)
    await others.end()
    assert places.calls.held.held_bytes == 0


def test_calls_count_for_their_account_or_address_and_what_front_ends_tell_for_nobody() -> None:
    caller = Caller("123456789012", "AKPSAAAAAAAAAAAAAAAA")
    signed = caller.headers("POST", "/v1/queues")
    source = {"X-Penstock-Source": "2001:db8::1 1700000000000"}
    assert asked_call(scope("POST", "/v1/queues", {**signed, **source})) == AskedCall(caller.account_id, False)
    assert asked_call(scope("POST", "/internal/sqs/CreateQueue", signed)) == AskedCall(caller.account_id, False)
    assert asked_call(scope("POST", "/v1/definitions/comparison", signed)) == AskedCall(caller.account_id, True)
    assert asked_call(scope("POST", "/console/a/1/definitions", source)) == AskedCall("2001:db8::/64", True)
    assert asked_call(scope("GET", "/console/a/1/definitions", {})) == AskedCall("127.0.0.1", False)
    forged = {"X-Penstock-Principal": "no claim", **source}
    assert asked_call(scope("GET", "/v1/queues", forged)) == AskedCall("2001:db8::/64", False)
    for path in ("/internal/keys/used", "/internal/audit", "/healthz", "/static/console/x.css"):
        assert asked_call(scope("POST", path, signed)) is None


@pytest.mark.parametrize(
    ("path", "held_by", "status", "told"),
    [
        ("/v1/queues", "127.0.0.1", 429, b'"code":"request-throttled"'),
        ("/internal/sqs/ListQueues", "127.0.0.1", 429, b'"code":"RequestThrottled"'),
        ("/console/", "127.0.0.1", 429, b"Too many management calls of one holder"),
        ("/v1/queues", "", 503, b'"code":"service-unavailable"'),
        ("/internal/sqs/ListQueues", "", 503, b'"code":"ServiceUnavailable"'),
    ],
)
async def test_call_without_a_place_is_refused_as_its_way_in_has_it(
    quick_refusals: None, path: str, held_by: str, status: int, told: bytes
) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, (), b"")

    places = CallPlaces(CALLS_MAX, DEFINITIONS_MAX)
    client = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(sharing_places(application, places)), base_url="http://control"
    )
    assert (await client.get(path)).status_code == 200
    held = Held(places)
    if held_by:
        assert await held.begin_all(held_by) == CALLS_MAX // 2
    else:
        for number in range(CALLS_MAX):
            await held.begin_all(f"other-{number}")
    refused = await client.get(path, headers={"X-Request-Id": "req-9"})
    assert (refused.status_code, refused.headers["retry-after"]) == (status, str(limits.CALL_RETRY_AFTER_S))
    assert told in refused.content and (not path.startswith("/v1") or refused.json()["request_id"] == "req-9")
    await held.end()
    assert (await client.get(path)).status_code == 200


# --- calls that wait for storage ---


@pytest.mark.django_db(transaction=True)
def test_call_that_waits_keeps_its_connection_only_where_something_hangs_on_it() -> None:
    def left_by_a_wait(is_definitions: bool = False) -> tuple[bool, int]:
        """Whether the connection is there still, and how many places are held."""

        async def wait() -> int:
            places = CallPlaces(CALLS_MAX, DEFINITIONS_MAX)
            async with places.place("a", is_definitions) as place:
                with place.current(), connection_kept() if is_locked else contextlib.nullcontext():
                    await release_while_waiting()
                    await release_while_waiting()  # once is enough
                return places.calls.held.held_bytes

        connection.ensure_connection()
        held = async_to_sync(wait)()
        return connection.connection is not None, held

    is_locked = False
    assert left_by_a_wait() == (False, 0)
    assert left_by_a_wait(is_definitions=True) == (True, 1)
    with transaction.atomic():
        assert left_by_a_wait() == (True, 1)
    is_locked = True
    assert left_by_a_wait() == (True, 1)


# --- the whole: Django behind ASGI, its pool, and a neighbour ---


@pytest.fixture
async def control(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    monkeypatch.setattr(limits, "QUEUE_READY_WAIT_MS_MAX", int(SLOW_S * 1000))
    transport = httpx2.ASGITransport(api.asgi.application)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client:
        yield client


@pytest.fixture
def accounts(transactional_db: None) -> tuple[Caller, Caller]:
    return new_caller("greedy"), new_caller("neighbour")


async def ask(client: httpx2.AsyncClient, who: Caller, method: str, path: str, content: Any = None) -> httpx2.Response:
    body = b"" if content is None else json.dumps(content).encode()
    headers = {**who.headers(method, path, body), "Content-Type": "application/json"}
    return await client.request(method, path, content=body, headers=headers)


async def judge_neighbour(client: httpx2.AsyncClient, who: Caller, flood: list[asyncio.Task[httpx2.Response]]) -> None:
    """Answered promptly for as long as the flood lasts."""
    await asyncio.sleep(0.3)
    asked = 0
    while not all(one.done() for one in flood):
        began_s = time.monotonic()
        answered = await ask(client, who, "GET", "/v1/queues")
        assert answered.status_code == 200, answered.text
        assert time.monotonic() - began_s < PROMPT_S
        asked += 1
        await asyncio.sleep(0.1)
    assert asked > SLOW_S / (PROMPT_S + 0.1)


@pytest.mark.django_db(transaction=True)
async def test_neighbour_is_answered_while_calls_of_one_account_wait_for_storage(
    control: httpx2.AsyncClient, accounts: tuple[Caller, Caller]
) -> None:
    greedy, neighbour = accounts
    made = [ask(control, greedy, "POST", "/v1/queues", {"name": f"q-{number}"}) for number in range(FLOOD_CALLS)]
    flood = [asyncio.create_task(one) for one in made]
    await judge_neighbour(control, neighbour, flood)
    told = [(await one).json()["detail"] for one in flood]
    assert told == ["The queue is still being created. Repeat the request."] * FLOOD_CALLS, "none lacked a connection"


@pytest.mark.django_db(transaction=True)
async def test_repeated_request_finds_the_lock_of_the_one_that_waits_for_storage_and_none_is_left(
    control: httpx2.AsyncClient, accounts: tuple[Caller, Caller]
) -> None:
    def locks() -> int:
        with connection.cursor() as cursor:
            database = "(SELECT oid FROM pg_database WHERE datname = current_database())"
            cursor.execute(f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = {database}")
            return int(cursor.fetchone()[0])

    body = json.dumps({"name": "orders"}).encode()
    named = {"Content-Type": "application/json", "Idempotency-Key": '"k-1"'}
    headers = {**accounts[0].headers("POST", "/v1/queues", body), **named}
    first = asyncio.create_task(control.post("/v1/queues", content=body, headers=headers))
    await asyncio.sleep(SLOW_S / 2)  # it has looked at the row, and waits again
    assert await sync_to_async(locks)() == 1
    repeated = await control.post("/v1/queues", content=body, headers=headers)
    assert (repeated.status_code, repeated.json()["code"]) == (409, "idempotency-request-in-progress")
    assert (await first).status_code == 503
    assert await sync_to_async(locks)() == 0


@pytest.mark.django_db(transaction=True)
async def test_neighbour_is_answered_while_one_account_has_documents_compared(
    control: httpx2.AsyncClient, accounts: tuple[Caller, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy, neighbour = accounts

    def compare_slowly(*_: object) -> list[Any]:
        policy_of(greedy.account_id, "none")  # over a connection, which it keeps
        time.sleep(SLOW_S)
        return []

    monkeypatch.setattr(definitions_views, "compare", compare_slowly)
    document = {"format": "penstock.definitions/1", "account_id": greedy.account_id, "queues": [], "policies": []}
    made = [ask(control, greedy, "POST", "/v1/definitions/comparison", document) for _ in range(FLOOD_CALLS)]
    flood = [asyncio.create_task(one) for one in made]
    await judge_neighbour(control, neighbour, flood)
    answers = [await one for one in flood]
    assert {one.status_code for one in answers} == {200, 429}
    assert all(one.headers["retry-after"] for one in answers if one.status_code == 429)


@pytest.mark.django_db(transaction=True)
def test_pool_without_a_free_connection_is_not_called_a_database_that_is_away(
    accounts: tuple[Caller, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.close()
    pool, taken = connection.pool, []
    monkeypatch.setattr(pool, "timeout", 0.2)
    try:
        with contextlib.suppress(PoolTimeout):  # threads of other tests may have some
            while True:
                taken.append(pool.getconn(timeout=2))
        for refused in (accounts[0].request("GET", "/v1/queues"), accounts[0].sqs("ListQueues")):
            assert refused.status_code == 503
            told = refused.json()
            text = told.get("detail") or told["message"]
            assert text == NO_CONNECTION_TEXT != DATABASE_AWAY_TEXT
    finally:
        for one in taken:
            pool.putconn(one)


def scope(method: str, path: str, headers: dict[str, str]) -> Scope:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": raw, "client": ("127.0.0.1", 9)}
