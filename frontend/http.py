"""One HTTP request, read once, with bounds; and the answer to it. Bare ASGI: no framework on this path.

Header names arrive in lower case from uvicorn. A header that decides something may come once only: which of two would
count is what smuggling and signature tricks live on.

Surface: other planes may import this module.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from frontend.body_room import body_room
from frontend.errors import RequestError, unavailable
from frontend.limits import (
    BODY_COUNTED_BYTES_MIN,
    REQUEST_BODY_BYTES_MAX,
    REQUEST_DRAIN_BYTES_MAX,
    REQUEST_HEADER_BYTES_MAX,
    REQUEST_HEADERS_MAX,
)
from frontend.shared_room import NoRoom

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Scope = dict[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[Any]]

# Ends the connection with the answer.
CLOSE_CONNECTION = (b"connection", b"close")
IPV6_NETWORK_BITS = 64
_IPV4_MAPPED = bytes(10) + b"\xff\xff"
_DIGITS_MAX = len(str(REQUEST_BODY_BYTES_MAX))

_ONCE = frozenset(
    (b"authorization", b"host", b"content-type", b"content-length", b"content-encoding", b"transfer-encoding")
)
_SECURE_SCHEMES = ("https", "wss")
_HOST = re.compile(rb"[A-Za-z0-9.\-_]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")

_IDS_PER_DRAW = 512


def _random_pieces(size_bytes: int) -> Iterator[str]:
    """Without end, in hexadecimal."""
    draws = iter(lambda: os.urandom(size_bytes * _IDS_PER_DRAW).hex("-", size_bytes).split("-"), None)
    return itertools.chain.from_iterable(draws)


# The middle of an id is its process's, and 80 bits of it are drawn: a counter, and also one that is multiplied and
# masked, would tell a client how many requests of others came between two of its own. Each request has one, so what
# makes them runs in C, but for the draws: 50 ns more than a counter. A uuid4 each would cost two microseconds.
_PROCESS = os.urandom(5).hex()
_ID_FORM = f"%s-{_PROCESS[:4]}-4{_PROCESS[4:7]}-a{_PROCESS[7:]}-%s"
_pieces = zip(_random_pieces(4), _random_pieces(6), strict=True)
new_request_id: Callable[[], str] = map(_ID_FORM.__mod__, _pieces).__next__


class Disconnected(Exception):
    """The client went away before it had said everything."""


class HttpResponse(msgspec.Struct, frozen=True, gc=False):
    """A whole answer; its length is told by what writes it."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


def origin_of(scope: Scope) -> tuple[str, bool]:
    """Returns the client's address and whether the connection is encrypted, as the server sees it; behind a proxy that
    is trusted, as that one says. "" on a socket without addresses."""
    client = scope.get("client")
    return client[0] if client else "", scope.get("scheme") in _SECURE_SCHEMES


def network_of(address: str) -> str:
    """Whom calls without a key are counted for: an address, or of IPv6 its /64, which one holder has whole."""
    if ":" not in address:
        return address
    try:
        written = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if written.startswith(_IPV4_MAPPED):  # as a proxy on one socket for both writes it
        return socket.inet_ntop(socket.AF_INET, written[len(_IPV4_MAPPED) :])
    network = written[: IPV6_NETWORK_BITS // 8].ljust(len(written), b"\x00")
    return f"{socket.inet_ntop(socket.AF_INET6, network)}/{IPV6_NETWORK_BITS}"


class Request:
    """What the stages look at. `path` is as sent, not decoded; `headers` are empty until they are read, and so is
    `body`, unless it arrived whole with the head. `held_bytes`: the place of a body that comes in several reads, which
    its address has until it is given back, after the answer.

    `indexed`: the headers by their names, where somebody has looked at them before.
    """

    __slots__ = (
        "_indexed", "body", "client_host", "headers", "held_bytes", "is_secure", "is_unread", "is_whole", "method",
        "path", "query", "raw_headers", "receive", "request_id", "scheme",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: bytes,
        query: bytes,
        scheme: str,
        client_host: str,
        raw_headers: list[tuple[bytes, bytes]],
        receive: Receive,
        body: bytes | None = None,
        indexed: dict[bytes, bytes] | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.scheme = scheme
        self.client_host = client_host
        self.is_secure = scheme in _SECURE_SCHEMES
        self.receive = receive
        self.raw_headers = raw_headers
        self.headers: dict[bytes, bytes] = {}
        self._indexed = indexed
        self.is_whole = body is not None
        self.body = body or b""
        self.held_bytes = 0
        self.is_unread = False  # more of its body comes: the connection ends with the answer
        self.request_id = new_request_id()

    def read_headers(self) -> None:
        """Index the headers. Raises RequestError for too many, too large, or repeated ones that must be single."""
        raw = self.raw_headers
        if len(raw) > REQUEST_HEADERS_MAX:
            raise RequestError("HeadersTooLarge", "The request has too many headers.")
        headers = dict(raw) if self._indexed is None else self._indexed
        if sum(map(len, headers)) + sum(map(len, headers.values())) > REQUEST_HEADER_BYTES_MAX:
            raise RequestError("HeadersTooLarge", "The headers of the request are too large.")
        if len(headers) != len(raw):
            headers = _join_repeated(raw)
        self.headers = headers

    @property
    def host(self) -> str:
        """The host the caller used. Raises RequestError if it is not one."""
        host = self.headers.get(b"host", b"").strip(b" \t")
        if _HOST.fullmatch(host) is None:
            raise RequestError("InvalidAddress", "The Host header is missing or is not a host.")
        return host.decode()

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://{self.host}"

    def has_body(self) -> bool:
        """Is the body here, with nothing left to look at? Raises RequestError for one that is not taken."""
        headers = self.headers
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
            raise RequestError("UnsupportedMediaType", "Content-Encoding is not supported.")
        if self.is_whole:
            return len(self.body) < BODY_COUNTED_BYTES_MIN
        length = headers.get(b"content-length", b"")
        if len(length) >= _DIGITS_MAX and _is_over(length):
            self.is_unread = True
            raise _too_large()
        return False

    async def read_body(self) -> None:
        """Reads the body under a running cap; `server.py` holds the deadline. Raises RequestError, Disconnected."""
        if self.has_body():
            return
        if not self.is_whole:
            await self._receive_body()
        size_bytes = len(self.body)
        if size_bytes >= BODY_COUNTED_BYTES_MIN:
            if size_bytes > REQUEST_BODY_BYTES_MAX:
                raise _too_large()
            if not self.held_bytes:
                await self._take_place(size_bytes)

    async def _receive_body(self) -> None:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        if message.get("more_body"):
            await self._receive_rest(message.get("body", b""))
        else:
            self.body = message.get("body", b"")

    async def _receive_rest(self, chunk: bytes) -> None:
        self.is_unread = True
        length = self.headers.get(b"content-length", b"")
        await self._take_place(int(length) if length.isdigit() else REQUEST_BODY_BYTES_MAX)
        body = bytearray()  # a list of pieces would hold many times the bytes of a body that comes byte by byte
        size_bytes = 0
        while True:
            size_bytes += len(chunk)
            if size_bytes <= REQUEST_BODY_BYTES_MAX:
                body += chunk
            else:
                body.clear()
                self.give_back()
            if not self.is_unread or size_bytes > REQUEST_DRAIN_BYTES_MAX:
                break
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk = message.get("body", b"")
            self.is_unread = bool(message.get("more_body"))
        if size_bytes > REQUEST_BODY_BYTES_MAX:
            raise _too_large()
        self.body = bytes(body)

    async def _take_place(self, count_bytes: int) -> None:
        """Waits, and reads nothing, while the client's address has its share. Raises RequestError after a while."""
        try:
            await body_room.take(network_of(self.client_host), count_bytes)
        except NoRoom:
            raise unavailable("Too many bytes of requests are being read. Try again.") from None
        self.held_bytes = count_bytes

    def has_room(self) -> bool:
        """Of a large body that is here as a whole: does it get its place without waiting?"""
        return body_room.has_room(network_of(self.client_host), len(self.body))

    def give_back(self) -> None:
        """The body has its place no longer."""
        count_bytes, self.held_bytes = self.held_bytes, 0
        if count_bytes:
            body_room.give_back(network_of(self.client_host), count_bytes)


def request_of(scope: Scope, receive: Receive) -> Request:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    scheme = scope.get("scheme", "http")
    client_host, _ = origin_of(scope)
    return Request(scope["method"], path, scope["query_string"], scheme, client_host, scope["headers"], receive)


async def answer(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


def _join_repeated(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        known = headers.get(name)
        if known is None:
            headers[name] = value
        elif name in _ONCE or name.startswith(b"x-amz-"):
            raise RequestError("InvalidParameterValueException", "A header that must be single is repeated.")
        else:
            headers[name] = known + (b"; " if name == b"cookie" else b",") + value
    return headers


def _is_over(content_length: bytes) -> bool:
    digits = content_length.lstrip(b"0")
    return len(digits) > _DIGITS_MAX or not digits.isdigit() or int(digits) > REQUEST_BODY_BYTES_MAX


def _too_large() -> RequestError:
    return RequestError("RequestTooLarge", f"The body of the request is larger than {REQUEST_BODY_BYTES_MAX} bytes.")
