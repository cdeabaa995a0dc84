"""A connection of the TLS port: the handshake first, then a protocol of HTTP that finds a transport as it knows it.

    first byte     a handshake begins with 0x16; who speaks HTTP is told so in plain text, others are closed
    handshake      bounded in time and number (handshakes.py), with the certificate of this moment
    open           what arrives is opened and handed on; what is written is sealed and goes to the network at once

Nothing is held here: the network transport alone knows how much waits to be read, so the bounds on slow readers
(frontend/writing.py) see all of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from frontend.limits import TLS_HANDSHAKE_S_MAX
from frontend.tls.handshakes import DEADLINE, LEFT, NOT_TLS, PLAIN_HTTP, Handshakes, reason_of
from storage_nodes.trust.stream import TlsStream
from storage_nodes.trust.transport import TlsBelow, TlsTransport

_HANDSHAKE = b"\x16"
_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"PRI ")
_TOLD = b"This port speaks TLS: use https.\n"
_PLAIN_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%b" % (len(_TOLD), _TOLD)
)

MakeProtocol = Callable[[], asyncio.Protocol]


class TlsConnection(TlsBelow):
    """Of one client."""

    def __init__(self, context: ssl.SSLContext, make_protocol: MakeProtocol, handshakes: Handshakes) -> None:
        super().__init__()
        self._context = context
        self._make_protocol = make_protocol
        self._handshakes = handshakes
        self._deadline: asyncio.TimerHandle | None = None
        self._is_shaking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._is_shaking = True
        peer = transport.get_extra_info("peername")
        self._handshakes.begin(self, peer[0] if peer else "")
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(TLS_HANDSHAKE_S_MAX, self.give_up, DEADLINE)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.network_received(data)
        elif self._is_shaking:
            self._shake(data)

    def eof_received(self) -> bool:
        """Closed by both then: there is no half of a connection for a client to keep."""
        if self._transport is not None:
            self._transport.protocol.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(LEFT)
        super().connection_lost(exc)

    # --- the handshake ---

    def give_up(self, reason: str) -> None:
        self._fail(reason)
        if self._network is not None:
            self._network.abort()

    def _shake(self, data: bytes) -> None:
        assert self._network is not None
        if self._stream is None:
            if not data.startswith(_HANDSHAKE):
                self._refuse_plain(data)
                return
            self._stream = TlsStream(self._context)
        try:
            plain = self._stream.take(data)
        except ssl.SSLError as error:
            reason = error.reason or ""
            self._fail(reason_of(reason), reason)
            self._network.write(self._stream.outgoing())  # why, as an alert
            self._network.close()
            return
        self._network.write(self._stream.outgoing())
        if self._stream.is_open:
            self._open(plain)

    def _open(self, plain: bytes) -> None:
        assert self._network is not None and self._stream is not None
        self._is_shaking = False
        self._cancel_deadline()
        self._handshakes.finish(self)
        self._transport = TlsTransport(self._network, self._stream, self._context, self._make_protocol())
        self._transport.protocol.connection_made(self._transport)
        self._transport.hand_on(plain)

    def _refuse_plain(self, data: bytes) -> None:
        assert self._network is not None
        is_http = data.startswith(_HTTP_METHODS)
        self._fail(PLAIN_HTTP if is_http else NOT_TLS)
        if is_http:
            self._network.write(_PLAIN_ANSWER)
        self._network.close()

    def _fail(self, reason: str, detail: str = "") -> None:
        if self._is_shaking:
            self._is_shaking = False
            self._cancel_deadline()
            client = str(self._network.get_extra_info("peername")) if self._network is not None else ""
            self._handshakes.failed(self, reason, detail, client)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
