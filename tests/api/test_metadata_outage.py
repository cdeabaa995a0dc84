"""The metadata service without its database: what it goes on answering, and how it catches up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from api import changes, limits
from api.accounts import actions as accounts
from api.audit.actions import OPERATOR
from api.metadata import listener, service, store
from api.metadata.process import MetadataProcess, MetadataSettings
from api.metadata.store import MetadataStore, StoreUnavailable
from api.models import FeedChange
from api.queues import actions as queues
from frontend.metadata.client import MISS, MetadataClient, MetadataUnavailable
from frontend.metadata.messages import Change
from frontend.metadata.records import RecordKind, queue_change_key
from tests.api.test_metadata_service import Ear, until
from tests.support.control_plane import CLUSTER_ID, Caller, new_caller
from workers.lifecycle.reconciling import resync

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def database_url(transactional_db: None) -> str:
    values = connection.get_connection_params()
    return str(psycopg.conninfo.make_conninfo(host=values["host"], user=values["user"], dbname=values["dbname"]))


@pytest.fixture
def caller(transactional_db: None) -> Caller:
    return new_caller()


class Outage:
    """PostgreSQL as the metadata service sees it: its connections are cut, and no new one is made."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self.away = False

    async def begin(self, process: MetadataProcess) -> None:
        self.away = True
        await sync_to_async(self._cut)()
        await until(lambda: not process.lookups.live)

    async def end(self, process: MetadataProcess) -> None:
        self.away = False
        await until(lambda: process.lookups.live)

    def _cut(self) -> None:
        with psycopg.connect(self._database_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'penstock-metadata%' AND datname = current_database()"
            )


@pytest.fixture
def outage(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    outage = Outage(database_url)
    original = store.connect

    async def connect(url: str, name: str) -> Any:
        if outage.away:
            raise psycopg.OperationalError("nobody is there")
        return await original(url, name)

    monkeypatch.setattr(listener, "connect", connect)
    monkeypatch.setattr(store, "connect", connect)
    yield outage


@pytest.fixture
async def process(caller: Caller, database_url: str, outage: Outage) -> AsyncIterator[MetadataProcess]:
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


def create_key(caller: Caller, name: str) -> str:
    return accounts.create_key(OPERATOR, caller.account_id, name).key.access_key_id


# --- while it is away ---


async def test_cold_names_are_answered_from_the_copy(
    process: MetadataProcess, client: MetadataClient, caller: Caller, outage: Outage
) -> None:
    """Also to a front end that was started meanwhile. That something does not exist is not known: it may have been made
    just before."""
    await outage.begin(process)
    reads = service._READS._value.get()
    late = MetadataClient("127.0.0.1", process.port, CLUSTER_ID)
    await late.start()
    for one in (client, late):
        await until(lambda one=one: bool(one.troubles()))  # type: ignore[misc]  # bound now
        assert one.serves
        assert [trouble.part for trouble in one.troubles()] == ["PostgreSQL"]
        with pytest.raises(MetadataUnavailable):
            await one.get_key("AKPSNOBODY")
        with pytest.raises(MetadataUnavailable):
            await one.get_queue(caller.account_id, "absent")
        key, account = await one.get_key(caller.access_key_id), await one.get_account(caller.account_id)
        queue = await one.get_queue(caller.account_id, "orders")
        assert key is not None and account is not None and queue is not None
        assert await one.refresh_queue(caller.account_id, "orders") == queue, "nothing newer can be there"
    assert service._READS._value.get() == reads
    assert await process.healthy() == (True, "degraded: PostgreSQL does not answer, records are served from the copy")
    await late.close()


async def test_queue_that_was_made_before_the_service_has_caught_up_is_not_denied(
    process: MetadataProcess, client: MetadataClient, caller: Caller, outage: Outage
) -> None:
    """The control plane has its PostgreSQL back, and the service waits to connect again."""
    await outage.begin(process)
    await until(lambda: bool(client.troubles()))
    lookups = process.lookups
    key = f"{caller.account_id}/made-since"
    for fresh in (True, False):
        assert lookups.held(RecordKind.QUEUE, key, fresh) is MISS
        with pytest.raises(StoreUnavailable):
            await lookups.read(RecordKind.QUEUE, key, fresh)
    assert lookups.held(RecordKind.ACCOUNT, "404404404404", False) is None, "its absence refuses nobody"


async def test_caches_live_on_and_the_outage_ends_without_a_drop(
    process: MetadataProcess, client: MetadataClient, caller: Caller, outage: Outage
) -> None:
    held = await client.get_key(caller.access_key_id)
    await outage.begin(process)
    await until(lambda: bool(client.troubles()))
    assert client.connected and client.cached_key(caller.access_key_id) == held
    await outage.end(process)
    await until(lambda: not client.troubles())
    assert client.cached_key(caller.access_key_id) is held


async def test_record_that_changed_just_before_is_not_answered_from_the_copy(
    process: MetadataProcess, caller: Caller, outage: Outage
) -> None:
    await outage.begin(process)
    name = queue_change_key(caller.account_id, "orders")
    process.lookups.heard(Change("queue", name, 10**9))
    assert process.lookups.held(RecordKind.QUEUE, name, False) is MISS
    with pytest.raises(StoreUnavailable):
        await process.lookups.read(RecordKind.QUEUE, name, False)


async def test_service_started_meanwhile_says_what_it_cannot_know(
    caller: Caller, database_url: str, outage: Outage
) -> None:
    outage.away = True
    process = MetadataProcess(MetadataSettings(database_url, CLUSTER_ID, "127.0.0.1", 0, "", None))
    await process.start()
    client = MetadataClient("127.0.0.1", process.port, CLUSTER_ID)
    await client.start()
    try:
        assert (await process.healthy())[0] is False
        await until(lambda: bool(client.troubles()))
        assert not client.serves
        with pytest.raises(MetadataUnavailable, match="away"):
            await client.get_key(caller.access_key_id)
        await outage.end(process)
        await until(lambda: client.serves)
        assert await client.get_key(caller.access_key_id) is not None
    finally:
        await client.close()
        await process.close()


async def test_service_that_reaches_postgresql_and_cannot_load_does_not_say_that_nothing_changes(
    caller: Caller, database_url: str, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage.away = True
    loads = 0

    async def fail(lookups: service.MetadataLookups) -> None:
        nonlocal loads
        loads += 1
        raise StoreUnavailable("the load takes too long")

    monkeypatch.setattr(service.MetadataLookups, "_load", fail)
    lookups = service.MetadataLookups(MetadataStore(database_url))
    assert not lookups.state().never_reached, "nobody has looked yet"
    ear = Ear()
    lookups.subscribe(ear, "", 0)
    following = asyncio.create_task(listener.follow_forever(database_url, lookups))
    try:
        await until(lambda: ear.states[-1].never_reached)
        outage.away = False
        await until(lambda: loads > 0)
        assert not ear.states[-1].never_reached
        outage.away = True
        seen = len(ear.states)
        await asyncio.sleep(0.3)
        assert not any(state.never_reached for state in ear.states[seen:])
        assert not lookups.state().never_reached, "what was changed meanwhile is not known"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await lookups.close()


# --- catching up ---


async def test_what_was_missed_is_caught_up_with_deletions(
    process: MetadataProcess, client: MetadataClient, caller: Caller, outage: Outage
) -> None:
    gone, kept = [await sync_to_async(create_key)(caller, name) for name in ("gone", "kept")]
    for key in (gone, kept):
        assert await client.get_key(key) is not None
    assert await client.get_queue(caller.account_id, "orders") is not None
    epoch = process.lookups.state().epoch
    await outage.begin(process)
    await sync_to_async(accounts.delete_key)(OPERATOR, caller.account_id, gone)
    await sync_to_async(queues.set_queue_attributes)(OPERATOR, caller.account_id, "orders", {"VisibilityTimeout": "7"})
    new = await sync_to_async(create_key)(caller, "new")
    assert client.cached_key(gone) not in (MISS, None), "nobody can have told"
    await outage.end(process)
    await until(lambda: client.cached_key(gone) is MISS)
    await until(lambda: client.cached_queue(caller.account_id, "orders") is MISS)
    assert client.cached_key(kept) not in (MISS, None), "what did not change stays"
    assert await client.get_key(gone) is None
    assert await client.get_key(new) is not None
    queue = await client.get_queue(caller.account_id, "orders")
    assert queue is not None and queue.attributes["VisibilityTimeout"] == "7"
    assert process.lookups.state().epoch == epoch, "caught up, not loaded anew"


async def test_gap_longer_than_the_log_is_compared(
    process: MetadataProcess,
    client: MetadataClient,
    caller: Caller,
    outage: Outage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frontend.metadata.client.METADATA_COMPARE_JITTER_MS", 0)
    monkeypatch.setattr(limits, "FEED_CHANGES_KEPT_MAX", 0)
    gone, kept = [await sync_to_async(create_key)(caller, name) for name in ("gone", "kept")]
    for key in (gone, kept):
        assert await client.get_key(key) is not None
    epoch = process.lookups.state().epoch
    await outage.begin(process)
    await sync_to_async(accounts.delete_key)(OPERATOR, caller.account_id, gone)
    await sync_to_async(create_key)(caller, "new")
    assert await sync_to_async(changes.trim_changes)() > 0
    await outage.end(process)
    assert process.lookups.state().epoch != epoch
    await until(lambda: client.cached_key(gone) is MISS)
    assert client.cached_key(kept) not in (MISS, None)
    await until(lambda: client._epoch == process.lookups.state().epoch)


async def test_front_end_hears_what_it_missed(process: MetadataProcess, client: MetadataClient, caller: Caller) -> None:
    """It lost the service, which went on; the service tells it again and nothing is compared."""
    assert await client.get_key(caller.access_key_id) is not None
    before = process.lookups.state().sequence
    await sync_to_async(create_key)(caller, "new")
    await until(lambda: client._sequence > before)
    heard = client._sequence
    ear = Ear()
    await sync_to_async(accounts.delete_key)(OPERATOR, caller.account_id, caller.access_key_id)
    await until(lambda: process.lookups.state().sequence > heard)
    process.lookups.subscribe(ear, process.lookups.state().epoch, heard)
    assert [change.key for change in ear.heard] == [caller.access_key_id]
    assert [state.missed for state in ear.states] == [False]
    process.lookups.subscribe(ear, process.lookups.state().epoch, heard - 10_000)
    assert ear.states[-1].missed


async def test_change_that_commits_late_is_not_overlooked(database_url: str) -> None:
    """Its version is lower than that of a change which was read before."""
    note = "INSERT INTO feed_change VALUES (%s, 'key', %s, pg_current_xact_id()::text::bigint)"
    async with await psycopg.AsyncConnection.connect(database_url) as before:
        await before.execute(note, (2**40 - 1, "before"))
    reader = MetadataStore(database_url)
    async with reader.snapshot() as snapshot:
        start = snapshot.position
    async with await psycopg.AsyncConnection.connect(database_url) as early:
        await early.execute(note, (2**40, "early"))
        async with await psycopg.AsyncConnection.connect(database_url) as late:
            await late.execute(note, (2**40 + 1, "late"))
        first = await reader.missed(start, 5_000)
        assert first is not None and [change.key for change in first.changes] == ["late"]
        assert first.again == {2**40 + 1}, "read again, because a transaction below it is still running"
    second = await reader.missed(first.position, 5_000)
    assert second is not None and "early" in [change.key for change in second.changes]
    third = await reader.missed(second.position, 5_000)
    assert third is not None and third.changes == []
    await reader.drop_connections()


async def test_trimming_never_claims_what_a_running_transaction_may_add(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_CHANGES_KEPT_MAX", 0)
    note = "INSERT INTO feed_change VALUES (%s, 'key', 'k', pg_current_xact_id()::text::bigint)"
    async with await psycopg.AsyncConnection.connect(database_url) as early:
        await early.execute(note, (2**40,))
        for number in (1, 2):
            async with await psycopg.AsyncConnection.connect(database_url) as late:
                await late.execute(note, (2**40 + number,))
        assert await sync_to_async(changes.trim_changes)() == 0
    assert await sync_to_async(changes.trim_changes)() == 2
    assert await sync_to_async(changes.trim_changes)() == 0, "the newest stays: it says how far back the log is whole"


def test_resync_tick_trims_the_log(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        create_key(caller, name)
    monkeypatch.setattr(limits, "FEED_CHANGES_KEPT_MAX", 1)
    resync()
    assert FeedChange.objects.count() == 2, "one to keep, and the mark before it"


async def test_restored_database_is_loaded_anew(database_url: str) -> None:
    reader = MetadataStore(database_url)
    async with reader.snapshot() as snapshot:
        position = snapshot.position
    assert await reader.missed(position, 5_000) is not None
    assert await reader.missed(position._replace(source="another"), 5_000) is None
    await reader.drop_connections()


# --- while it is there ---


async def test_names_that_do_not_exist_are_not_read_one_by_one(
    process: MetadataProcess, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    missed = MetadataStore.missed

    async def counting(self: MetadataStore, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await missed(self, *args)

    monkeypatch.setattr(MetadataStore, "missed", counting)
    reads = service._READS._value.get()
    assert await asyncio.gather(*(client.get_key(f"AKPS{number}") for number in range(50))) == [None] * 50
    assert service._READS._value.get() == reads
    assert looks < 10


async def test_absence_is_not_said_where_nothing_could_be_looked_at(
    process: MetadataProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the service has found out that PostgreSQL does not answer."""

    async def silent(*_: object) -> None:
        raise StoreUnavailable("no answer in time")

    monkeypatch.setattr(MetadataStore, "missed", silent)
    monkeypatch.setattr(MetadataStore, "row", silent)
    assert process.lookups.live
    with pytest.raises(StoreUnavailable, match="no answer"):
        await process.lookups.read(RecordKind.KEY, "AKPSABSENT0000000000", fresh=False)


async def test_key_is_known_the_moment_it_is_made(
    process: MetadataProcess, client: MetadataClient, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its announcement is still on the way: the log of changes has it."""
    heard = process.lookups.heard
    monkeypatch.setattr(process.lookups, "heard", lambda change: None)
    key = await sync_to_async(create_key)(caller, "new")
    monkeypatch.setattr(process.lookups, "heard", heard)
    assert await client.get_key(key) is not None


async def test_more_than_fits_is_read_when_it_is_asked_for(
    caller: Caller, database_url: str, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEYS_HELD_BYTES_MAX", 1_500)
    keys = [caller.access_key_id, *[await sync_to_async(create_key)(caller, f"k{n}") for n in range(6)]]
    process = MetadataProcess(MetadataSettings(database_url, CLUSTER_ID, "127.0.0.1", 0, "", None))
    await process.start()
    await until(lambda: process.lookups.live)
    try:
        holding = process.lookups._holdings[RecordKind.KEY]
        assert not holding.complete and len(holding) < len(keys)
        for key in keys:
            known = process.lookups.held(RecordKind.KEY, key, False)
            assert (known if known is not MISS else await process.lookups.read(RecordKind.KEY, key, False)) is not None
        assert await process.lookups.read(RecordKind.KEY, "AKPSNOBODY", False) is None
        assert process.lookups._holdings[RecordKind.ACCOUNT].complete
    finally:
        await process.close()


async def test_database_that_falls_silent_is_found_without_a_word_from_it(
    process: MetadataProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*args: Any) -> None:
        await asyncio.sleep(3600)

    reads = process._store
    monkeypatch.setattr(limits, "METADATA_READ_MS_MAX", 20)
    monkeypatch.setattr(reads, "_missed", silent)
    with pytest.raises(StoreUnavailable, match="in time"):
        await process.lookups.catch_up()
    await process.lookups.lost()
    assert not process.lookups.live
    await until(lambda: not reads._reads)
