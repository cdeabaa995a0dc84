"""The TLS of one connection without its socket: bytes of the network in, plain bytes out, and the other way.

A MemoryBIO keeps the room of the most that it ever held, for as long as the connection lives. So bytes go through it
about one record at a time, in both directions.
"""

from __future__ import annotations

import contextlib
import ssl

# A record holds 16 KiB at most, and a read gives one record at most.
_RECORD_BYTES_MAX = 16 * 1024


class TlsStream:
    """One side. `is_open`: the handshake is done. `is_ended`: the other side has sent everything."""

    __slots__ = ("_incoming", "_object", "_outgoing", "is_ended", "is_open")

    def __init__(self, context: ssl.SSLContext, server_side: bool = True) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.is_open = self.is_ended = False

    def shake(self, data: bytes | memoryview = b"") -> bool:
        """Is the handshake done, with this from the network? Raises ssl.SSLError. A client begins with nothing."""
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_open = True
        return True

    def take_first(self, data: bytes) -> bytes:
        """As `take`, but one record, and what comes behind it is not touched: it may be plain."""
        self._incoming.write(data)
        try:
            return self._object.read(_RECORD_BYTES_MAX)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            return b""

    def leave(self) -> bytes:
        """TLS ends here, without a word of it: what the network brought beyond the handshake."""
        return self._incoming.read()

    def take(self, data: bytes) -> bytes:
        """What was said, as far as whole records of it have arrived. Raises ssl.SSLError. There may be something
        to send afterwards, in both cases."""
        if len(data) <= _RECORD_BYTES_MAX:
            return self._take(data)
        rest = memoryview(data)
        places = range(0, len(data), _RECORD_BYTES_MAX)
        return b"".join([self._take(rest[place : place + _RECORD_BYTES_MAX]) for place in places])

    def _take(self, data: bytes | memoryview) -> bytes:
        if self.is_open:
            self._incoming.write(data)
        elif not self.shake(data):
            return b""
        return self._read()

    def _read(self) -> bytes:
        chunks: list[bytes] = []
        while self._incoming.pending or self._object.pending():
            try:
                chunk = self._object.read(_RECORD_BYTES_MAX)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                chunk = b""
            if not chunk:
                self.is_ended = True
                break
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def seal(self, data: bytes) -> bytes:
        """What goes to the network for these bytes. Raises ssl.SSLError."""
        if 0 < len(data) <= _RECORD_BYTES_MAX:
            self._object.write(data)
            return self._outgoing.read()
        records: list[bytes] = []
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest[:_RECORD_BYTES_MAX]) :]
            records.append(self._outgoing.read())
        return records[0] if len(records) == 1 else b"".join(records)

    def outgoing(self) -> bytes:
        """What TLS itself has to say: its part of the handshake, an alert."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Says that nothing more is sent, as an attacker who cuts the connection cannot."""
        # It waits for the client's own end, or the handshake was not done: what there is to say is there.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._object.unwrap()
        return self._outgoing.read()

    @property
    def object(self) -> ssl.SSLObject:
        return self._object
