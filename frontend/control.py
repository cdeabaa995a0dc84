"""Calls to the control plane: SQS management actions, and paths that are passed on as they are.

Every call vouches for its caller with a principal header and a MAC over the request. What a client sends under these
names is stripped: only this process may say who is asking. Behind a bulkhead and a watch (`control_watch.py`), so that
a control plane that is slow or cannot work costs the message path nothing, and its own callers no long wait. Responses
are streamed through; nothing of an upstream failure is shown.
"""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2
import msgspec

from frontend.authn.principal import Principal, service
from frontend.authn.vouching import vouch
from frontend.control_watch import ControlWatch
from frontend.errors import KINDS, MethodNotAllowed, RequestError, invalid, unavailable
from frontend.http import Request, Send, network_of, new_request_id
from frontend.limits import (
    CONTROL_ANSWER_BYTES_MAX,
    CONTROL_CALLS_IN_FLIGHT_MAX,
    CONTROL_CONNECT_S,
    CONTROL_KEEP_ALIVE_S,
    CONTROL_OPEN_CALLS_MAX,
    CONTROL_STREAMS_MAX,
    CONTROL_TIMEOUT_S,
    RETRY_AFTER_S,
)
from frontend.readiness import Trouble
from frontend.routing.bulkhead import Bulkhead, Place

SOURCE_HEADER, SOURCE_MAC_HEADER = b"x-penstock-source", b"x-penstock-source-mac"
# Who acts where no key does.
_FRONT_END = service("front-end")

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
    )
)
# Credentials are checked here and go no further; what says where a request came from is said by us alone.
_STRIPPED = frozenset((b"authorization", b"forwarded", b"x-real-ip", b"x-request-id", b"expect"))
_STRIPPED_PREFIXES = (b"x-penstock-", b"x-forwarded-", b"x-amz-")
# White space around a value is no part of it (RFC 9110, 5.5), and the client of the control plane sends none.
_BLANK = b" \t"
_NOT_RETURNED = _HOP_BY_HOP | {b"server", b"date"}


class _Problem(msgspec.Struct):
    """`message` is of an action, `detail` of what is refused before one is found."""

    code: str = ""
    message: str = ""
    detail: str = ""


_decode_problem = msgspec.json.Decoder(_Problem).decode
_decode_result = msgspec.json.Decoder(dict[str, Any]).decode


class ControlPlane:
    """The client of one control plane address."""

    def __init__(
        self,
        address: str,
        internal_key: bytes,
        now_s: Callable[[], float] = time.time,
        transport: httpx2.AsyncBaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # How many calls at once an account's quota lets it have; set by those who know quotas.
        self._calls_max_of: Callable[[Principal], int] = lambda _: CONTROL_CALLS_IN_FLIGHT_MAX
        self._internal_key = internal_key
        self._now_s = now_s
        self._calls = Bulkhead("control plane", CONTROL_CALLS_IN_FLIGHT_MAX)
        # Calls without a key, which anybody can make.
        self._open_calls = Bulkhead("control plane, calls without a key", CONTROL_OPEN_CALLS_MAX)
        self._streams = Bulkhead("control plane stream", CONTROL_STREAMS_MAX)
        connections_max = CONTROL_CALLS_IN_FLIGHT_MAX + CONTROL_STREAMS_MAX + 1  # one for the watch
        self._http = httpx2.AsyncClient(
            base_url=f"http://{address}" if tls is None else f"https://{address}",
            transport=transport,
            verify=True if tls is None else tls,
            timeout=httpx2.Timeout(CONTROL_TIMEOUT_S, connect=CONTROL_CONNECT_S),
            limits=httpx2.Limits(
                max_connections=connections_max,
                max_keepalive_connections=32,
                keepalive_expiry=CONTROL_KEEP_ALIVE_S,
            ),
            follow_redirects=False,
            trust_env=False,
            # Cookies are between a visitor and the pages. A jar here would send those of one visitor with the requests
            # of the next.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )
        for name in ("accept", "accept-encoding", "user-agent"):
            # What a client does not say is not said for it: it would get gzip, and show as a browser of this name.
            del self._http.headers[name]
        self._watch = ControlWatch(self._http)

    def limit_calls(self, calls_max_of: Callable[[Principal], int]) -> None:
        self._calls_max_of = calls_max_of

    def troubles(self) -> list[Trouble]:
        return self._watch.troubles()

    async def close(self) -> None:
        await self._watch.close()
        await self._http.aclose()

    async def sqs(
        self, action: str, principal: Principal, request_id: str, params: dict[str, object]
    ) -> dict[str, Any]:
        """The result of a management action. Raises RequestError: the control plane's own, or 503."""
        body = msgspec.json.encode({"account_id": principal.account_id, "name": principal.name, "params": params})
        return await self._ask(f"/internal/sqs/{action}", principal, request_id, body)

    async def note_action(self, principal: Principal, request_id: str, entry: dict[str, object]) -> None:
        """Writes an action of the message browser to the audit trail. Raises RequestError where that cannot be done."""
        await self._ask("/internal/audit", principal, request_id, msgspec.json.encode(entry))

    async def note_quota(self, account_id: str, name: str, level: str, percent: int, subject: str) -> None:
        """Tells that an account, or one queue or key of it, came near a quota, or over it. Raises RequestError."""
        told = msgspec.json.encode({"name": name, "level": level, "percent": percent, "subject": subject})
        await self._ask("/internal/quotas", service(_FRONT_END.name, account_id), new_request_id(), told)

    async def note_key_uses(self, request_id: str, uses: dict[str, int]) -> None:
        """Unix milliseconds by access key. Said by this process, for no account. Raises RequestError."""
        await self._ask("/internal/keys/used", _FRONT_END, request_id, msgspec.json.encode({"uses": uses}))

    async def note_encryption_key_uses(self, request_id: str, uses: Mapping[str, tuple[int, int]]) -> None:
        """Messages sealed and opened by key id, since this was said last. Said by this process, for no account. Raises
        RequestError."""
        told = msgspec.json.encode({"uses": uses})
        await self._ask("/internal/encryption-keys/used", _FRONT_END, request_id, told)

    async def open_tail(self, request_id: str, source_ip: str, claim: Mapping[str, object]) -> dict[str, Any]:
        """The account, person and session of a ticket that is used up by this. Who shows one is not known before: the
        call counts for the address. Raises RequestError."""
        place = self._open_calls.place(network_of(source_ip))
        told = msgspec.json.encode(claim)
        return await self._ask("/internal/tails/open", _FRONT_END, request_id, told, place)

    async def confirm_tails(self, request_id: str, claims: Sequence[Mapping[str, object]]) -> list[str]:
        """Of each tail why it must end, "" where it goes on. Raises RequestError."""
        told = msgspec.json.encode({"tails": claims})
        answer = await self._ask("/internal/tails/confirm", _FRONT_END, request_id, told)
        ends: list[str] = answer["ends"]
        return ends

    async def note_data_key_uses(self, request_id: str, uses: Sequence[tuple[str, int, int]]) -> None:
        """Queue, version and messages sealed since this was said last. Said by this process, for no account. Raises
        RequestError."""
        await self._ask("/internal/data-keys/used", _FRONT_END, request_id, msgspec.json.encode({"uses": uses}))

    async def note_refused_calls(self, request_id: str, calls: Sequence[tuple[str | int, ...]]) -> None:
        """Account, key, action, resource, source and count of each kind. Said by this process, for no account. Raises
        RequestError."""
        await self._ask("/internal/refused-calls", _FRONT_END, request_id, msgspec.json.encode({"calls": calls}))

    async def _ask(
        self, path: str, principal: Principal, request_id: str, body: bytes, place: Place | None = None
    ) -> dict[str, Any]:
        headers = self._vouch("POST", path.encode(), principal, request_id, body)
        headers.append((b"content-type", b"application/json"))
        with self._watch, self._place_of(principal) if place is None else place:
            response = await self._send(self._http.build_request("POST", path, headers=headers, content=body))
            try:
                content = await self._watch.unless_away(response.aread())
            except httpx2.HTTPError:
                raise unavailable("The control plane does not answer.") from None
            finally:
                await response.aclose()
        if response.status_code == 200:
            return _decode_result(content)
        raise _error_of(response.status_code, content)

    async def pass_on(
        self,
        request: Request,
        principal: Principal | None,
        send: Send,
        with_pages: bool,
        more_headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> int:
        """Answer `request` with what the control plane answers, and `more_headers`; returns the status. RequestError:
        nothing was sent. Without pages a refusal that is no problem, from below its views, becomes one."""
        target = request.path + (b"?" + request.query if request.query else b"")
        headers = [(name, value.strip(_BLANK)) for name, value in request.headers.items() if _is_passed_on(name)]
        headers += (
            (b"x-forwarded-proto", request.scheme.encode()),
            (b"x-forwarded-host", request.host.encode()),
            (b"x-request-id", request.request_id.encode()),
        )
        headers += self._vouch_source(request.method, target, request.client_host)
        if principal is not None:
            headers += self._vouch(request.method, target, principal, request.request_id, request.body)
        url = self._http.base_url.copy_with(raw_path=target)
        with self._open_place(request) if principal is None else self._place_of(principal):
            # Byte for byte what was looked at and is in the MAC: a URL would be normalised ("/./", "{").
            exact = {"target": target}
            call = self._http.build_request(
                request.method, url, headers=headers, content=request.body, extensions=exact
            )
            response = await self._watched(call)
            answer = _Answer(response)
            await answer.take()
        if response.status_code >= 400 and not with_pages:
            try:
                _check_is_problem(response)
            except RequestError:
                await response.aclose()
                raise
        # A place is held while the control plane works, not while the client reads what it said.
        if answer.whole:
            return await answer.relay(send, more_headers)
        # A live stream, or an answer too large to be held, goes on as long as its client: a bulkhead of its own.
        try:
            holder = network_of(request.client_host) if principal is None else principal.account_id
            with self._streams.place(holder):
                return await answer.relay(send, more_headers)
        finally:
            await response.aclose()

    def _place_of(self, principal: Principal) -> Place:
        return self._calls.place(principal.account_id, self._calls_max_of(principal))

    def _open_place(self, request: Request) -> Place:
        return self._open_calls.place(network_of(request.client_host))

    async def _watched(self, call: httpx2.Request) -> httpx2.Response:
        with self._watch:
            return await self._send(call)

    async def _send(self, call: httpx2.Request) -> httpx2.Response:
        """Within the watch."""
        try:
            response = await self._watch.unless_away(self._http.send(call, stream=True))
        except httpx2.LocalProtocolError:
            # Nothing left: it says nothing of the control plane.
            raise invalid("The request has a header that cannot be passed on.") from None
        except httpx2.HTTPError:
            self._watch.suspect()
            raise unavailable("The control plane does not answer.") from None
        if response.status_code == 503:
            self._watch.suspect()
        return response

    def _vouch_source(self, method: str, target: bytes, client_host: str) -> list[tuple[bytes, bytes]]:
        """The address of the client: attempts to sign in are counted by it, and it stands in the audit trail."""
        if not client_host:
            return []
        source = f"{client_host} {int(self._now_s() * 1000)}".encode()
        text = b"\n".join((b"source", method.encode(), target, source))
        mac = hmac.digest(self._internal_key, text, "sha256").hex().encode()
        return [(SOURCE_HEADER, source), (SOURCE_MAC_HEADER, mac)]

    def _vouch(
        self, method: str, target: bytes, principal: Principal, request_id: str, body: bytes
    ) -> list[tuple[bytes, bytes]]:
        who, issued_ms = principal._replace(request_id=request_id), int(self._now_s() * 1000)
        vouched = vouch(self._internal_key, method, target, body, who, issued_ms)
        return [(name.lower().encode(), value.encode()) for name, value in vouched]


class _Answer:
    """An answer of the control plane on its way to the client."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._chunks = response.aiter_raw()
        self._taken = b""
        self.whole = False

    async def take(self) -> None:
        """Read it, up to CONTROL_ANSWER_BYTES_MAX; a live stream is left as it is. Raises RequestError (503)."""
        if self._response.headers.get("content-type", "").startswith("text/event-stream"):
            return
        taken, size = [], 0
        try:
            async for chunk in self._chunks:
                taken.append(chunk)
                size += len(chunk)
                if size > CONTROL_ANSWER_BYTES_MAX:
                    break
            else:
                self.whole = True
        except httpx2.HTTPError:
            raise unavailable("The control plane does not answer.") from None
        finally:
            if size <= CONTROL_ANSWER_BYTES_MAX:
                await self._response.aclose()
        self._taken = b"".join(taken)

    async def relay(self, send: Send, more_headers: Sequence[tuple[bytes, bytes]]) -> int:
        """What was taken, then the rest as it comes; returns the status."""
        raw = self._response.headers.raw
        headers = [(name.lower(), value) for name, value in raw if name.lower() not in _NOT_RETURNED]
        headers += more_headers
        length = self._response.headers.get("content-length")
        if length is not None:
            headers.append((b"content-length", length.encode()))
        await send({"type": "http.response.start", "status": self._response.status_code, "headers": headers})
        if not self.whole:
            if self._taken:
                await send({"type": "http.response.body", "body": self._taken, "more_body": True})
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._taken = b""
        await send({"type": "http.response.body", "body": self._taken})
        return self._response.status_code


def _is_passed_on(name: bytes) -> bool:
    return name not in _HOP_BY_HOP and name not in _STRIPPED and not name.startswith(_STRIPPED_PREFIXES)


def _check_is_problem(response: httpx2.Response) -> None:
    """Raises RequestError for a refusal in another form."""
    status = response.status_code
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        return
    if status == 405:
        raise MethodNotAllowed(response.headers.get("allow", ""))
    if status == 404:
        raise RequestError("NotFound", "There is nothing at this path.")
    if status >= 500:
        raise unavailable("The control plane cannot do this at the moment.")
    raise invalid("The request cannot be read.")


def _error_of(status: int, content: bytes) -> RequestError:
    try:
        problem = _decode_problem(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem()
    if 400 <= status < 500 and problem.code and problem.code not in KINDS:
        # Of a layer below its actions, like the size of a body: asking again does not help.
        return invalid(problem.message or problem.detail or "The request cannot be read.")
    if status >= 500 or problem.code not in KINDS or KINDS[problem.code].status >= 500:
        return unavailable("The control plane cannot do this at the moment.")
    retry_after_s = RETRY_AFTER_S if problem.code == "RequestThrottled" else None
    return RequestError(problem.code, problem.message, retry_after_s)
