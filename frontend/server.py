"""uvicorn as this process runs it: what it does not bound by itself is bounded here.

    unfinished header      at most PARTIAL_HEADER_BYTES_MAX, else 431 and close
    header and body        each must be whole within its deadline, else the connection is closed
    stop                   parked polls answer first, then connections close

One timer per connection, not per request, watches the deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frontend.limits import (
    CONNECTIONS_BACKLOG_MAX,
    HEADER_READ_S_MAX,
    KEEP_ALIVE_S,
    PARTIAL_HEADER_BYTES_MAX,
    REQUEST_READ_S_MAX,
    SHUTDOWN_GRACE_S,
    SOCKET_FRAME_BYTES_MAX,
    SOCKET_PING_S,
)

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class HeadJoiningTransport:
    """Writes the head of an answer together with what follows it.

    uvicorn writes head and body one after the other, and each write is a system call that the kernel answers by running
    the receiver's half of the connection too: about a tenth of what a request costs. A head is held until the next
    write, or to the end of this turn of the event loop.
    """

    __slots__ = ("_call_soon", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._call_soon = loop.call_soon
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._call_soon(self.flush)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class BoundedHttpProtocol(HttpToolsProtocol):
    """One HTTP connection with deadlines."""

    _began_s = 0.0  # when the request that is arriving began; 0 = none is
    _in_header = True
    _header_bytes = 0
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(HeadJoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._began_s = self.loop.time()
        self._watch = self.loop.call_later(HEADER_READ_S_MAX, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_header and self._began_s:
            self._header_bytes += len(data)
            if self._header_bytes > PARTIAL_HEADER_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._began_s = self.loop.time()
        self._in_header = True
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_header = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._began_s = 0.0
        super().on_message_complete()

    def _look(self) -> None:
        """Close what is late; come back when the next deadline may have passed."""
        if self.transport.is_closing():
            return
        if self._began_s:
            age_s = self.loop.time() - self._began_s
            if age_s >= (HEADER_READ_S_MAX if self._in_header else REQUEST_READ_S_MAX):
                self.transport.close()
                return
        self._watch = self.loop.call_later(HEADER_READ_S_MAX / 2, self._look)


class Server(uvicorn.Server):
    """Leaves signals to `__main__`, and drains before it closes."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self._drain = drain

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: Any = None) -> None:
        if self._drain is not None:
            self._drain()
        await super().shutdown(sockets)


def public_config(application: Any, host: str, port: int, trusted_proxies: str = "") -> uvicorn.Config:
    """The public endpoint."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        loop="none",
        http=BoundedHttpProtocol,
        ws="websockets-sansio",
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


def operators_config(application: Any, host: str, port: int) -> uvicorn.Config:
    """The operators' port: /metrics and /healthz."""
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
