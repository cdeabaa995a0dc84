"""PostgreSQL that takes no more connections (SQLSTATE 53300): there, but not for everybody. A real one, all used up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from api import limits
from api.accounts import actions as accounts
from api.audit.actions import OPERATOR
from api.database_probe import DatabaseProbe, DatabaseState, is_full
from api.metadata import service
from api.metadata.process import MetadataProcess, MetadataSettings
from api.metadata.store import MetadataStore, StoreFull, TooManyConnections, connect
from api.queues import actions as queues
from api.queues.readiness import connection_parameters
from frontend.metadata.client import MISS, MetadataClient, MetadataUnavailable
from frontend.metadata.records import RecordKind, queue_change_key
from tests.api.test_metadata_service import until
from tests.support.control_plane import CLUSTER_ID, Caller, new_caller

pytestmark = pytest.mark.django_db(transaction=True)
CUTS_MAX = 100


@pytest.fixture
def database_url(transactional_db: None) -> str:
    values = connection.get_connection_params()
    return str(psycopg.conninfo.make_conninfo(host=values["host"], user=values["user"], dbname=values["dbname"]))


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


class Crowd:
    """Takes every connection that PostgreSQL gives."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._held = [psycopg.connect(database_url, autocommit=True)]

    def fill(self) -> None:
        while True:
            try:
                self._held.append(psycopg.connect(self._database_url, autocommit=True))
            except psycopg.OperationalError as error:
                assert is_full(error), error
                return

    def take_from(self, name: str) -> None:
        """The places of the connections of a program."""
        found = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database()"
        self._held[0].execute(f"SELECT pg_terminate_backend(pid) FROM ({found}) pids", (name,))
        self.fill()

    def leave(self) -> None:
        while self._held:
            self._held.pop().close()


@pytest.fixture
def crowd(database_url: str) -> Iterator[Crowd]:
    crowd = Crowd(database_url)
    yield crowd
    crowd.leave()


@pytest.fixture
async def process(caller: Caller, database_url: str) -> AsyncIterator[MetadataProcess]:
    await sync_to_async(queues.create_queue)(OPERATOR, caller.account_id, "orders", {}, {})
    process = MetadataProcess(MetadataSettings(database_url, CLUSTER_ID, "127.0.0.1", 0, "", None))
    await process.start()
    await until(lambda: process.lookups.live)
    yield process
    await process.close()


@pytest.fixture
async def client(process: MetadataProcess) -> AsyncIterator[MetadataClient]:
    client = MetadataClient("127.0.0.1", process.port, CLUSTER_ID)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_POLL_MS", 20)


async def shut_out(process: MetadataProcess, crowd: Crowd) -> None:
    """The service may be quicker to connect again than the crowd."""
    for _ in range(CUTS_MAX):
        await asyncio.to_thread(crowd.take_from, "penstock-metadata%")
        deadline_s = time.monotonic() + 0.3
        while time.monotonic() < deadline_s:
            if process.lookups.is_refused:
                return
            await asyncio.sleep(0.01)
    raise AssertionError("the service always found a place")


async def test_copy_is_served_and_the_reason_named_until_there_is_a_place(
    process: MetadataProcess, client: MetadataClient, caller: Caller, crowd: Crowd
) -> None:
    held = await client.get_key(caller.access_key_id)
    assert held is not None
    await shut_out(process, crowd)
    late = MetadataClient("127.0.0.1", process.port, CLUSTER_ID)
    await late.start()
    for one in (client, late):
        await until(lambda one=one: bool(one.troubles()))  # type: ignore[misc]  # bound now
        assert one.serves and one._stale_timer is not None, "PostgreSQL may be changing"
        assert "takes no more connections" in one.troubles()[0].reason
        assert await one.get_queue(caller.account_id, "orders") is not None
        with pytest.raises(MetadataUnavailable, match="takes no more connections"):
            await one.get_queue(caller.account_id, "absent")
    text = "degraded: PostgreSQL takes no more connections, records are served from the copy"
    assert await process.healthy() == (True, text)
    assert not process.lookups.state().never_reached
    await sync_to_async(accounts.delete_key)(OPERATOR, caller.account_id, caller.access_key_id)
    assert client.cached_key(caller.access_key_id) == held, "nobody can have told"
    crowd.leave()
    await until(lambda: process.lookups.live)
    await until(lambda: client.cached_key(caller.access_key_id) is MISS and not client.troubles())
    assert client._stale_timer is None and not process.lookups.is_refused
    assert await process.healthy() == (True, "ok")
    await late.close()


async def test_copy_is_not_served_beyond_the_bound_of_revocation(
    process: MetadataProcess, client: MetadataClient, caller: Caller, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "METADATA_STALENESS_MS_MAX", 0)
    await shut_out(process, crowd)
    lookups = process.lookups
    assert lookups.held(RecordKind.KEY, caller.access_key_id, False) is MISS
    with pytest.raises(StoreFull, match="too old"):
        await lookups.read(RecordKind.KEY, caller.access_key_id, False)
    assert (await process.healthy())[0] is False and not lookups.state().loaded
    with pytest.raises(MetadataUnavailable, match="no more connections"):
        await client.get_key(caller.access_key_id)
    crowd.leave()
    await until(lambda: lookups.live)
    assert await client.get_key(caller.access_key_id) is not None


async def test_service_that_starts_meanwhile_does_not_say_that_nothing_changes(
    caller: Caller, database_url: str, crowd: Crowd
) -> None:
    await asyncio.to_thread(crowd.fill)
    process = MetadataProcess(MetadataSettings(database_url, CLUSTER_ID, "127.0.0.1", 0, "", None))
    await process.start()
    try:
        await until(lambda: process.lookups.is_refused)
        state = process.lookups.state()
        assert state.refused and not state.never_reached and not state.loaded
        text = "PostgreSQL takes no more connections, and there is no copy of the records yet"
        assert await process.healthy() == (False, text)
        crowd.leave()
        await until(lambda: process.lookups.live)
    finally:
        await process.close()


async def test_feed_that_stands_goes_on_and_changes_are_heard(
    quick_looks: None, process: MetadataProcess, caller: Caller, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at the log of changes need a second connection: without one the first is not given up."""
    looks = 0
    look, may_look = process.lookups.catch_up, asyncio.Event()

    async def count() -> None:
        nonlocal looks
        await may_look.wait()
        try:
            await look()
        except StoreFull:
            looks += 1
            raise

    monkeypatch.setattr(process.lookups, "catch_up", count)
    name = queue_change_key(caller.account_id, "orders")
    for _ in range(CUTS_MAX):  # a look that was under way may be quicker than the crowd
        may_look.clear()
        await process._store.drop_connections()
        await asyncio.to_thread(crowd.take_from, "penstock-metadata")
        may_look.set()
        await asyncio.sleep(0.3)
        if looks >= 3:
            break
    assert looks >= 3
    assert process.lookups.live and not process.lookups.is_refused
    before = process.lookups.held(RecordKind.QUEUE, name, False)
    await sync_to_async(queues.tag_queue)(OPERATOR, caller.account_id, "orders", {"a": "c"})
    await until(lambda: process.lookups.held(RecordKind.QUEUE, name, False) is not before)
    assert process.lookups.live


async def test_read_waits_for_a_connection_of_its_own_where_there_are_no_others(
    caller: Caller, database_url: str, crowd: Crowd
) -> None:
    store = MetadataStore(database_url)
    try:
        async with store._connection():
            await asyncio.to_thread(crowd.fill)
            read = asyncio.create_task(store.row(RecordKind.KEY, caller.access_key_id))
            await asyncio.sleep(0.1)
            assert not read.done()
        assert await read is not None
        with pytest.raises(StoreFull):
            for _ in range(CUTS_MAX):  # PostgreSQL gives a place back a moment after its connection was closed
                await store.drop_connections()
                await asyncio.to_thread(crowd.fill)
                await store.row(RecordKind.KEY, caller.access_key_id)
    finally:
        await store.drop_connections()


async def test_probe_tells_a_full_database_from_one_that_is_away(crowd: Crowd) -> None:
    await asyncio.to_thread(crowd.fill)
    probe = DatabaseProbe(connection_parameters())
    assert await probe.look() is DatabaseState.FULL
    await probe.close()


async def test_limit_of_a_role_is_the_same(database_url: str, crowd: Crowd) -> None:
    def make() -> str:
        crowd._held[0].execute("DROP ROLE IF EXISTS crowded")
        crowd._held[0].execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
        return str(psycopg.conninfo.make_conninfo(database_url, user="crowded"))

    def drop() -> None:
        crowd._held[0].execute("DROP ROLE crowded")

    url = await asyncio.to_thread(make)
    with pytest.raises(TooManyConnections, match="role"):
        await connect(url, "x")
    await asyncio.to_thread(drop)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("FATAL:  sorry, too many clients already", True),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", True),
        ('FATAL:  too many connections for database "penstock"', True),
        ("FATAL:  no more connections allowed (max_client_conn)", True),
        ("FATAL:  the database system is starting up", False),
        ('FATAL:  password authentication failed for user "penstock"', False),
        ("connection refused", False),
    ],
)
def test_refusals_are_told_apart_by_their_text(text: str, full: bool) -> None:
    found: Any = psycopg.OperationalError(f"connection to server failed: {text}")
    assert is_full(found) is full
    assert not is_full(ValueError(text)), "it is no word of PostgreSQL"
