"""One connection to the metadata service: HELLO, SUBSCRIBE, then pipelined lookups. No retries, no cache.

`lost` is a future that ends when the connection does; everything still waiting fails with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

import msgspec

from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.limits import (
    METADATA_ALIVE_MS_MAX,
    METADATA_CONNECT_TIMEOUT_MS,
    METADATA_FRAME_BYTES_MAX,
    METADATA_HEARD_LATELY_MS,
    METADATA_REQUEST_TIMEOUT_MS,
    METADATA_REQUESTS_IN_FLIGHT_MAX,
    METADATA_SILENCE_MS_MAX,
    METADATA_UNANSWERED_MAX,
)
from frontend.metadata.messages import (
    AccountReply,
    Change,
    Compare,
    CompareReply,
    EncryptionKeyReply,
    FeedState,
    KeyReply,
    MetadataOpcode,
    QueueReply,
    Subscribe,
    UseShares,
)
from frontend.metadata.records import RecordKind
from storage_nodes.limits import CORRELATION_ID_MAX
from storage_nodes.protocol.frames import FLAG_ERROR, Frame, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.messages import ErrorReply, Hello, Message, Opcode, encode_message
from storage_nodes.trust.connection import connect_named, is_role
from storage_nodes.trust.credentials import Credentials
from storage_nodes.trust.names import InnerRole


class ConnectionLost(MetadataUnavailable):
    """The lookup may be repeated on the next connection."""


Reply = (
    Hello | KeyReply | QueueReply | AccountReply | EncryptionKeyReply | CompareReply | UseShares | Change | FeedState
)
Pushed = Change | FeedState

_DECODE: dict[int, Callable[[bytes], Reply]] = {
    Opcode.HELLO: msgspec.msgpack.Decoder(Hello).decode,
    MetadataOpcode.GET_KEY: msgspec.msgpack.Decoder(KeyReply).decode,
    MetadataOpcode.GET_QUEUE: msgspec.msgpack.Decoder(QueueReply).decode,
    MetadataOpcode.GET_ACCOUNT: msgspec.msgpack.Decoder(AccountReply).decode,
    MetadataOpcode.GET_ENCRYPTION_KEY: msgspec.msgpack.Decoder(EncryptionKeyReply).decode,
    MetadataOpcode.COMPARE: msgspec.msgpack.Decoder(CompareReply).decode,
    MetadataOpcode.REPORT_USE: msgspec.msgpack.Decoder(UseShares).decode,
    MetadataOpcode.SUBSCRIBE: msgspec.msgpack.Decoder(Change).decode,
    MetadataOpcode.FEED_STATE: msgspec.msgpack.Decoder(FeedState).decode,
}
_decode_error = msgspec.msgpack.Decoder(ErrorReply).decode


class MetadataConnection(asyncio.Protocol):
    """Made by `open_connection`, which returns it subscribed."""

    def __init__(self, on_push: Callable[[Pushed], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_push = on_push
        self._decoder = FrameDecoder(METADATA_FRAME_BYTES_MAX)
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._last_id = 0
        self._heard_at_s = self._loop.time()
        self._unanswered = 0  # look-ups since anything was heard
        self._asked_at_s = 0.0  # whether it is there
        self._question: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()

    async def ask(self, opcode: int, message: Message) -> Reply:
        """The answer. Raises MetadataUnavailable when there is none in time."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost("the connection to the metadata service is closed")
        if len(self._pending) >= METADATA_REQUESTS_IN_FLIGHT_MAX:
            raise MetadataUnavailable("too many metadata lookups are under way")
        if self._unanswered >= METADATA_UNANSWERED_MAX:
            # A circuit breaker that needs no probe: whatever is heard closes it, silence ends the connection.
            raise MetadataUnavailable("the metadata service does not answer")
        correlation_id = self._next_id()
        frame = encode_frame(opcode, 0, correlation_id, encode_message(message))
        if len(frame) > METADATA_FRAME_BYTES_MAX:
            # The service would cut the connection, which all accounts share.
            raise MetadataUnavailable(f"a metadata lookup of {len(frame)} bytes is not asked")
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._pending[correlation_id] = future
        self._transport.write(frame)
        try:
            async with asyncio.timeout(METADATA_REQUEST_TIMEOUT_MS / 1000):
                return await future
        except TimeoutError:
            self._unanswered += 1
            raise MetadataUnavailable("the metadata service did not answer in time") from None
        finally:
            self._pending.pop(correlation_id, None)

    @property
    def is_silent(self) -> bool:
        """It was asked whether it is there, did not answer in time, and was not heard since."""
        is_over = self._question is not None and self._question.done()
        return is_over and self._heard_at_s < self._asked_at_s

    @property
    def silent_ms(self) -> int:
        """Since it was heard last."""
        return int((self._loop.time() - self._heard_at_s) * 1000)

    async def look(self) -> None:
        """Asks whether the service is there, unless it was heard lately; all who look meanwhile share one question."""
        if self.silent_ms < METADATA_HEARD_LATELY_MS:
            return
        if self._question is None or self._question.done():
            self._asked_at_s = self._loop.time()
            self._question = asyncio.create_task(self._ask_for_life(), name="metadata-alive")
        await asyncio.wait({self._question})

    async def _ask_for_life(self) -> None:
        """A comparison of nothing: any answer will do, a refusal too."""
        with contextlib.suppress(MetadataUnavailable, TimeoutError):
            async with asyncio.timeout(METADATA_ALIVE_MS_MAX / 1000):
                await self.ask(MetadataOpcode.COMPARE, Compare(RecordKind.KEY.value, [], []))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def watch_silence(self) -> None:
        """From here on the connection is given up when nothing is heard for METADATA_SILENCE_MS_MAX."""
        silent_ms = (self._loop.time() - self._heard_at_s) * 1000
        if silent_ms >= METADATA_SILENCE_MS_MAX:
            self.close()
            return
        self._watch = self._loop.call_later((METADATA_SILENCE_MS_MAX - silent_ms) / 1000, self.watch_silence)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        self._heard_at_s = self._loop.time()
        self._unanswered = 0
        try:
            for frame in self._decoder.feed(data):
                self._handle(frame)
        except (FrameError, msgspec.DecodeError):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionLost("the connection to the metadata service was lost"))
        if not self.lost.done():
            self.lost.set_result(None)

    def _handle(self, frame: Frame) -> None:
        future = self._pending.get(frame.correlation_id)
        if frame.flags & FLAG_ERROR:
            error = _decode_error(frame.payload)
            if future is not None and not future.done():
                future.set_exception(MetadataUnavailable(error.message))
            return
        decode = _DECODE.get(frame.opcode)
        if decode is None:
            raise FrameError(f"opcode {frame.opcode} is not an answer of this service")
        reply = decode(frame.payload)
        if future is not None and not future.done():
            future.set_result(reply)
        if isinstance(reply, Pushed):
            self._on_push(reply)

    def _next_id(self) -> int:
        self._last_id = self._last_id % CORRELATION_ID_MAX + 1
        return self._last_id


async def open_connection(
    host: str,
    port: int,
    cluster_id: str,
    name: str,
    heard: Subscribe,
    on_push: Callable[[Pushed], None],
    credentials: Credentials | None = None,
) -> MetadataConnection:
    """A connection whose feed is confirmed; `heard` says where an earlier one ended.

    Raises MetadataUnavailable or OSError.
    """
    expected = is_role(InnerRole.METADATA)
    try:
        async with asyncio.timeout(METADATA_CONNECT_TIMEOUT_MS / 1000):
            connection = await connect_named(
                credentials, lambda: MetadataConnection(on_push), host, port, expected, always_encrypts=True
            )
    except TimeoutError:
        raise MetadataUnavailable("the metadata service does not take connections") from None
    try:
        await connection.ask(Opcode.HELLO, Hello(cluster_id, name))
        await connection.ask(MetadataOpcode.SUBSCRIBE, heard)
    except BaseException:
        connection.close()
        raise
    connection.watch_silence()
    return connection
