"""The TLS of a connection without a socket: what it hands on, and how little it holds."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from frontend.tls.certificate import load_certificate
from storage_nodes.trust.stream import TlsStream
from tests.support.certificates import CertificateAuthority

RECORD_BYTES = 16 * 1024


class ObservedBio:
    """The most that a MemoryBIO held when the stream wrote to it or read from it."""

    def __init__(self, bio: ssl.MemoryBIO) -> None:
        self._bio = bio
        self.held_bytes_max = 0

    @property
    def pending(self) -> int:
        return self._bio.pending

    def write(self, data: bytes) -> int:
        written = self._bio.write(data)
        self.held_bytes_max = max(self.held_bytes_max, self._bio.pending)
        return written

    def read(self) -> bytes:
        self.held_bytes_max = max(self.held_bytes_max, self._bio.pending)
        return self._bio.read()


class Pair:
    """A server's stream and its client, after the handshake."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority(folder)
        certificate, key = authority.issue()
        self.server = TlsStream(load_certificate(str(certificate), str(key)).context)
        self.to_client, self.from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority.client_context()
        self.client = context.wrap_bio(self.to_client, self.from_client, server_hostname="localhost")
        while not self.server.is_open:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.server.take(self.from_client.read())
            self.to_client.write(self.server.outgoing())

    def said_by_client(self, data: bytes) -> bytes:
        rest = memoryview(data)
        while rest:
            rest = rest[self.client.write(rest) :]
        return self.from_client.read()

    def heard_by_client(self, sealed: bytes) -> bytes:
        self.to_client.write(sealed)
        heard = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                heard.append(self.client.read(RECORD_BYTES))
        return b"".join(heard)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path / "tls")


@pytest.mark.parametrize("size_bytes", [0, 1, RECORD_BYTES, RECORD_BYTES + 1, 3_000_001])
def test_bytes_arrive_whole_in_both_directions(pair: Pair, size_bytes: int) -> None:
    data = bytes(number % 251 for number in range(size_bytes))
    assert pair.heard_by_client(pair.server.seal(data)) == data
    assert pair.server.take(pair.said_by_client(data)) == data


def test_large_messages_leave_no_large_room_behind(pair: Pair) -> None:
    server: Any = pair.server
    server._incoming, server._outgoing = ObservedBio(server._incoming), ObservedBio(server._outgoing)
    data = b"x" * 3_000_000
    assert pair.heard_by_client(server.seal(data)) == data
    assert server._outgoing.held_bytes_max < 2 * RECORD_BYTES
    assert server.take(pair.said_by_client(data)) == data
    assert server._incoming.held_bytes_max < 3 * RECORD_BYTES


def test_end_of_the_client_is_told_after_what_it_said(pair: Pair) -> None:
    sealed = pair.said_by_client(b"z" * 100_000)
    with contextlib.suppress(ssl.SSLWantReadError):
        pair.client.unwrap()
    assert pair.server.take(sealed + pair.from_client.read()) == b"z" * 100_000
    assert pair.server.is_ended
