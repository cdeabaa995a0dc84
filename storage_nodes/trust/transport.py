"""A transport over another one: what is written is sealed and goes to the network at once, what arrives is opened.

It holds nothing itself: the network's transport alone knows how much waits to be read by the other side.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, cast

from storage_nodes.trust.stream import TlsStream


class TlsBelow(asyncio.Protocol):
    """What the network calls. `_transport` is there once the protocol above TLS has begun, and is told from then on."""

    def __init__(self) -> None:
        self._network: asyncio.Transport | None = None
        self._stream: TlsStream | None = None
        self._transport: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._network = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport.lost(exc)

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.protocol.resume_writing()


class TlsTransport(asyncio.Transport):
    """What a protocol writes through that knows nothing of TLS."""

    def __init__(
        self, network: asyncio.Transport, stream: TlsStream, context: ssl.SSLContext, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self.protocol = protocol
        self._network = network
        self._stream = stream
        self._context = context
        self._is_closing = False
        self._has_written_eof = False

    # --- from the network ---

    def network_received(self, data: bytes) -> None:
        if self._has_written_eof:
            self.protocol.data_received(data)  # what lingers is counted and thrown away: it need not be opened
            return
        try:
            plain = self._stream.take(data)
        except ssl.SSLError:
            self.abort()
            return
        self.hand_on(plain)

    def hand_on(self, plain: bytes) -> None:
        """What the other side said, to the protocol; and what TLS has to say, to the other side."""
        said = self._stream.outgoing()
        if said and not self._is_closing:
            self._network.write(said)
        if plain and not self._is_closing:
            self.protocol.data_received(plain)
        if self._stream.is_ended:
            self.close()

    def lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self.protocol.connection_lost(exc)

    # --- asyncio.Transport ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._has_written_eof:
            return
        try:
            sealed = self._stream.seal(bytes(data))
        except ssl.SSLError:
            self.abort()
            return
        self._network.write(sealed)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._say_end()
            self._is_closing = True
            self._network.close()

    def abort(self) -> None:
        self._is_closing = True
        self._network.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._network.is_closing()

    def can_write_eof(self) -> bool:
        return self._network.can_write_eof()

    def write_eof(self) -> None:
        self._say_end()
        self._has_written_eof = True
        self._network.write_eof()

    def _say_end(self) -> None:
        if not self._has_written_eof and not self._network.is_closing():
            self._network.write(self._stream.end())

    def pause_reading(self) -> None:
        self._network.pause_reading()

    def resume_reading(self) -> None:
        self._network.resume_reading()

    def is_reading(self) -> bool:
        return self._network.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._network.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._network.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._network.set_write_buffer_limits(high, low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._stream.object
        return self._network.get_extra_info(name, default)
