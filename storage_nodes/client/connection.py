"""One pipelined connection from a client to a storage node.

Requests are written as they come and answered in any order; frames that are asked for within one turn of the event
loop leave in one write. When the connection is lost every waiting call fails with UNREACHABLE (if its frame was
never written) or OUTCOME_UNKNOWN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from storage_nodes.limits import CONNECTION_WRITE_BUFFER_BYTES_MAX, CORRELATION_ID_MAX
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, FrameError, encode_frame
from storage_nodes.protocol.messages import Cancel, ErrorReply, Hello, Opcode, encode_message

_error_reply = msgspec.msgpack.Decoder(ErrorReply)
_hello = msgspec.msgpack.Decoder(Hello)

Completion = Callable[[bytes | StorageError], None]


class Connection(asyncio.Protocol):
    """Frames out, answers in. `ask` is for one answer; nothing here knows what a message means."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._waiting: dict[int, Completion] = {}
        self._next_id = 0
        self._out: list[bytes] = []
        self.closed: asyncio.Future[None] = loop.create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.closed.done()

    def ask(self, opcode: int, payload: bytes, done: Completion) -> int:
        """Send one request; `done` is called once with the answer's payload or a StorageError. Returns its id."""
        if not self.is_open:
            done(StorageError(ErrorCode.UNREACHABLE, "connection is closed"))
            return 0
        request_id = self._next_id = (self._next_id + 1) & CORRELATION_ID_MAX
        self._waiting[request_id] = done
        self._write(encode_frame(opcode, 0, request_id, payload))
        return request_id

    def cancel(self, request_id: int) -> None:
        """Give up a parked call; its completion is dropped, the node is told."""
        if self._waiting.pop(request_id, None) is not None and self.is_open:
            self._write_cancel(request_id)

    def ask_to_cancel(self, request_id: int) -> None:
        """As `cancel`, but its completion hears what becomes of it: the answer may be on its way."""
        if request_id in self._waiting and self.is_open:
            self._write_cancel(request_id)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def _write_cancel(self, request_id: int) -> None:
        self._write(encode_frame(Opcode.CANCEL, 0, 0, encode_message(Cancel(request_id))))

    def _write(self, frame: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))
            if self._transport.get_write_buffer_size() > CONNECTION_WRITE_BUFFER_BYTES_MAX:
                self._transport.abort()

    # --- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except FrameError:
            assert self._transport is not None
            self._transport.abort()
            return
        waiting = self._waiting
        for _opcode, flags, request_id, payload in frames:
            done = waiting.pop(request_id, None)
            if done is None:
                continue
            if flags & FLAG_ERROR:
                reply = _error_reply.decode(payload)
                done(StorageError(error_code(reply.code), reply.message, reply.leader, reply.retry_after_ms))
            else:
                done(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(StorageError(ErrorCode.OUTCOME_UNKNOWN, "connection lost before the answer"))


def error_code(number: int) -> ErrorCode:
    """A number from the wire as an ErrorCode; one we do not know yet counts as INTERNAL (outcome unknown)."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.INTERNAL


async def connect(cluster_id: str, name: str, host: str, port: int, timeout_s: float) -> Connection:
    """Open a connection and greet. Raises StorageError (UNREACHABLE, or what the node refused us with)."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(lambda: Connection(loop), host, port)
            greeted: asyncio.Future[bytes] = loop.create_future()

            def answer(result: bytes | StorageError) -> None:
                if greeted.done():
                    return
                if isinstance(result, StorageError):
                    greeted.set_exception(result)
                else:
                    greeted.set_result(result)

            connection.ask(Opcode.HELLO, encode_message(Hello(cluster_id, name)), answer)
            theirs = _hello.decode(await greeted)
    except (OSError, TimeoutError) as error:
        raise StorageError(ErrorCode.UNREACHABLE, f"{host}:{port}: {error or 'timed out'}") from error
    if theirs.cluster_id != cluster_id:
        connection.close()
        raise StorageError(ErrorCode.INVALID_REQUEST, f"{host}:{port} belongs to cluster {theirs.cluster_id}")
    return connection
