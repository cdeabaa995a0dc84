"""The control plane without its database: what is told to whom, and how soon."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

import api.asgi
from api import limits
from api.database_probe import DatabaseProbe, DatabaseState
from api.queues.readiness import connection_parameters
from frontend.readiness import ALIVE_PATH
from tests.support.control_plane import Caller


@pytest.mark.parametrize("error", [OperationalError("couldn't get a connection after 0.80 sec"), InterfaceError("x")])
def test_every_call_is_refused_so_that_it_is_asked_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: Any) -> None:
        raise error

    released = {"action": "parked_groups.release", "queue": "q", "groups": []}
    with monkeypatch.context() as patched:
        patched.setattr(BaseDatabaseWrapper, "cursor", fail)
        internal = [
            caller.sqs("ListQueues"),
            caller.sqs("CreateQueue", QueueName="orders"),
            caller.sqs("DeleteQueue", QueueName="orders"),
            caller.request("POST", "/internal/audit", released),
        ]
        public = [
            caller.request("GET", "/v1/queues"),
            caller.request("POST", "/v1/keys", {"name": "x"}),
            caller.request("GET", "/v1/account"),
        ]
    for answer in internal:
        assert (answer.status_code, answer.json()["code"]) == (503, "ServiceUnavailable")
        assert "0.80" not in answer.content.decode()
    for answer in public:
        assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
        assert answer.json()["code"] == "service-unavailable" and int(answer["Retry-After"]) > 0


@pytest.mark.django_db(transaction=True)
async def test_probe_sees_a_database_that_answers_also_after_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DATABASE_PROBE_MS_MIN", 0)
    monkeypatch.setattr(limits, "DATABASE_PROBE_MS_MAX", 10_000)
    probe = DatabaseProbe({**connection_parameters(), "application_name": "probe"})
    assert await asyncio.gather(probe.look(), probe.look()) == [DatabaseState.ANSWERS] * 2
    first = probe._connection
    await sync_to_async(_cut_probe)()
    assert await probe.look() is DatabaseState.ANSWERS
    assert probe._connection is not first
    await probe.close()


def _cut_probe() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'probe'")


async def test_probe_gives_a_silent_database_up_in_time() -> None:
    """It takes connections and says nothing, as a stopped process does."""

    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    probe = DatabaseProbe({"host": "127.0.0.1", "port": port, "user": "u", "dbname": "d", "connect_timeout": 5})
    started = time.monotonic()
    assert await asyncio.gather(*(probe.look() for _ in range(3))) == [DatabaseState.AWAY] * 3
    assert limits.DATABASE_PROBE_MS_MAX / 1000 <= time.monotonic() - started < 5
    started = time.monotonic()
    assert await probe.look() is DatabaseState.AWAY, "the answer of a moment ago"
    assert time.monotonic() - started < limits.DATABASE_PROBE_MS_MAX / 1000
    await probe.close()
    server.close()


async def test_probe_says_at_once_that_nobody_is_there() -> None:
    probe = DatabaseProbe({"host": "/nonexistent", "user": "u", "dbname": "d"})
    assert await probe.look() is DatabaseState.AWAY


@pytest.mark.parametrize(
    ("state", "status"), [(DatabaseState.ANSWERS, 200), (DatabaseState.FULL, 200), (DatabaseState.AWAY, 503)]
)
async def test_front_ends_ask_beside_django(monkeypatch: pytest.MonkeyPatch, state: DatabaseState, status: int) -> None:
    class Probe:
        async def look(self) -> DatabaseState:
            return state

    monkeypatch.setattr(api.asgi, "_probe", [Probe()])
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("there is no body to read")

    await api.asgi.application({"type": "http", "method": "GET", "path": ALIVE_PATH}, receive, send)
    assert sent[0]["status"] == status


def test_probe_connects_to_the_database_of_the_settings(caller: Caller) -> None:
    with psycopg.connect(**connection_parameters()) as own:
        row = own.execute("SELECT current_database()").fetchone()
    assert row is not None and row[0] == connection.settings_dict["NAME"]
