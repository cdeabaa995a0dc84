"""One pipelined connection from a client to a storage node.

Requests are written as they come and answered in any order; frames that are asked for within one turn of the event
loop leave in one write, but for those that were gathered before: they leave at once. What the operating system does not
take yet waits here, in order (CLIENT_WRITE_BUFFER_BYTES): a burst of any size is slow at worst, and never a reason to
close the connection.

While calls are outstanding and nothing is heard for PING_AFTER_MS, the node is asked whether it is there; it answers at
once, whatever else waits at it. Without any sign of it for PING_ANSWER_MS more, the connection is given up. A node that
answers is waited for as long as the callers do: that its disk or a majority is slow is no reason to ask it again.

When the connection is lost every waiting call fails with UNREACHABLE (if its frame was never written) or
OUTCOME_UNKNOWN.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import cast

import msgspec

from storage_nodes.ids import node_name
from storage_nodes.limits import CLIENT_WRITE_BUFFER_BYTES, CORRELATION_ID_MAX, PING_AFTER_MS, PING_ANSWER_MS
from storage_nodes.model import NodeAddress
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.frames import FLAG_ERROR, FrameDecoder, FrameError, encode_frame, frame_pieces
from storage_nodes.protocol.levels import Speaks, spoken
from storage_nodes.protocol.messages import Cancel, Empty, ErrorReply, Hello, Opcode, encode_message, message_reader
from storage_nodes.trust.connection import connect_named, is_node
from storage_nodes.trust.credentials import Credentials

_error_reply = message_reader(ErrorReply)
_hello = message_reader(Hello)
_EMPTY = encode_message(Empty())

Completion = Callable[[bytes | StorageError], None]


PING_AFTER_S = PING_AFTER_MS / 1000
PING_ANSWER_S = PING_ANSWER_MS / 1000
# When our own loop is later than this with a look at the clock, what came in meanwhile is read first.
LATE_S = 0.25
# From here on a frame is written in pieces: two of them cost less than a copy.
PIECES_FROM_BYTES = 16 * 1024


class ClientConnection(asyncio.Protocol):
    """Frames out, answers in. `ask` is for one answer; nothing here knows what a message means."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._waiting: dict[int, Completion] = {}
        self._next_id = 0
        # Frames that wait to be written, by request id; those that nobody waits for have a number below zero.
        self._unwritten: OrderedDict[int, bytes] = OrderedDict()
        self._unwritten_bytes = 0
        self._written_bytes = 0
        self._next_note = 0
        self._is_flushing = False
        self._is_paused = False
        # The watch, while calls are outstanding: since when nothing was heard, whether the node was asked for a sign,
        # and what the operating system had taken of what waited at the last look (-1: nothing waited).
        self._watch: asyncio.TimerHandle | None = None
        self._quiet_since_s = 0.0
        self._is_pinged = False
        self._taken_bytes = -1

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def node_is_there(self) -> bool:
        """As far as can be told now: connected, and owes no answer to a ping."""
        return self.is_open and not self._is_pinged

    def ask(self, opcode: int, payload: bytes, done: Completion, at_once: bool = False) -> int:
        """Send one request; `done` is called once with the answer's payload or a StorageError. Returns its id.

        `at_once`: it does not wait for others of this turn. A turn of the loop is worth it where few requests are made.
        """
        transport = self._transport
        if transport is None:
            done(StorageError(ErrorCode.UNREACHABLE, "connection is closed"))
            return 0
        request_id = self._next_id = self._next_id % CORRELATION_ID_MAX + 1
        self._waiting[request_id] = done
        if not at_once or self._unwritten or self._is_paused or transport.is_closing():
            self._write(request_id, encode_frame(opcode, 0, request_id, payload))
        elif len(payload) < PIECES_FROM_BYTES:
            frame = encode_frame(opcode, 0, request_id, payload)
            self._written_bytes += len(frame)
            transport.write(frame)
        else:
            pieces = frame_pieces(opcode, 0, request_id, payload)
            self._written_bytes += sum(map(len, pieces))
            transport.writelines(pieces)
        if self._watch is None:
            self._quiet_since_s = self._loop.time()
            self._watch = self._loop.call_later(PING_AFTER_S, self._look, self._quiet_since_s + PING_AFTER_S)
        return request_id

    def cancel(self, request_id: int) -> bool:
        """Give up a call; its completion is dropped, the node is told where it heard of it. May it have?"""
        if self._waiting.pop(request_id, None) is None:
            return True
        if self._drop_unwritten(request_id):
            return False
        self._write_cancel(request_id)
        return True

    def ask_to_cancel(self, request_id: int) -> None:
        """As `cancel`, but its completion hears what becomes of it: the answer may be on its way."""
        if request_id not in self._waiting:
            return
        if self._drop_unwritten(request_id):
            error = StorageError(ErrorCode.UNREACHABLE, "given up before it was sent")
            error.node_is_there = self.node_is_there
            self._waiting.pop(request_id)(error)
        else:
            self._write_cancel(request_id)

    def close(self) -> None:
        if self._transport is not None:
            if self._unwritten:
                self._transport.write(self._take(self._unwritten_bytes))
            self._transport.close()

    # --- writing ----------------------------------------------------------------------------------------------

    def _write_cancel(self, request_id: int) -> None:
        if self.is_open:
            self._next_note -= 1
            self._write(self._next_note, encode_frame(Opcode.CANCEL, 0, 0, encode_message(Cancel(request_id))))

    def _write(self, number: int, frame: bytes) -> None:
        self._unwritten[number] = frame
        self._unwritten_bytes += len(frame)
        if not self._is_flushing and not self._is_paused:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _drop_unwritten(self, request_id: int) -> bool:
        frame = self._unwritten.pop(request_id, None)
        if frame is None:
            return False
        self._unwritten_bytes -= len(frame)
        return True

    def _flush(self) -> None:
        self._is_flushing = False
        transport = self._transport
        while self._unwritten and not self._is_paused and transport is not None and not transport.is_closing():
            transport.write(self._take(CLIENT_WRITE_BUFFER_BYTES))

    def _take(self, bytes_max: int) -> bytes:
        """The first frames, one at least, of up to so many bytes."""
        unwritten = self._unwritten
        if self._unwritten_bytes <= bytes_max:
            taken = b"".join(unwritten.values())
            unwritten.clear()
        else:
            frames = [unwritten.popitem(last=False)[1]]
            size = len(frames[0])
            while unwritten and size < bytes_max:
                frames.append(unwritten.popitem(last=False)[1])
                size += len(frames[-1])
            taken = b"".join(frames)
        self._unwritten_bytes -= len(taken)
        self._written_bytes += len(taken)
        return taken

    # --- is the node there? -----------------------------------------------------------------------------------

    def _look(self, due_s: float) -> None:
        """A timer rings when nothing may have been heard for too long."""
        self._watch = None
        transport = self._transport
        if transport is None or not self._waiting:
            self._is_pinged = False
            return
        now_s = self._loop.time()
        if self._has_moved(transport):
            self._quiet_since_s, self._is_pinged = now_s, False
        if self._is_pinged and now_s <= due_s + LATE_S:
            transport.abort()
            return
        if now_s >= self._quiet_since_s + PING_AFTER_S:
            self._is_pinged = True
            # Ahead of what waits here: behind it, it would say nothing of the node.
            ping = encode_frame(Opcode.PING, 0, 0, _EMPTY)
            self._written_bytes += len(ping)
            transport.write(ping)
            due_s = now_s + PING_ANSWER_S
        else:
            due_s = self._quiet_since_s + PING_AFTER_S
        self._watch = self._loop.call_at(due_s, self._look, due_s)

    def _has_moved(self, transport: asyncio.Transport) -> bool:
        """Did the node take more of what waited to be written at the last look? Only then: what the operating system
        has room for says nothing of the node."""
        waiting_bytes = transport.get_write_buffer_size()
        taken_bytes = self._written_bytes - waiting_bytes
        has_moved = 0 <= self._taken_bytes < taken_bytes
        self._taken_bytes = taken_bytes if waiting_bytes else -1
        return has_moved

    # --- asyncio.Protocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._quiet_since_s = self._loop.time()
        self._is_pinged = False
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
                done(_read_error(payload))
            else:
                done(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
        waiting, self._waiting = self._waiting, {}
        unwritten, self._unwritten = self._unwritten, OrderedDict()
        for request_id, done in waiting.items():
            if request_id in unwritten:
                done(StorageError(ErrorCode.UNREACHABLE, "connection lost before the request was sent"))
            else:
                done(StorageError(ErrorCode.OUTCOME_UNKNOWN, "connection lost before the answer"))


def _read_error(payload: bytes) -> StorageError:
    try:
        reply = _error_reply(payload)
    except msgspec.DecodeError:
        return StorageError(ErrorCode.OUTCOME_UNKNOWN, "the node answered with what cannot be read")
    error = StorageError(error_code(reply.code), reply.message, reply.leader, reply.retry_after_ms)
    error.node_is_there = True
    return error


def error_code(number: int) -> ErrorCode:
    """A number from the wire as an ErrorCode; one we do not know yet counts as INTERNAL (outcome unknown)."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.INTERNAL


async def connect(
    cluster_id: str, name: str, node: NodeAddress, timeout_s: float, credentials: Credentials | None = None
) -> ClientConnection:
    """Open a connection and greet. Raises StorageError (UNREACHABLE, or what the node refused us with)."""
    loop = asyncio.get_running_loop()
    connection: ClientConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await connect_named(
                credentials, lambda: ClientConnection(loop), node.host, node.port, is_node(node.node_id)
            )
            theirs = _hello(await _greet(connection, Hello(cluster_id, name, 0, spoken()[:2])))
    except (OSError, TimeoutError) as error:
        if connection is not None:
            connection.close()
        text = f"{node.host}:{node.port}: {error or 'timed out'}"
        raise StorageError(ErrorCode.UNREACHABLE, text) from error
    objection = spoken().objection(Speaks(*theirs.levels), f"node {node_name(node.node_id)} at {node.host}:{node.port}")
    if objection:
        connection.close()
        raise StorageError(ErrorCode.UNAVAILABLE, objection)
    if theirs.cluster_id != cluster_id:
        connection.close()
        text = f"{node.host}:{node.port} belongs to cluster {theirs.cluster_id}"
        raise StorageError(ErrorCode.INVALID_REQUEST, text)
    if theirs.node_id != node.node_id:
        connection.close()
        text = f"{node.host}:{node.port} is node {node_name(theirs.node_id)}, not node {node_name(node.node_id)}"
        raise StorageError(ErrorCode.INVALID_REQUEST, text)
    return connection


def _greet(connection: ClientConnection, hello: Hello) -> asyncio.Future[bytes]:
    greeted: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answer(result: bytes | StorageError) -> None:
        if greeted.done():
            return
        if isinstance(result, StorageError):
            greeted.set_exception(result)
        else:
            greeted.set_result(result)

    connection.ask(Opcode.HELLO, encode_message(hello), answer)
    return greeted
