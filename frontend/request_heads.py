"""Heads of requests that this server answers by itself, before any application hears of them. Nothing is read behind
such a head: where its request ends is not known, or is another server's word."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import NamedTuple

from websockets.exceptions import HeaderLineTooLong, RequestLineTooLong, TooManyHeaders


class HeadRefusal(NamedTuple):
    status: HTTPStatus
    reason: str
    headers: tuple[str, ...] = ()


SOCKET_VERSION = "13"
_SOCKET_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
_HTTP2_SETTINGS = b"http2-settings"
SPOKE_TOO_EARLY = HeadRefusal(HTTPStatus.BAD_REQUEST, "A client waits for the answer to its request to upgrade.")


class HeadRefused(Exception):
    """Stops the parser."""


def refusal_of_request(headers: list[tuple[bytes, bytes]], version: str) -> HeadRefusal | None:
    """Of any request: without a host it could be meant for another server (RFC 9112, 3.2), and what is coded in another
    way than in chunks nobody here decodes (6.1). Names are in lower case."""
    has_host = version != "1.1"
    for name, value in headers:
        if name == b"host":
            has_host = True
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            return HeadRefusal(HTTPStatus.BAD_REQUEST, "Transfer-Encoding takes chunked alone.")
    return None if has_host else HeadRefusal(HTTPStatus.BAD_REQUEST, "The request names no host.")


def without_upgrade(method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of a request that asks for a protocol which is not spoken here, as if it did not: a server may ignore it
    (RFC 9110, 7.8). Names are in lower case."""
    lines = [b"%b %b HTTP/%b\r\n" % (method, url, version.encode())]
    for name, value in headers:
        if name == b"connection":
            kept = [one for one in value.split(b",") if one.strip().lower() not in (b"upgrade", _HTTP2_SETTINGS)]
            value = b",".join(kept)
        if name not in (b"upgrade", _HTTP2_SETTINGS):
            lines.append(b"%b: %b\r\n" % (name, value))
    return b"%b\r\n" % b"".join(lines)


def refusal_of_upgrade(method: bytes, headers: list[tuple[bytes, bytes]]) -> HeadRefusal | None:
    """Of a request to upgrade: a client that announces a body does not wait for the answer, and one that speaks another
    version is told ours (RFC 6455, 4.4). Names are in lower case."""
    versions = [value.strip() for name, value in headers if name == b"sec-websocket-version"]
    if versions and versions != [SOCKET_VERSION.encode()]:
        told = (f"sec-websocket-version: {SOCKET_VERSION}", "upgrade: websocket")
        return HeadRefusal(HTTPStatus.UPGRADE_REQUIRED, f"The version of websockets is {SOCKET_VERSION}.", told)
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return HeadRefusal(HTTPStatus.BAD_REQUEST, "A request to upgrade has no body.")
        if name == b"sec-websocket-key" and _SOCKET_KEY.fullmatch(value) is None:
            return HeadRefusal(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key is not 16 bytes in Base64.")
    if method != b"GET":
        return HeadRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "A request to upgrade is a GET.", ("allow: GET",))
    return None


def refusal_of_handshake(error: Exception | None) -> HeadRefusal:
    """Of what is a request to this server, but none to the one of websockets."""
    if isinstance(error, RequestLineTooLong):
        return HeadRefusal(HTTPStatus.REQUEST_URI_TOO_LONG, "The path of the request to upgrade is too long.")
    if isinstance(error, HeaderLineTooLong | TooManyHeaders):
        reason = "The header of the request to upgrade is too large."
        return HeadRefusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
    return HeadRefusal(HTTPStatus.BAD_REQUEST, "The request to upgrade is not valid.")
