"""The metadata client against a service of frames that the test writes and reads itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from frontend.metadata.client import MISS, MetadataClient, MetadataUnavailable
from frontend.metadata.limits import METADATA_FRAME_BYTES_MAX, METADATA_SHARE_MAX, METADATA_UNANSWERED_MAX
from frontend.metadata.messages import (
    AccountReply,
    Change,
    Compare,
    CompareReply,
    FeedState,
    GetAccount,
    GetKey,
    GetQueue,
    KeyReply,
    MetadataOpcode,
    QueueReply,
    Subscribe,
)
from frontend.metadata.records import AccountRecord, DataKeyRecord, KeyRecord, QueueRecord, queue_change_key
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Hello, Opcode, encode_message

ACCOUNT = "123456789012"


def key_record(version: int) -> KeyRecord:
    return KeyRecord("AKPS", ACCOUNT, "key", b"s", b"h", True, None, version)


def queue_record(version: int) -> QueueRecord:
    keys = [DataKeyRecord(1, b"w")]
    return QueueRecord(ACCOUNT, "orders", bytes(16), [1], "active", {}, False, b"a", keys, 1, 2, version)


class Service:
    """One connection at a time; lookups wait in `asked` until the test answers them."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Frame] = asyncio.Queue()
        self.connections = 0
        self.accepts = True
        # What is said of the feed to a new subscriber, and what the last one had heard.
        self.feed = FeedState("epoch", 0, False, True, 0)
        self.heard = Subscribe()
        self._writer: asyncio.StreamWriter | None = None
        self._feed_id = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()

    async def next_asked(self) -> Frame:
        async with asyncio.timeout(5):
            return await self.asked.get()

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def send(self, opcode: int, correlation_id: int, message: Any, flags: int = FLAG_ANSWER) -> None:
        assert self._writer is not None
        self._writer.write(encode_frame(opcode, flags, correlation_id, encode_message(message)))

    def change(self, kind: str, key: str, version: int) -> None:
        self.feed = msgspec.structs.replace(self.feed, sequence=self.feed.sequence + 1)
        self.send(MetadataOpcode.SUBSCRIBE, self._feed_id, Change(kind, key, version, self.feed.sequence))

    def say(self, **changes: Any) -> None:
        """The state of the feed, changed so."""
        self.feed = msgspec.structs.replace(self.feed, **changes)
        self.send(MetadataOpcode.FEED_STATE, self._feed_id, self.feed)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepts:
            writer.transport.abort()
            return
        self._writer = writer
        self.connections += 1
        decoder = FrameDecoder()
        while data := await reader.read(65_536):
            for frame in decoder.feed(data):
                self._handle(frame)
        writer.close()

    def _handle(self, frame: Frame) -> None:
        if frame.opcode == Opcode.HELLO:
            self.send(Opcode.HELLO, frame.correlation_id, Hello("pk", "metadata"))
        elif frame.opcode == MetadataOpcode.SUBSCRIBE:
            self._feed_id = frame.correlation_id
            self.heard = msgspec.msgpack.decode(frame.payload, type=Subscribe)
            self.say()
        else:
            self.asked.put_nowait(frame)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[MetadataClient]:
    client = MetadataClient("127.0.0.1", service.port, "pk")
    await client.start()
    yield client
    await client.close()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not reached():
            await asyncio.sleep(0.001)


async def test_key_is_asked_once_and_then_cached(service: Service, client: MetadataClient) -> None:
    assert client.cached_key("AKPS") is MISS
    callers = [asyncio.create_task(client.get_key("AKPS")) for _ in range(3)]
    frame = await service.next_asked()
    assert msgspec.msgpack.decode(frame.payload, type=GetKey) == GetKey("AKPS")
    service.send(frame.opcode, frame.correlation_id, KeyReply(key_record(1)))
    assert await asyncio.gather(*callers) == [key_record(1)] * 3
    assert service.asked.empty(), "one lookup for all three"
    assert client.cached_key("AKPS") == key_record(1)


async def test_caller_who_gives_up_does_not_take_the_answer_from_others(
    service: Service, client: MetadataClient
) -> None:
    first, second = (asyncio.create_task(client.get_key("AKPS")) for _ in range(2))
    frame = await service.next_asked()
    first.cancel()
    service.send(frame.opcode, frame.correlation_id, KeyReply(None))
    assert await second is None
    assert client.cached_key("AKPS") is None


async def test_change_on_the_feed_ends_the_entry(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_queue(ACCOUNT, "orders"))
    frame = await service.next_asked()
    service.send(frame.opcode, frame.correlation_id, QueueReply(queue_record(4)))
    assert await lookup == queue_record(4)
    service.change("queue", queue_change_key(ACCOUNT, "orders"), 5)
    await until(lambda: client.cached_queue(ACCOUNT, "orders") is MISS)


async def test_account_that_changed_is_looked_up_before_anybody_asks(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_account(ACCOUNT))
    frame = await service.next_asked()
    known = AccountRecord(ACCOUNT, "a", True, 4)
    service.send(frame.opcode, frame.correlation_id, AccountReply(known))
    assert await lookup == known
    service.change("account", "999999999999", 5)
    service.change("account", ACCOUNT, 6)
    again = await service.next_asked()
    assert msgspec.msgpack.decode(again.payload, type=GetAccount) == GetAccount(ACCOUNT), "the other one is not known"
    stopped = AccountRecord(ACCOUNT, "a", True, 6, sending_stopped="spend cap")
    service.send(again.opcode, again.correlation_id, AccountReply(stopped))
    await until(lambda: client.cached_account(ACCOUNT) == stopped)
    assert service.asked.empty()


async def test_answer_older_than_a_change_heard_meanwhile_is_asked_again(
    service: Service, client: MetadataClient
) -> None:
    lookup = asyncio.create_task(client.get_queue(ACCOUNT, "orders"))
    frame = await service.next_asked()
    service.change("queue", queue_change_key(ACCOUNT, "orders"), 5)
    service.send(frame.opcode, frame.correlation_id, QueueReply(queue_record(4)))
    again = await service.next_asked()
    service.send(again.opcode, again.correlation_id, QueueReply(queue_record(5)))
    assert await lookup == queue_record(5)


async def test_refresh_asks_past_the_caches_and_stores(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_queue(ACCOUNT, "orders"))
    frame = await service.next_asked()
    service.send(frame.opcode, frame.correlation_id, QueueReply(None))
    assert await lookup is None
    assert client.cached_queue(ACCOUNT, "orders") is None
    refresh = asyncio.create_task(client.refresh_queue(ACCOUNT, "orders"))
    frame = await service.next_asked()
    assert msgspec.msgpack.decode(frame.payload, type=GetQueue) == GetQueue(ACCOUNT, "orders", True)
    service.send(frame.opcode, frame.correlation_id, QueueReply(queue_record(1)))
    assert await refresh == queue_record(1)
    assert client.cached_queue(ACCOUNT, "orders") == queue_record(1)


async def test_service_error_is_unavailable_and_not_cached(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_key("AKPS"))
    frame = await service.next_asked()
    service.send(frame.opcode, frame.correlation_id, ErrorReply(20, "down"), FLAG_ANSWER | FLAG_ERROR)
    with pytest.raises(MetadataUnavailable):
        await lookup
    assert client.cached_key("AKPS") is MISS


async def fill_key(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_key("AKPS"))
    frame = await service.next_asked()
    service.send(frame.opcode, frame.correlation_id, KeyReply(key_record(1)))
    assert await lookup == key_record(1)


async def lose_service(service: Service, client: MetadataClient) -> None:
    service.accepts = False
    service.cut()
    await until(lambda: not client.connected)


async def come_back(service: Service, client: MetadataClient) -> None:
    service.accepts = True
    await until(lambda: client.connected)


async def test_cache_outlives_a_lost_connection_and_hears_what_it_missed(
    service: Service, client: MetadataClient
) -> None:
    service.change("queue", "a/b", 3)
    await fill_key(service, client)
    await lose_service(service, client)
    assert client.cached_key("AKPS") == key_record(1)
    assert await client.get_key("AKPS") == key_record(1)
    assert [one.part for one in client.troubles()] == ["metadata service"]
    await come_back(service, client)
    assert service.heard == Subscribe("epoch", 1), "it says what it heard last"
    assert client.cached_key("AKPS") == key_record(1)
    assert client._stale_timer is None and client.troubles() == []
    service.change("key", "AKPS", 2)
    await until(lambda: client.cached_key("AKPS") is MISS)
    assert service.connections == 2


@pytest.mark.parametrize("back", [{"epoch": "another"}, {"missed": True}])
async def test_what_is_held_is_compared_where_nobody_can_tell_what_was_missed(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch, back: dict[str, Any]
) -> None:
    monkeypatch.setattr("frontend.metadata.client.METADATA_COMPARE_JITTER_MS", 0)
    await fill_key(service, client)
    lookup = asyncio.create_task(client.get_queue(ACCOUNT, "orders"))
    frame = await service.next_asked()
    service.send(frame.opcode, frame.correlation_id, QueueReply(queue_record(4)))
    await lookup
    await lose_service(service, client)
    service.feed = msgspec.structs.replace(service.feed, **back)
    await come_back(service, client)
    for kind, keys, version, outdated in (
        ("key", ["AKPS"], 1, ["AKPS"]),
        ("queue", [queue_change_key(ACCOUNT, "orders")], 4, []),
    ):
        frame = await service.next_asked()
        assert msgspec.msgpack.decode(frame.payload, type=Compare) == Compare(kind, keys, [version])
        assert client._stale_timer is not None, "the deadline runs until all is compared"
        service.send(frame.opcode, frame.correlation_id, CompareReply(outdated))
    await until(lambda: client._stale_timer is None)
    assert client.cached_key("AKPS") is MISS
    assert client.cached_queue(ACCOUNT, "orders") == queue_record(4)
    await lose_service(service, client)
    await come_back(service, client)
    assert service.heard == Subscribe(service.feed.epoch, service.feed.sequence)


async def test_comparison_that_was_cut_short_is_begun_again(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.metadata.client.METADATA_COMPARE_JITTER_MS", 0)
    await fill_key(service, client)
    service.say(epoch="another", sequence=900)
    await service.next_asked()
    await lose_service(service, client)
    assert client.cached_key("AKPS") == key_record(1)
    await come_back(service, client)
    assert service.heard.epoch == "", "nothing of the new epoch counts before all was compared"
    assert (await service.next_asked()).opcode == MetadataOpcode.COMPARE
    deadline = client._stale_timer
    await lose_service(service, client)
    assert deadline is not None and client._stale_timer is deadline, "it runs since the first loss"


async def test_no_deadline_while_a_service_without_a_copy_waits_for_postgresql(service: Service) -> None:
    """It was started while PostgreSQL is away: nothing can have changed."""
    client = MetadataClient("127.0.0.1", service.port, "pk", staleness_ms=150)
    await client.start()
    assert client.serves
    await fill_key(service, client)
    await lose_service(service, client)
    service.feed = FeedState("another", 0, True, False, 1_700_000_000_000, never_reached=True)
    await come_back(service, client)
    assert client._stale_timer is None
    assert client.cached_key("AKPS") == key_record(1)
    assert client.serves
    assert [(one.part, one.since_ms) for one in client.troubles()] == [("PostgreSQL", 1_700_000_000_000)]
    await client.close()


@pytest.mark.parametrize("loaded", [False, True])
async def test_deadline_runs_while_a_service_may_miss_changes(service: Service, loaded: bool) -> None:
    """It was restarted, reaches PostgreSQL and cannot load it, or nobody answers what is compared."""
    client = MetadataClient("127.0.0.1", service.port, "pk", staleness_ms=400)
    await client.start()
    await fill_key(service, client)
    await lose_service(service, client)
    service.feed = FeedState("another", 0, True, False, 1_700_000_000_000)
    await come_back(service, client)
    assert client._stale_timer is not None, "it is loading: changes may be made meanwhile"
    service.say(never_reached=True)
    await until(lambda: client._stale_timer is None)
    service.say(never_reached=False, loaded=loaded)
    await until(lambda: client.cached_key("AKPS") is MISS)
    await client.close()


async def test_deadline_runs_while_postgresql_refuses_the_service(service: Service) -> None:
    """PostgreSQL is there: others may change it."""
    client = MetadataClient("127.0.0.1", service.port, "pk", staleness_ms=60_000)
    await client.start()
    await fill_key(service, client)
    assert client._stale_timer is None
    service.say(database_lost_at_ms=1_700_000_000_000, refused=True)
    await until(lambda: client._stale_timer is not None)
    (trouble,) = client.troubles()
    assert (trouble.part, trouble.since_ms) == ("PostgreSQL", 1_700_000_000_000)
    assert "takes no more connections" in trouble.reason
    assert client.cached_key("AKPS") == key_record(1) and client.serves
    service.say(database_lost_at_ms=0, refused=False)
    await until(lambda: client._stale_timer is None)
    assert not client.troubles()
    await client.close()


async def test_front_end_that_knows_nothing_and_can_ask_nobody_serves_nothing(service: Service) -> None:
    service.feed = FeedState("epoch", 0, True, False, 1)
    client = MetadataClient("127.0.0.1", service.port, "pk")
    await client.start()
    assert not client.serves
    service.say(loaded=True)
    await until(lambda: client.serves)
    await client.close()


async def test_cache_is_dropped_after_the_staleness_limit(service: Service) -> None:
    client = MetadataClient("127.0.0.1", service.port, "pk", staleness_ms=0)
    await client.start()
    await fill_key(service, client)
    await lose_service(service, client)
    await until(lambda: client.cached_key("AKPS") is MISS)
    assert not client.serves
    await client.close()


async def test_cold_lookups_are_refused_at_once_when_several_had_no_answer(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_key(service, client)
    monkeypatch.setattr("frontend.metadata.connection.METADATA_REQUEST_TIMEOUT_MS", 1)
    for number in range(METADATA_UNANSWERED_MAX):
        with pytest.raises(MetadataUnavailable, match="in time"):
            await client.get_key(f"AKPS{number}")
        await service.next_asked()
    with pytest.raises(MetadataUnavailable, match="does not answer"):
        await client.get_key("AKPS9")
    assert service.asked.empty()
    assert await client.get_key("AKPS") == key_record(1), "a warm name is not asked for"
    monkeypatch.undo()
    service.say()  # anything that is heard
    connection = client._connection
    assert connection is not None
    await until(lambda: connection._unanswered == 0)
    await fill_queue(service, client)


async def test_service_that_hangs_is_found_by_one_question_of_all_who_look(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.look()
    assert client.troubles() == [] and service.asked.empty(), "it was heard lately: it is not asked"
    monkeypatch.setattr("frontend.metadata.connection.METADATA_HEARD_LATELY_MS", 0)
    monkeypatch.setattr("frontend.metadata.connection.METADATA_ALIVE_MS_MAX", 50)
    before_ms = int(time.time() * 1000)
    await asyncio.gather(client.look(), client.look(), client.look())
    (trouble,) = client.troubles()
    assert (trouble.part, trouble.reason) == ("metadata service", "It does not answer.")
    # It is told back from a steady clock, which is not rounded as the wall clock is.
    assert before_ms - 5_000 < trouble.since_ms <= before_ms + 50
    frame = await service.next_asked()
    assert frame.opcode == MetadataOpcode.COMPARE and service.asked.empty()
    service.say()  # it goes on
    await until(lambda: client.troubles() == [])


async def test_service_that_answers_in_any_way_is_no_trouble(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.metadata.connection.METADATA_HEARD_LATELY_MS", 0)
    look = asyncio.create_task(client.look())
    frame = await service.next_asked()
    assert not look.done() and client.troubles() == []
    service.send(frame.opcode, frame.correlation_id, CompareReply([]))
    await look
    assert client.troubles() == []


async def fill_queue(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_queue(ACCOUNT, "orders"))
    frame = await service.next_asked()
    service.send(frame.opcode, frame.correlation_id, QueueReply(queue_record(4)))
    assert await lookup == queue_record(4)


async def test_lookups_of_one_account_leave_room_for_those_of_others(service: Service, client: MetadataClient) -> None:
    mine = [asyncio.create_task(client.get_queue("9" * 12, f"q{n}")) for n in range(METADATA_SHARE_MAX + 1)]
    for _ in range(METADATA_SHARE_MAX):
        await service.next_asked()
    await asyncio.sleep(0)
    assert service.asked.empty(), "the last one waits for its turn"
    await fill_queue(service, client)
    for task in (*mine, *client._flights.values()):
        task.cancel()
    await until(lambda: len(client._shares) == 0)


async def test_lookups_of_another_accounts_queues_take_no_share_of_that_account(
    service: Service, client: MetadataClient
) -> None:
    others = [asyncio.create_task(client.look_up_queue("9" * 12, ACCOUNT, f"q{n}")) for n in range(METADATA_SHARE_MAX)]
    again = asyncio.create_task(client.repeat_look_up("9" * 12, ACCOUNT, "q0"))
    for _ in range(METADATA_SHARE_MAX):
        await service.next_asked()
    await asyncio.sleep(0)
    assert service.asked.empty(), "what is at hand waits for its turn as what is not"
    await fill_queue(service, client)
    for task in (*others, again):
        task.cancel()
    await until(lambda: len(client._shares) == 0)


async def test_lookup_is_refused_while_the_service_is_down(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.metadata.client.METADATA_RECONNECT_WAIT_MS", 0)
    await lose_service(service, client)
    with pytest.raises(MetadataUnavailable) as caught:
        await client.get_key("AKPS")
    assert caught.value.retry_after_s > 0


async def test_lookup_rides_out_a_restart_of_the_service(service: Service, client: MetadataClient) -> None:
    lookup = asyncio.create_task(client.get_key("AKPS"))
    await service.next_asked()
    service.cut()
    frame = await service.next_asked()
    assert service.connections == 2
    service.send(frame.opcode, frame.correlation_id, KeyReply(key_record(1)))
    assert await lookup == key_record(1)


async def test_silent_connection_is_given_up(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.metadata.connection.METADATA_SILENCE_MS_MAX", 0)
    assert client._connection is not None
    client._connection.watch_silence()
    await until(lambda: not client.connected)


async def test_look_up_that_the_service_would_not_take_is_not_sent(service: Service, client: MetadataClient) -> None:
    """It would cut the connection, and fail the look-ups of every other account."""
    with pytest.raises(MetadataUnavailable, match="is not asked"):
        await client.get_queue(ACCOUNT, "q" * METADATA_FRAME_BYTES_MAX)
    asked = asyncio.create_task(client.get_key("AKPS"))
    frame = await service.next_asked()
    service.send(MetadataOpcode.GET_KEY, frame.correlation_id, KeyReply(key_record(1)))
    assert await asked is not None and service.connections == 1
