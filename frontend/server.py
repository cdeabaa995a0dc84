"""uvicorn as this process runs it: what it does not bound by itself is bounded here.

    connections            at most CONNECTIONS_MAX, and what the limit of open files allows; then those that wait for
                           their clients give way (frontend/crowd.py), and where there are none the next one gets 503;
                           accepted many at a time (frontend/accepting.py)
    unfinished header      at most PARTIAL_HEADER_BYTES_MAX, else 431 and close; all of them HEADERS_HELD_BYTES_MAX, of
                           which an address has its share, else 503 and close
    header and body        each must be whole within its deadline, and a body must arrive at BODY_BYTES_PER_S_MIN, else
                           408 and close
    answers and frames     the client must read them (frontend/writing.py), else the connection is cut
    half closed            a client that sends no more gets the answers that are due, within HALF_CLOSED_S_MAX
    upgrades               in the order of their requests; what is no handshake is answered and closed as other refusals
    websockets             frontend/push/connection.py
    stop                   parked polls answer first, then connections close

One timer per connection, not per request, watches the deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, cast

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from frontend.accepting import Acceptor
from frontend.client_bytes import held_headers, lateness
from frontend.crowd import Crowd, Waiting
from frontend.flood_log import FloodLog
from frontend.http import network_of, new_request_id
from frontend.limits import (
    CONNECTIONS_MAX,
    HALF_CLOSED_FIRST_LOOK_S,
    HALF_CLOSED_LOOK_S,
    HALF_CLOSED_S_MAX,
    HEADER_READ_S_MAX,
    LINGER_BYTES_MAX,
    LINGER_S_MAX,
    PARTIAL_HEADER_BYTES_MAX,
    PIPELINED_MAX,
    REFUSED_LINGER_S_MAX,
    REFUSED_LINGERING_MAX,
)
from frontend.push.connection import BoundedSocketProtocol, cut_if_it_fails
from frontend.request_heads import (
    SPOKE_TOO_EARLY,
    HeadRefusal,
    HeadRefused,
    refusal_of_handshake,
    refusal_of_request,
    refusal_of_upgrade,
    without_upgrade,
)
from frontend.writing import ClientTransport

CRLF = "\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_MANY = (HTTPStatus.SERVICE_UNAVAILABLE, "The service has too many connections.", "retry-after: 1")
_log = structlog.get_logger("frontend.server")
_slow_requests = FloodLog(_log, "slow_request_cut")
_refused_headers = FloodLog(_log, "header_refused")


def _refusal(status: HTTPStatus, reason: str, *headers: str) -> bytes:
    """A whole answer, of which no application knows."""
    text = f"{reason}\n"
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "content-type: text/plain; charset=utf-8",
        f"content-length: {len(text)}",
        f"x-request-id: {new_request_id()}",
        *headers,
        "connection: close",
    )
    return f"{CRLF.join(lines)}{CRLF}{CRLF}{text}".encode()


class BoundedHttpProtocol(HttpToolsProtocol):
    """One HTTP connection with deadlines."""

    connections_max = CONNECTIONS_MAX  # frontend/ports.py sets it to what the limit of open files allows
    crowd = Crowd()
    refused_lingering = 0  # connections that were refused, and whose clients may still send
    transport: Any
    _began_s = 0.0  # when the request that is arriving began; 0 = none is
    _in_header = True
    _arrived_bytes = 0  # of that request, as long as it is not whole
    _header_held_bytes = 0  # of them, counted in `held_headers` for `_header_holder`
    _header_holder = ""
    _declined = b""  # a head that asked for a protocol which is not spoken here, without that
    _declined_at = 0  # where what follows it begins, in what arrived
    _watch: asyncio.TimerHandle | None = None
    _is_refused = False  # what arrives was answered by this class
    _is_lingering = False
    _is_one_too_many = False
    _upgrade_at = 0  # where what follows the request to upgrade begins, in what arrived
    _half_closed_s = 0.0  # since when the client sends no more; 0 = it may
    _refusal: HeadRefusal | None = None  # of the head that was read last
    _is_last_waiting = False  # an upgrade, or a refused head: until all requests before it are answered
    _running: Any = None  # the cycle that is being answered; `cycle` is the newest one, which may wait behind it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stand_in: Any = ClientTransport(cast(asyncio.Transport, transport), self.loop, self._lingers)
        super().connection_made(stand_in)
        if len(self.connections) > self.connections_max and not self.crowd.makes_room(self, self.connections):
            self._refuse()
            return
        self._began_s = self.loop.time()
        self._watch = self.loop.call_later(HEADER_READ_S_MAX, self._look)

    def _refuse(self) -> None:
        """A few linger beside those that have a place, so that a client in the midst of its request reads why."""
        self.connections.discard(self)
        self._is_one_too_many = True
        kind = BoundedHttpProtocol
        kind.refused_lingering += 1
        if kind.refused_lingering > REFUSED_LINGERING_MAX:
            self._is_lingering = True  # no longer
        self._is_refused = True
        self.transport.write(_refusal(*TOO_MANY))
        self.transport.close()

    # --- where there are too many ---

    def waiting(self) -> Waiting | None:
        """For its client, and since when; None: the client waits."""
        if self.transport.is_closing():
            return None
        if self._is_lingering:
            return False, 0.0
        if self._began_s:
            return bool(self._arrived_bytes or not self._in_header), self._began_s
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        return False, self._idle_since()

    def _idle_since(self) -> float:
        timer = self.timeout_keep_alive_task
        return self.loop.time() if timer is None else timer.when() - self.timeout_keep_alive

    def give_way(self) -> None:
        """At once: its place is taken."""
        self.connections.discard(self)
        if self._began_s and self._arrived_bytes and self._may_answer():
            self.transport.write(_refusal(*TOO_MANY))
        self._is_lingering = True  # no longer
        self.transport.close()

    def shutdown(self) -> None:
        with cut_if_it_fails(self.transport):
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_one_too_many:
            BoundedHttpProtocol.refused_lingering -= 1
        if self._watch is not None:
            self._watch.cancel()
        self.transport.ended()
        self._give_back_header()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it where the client reset, and it holds all of this
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    # --- a client that sends no more ---

    def eof_received(self) -> Any:
        """Whether the connection stays open, for the answers that are due. Over TLS it never does: a client says there
        that it has ended, and means both ways."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.scheme == "https" or self.transport.is_closing():
            return False
        if self._is_lingering or self._is_last_waiting or (self._began_s and not self._in_header):
            return False  # nothing is due, or a request that will never be whole
        cycle.keep_alive = False  # the newest one: behind its answer the connection ends
        self._half_closed_s = self.loop.time()
        if self._watch is not None:
            self._watch.cancel()
        # A client that has left altogether looks the same until it is written to. Before HTTP/1.1 there is no word that
        # comes before an answer.
        if self.parser.get_http_version() == "1.1" and self._running_awaits() and not self.flow.write_paused:
            self.transport.write_answer(INTERIM)
        self._watch = self.loop.call_later(HALF_CLOSED_FIRST_LOOK_S, self._look_half_closed)
        return True

    def _look_half_closed(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.is_refused():
            self.transport.abort()
        elif self.loop.time() - self._half_closed_s >= HALF_CLOSED_S_MAX:
            self.transport.close()
        else:
            self._tell_half_closed()
            self._watch = self.loop.call_later(HALF_CLOSED_LOOK_S, self._look_half_closed)

    def _running_awaits(self) -> bool:
        """Whether nothing of the answer that is due next was sent."""
        return self._running is not None and not self._running.response_started

    def _tell_half_closed(self) -> None:
        """To the request that is being answered: a poll answers now. One that has not read its body takes no notice,
        and is told again."""
        if self._running is not None and not self._running.response_complete:
            self._running.message_event.set()

    # --- what arrives ---

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering or self._is_last_waiting:
            self._arrived_bytes += len(data)
            if self._arrived_bytes > LINGER_BYTES_MAX:
                self.transport.close()
            elif self._refusal is None:
                self._refusal = SPOKE_TOO_EARLY  # of an upgrade: what was said to a websocket is lost
            return
        HttpToolsProtocol.data_received(self, data)
        while self._declined:
            data, self._declined = self._declined + data[self._declined_at :], b""
            HttpToolsProtocol.data_received(self, data)
        if self._upgrade_at:
            early, self._upgrade_at = data[self._upgrade_at :], 0
            self._take_last(early)
        if self._began_s and not self._is_lingering:
            self._arrived_bytes += len(data)
            if self._in_header and not self.transport.is_closing():
                self._hold_header(len(data))
                return
        elif self.cycle is None or self.cycle.response_complete:
            self._note_stray()
        if self._header_held_bytes:
            self._give_back_header()

    def _should_upgrade(self) -> bool:
        """HTTP/1.0 knows of no other protocol: who asks for one in it is answered as if it did not."""
        return self.parser.get_http_version() != "1.0" and super()._should_upgrade()

    def _note_stray(self) -> None:
        """Line ends before a request are none of it, and end the wait for the next one: it must come in time now."""
        if self.timeout_keep_alive_task is None:
            self._note_begin()

    def _unsupported_upgrade_warning(self) -> None:
        """The parser has stopped behind the head, as if its body were of another protocol: the request is read once
        more, by a parser that does not hear of an upgrade."""
        stopped = sys.exc_info()[1]
        assert stopped is not None, "the parser's exception is being handled"
        self._declined_at = int(stopped.args[0])
        parser = self.parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(AttributeError):
            parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _hold_header(self, count_bytes: int) -> None:
        if self._arrived_bytes > PARTIAL_HEADER_BYTES_MAX:
            self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The header of the request is too large.")
            return
        holder = self._header_holder = network_of(self.client[0] if self.client else "")
        self._header_held_bytes += count_bytes
        held_headers.change(holder, count_bytes)
        if held_headers.is_over(holder):
            _refused_headers.warn(self.loop.time(), client=str(self.client), held_bytes=held_headers.held_bytes)
            if self._may_answer():
                reason = "Too many bytes of headers are being read. Try again."
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, reason, "retry-after: 1")
            else:
                self.transport.close()
            self._forget_header()

    def _give_back_header(self) -> None:
        held_headers.change(self._header_holder, -self._header_held_bytes)
        self._header_held_bytes = 0

    def _forget_header(self) -> None:
        """Nothing that arrives on this connection is read any more: what it holds goes now, not with its last byte."""
        self.url, self.headers = b"", []
        self.parser = cast(Any, None)
        self._give_back_header()

    def send_400_response(self, msg: str) -> None:
        if self._refusal is not None:
            self._take_last()
        elif self._may_answer():
            self._answer(HTTPStatus.BAD_REQUEST, "The request is not valid HTTP.")
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.resumed()

    def handle_websocket_upgrade(self) -> None:
        """Behind its head the parser has stopped, and what follows is for the websocket."""
        stopped = sys.exc_info()[1]
        assert stopped is not None, "the parser's exception is being handled"
        self._upgrade_at = int(stopped.args[0])

    def _take_last(self, early: bytes = b"") -> None:
        """Behind this request nothing is read. Its turn comes behind the answers to those before it; until then the
        connection reads on, to hear of a client that leaves. `early`: what came with it, in the same piece."""
        if self.transport.is_closing() or self._is_lingering:
            return
        self._is_last_waiting = self.cycle is not None and not self.cycle.response_complete
        if self._is_last_waiting:
            self._began_s = 0.0
            self._arrived_bytes = 0
            if early:
                self._refusal = SPOKE_TOO_EARLY
            return
        self._unset_keepalive_if_required()
        if self._refusal is not None:
            self._answer(self._refusal.status, self._refusal.reason, *self._refusal.headers)
        else:
            self._upgrade(early)

    def _upgrade(self, early: bytes) -> None:
        super().handle_websocket_upgrade()
        opened = cast(BoundedSocketProtocol, self.transport.get_protocol())
        if not opened.handshake_initiated:
            # Its parser has stopped, and would never say so.
            self.connections.discard(opened)
            self.connections.add(self)
            self.transport.set_protocol(self)
            refusal = refusal_of_handshake(opened.conn.handshake_exc)
            self._answer(refusal.status, refusal.reason)
            return
        if self._watch is not None:
            self._watch.cancel()
        self._began_s = 0.0
        if early and not opened.handshake_complete:
            opened.data_received(early)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._note_begin()

    def _note_begin(self) -> None:
        self._began_s = self.loop.time()
        self._in_header = True
        self._arrived_bytes = 0

    def on_headers_complete(self) -> None:
        parser, headers = self.parser, self.headers
        version = parser.get_http_version()
        self._refusal = refusal_of_request(headers, version)
        if self._refusal is None and parser.should_upgrade():
            if self._should_upgrade():
                self._refusal = refusal_of_upgrade(parser.get_method(), headers)
            elif any(name == b"upgrade" for name, _ in headers):  # and not by its method, as CONNECT does
                self._declined = without_upgrade(parser.get_method(), self.url, version, headers)
                return
        if self._refusal is not None:
            raise HeadRefused
        super().on_headers_complete()
        self._in_header = False
        # uvicorn stops reading behind the first one, and would not hear that the client has left.
        if 0 < len(self.pipeline) < PIPELINED_MAX:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_last_waiting:
            self._take_last()

    def on_message_complete(self) -> None:
        if self._declined:
            return
        self._began_s = 0.0
        super().on_message_complete()

    def _look(self) -> None:
        """Close what is late; come back when the next deadline may have passed."""
        if self.transport.is_closing():
            return
        if self._began_s:
            late = self._lateness(self.loop.time() - self._began_s)
            if late:
                self._cut(late)
                return
        self._watch = self.loop.call_later(HEADER_READ_S_MAX / 2, self._look)

    def _lateness(self, age_s: float) -> str:
        """Why the request that is arriving is not waited for any longer."""
        if self._in_header:
            return f"no whole header within {HEADER_READ_S_MAX:g} s" if age_s >= HEADER_READ_S_MAX else ""
        return lateness("body", age_s, self._arrived_bytes)

    def _cut(self, reason: str) -> None:
        # Nothing arrived: a client that keeps a connection in reserve, which is told nothing.
        if self._arrived_bytes:
            _slow_requests.warn(self.loop.time(), reason=reason, client=str(self.client))
            if self._may_answer():
                self._answer(HTTPStatus.REQUEST_TIMEOUT, f"The request did not arrive in time: {reason}.")
                return
        self.transport.close()

    def _may_answer(self) -> bool:
        """Whether what is written now is taken for the answer to the request that is arriving."""
        if self._in_header:
            return self.cycle is None or self.cycle.response_complete
        return not self.pipeline and not self.cycle.response_started

    def _answer(self, status: HTTPStatus, reason: str, *headers: str) -> None:
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            # What it still says would be a second answer, and its request is not one.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_refusal(status, reason, *headers))
        self.transport.close()

    def _lingers(self) -> bool:
        """Asked when the connection is to be closed. While the client still sends what was answered already, it is
        closed for writing only: bytes that are unread at the close would reset it, and the client lose the answer."""
        is_answered = self._is_refused or (self._began_s and not self._in_header and self.cycle.response_complete)
        if self._is_lingering or not is_answered or self.transport.is_closing() or not self.transport.can_write_eof():
            return False
        self._is_lingering = True
        self._arrived_bytes = 0
        self.transport.write_eof()
        self.flow.resume_reading()
        if self._watch is not None:
            self._watch.cancel()
        longest_s = REFUSED_LINGER_S_MAX if self._is_one_too_many else LINGER_S_MAX
        self._watch = self.loop.call_later(longest_s, self.transport.close)
        return True


class Server(uvicorn.Server):
    """Leaves signals to `__main__`, and drains before it closes."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self._drain = drain
        self._acceptors: list[Acceptor] = []

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        listening = [one for server in self.servers for one in server.sockets]
        self._acceptors = [Acceptor(one.fileno(), self._new_connection) for one in listening]

    def _new_connection(self) -> asyncio.Protocol:
        """As uvicorn makes it."""
        kind: Any = self.config.http_protocol_class
        made: asyncio.Protocol = kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )  # fmt: skip
        return made

    async def shutdown(self, sockets: Any = None) -> None:
        """uvicorn asks the connections one after the other, and would not ask those behind one that fails."""
        for acceptor in self._acceptors:
            acceptor.close()
        if self._drain is not None:
            self._drain()
        await super().shutdown(sockets)
