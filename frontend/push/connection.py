"""One websocket's connection, as uvicorn runs it; what it does not bound by itself is bounded here.

    frame       must be whole within the time of a body, and arrive at its rate (`frontend/client_bytes.py`)
    memory      of frames that are not whole, or wait for the application (`frontend/client_bytes.py`)
    a turn      a piece of what was read is parsed (SOCKET_PARSE_BYTES); behind a frame for the application the rest of
                it waits, unparsed, until the application has taken that
    idle        frames that bring the application nothing (pings, pongs, tiny parts) are counted by time
    pushed      the client must read it (`frontend/writing.py`)
    upgrade     what the client says before the answer is not looked at before it
    stop        the application ends the socket: what it still has to say goes out first

A client that is cut for a frame hears of it from the application, behind what that is still answering. A bulk socket
takes larger frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import structlog
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from frontend.client_bytes import held_frames, lateness
from frontend.crowd import Waiting
from frontend.errors import RequestError, unavailable
from frontend.flood_log import FloodLog
from frontend.http import network_of, new_request_id
from frontend.limits import (
    BULK_BYTES_MAX,
    FRAME_LOOK_S,
    FRAME_OVERHEAD_BYTES,
    FRAME_PART_BYTES_MIN,
    IDLE_FRAMES_AT_ONCE_MAX,
    IDLE_FRAMES_PER_S,
    LINGER_BYTES_MAX,
    LINGER_S_MAX,
    SOCKET_FRAME_BYTES_MAX,
    SOCKET_PARSE_BYTES,
)
from frontend.push.closing import CLOSE_LATE, CLOSE_OVER_LIMIT, CLOSE_RESTART, CLOSE_TRY_LATER, STOPPING, close_reason
from frontend.rest.problems import problem_parts

_BULK_PATH = re.compile(r"/v1/(?:accounts/[0-9]{12}/)?queues/[^/]+/bulk")
# In the state of the scope: who is accountable for the frames, as soon as the application knows.
HOLDER = "frames_holder"
# Of a frame to be sent: asked once the client can take it, up to the time of a ping after it was given.
STILL = "still"
_log = structlog.get_logger("frontend.push")
_slow_frames = FloodLog(_log, "slow_frame_cut")
_floods = FloodLog(_log, "flood_of_frames_cut")


@contextlib.contextmanager
def cut_if_it_fails(transport: asyncio.Transport) -> Iterator[None]:
    """A stopping server ends each connection, whatever becomes of another one."""
    try:
        yield
    except Exception:
        _log.exception("connection_not_ended", client=str(transport.get_extra_info("peername")))
        transport.abort()


class FrameExpired(Exception):
    """The client was slow, and what the frame says may not be shown any more: nothing of it was sent."""


class BoundedSocketProtocol(WebSocketsSansIOProtocol):
    """One websocket.

    _began_s        when the frame that is arriving began; 0 = none is
    _arrived_bytes  since then
    _sizes          of the frames that wait for the application
    _waiting_bytes  their sum: one piece of the network can hold tens of thousands of them
    _in_work_bytes  of the frame that the application has
    _unanswered     what is told where the application does not answer the upgrade
    _early          came before the upgrade was answered: the parser would answer a ping, or fail without a word
    _unparsed       was read together with frames that the application has not taken yet
    _idle_at_s      when the idle frames that came would have come at the rate that they have
    """

    transport: Any
    _late_bytes: int | None = None  # that came after a frame was refused; None: none was
    _began_s = 0.0
    _arrived_bytes = 0
    _watch: asyncio.TimerHandle | None = None
    _waiting_bytes = 0
    _in_work_bytes = 0
    _held_bytes = 0
    _holder = ""
    _early = b""
    _unparsed = b""
    _idle_at_s = 0.0
    _is_flooded = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sizes: deque[int] = deque()
        self._unanswered = RequestError("InternalFailure", "")

    # --- what arrives ---

    def data_received(self, data: bytes) -> None:
        if self._late_bytes is not None:
            self._late_bytes += len(data)
            if self._late_bytes > LINGER_BYTES_MAX:
                self.transport.close()
            return
        if self.handshake_initiated and not self.handshake_complete:
            self._early += data
        elif self._unparsed or self.read_paused:
            self._unparsed += data
        else:
            self._unparsed = data
            self._parse_on()
        if self.close_sent or self._late_bytes is not None:
            return
        self._arrived_bytes += len(data)
        if self._note_held() and held_frames.is_over(self._holder):
            self._refuse(CLOSE_TRY_LATER, "Too many bytes of frames wait to be whole, or to be worked on.")
        elif len(self._early) > SOCKET_FRAME_BYTES_MAX:
            self.transport.abort()  # a client waits for the answer to its handshake

    def _parse_on(self) -> None:
        """Up to the next frame for the application. One turn of the event loop parses no whole read of tiny frames."""
        data, self._unparsed = self._unparsed, b""
        start = 0
        while start < len(data) and not self.read_paused and self._late_bytes is None:
            piece = data[start : start + SOCKET_PARSE_BYTES] if self.handshake_complete else data[start:]
            start += len(piece)
            super().data_received(piece)
            if self._is_flooded and self._late_bytes is None:
                self._cut_flood()
        if self._late_bytes is None:
            self._unparsed = data[start:]

    def _note_idle(self) -> None:
        now_s = self.loop.time()
        self._idle_at_s = max(self._idle_at_s, now_s) + 1 / IDLE_FRAMES_PER_S
        if self._idle_at_s > now_s + IDLE_FRAMES_AT_ONCE_MAX / IDLE_FRAMES_PER_S:
            self._is_flooded = True

    def _cut_flood(self) -> None:
        if self.close_sent:
            self._throw_away()
            self._end_writing()
        else:
            _floods.warn(self.loop.time(), client=str(self.client))
            self._refuse(CLOSE_OVER_LIMIT, "Too many pings, pongs or tiny parts of frames.")

    def handle_connect(self, event: Request) -> None:
        """The parser takes the bound of a frame before the frame; where the socket leads is known before the first."""
        super().handle_connect(event)
        if not self.close_sent and _BULK_PATH.fullmatch(self.scope["path"]) is not None:
            self.conn.max_message_size = BULK_BYTES_MAX

    def _note_held(self) -> bool:
        """Whether more is held than before."""
        unfinished_bytes = len(self.conn.reader.buffer) + len(self._early) + (self.conn.current_size or 0)
        if not unfinished_bytes and self.conn.current_size is None:
            self._began_s = 0.0
        elif not self._began_s:
            self._began_s = self.loop.time()
            self._arrived_bytes = unfinished_bytes
            if self._watch is None:
                self._watch = self.loop.call_later(FRAME_LOOK_S, self._look)
        held_bytes = unfinished_bytes + len(self.frames) * FRAME_OVERHEAD_BYTES
        held_bytes += len(self._unparsed) + self._waiting_bytes + self._in_work_bytes
        if held_bytes == self._held_bytes:
            return False
        holder = self._find_holder()
        held_frames.change(self._holder, -self._held_bytes)
        held_frames.change(holder, held_bytes)
        is_more = held_bytes > self._held_bytes
        self._held_bytes, self._holder = held_bytes, holder
        return is_more

    def _find_holder(self) -> str:
        if not hasattr(self, "scope"):
            return ""  # the request is not whole
        return str(self.scope["state"].get(HOLDER) or network_of(self.client[0] if self.client else ""))

    def _look(self) -> None:
        """A frame whose bytes nobody reads at the moment is not late: its time begins again."""
        self._watch = None
        if not self._began_s or self.close_sent or self._late_bytes is not None:
            return
        now_s = self.loop.time()
        if self.read_paused:
            self._began_s, self._arrived_bytes = now_s, 0
        late = lateness("frame", now_s - self._began_s, self._arrived_bytes)
        if late:
            _slow_frames.warn(now_s, reason=late, client=str(self.client))
            self._refuse(CLOSE_LATE, f"The frame did not arrive in time: {late}.")
        else:
            self._watch = self.loop.call_later(FRAME_LOOK_S, self._look)

    def _refuse(self, code: int, reason: str) -> None:
        """The frame that is arriving is thrown away, and the application ends the socket."""
        self._throw_away()
        self._ask_to_end(code, reason)

    def _throw_away(self) -> None:
        """What is not parsed yet, and what still comes."""
        self._late_bytes = 0
        self._forget_unfinished()

    def _forget_unfinished(self) -> None:
        self.conn.reader.discard()
        self._early = self._unparsed = b""
        self.frames = []
        self.conn.current_size = None
        self._note_held()

    def _ask_to_end(self, code: int, reason: str) -> None:
        self.stop_keepalive()
        self.close_timeout = LINGER_S_MAX
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": close_reason(reason)})

    # --- what the application does with it ---

    def send_receive_event_to_app(self) -> None:
        """In the place of uvicorn's, which writes a trace into the log for a text that is none."""
        self._began_s = 0.0  # it is whole
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            self._note_idle()
            return  # and reads on, to the client's own close
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        else:
            try:
                self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
            except UnicodeDecodeError:
                self.conn.fail(CloseCode.INVALID_DATA, "A text frame is not UTF-8.")
                self.handle_parser_exception()
                return
        size_bytes = len(data) + FRAME_OVERHEAD_BYTES
        self._sizes.append(size_bytes)
        self._waiting_bytes += size_bytes
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        self._note_idle()
        pongs = self.conn.data_to_send()  # to all pings of a piece
        if pongs and self._late_bytes is None:  # else nothing may be written any more
            self.transport.write(b"".join(pongs))

    def handle_pong(self, event: Frame) -> None:
        self._note_idle()
        super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        self._note_part(event)
        super().handle_cont(event)

    def handle_text(self, event: Frame) -> None:
        self._note_part(event)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._note_part(event)
        super().handle_bytes(event)

    def _note_part(self, event: Frame) -> None:
        if not event.fin and len(event.data) < FRAME_PART_BYTES_MIN:
            self._note_idle()

    async def receive(self) -> Any:
        self._in_work_bytes = 0
        if self._unparsed and self.queue.empty():
            self._read_on()  # in a turn of its own: the application asks for each message in a task
        self._note_held()
        message = await self.queue.get()
        if self.read_paused and self.queue.empty() and not self._unparsed:
            self._read_on()
        if message["type"] == "websocket.receive":
            self._in_work_bytes = self._sizes.popleft()
            self._waiting_bytes -= self._in_work_bytes
        return message

    def _read_on(self) -> None:
        """Parse what waits, and read again unless that has a frame for the application."""
        self.read_paused = False
        self._parse_on()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def send(self, message: Any) -> None:
        still = message.get(STILL)
        if still is not None:
            await self.writable.wait()
            if not still():
                raise FrameExpired
        if self.close_sent and self._late_bytes is not None:
            raise ClientDisconnected  # what the client said last was no frame; the application has not heard of it yet
        if self._unparsed and message["type"] == "websocket.close" and self.handshake_complete:
            self._throw_away()
            self.close_timeout = LINGER_S_MAX
        await super().send(message)
        if not self.handshake_complete:
            # Refused before the upgrade, and that is said: to uvicorn an application that forgot to answer.
            self.handshake_complete = self.close_sent
        elif self._early:
            early, self._early = self._early, b""
            self.data_received(early)
        if self._late_bytes is not None and message["type"] == "websocket.close":
            self._end_writing()  # what the client answers is thrown away

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self._sizes.clear()
        self._waiting_bytes = self._in_work_bytes = 0
        self._note_held()

    # --- ends ---

    def handle_parser_exception(self) -> None:
        """A frame that is too long, or none. The rest of it is thrown away for a while: bytes that are unread at the
        close would reset the connection, and the client lose the reason."""
        close = self.conn.close_sent
        assert close is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._late_bytes = 0
        self._forget_unfinished()
        self.stop_keepalive()
        self._end_writing()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S_MAX, self.transport.close)

    def _end_writing(self) -> None:
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def keepalive_timeout(self) -> None:
        """A pong that came while no frame is read is not read either: it is asked for again."""
        if not self.read_paused:
            super().keepalive_timeout()
            return
        self.stop_keepalive()
        self.start_keepalive()

    def shutdown(self) -> None:
        with cut_if_it_fails(self.transport):
            if self.handshake_complete and not self.close_sent:
                self._ask_to_end(CLOSE_RESTART, STOPPING)
            else:
                self._unanswered = unavailable(STOPPING)
                super().shutdown()

    def send_500_response(self) -> None:
        """In the place of uvicorn's: the answer to an upgrade to which the application gave none. It failed, or the
        server stops."""
        if self.initial_response or self.handshake_complete:
            return
        headers, body = problem_parts(new_request_id(), self._unanswered)
        response = self.conn.reject(self._unanswered.kind.rest_status, body.decode())
        del response.headers["Content-Type"]
        for name, value in headers:
            response.headers[name.decode()] = value.decode()
        self.conn.send_response(response)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.resumed()

    # --- where there are too many connections ---

    def waiting(self) -> Waiting | None:
        """A client that has shown no key yet has a place only while others need none."""
        is_anonymous = self.handshake_complete and not self.close_sent and not self.scope["state"].get(HOLDER)
        return (True, 0.0) if is_anonymous and not self.transport.is_closing() else None

    def give_way(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.add(self)  # uvicorn takes it out, and it may have given way
        self.transport.ended()
        if self._watch is not None:
            self._watch.cancel()
        self._forget_unfinished()
        super().connection_lost(exc)
