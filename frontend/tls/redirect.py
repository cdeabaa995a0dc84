"""The port of plain HTTP beside a TLS port: pages are sent on to https, and nothing else is served.

A call of a program is refused, and not sent on: it has shown its key to the network already, and its owner should know.
"""

from __future__ import annotations

from frontend.errors import RequestError
from frontend.http import Receive, Scope, Send, answer, request_of

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
HTTPS_PORT = 443


class HttpsRedirect:
    """An ASGI application. `port`: where clients reach https."""

    def __init__(self, port: int) -> None:
        self._port = b"" if port == HTTPS_PORT else b":%d" % port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = request_of(scope, receive)
        try:
            request.read_headers()
            host = request.host.encode()
        except RequestError:
            await answer(send, 400, (_TEXT,), b"The Host header is missing or is not a host.\n")
            return
        if request.method not in ("GET", "HEAD"):
            await answer(send, 403, (_TEXT, (b"connection", b"close")), b"Use https: the request was not encrypted.\n")
            return
        query = b"?" + request.query if request.query else b""
        location = b"https://%b%b%b%b" % (_without_port(host), self._port, request.path, query)
        await answer(send, 308, (_TEXT, (b"location", location)), b"Use https.\n")


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host
