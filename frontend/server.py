"""uvicorn as this process runs it: what it does not bound by itself is bounded here.

    connections            at most CONNECTIONS_MAX, and what the limit of open files allows; the next one gets 503;
                           accepted many at a time (frontend/accepting.py)
    unfinished header      at most PARTIAL_HEADER_BYTES_MAX, else 431 and close; all of them HEADERS_HELD_BYTES_MAX, of
                           which an address has its share, else 503 and close
    header and body        each must be whole within its deadline, and a body must arrive at BODY_BYTES_PER_S_MIN, else
                           408 and close
    answers and frames     the client must read them (frontend/writing.py), else the connection is cut
    upgrades               in the order of their requests; what is no handshake is answered and closed as other refusals
    websockets             frontend/push/connection.py
    stop                   parked polls answer first, then connections close

One timer per connection, not per request, watches the deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar, cast

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from frontend.accepting import Acceptor
from frontend.client_bytes import held_headers, lateness
from frontend.flood_log import FloodLog
from frontend.http import network_of, new_request_id
from frontend.limits import (
    CONNECTIONS_BACKLOG_MAX,
    CONNECTIONS_MAX,
    FILES_KEPT,
    HEADER_READ_S_MAX,
    KEEP_ALIVE_S,
    LINGER_BYTES_MAX,
    LINGER_S_MAX,
    PARTIAL_HEADER_BYTES_MAX,
    PIPELINED_MAX,
    REFUSALS_TOLD_EVERY_S,
    SHUTDOWN_GRACE_S,
    SOCKET_FRAME_BYTES_MAX,
    SOCKET_PING_S,
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
_log = structlog.get_logger("frontend.server")
_slow_requests = FloodLog(_log, "slow_request_cut")
_refused_headers = FloodLog(_log, "header_refused")


def allow_open_files() -> int:
    """Raise this process's limit of open files as far as it may; how many connections fit under it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(1, soft - FILES_KEPT))


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

    connections_max = CONNECTIONS_MAX  # `public_config` sets it to what the limit of open files allows
    refused_told_s = 0.0  # when the log last said that connections are refused
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
    _refusal: HeadRefusal | None = None  # of the head that was read last
    _is_last_waiting = False  # an upgrade, or a refused head: until all requests before it are answered
    _running: Any = None  # the cycle that is being answered; `cycle` is the newest one, which may wait behind it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stand_in: Any = ClientTransport(cast(asyncio.Transport, transport), self.loop, self._lingers)
        super().connection_made(stand_in)
        if len(self.connections) > self.connections_max:
            self._refuse()
            return
        self._began_s = self.loop.time()
        self._watch = self.loop.call_later(HEADER_READ_S_MAX, self._look)

    def _refuse(self) -> None:
        kind = type(self)
        if self.loop.time() - kind.refused_told_s > REFUSALS_TOLD_EVERY_S:
            kind.refused_told_s = self.loop.time()
            _log.warning("connections_refused", connections=self.connections_max)
        # Closed at once: one that lingers would take a place.
        reason = "The service has too many connections."
        self.transport.write(_refusal(HTTPStatus.SERVICE_UNAVAILABLE, reason, "retry-after: 1"))
        self.transport.close()

    def shutdown(self) -> None:
        with cut_if_it_fails(self.transport):
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self.transport.ended()
        self._give_back_header()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it where the client reset: until then nothing here is freed
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

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
        if self._began_s and not self._is_lingering:
            self._arrived_bytes += len(data)
            if self._in_header and not self.transport.is_closing():
                self._hold_header(len(data))
                return
        elif self.cycle is None or self.cycle.response_complete:
            self._note_stray()
        if self._header_held_bytes:
            self._give_back_header()

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
        self._take_last()

    def _take_last(self) -> None:
        """Behind this request nothing is read. Its turn comes behind the answers to those before it; until then the
        connection reads on, to hear of a client that leaves."""
        if self.transport.is_closing() or self._is_lingering:
            return
        self._is_last_waiting = self.cycle is not None and not self.cycle.response_complete
        if self._is_last_waiting:
            self._began_s = 0.0
            self._arrived_bytes = 0
            return
        self._unset_keepalive_if_required()
        if self._refusal is not None:
            self._answer(*self._refusal)
        else:
            self._upgrade()

    def _upgrade(self) -> None:
        super().handle_websocket_upgrade()
        opened = cast(BoundedSocketProtocol, self.transport.get_protocol())
        if not opened.handshake_initiated:
            # Its parser has stopped, and would never say so.
            self.connections.discard(opened)
            self.connections.add(self)
            self.transport.set_protocol(self)
            self._answer(*refusal_of_handshake(opened.conn.handshake_exc))
            return
        if self._watch is not None:
            self._watch.cancel()
        self._began_s = 0.0

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
                self._refusal = refusal_of_upgrade(headers)
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
        self._watch = self.loop.call_later(LINGER_S_MAX, self.transport.close)
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


def shared_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets on which several processes listen at once: the kernel gives each connection to one of them, and those of
    a process that ends to the others. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [_shared_socket(family, address) for family, address in dict.fromkeys((one[0], one[4]) for one in found)]


def _shared_socket(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


C = TypeVar("C", bound=uvicorn.Config)


def public_config(kind: type[C], application: Any, host: str, port: int, trusted_proxies: str = "") -> C:
    """The public endpoint."""
    BoundedHttpProtocol.connections_max = allow_open_files()
    return kind(
        application,
        host=host,
        port=port,
        loop="none",
        http=BoundedHttpProtocol,
        ws=BoundedSocketProtocol,
        ws_max_size=SOCKET_FRAME_BYTES_MAX,
        ws_ping_interval=SOCKET_PING_S,
        ws_ping_timeout=SOCKET_PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies or None,
        backlog=CONNECTIONS_BACKLOG_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )


def small_config(application: Any, host: str, port: int) -> uvicorn.Config:
    """A port with little behind it: the operators' (/metrics and /healthz), and the one that sends to https."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        loop="none",
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
