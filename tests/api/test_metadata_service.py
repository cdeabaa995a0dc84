"""The metadata service on a real database: what the front end sees of changes, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import structlog
from asgiref.sync import sync_to_async
from django.db import connection

from api import limits
from api.accounts import actions as accounts
from api.accounts.models import AccessKey
from api.audit.actions import OPERATOR
from api.encryption import actions as encryption
from api.encryption.models import EncryptionKey, EncryptionKeyVersion
from api.metadata.process import MetadataProcess, MetadataSettings
from api.metadata.service import MetadataLookups, Subscriber
from api.queues import actions as queues
from api.queues import lifecycle, moving
from api.queues.layout import LayoutRow
from api.queues.lifecycle import ReconcileResult
from api.queues.models import Queue
from api.secrets import keyring, pepper
from frontend.authn.tokens import bearer_token_matches
from frontend.metadata.client import MISS, MetadataClient, MetadataUnavailable
from frontend.metadata.connection import open_connection
from frontend.metadata.messages import Change, FeedState, Subscribe
from tests.support.control_plane import CLUSTER_ID, Caller, new_caller

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def database_url(transactional_db: None) -> str:
    values = connection.get_connection_params()
    return str(psycopg.conninfo.make_conninfo(host=values["host"], user=values["user"], dbname=values["dbname"]))


@pytest.fixture
def caller(transactional_db: None) -> Iterator[Caller]:
    yield new_caller()


@pytest.fixture
async def process(database_url: str) -> AsyncIterator[MetadataProcess]:
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


class Ear(Subscriber):
    def __init__(self) -> None:
        self.heard: list[Change] = []
        self.states: list[FeedState] = []

    def tell(self, change: Change) -> None:
        self.heard.append(change)

    def tell_state(self, state: FeedState) -> None:
        self.states.append(state)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not reached():
            await asyncio.sleep(0.001)


async def test_key_record_opens_with_the_key_ring(client: MetadataClient, caller: Caller) -> None:
    new = await sync_to_async(accounts.create_key)(OPERATOR, caller.account_id, "second")
    record = await client.get_key(new.key.access_key_id)
    assert record is not None
    assert (record.account_id, record.name, record.active, record.expires_at_ms) == (
        caller.account_id,
        "second",
        True,
        None,
    )
    assert keyring().open_secret(record.account_id, record.access_key_id, record.secret_sealed) == new.secret_access_key
    assert bearer_token_matches(record.account_id, new.bearer_token, pepper(), record.bearer_hash)
    assert record.version == (await AccessKey.objects.aget(pk=record.access_key_id)).version


async def test_confirmed_lookup_waits_for_the_same_look_whether_there_is_such_a_queue_or_not(
    client: MetadataClient, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sync_to_async(queues.create_queue)(OPERATOR, caller.account_id, "orders", {}, {})
    await until(lambda: client.cached_queue(caller.account_id, "orders") is MISS)
    await client.get_queue(caller.account_id, "orders")  # the service holds it
    waited: list[None] = []
    confirm = MetadataLookups.confirm

    async def counted(lookups: MetadataLookups) -> None:
        waited.append(None)
        await confirm(lookups)

    monkeypatch.setattr(MetadataLookups, "confirm", counted)
    for name in ("orders", "nothing"):
        waited.clear()
        found = await client.look_up_queue("999999999999", caller.account_id, name)
        assert (found is not None) == (name == "orders") and len(waited) == 1


async def test_queue_record_holds_what_the_data_plane_needs(client: MetadataClient, caller: Caller) -> None:
    outcome = await sync_to_async(queues.create_queue)(
        OPERATOR, caller.account_id, "orders", {"VisibilityTimeout": "7"}, {}
    )
    queue = outcome.queue
    record = await client.get_queue(caller.account_id, "orders")
    assert record is not None
    assert (record.queue_uuid, record.state, record.partitions) == (queue.uuid.bytes, "creating", [])
    assert record.attributes == queue.attributes
    assert record.created_ms == (queue.created_at - EPOCH) // timedelta(milliseconds=1)
    data_key = record.data_keys[-1]
    opened = keyring().unwrap_data_key(
        caller.account_id, record.account_key_wrapped, record.queue_uuid, data_key.version, data_key.wrapped
    )
    assert len(opened) == 32


async def test_keys_lent_to_a_dead_letter_queue_reach_the_front_end(client: MetadataClient, caller: Caller) -> None:
    """As they are in the database, and as a worker that moves messages sees them; announced when they are granted."""

    def make(name: str, attributes: dict[str, str]) -> Queue:
        queue = queues.create_queue(OPERATOR, caller.account_id, name, attributes, {}).queue
        claim = lifecycle.claim_queue(queue.pk)
        assert claim is not None and lifecycle.complete_queue(claim, ReconcileResult([LayoutRow(queue.pk, 0)], []))
        return queue

    await sync_to_async(make)("dead", {})
    before = await client.get_queue(caller.account_id, "dead")
    assert before is not None and before.key_grants == []
    arn = f"arn:aws:sqs:us-east-1:{caller.account_id}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    sources = [await sync_to_async(make)(name, {"RedrivePolicy": policy}) for name in ("a", "b")]
    await until(lambda: client.cached_queue(caller.account_id, "dead") is MISS)
    after = await client.get_queue(caller.account_id, "dead")
    assert after is not None
    for grant, source in zip(after.key_grants, sources, strict=True):
        assert (grant.owner_uuid, grant.owner_name) == (source.uuid.bytes, source.name)
        wrapped = (after.account_key_wrapped, grant.owner_uuid, grant.version, grant.wrapped)
        assert len(keyring().unwrap_data_key(caller.account_id, *wrapped)) == 32
    assert after == await sync_to_async(lambda: moving.record_of(Queue.objects.get(name="dead")))()


async def test_change_reaches_the_front_end_without_asking(client: MetadataClient, caller: Caller) -> None:
    await sync_to_async(queues.create_queue)(OPERATOR, caller.account_id, "orders", {}, {})
    before = await client.get_queue(caller.account_id, "orders")
    claim = await sync_to_async(lifecycle.claim_queue)((await Queue.objects.aget()).pk)
    assert claim is not None
    await sync_to_async(lifecycle.complete_queue)(claim, ReconcileResult([LayoutRow(12, 0)], []))
    await until(lambda: client.cached_queue(caller.account_id, "orders") is MISS)
    after = await client.get_queue(caller.account_id, "orders")
    assert before is not None and after is not None
    assert (after.state, after.partitions) == ("active", [12])
    assert after.version > before.version


async def test_deleted_key_and_switched_off_account_reach_the_front_end(client: MetadataClient, caller: Caller) -> None:
    assert (await client.get_key(caller.access_key_id)) is not None
    await sync_to_async(accounts.set_account_active)(OPERATOR, caller.account_id, False)
    await until(lambda: client.cached_key(caller.access_key_id) is MISS)
    off = await client.get_key(caller.access_key_id)
    assert off is not None and not off.active
    account = await client.get_account(caller.account_id)
    assert account is not None and not account.active
    assert await sync_to_async(accounts.delete_key)(OPERATOR, caller.account_id, caller.access_key_id)
    await until(lambda: client.cached_key(caller.access_key_id) is MISS)
    assert await client.get_key(caller.access_key_id) is None


async def test_refresh_sees_a_new_queue_although_its_absence_was_cached(client: MetadataClient, caller: Caller) -> None:
    assert await client.get_queue(caller.account_id, "orders") is None
    await sync_to_async(queues.create_queue)(OPERATOR, caller.account_id, "orders", {}, {})
    assert await client.refresh_queue(caller.account_id, "orders") is not None


async def test_rolled_back_change_is_not_announced(
    client: MetadataClient, process: MetadataProcess, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    process.lookups.subscribe(ear, "", 0)

    def failing() -> None:
        monkeypatch.setattr(queues, "record", lambda *args, **more: 1 / 0)
        queues.create_queue(OPERATOR, caller.account_id, "orders", {}, {})

    with pytest.raises(ZeroDivisionError):
        await sync_to_async(failing)()
    # An announcement that comes after it is heard: so this one would have been.
    marker = (await sync_to_async(accounts.create_key)(OPERATOR, caller.account_id, "marker")).key
    await until(lambda: any(change.key == marker.access_key_id for change in ear.heard))
    assert "queue" not in {change.kind for change in ear.heard}
    assert await Queue.objects.acount() == 0


async def test_absent_and_impossible_names_are_answered_with_nothing(client: MetadataClient, caller: Caller) -> None:
    for name in ("nope", "x" * 500, "a\x00b", "ü'; --"):
        assert await client.get_queue(caller.account_id, name) is None
        assert await client.get_key(name) is None
    assert await client.get_queue("9" * 50, "orders") is None


async def test_queue_of_another_account_is_absent(client: MetadataClient, caller: Caller) -> None:
    other = await sync_to_async(new_caller)("other")
    await sync_to_async(queues.create_queue)(OPERATOR, caller.account_id, "orders", {}, {})
    assert await client.get_queue(other.account_id, "orders") is None


async def test_dead_pooled_connection_is_replaced(client: MetadataClient, caller: Caller, database_url: str) -> None:
    assert await client.get_key(caller.access_key_id) is not None

    def kill_pool() -> None:
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock-metadata'"
                " AND datname = current_database()"
            )

    await sync_to_async(kill_pool)()
    assert await client.get_queue(caller.account_id, "orders") is None


async def test_client_of_another_installation_is_refused(process: MetadataProcess) -> None:
    with pytest.raises(MetadataUnavailable, match="another installation"):
        await open_connection("127.0.0.1", process.port, "pk-other", "x", Subscribe(), lambda pushed: None)


async def test_who_says_nothing_or_nonsense_is_cut_and_the_log_says_who(
    process: MetadataProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent connections would fill the places that front ends need."""
    monkeypatch.setattr(limits, "METADATA_GREETING_S_MAX", 0.1)
    with structlog.testing.capture_logs() as lines:
        for said in (b"", b"\xff" * 32):
            reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
            writer.write(said)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        made = await open_connection("127.0.0.1", process.port, CLUSTER_ID, "x", Subscribe(), lambda pushed: None)
        await asyncio.sleep(0.2)
        assert not made.lost.done(), "one that greeted stays"
        made.close()
    refused = [line for line in lines if line["event"] == "connection_refused"]
    assert len(refused) == 2 and refused[0]["error"] == "no greeting in time"
    assert all("127.0.0.1" in line["source"] for line in refused)


async def test_change_of_an_encryption_key_reaches_the_front_end(client: MetadataClient, caller: Caller) -> None:
    """By one announcement of the key, whatever queues name it; a key that is gone has no record."""
    make = sync_to_async(encryption.create_encryption_key)
    key_id = str((await make(OPERATOR, caller.account_id, "mine", "", ["111122223333"])).pk)
    record = await client.get_encryption_key(caller.account_id, key_id)
    assert record is not None and client.cached_encryption_key(key_id) is record
    assert (record.account_id, record.state, record.shared_accounts) == (
        caller.account_id,
        "enabled",
        ["111122223333"],
    )
    (version,) = record.versions
    assert bytes(version.wrapped) == (await EncryptionKeyVersion.objects.aget()).wrapped
    for change, state in ((encryption.disable_encryption_key, "disabled"), (encryption.schedule_deletion, None)):
        await sync_to_async(change)(OPERATOR, caller.account_id, key_id)
        if state is None:
            await EncryptionKey.objects.aupdate(deletes_at=EPOCH)
            assert await sync_to_async(encryption.delete_due_keys)() == 1
        async with asyncio.timeout(5):
            while (found := await client.get_encryption_key(caller.account_id, key_id)) is not None:
                if found.state == state:
                    break
                await asyncio.sleep(0.001)
        assert (None if found is None else found.state) == state
    assert await client.get_encryption_key(caller.account_id, "no-id") is None
