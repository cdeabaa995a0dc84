"""The metadata client against a service of frames that the test writes and reads itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from frontend.metadata.client import MISS, MetadataClient, MetadataUnavailable
from frontend.metadata.messages import HEARTBEAT, Change, GetKey, GetQueue, KeyReply, MetadataOpcode, QueueReply
from frontend.metadata.records import DataKey, KeyRecord, QueueRecord, queue_change_key
from storage_nodes.protocol.frames import FLAG_ANSWER, FLAG_ERROR, Frame, FrameDecoder, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Hello, Opcode, encode_message

ACCOUNT = "123456789012"


def key_record(version: int) -> KeyRecord:
    return KeyRecord("AKPS", ACCOUNT, "key", b"s", b"h", True, None, version)


def queue_record(version: int) -> QueueRecord:
    keys = [DataKey(1, b"w")]
    return QueueRecord(ACCOUNT, "orders", bytes(16), [1], "active", {}, False, b"a", keys, 1, 2, version)


class Service:
    """One connection at a time; lookups wait in `asked` until the test answers them."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Frame] = asyncio.Queue()
        self.connections = 0
        self.accepts = True
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
        self.send(MetadataOpcode.SUBSCRIBE, self._feed_id, Change(kind, key, version))

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
            self.change(HEARTBEAT, "", 0)
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


async def test_cache_is_served_while_the_service_is_down_and_dropped_when_it_is_back(
    service: Service, client: MetadataClient
) -> None:
    await fill_key(service, client)
    service.accepts = False
    service.cut()
    await until(lambda: not client.connected)
    assert client.cached_key("AKPS") == key_record(1)
    assert await client.get_key("AKPS") == key_record(1)
    service.accepts = True
    await until(lambda: client.connected)
    assert client.cached_key("AKPS") is MISS, "changes were missed"
    assert service.connections == 2


async def test_cache_is_dropped_after_the_staleness_limit(service: Service) -> None:
    client = MetadataClient("127.0.0.1", service.port, "pk", staleness_ms=0)
    await client.start()
    await fill_key(service, client)
    service.accepts = False
    service.cut()
    await until(lambda: client.cached_key("AKPS") is MISS)
    await client.close()


async def test_lookup_is_refused_while_the_service_is_down(
    service: Service, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.metadata.client.METADATA_RECONNECT_WAIT_MS", 0)
    service.accepts = False
    service.cut()
    await until(lambda: not client.connected)
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
