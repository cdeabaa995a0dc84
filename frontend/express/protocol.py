"""The connection: which requests the lane takes, and how what it does not take reaches uvicorn's class unchanged."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from frontend.asgi import build_application
from frontend.express.call import ExpressCall
from frontend.express.hot import AnswerRequest, HotRequests
from frontend.http import HttpResponse, Request
from frontend.limits import BODY_COUNTED_BYTES_MIN
from frontend.ports import public_config
from frontend.server import BoundedHttpProtocol
from frontend.services import FrontendServices
from frontend.tls.port import TlsPort

Headers = list[tuple[bytes, bytes]]


class ExpressConfig(uvicorn.Config):
    """Made by `express_config`; here so that connections find the lane."""

    hot: HotRequests
    origins: ProxyOrigins | None = None  # None: no proxy is trusted


def express_config(
    services: FrontendServices, host: str, port: int, trusted_proxies: str = "", tls: TlsPort | None = None
) -> ExpressConfig:
    """The public endpoint, with the lane; over TLS where there is `tls`."""
    config = public_config(ExpressConfig, build_application(services), host, port, trusted_proxies)
    config.http = ExpressProtocol if tls is None else cast(Any, tls.over(ExpressProtocol))
    config.hot = HotRequests(services)
    if trusted_proxies:
        config.origins = ProxyOrigins(trusted_proxies)
    return config


class ExpressProtocol(BoundedHttpProtocol):
    """A connection of the public endpoint.

    _answering   what answers the request whose body is arriving; None: it is not the lane's
    _call        the call under way
    """

    def __init__(self, config: ExpressConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._find_hot = config.hot.find
        self._origins = config.origins
        self._answering: AnswerRequest | None = None
        self._named: dict[bytes, bytes] = {}  # its headers by their names
        self._chunks: list[bytes] = []
        self._call: ExpressCall | None = None
        self._calls: set[Any] = self.tasks  # a stopping server waits for those, whatever they are
        self._idle_since_s = 0.0  # since the lane's last answer; 0 = not idle, or uvicorn's timer runs
        self._default_headers: Headers = []
        self._status_line = b""  # of 200, with the default headers

    # --- what arrives ---

    def data_received(self, data: bytes) -> None:
        self._idle_since_s = 0.0
        BoundedHttpProtocol.data_received(self, data)
        if self._answering is not None:
            self._replay()

    def _idle_since(self) -> float:
        return self._idle_since_s or super()._idle_since()

    def _running_awaits(self) -> bool:
        return self._call is not None or super()._running_awaits()

    def _tell_half_closed(self) -> None:
        if self._call is not None:
            self._call.end_input()
        else:
            super()._tell_half_closed()

    def _note_stray(self) -> None:
        if not self._idle_since_s:  # else an answer was given within the same bytes
            super()._note_stray()

    def on_message_begin(self) -> None:
        self._idle_since_s = 0.0  # an answer to an earlier request of the same bytes has set it
        self.url = b""
        self.headers = []
        self._note_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            parser = self.parser
            if parser.get_method() == b"POST" and parser.get_http_version() == "1.1":
                self._named = dict(self.headers)
                self._answering = self._find_hot(self.url, self._named)
                if self._answering is not None:
                    self._in_header = False
                    return
        self._replay()

    def on_body(self, body: bytes) -> None:
        if self._answering is not None:
            self._chunks.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        answering = self._answering
        if answering is None:
            super().on_message_complete()
            return
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        call = ExpressCall(self, self.parser.should_keep_alive())
        if self._origins is None:
            client = self.client
            host, scheme = client[0] if client else "", str(self.scheme)
        else:
            host, scheme = self._origins.find(self.client, str(self.scheme), self.headers)
        request = Request("POST", self.url, b"", scheme, host, self.headers, call.receive, body, self._named)
        if len(body) >= BODY_COUNTED_BYTES_MIN:
            if not request.has_room():
                self._replay()  # there it can wait
                super().on_message_complete()
                return
            call.held = request
        self._answering = None
        self._began_s = 0.0
        chunks.clear()
        self._call = call
        self.cycle: Any = call
        call.begin(answering(request))
        if not call.response_complete:
            self._calls.add(call)

    def _replay(self) -> None:
        """The request takes the unmodified path: uvicorn's class hears of it from its beginning."""
        headers, self.headers = self.headers, []
        url = self.url
        HttpToolsProtocol.on_message_begin(self)
        self.url = url
        for name, value in headers:
            HttpToolsProtocol.on_header(self, name, value)
        super().on_headers_complete()
        if self._answering is not None:
            self._answering = None
            chunks, self._chunks = self._chunks, []
            for chunk in chunks:
                super().on_body(chunk)

    # --- what is answered ---

    def wait_writable(self) -> asyncio.Future[None]:
        return self.loop.create_task(self.flow.drain())

    def finish(self, call: ExpressCall, answer: HttpResponse | None) -> None:
        self._call = None
        if call.held is not None:
            call.held.give_back()
        self._calls.discard(call)
        self.server_state.total_requests += 1
        transport = self.transport
        if answer is not None and not transport.is_closing():
            transport.write_answer(self._written(answer, call.keep_alive))
            if not call.keep_alive:
                transport.close()
        if transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._is_last_waiting:
            self._take_last()
        else:
            self._idle_since_s = self.loop.time()

    def _written(self, answer: HttpResponse, keep_alive: bool) -> bytes:
        """Values of headers are our own words, and never a caller's: nothing in them can end a line."""
        status, headers, body = answer.status, answer.headers, answer.body
        defaults = self.server_state.default_headers
        if defaults is not self._default_headers:  # each second
            self._default_headers = defaults
            self._status_line = STATUS_LINE[200] + _lines(defaults)
        start = self._status_line if status == 200 else STATUS_LINE[status] + _lines(defaults)
        if not keep_alive:
            start += b"connection: close\r\n"
        if len(headers) == 2:  # as nearly all have
            (name, value), (other_name, other_value) = headers
            return b"%b%b: %b\r\n%b: %b\r\ncontent-length: %d\r\n\r\n%b" % (
                start, name, value, other_name, other_value, len(body), body
            )  # fmt: skip
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (start, _lines(headers), len(body), body)

    # --- the end ---

    def connection_lost(self, exc: Exception | None) -> None:
        call = self._call
        super().connection_lost(exc)
        if call is not None:
            call.set()

    def _look(self) -> None:
        """One timer for the whole connection, not one for each answer."""
        idle_since_s = self._idle_since_s
        if idle_since_s and self.loop.time() - idle_since_s >= self.timeout_keep_alive:
            self.transport.close()
            return
        super()._look()


def _lines(headers: Any) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class ProxyOrigins:
    """Where a hot request comes from: the peer of its connection; behind a trusted proxy, what that one says.

    uvicorn's own reading of X-Forwarded-*, so that both ways believe the same proxies.
    """

    def __init__(self, trusted_proxies: str) -> None:
        self._middleware = ProxyHeadersMiddleware(_nothing, trusted_proxies)

    def find(self, client: tuple[str, int] | None, scheme: str, headers: Headers) -> tuple[str, str]:
        """(address of the client, scheme)."""
        scope: Any = {"type": "http", "client": client, "scheme": scheme, "headers": headers}
        reading = self._middleware(scope, _nothing, _nothing)
        try:
            reading.send(None)
        except StopIteration:
            return scope["client"][0] if scope["client"] else "", scope["scheme"]
        raise AssertionError("the middleware waits for nothing")


async def _nothing(*_: Any) -> Any:
    """An application that is called for what was done to its scope."""
