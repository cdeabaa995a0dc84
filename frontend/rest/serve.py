"""The way in of the REST data API, and of everything that the control plane answers."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
import structlog

from frontend.authn.principal import Principal
from frontend.errors import MethodNotAllowed, RequestError, invalid, throttled, unavailable
from frontend.http import Disconnected, HttpResponse, Request, Send, answer, network_of
from frontend.limits import PATH_BYTES_MAX, QUERY_BYTES_MAX, QUEUE_NAME_CHARS_MAX, REFUSED_CHARS_SHOWN_MAX
from frontend.messages.admission import count_failure, pay_unpaid, throttle_account
from frontend.metadata.interface import MetadataUnavailable
from frontend.parameters import shortened
from frontend.queues.names import Address, check_queue_name
from frontend.rest.away_page import away_page, wants_page
from frontend.rest.call import RestCall, Route
from frontend.rest.counts import COUNTS_PATH, COUNTS_ROUTE
from frontend.rest.media import JSON, MSGPACK, MediaForm, form_of_answer, form_of_body
from frontend.rest.message_browser import BROWSER_ROUTES
from frontend.rest.messages import ROUTES
from frontend.rest.parked import PARKED_ROUTES
from frontend.rest.problems import problem_of, rate_headers
from frontend.rest.scheduled import SCHEDULED_ROUTES
from frontend.strict_json import RepeatedMember, TooManyValues, check_members, check_values
from frontend.strict_msgpack import MsgpackRefused, check_msgpack

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_ROUTES = ROUTES | BROWSER_ROUTES
_MESSAGES = re.compile(
    rb"/v1/queues/([A-Za-z0-9_-]{1,%d}(?:\.fifo)?)/messages(?:/(%b))?"
    % (QUEUE_NAME_CHARS_MAX, b"|".join(name for name in _ROUTES if name))
)
# A queue of another account, whose policy opens it. What that cannot open has no such path.
_OF_ACCOUNT = re.compile(
    rb"/v1/accounts/([0-9]{12})/queues/([A-Za-z0-9_-]{1,%d}(?:\.fifo)?)/messages(?:/(%b))?"
    % (QUEUE_NAME_CHARS_MAX, b"|".join(name for name in ROUTES if name))
)
_PARKED = re.compile(
    rb"/v1/queues/([A-Za-z0-9_-]{1,%d}(?:\.fifo)?)/parked-groups(?:/(release))?" % QUEUE_NAME_CHARS_MAX
)
_SCHEDULED = re.compile(
    rb"/v1/queues/([A-Za-z0-9_-]{1,%d}(?:\.fifo)?)/scheduled(?:/(cancel|reschedule))?" % QUEUE_NAME_CHARS_MAX
)
_MANAGEMENT = b"/v1/"
_PASS_ON = "pass_on"
# Pages sign people in by themselves; what they may see is for the control plane to say.
_PAGES = (b"/console", b"/static/", b"/favicon.ico")
_OPEN = frozenset((b"/v1/openapi.json", b"/v1/docs"))
# Who calls these shows a session, or has none yet.
_PEOPLE = re.compile(rb"/v1/(?:people|sessions?|accounts|invitations)(?:/|$)")
_QUEUES = b"/v1/queues"
_QUEUE_PATH = re.compile(rb"/v1/queues/([A-Za-z0-9_.-]{1,%d})(?:/pause|/resume)?" % QUEUE_NAME_CHARS_MAX)


class _Named(msgspec.Struct):
    """Of the body that makes a queue."""

    name: str


_decode_named = msgspec.json.Decoder(_Named).decode
# A path that another parser might read as a different one is not passed on.
_AMBIGUOUS = re.compile(rb"\.\.|//|\\|%2[ef]|%5c|%00|[\x00-\x20\x7f-\xff]", re.IGNORECASE)

_log = structlog.get_logger("frontend.rest")


async def serve_rest(services: FrontendServices, request: Request, send: Send) -> None:
    """Answer one request whose path is not of the SQS wire. Never raises for anything a caller can do."""
    if find_route(request.path) is None:
        await _serve_control(services, request, send)
        return
    said = await answer_rest(services, request)
    if said is not None:
        await answer(send, said.status, said.headers, said.body)


def find_route(path: bytes) -> tuple[Route, str, str] | None:
    """What answers at this path, the account it names ("": the caller's), and the queue; None: at most the control
    plane."""
    for pattern, routes in ((_MESSAGES, _ROUTES), (_SCHEDULED, SCHEDULED_ROUTES), (_PARKED, PARKED_ROUTES)):
        match = pattern.fullmatch(path)
        if match is not None:
            return routes[match[2]], "", match[1].decode()
    match = _OF_ACCOUNT.fullmatch(path)
    if match is not None:
        return ROUTES[match[3]], match[1].decode(), match[2].decode()
    return (COUNTS_ROUTE, "", "") if path == COUNTS_PATH else None


async def answer_rest(services: FrontendServices, request: Request) -> HttpResponse | None:
    """The answer to a request that has a route; None: the client has left. Never raises for anything a caller can
    do."""
    started_s = time.perf_counter()
    found = find_route(request.path)
    assert found is not None
    route, account_id, queue_name = found
    outcome = "ok"
    said: HttpResponse | None = None
    try:
        request.read_headers()
        said = await _answer_route(services, request, route, account_id, queue_name)
    except Disconnected:
        outcome = "disconnected"
    except Exception as error:
        refused = _refusal_of(request, route.action, error)
        outcome = refused.code
        said = problem_of(request, refused)
    services.meters.observe("rest", route.action, outcome, time.perf_counter() - started_s)
    return said


async def _answer_route(
    services: FrontendServices, request: Request, route: Route, account_id: str, queue_name: str
) -> HttpResponse:
    if request.method != route.method:
        raise MethodNotAllowed(route.method)
    await request.read_body()
    caller = await services.authenticator.authenticate(request)
    if request.query and route.method == "POST":
        _refuse_parameters(request.query)
    payments, address = services.quotas.payments, Address(account_id or caller.account_id, queue_name)
    try:
        form = form_of_body(request.headers)
        said = JSON if route.decode_msgpack is None else form_of_answer(request.headers, form)
        call = RestCall(services, request, caller, address, said.encode)
        body = await route.run(call, _decode(route, request, form))
    except Disconnected:
        raise
    except Exception as error:
        failure = pay_unpaid(services, caller, address, error, payments)
        count_failure(services, caller, address, failure)
        if failure is error:
            raise
        raise failure from None
    headers = (
        (b"content-type", said.content_type),
        (b"x-request-id", request.request_id.encode()),
        (b"cache-control", b"no-store"),
        *rate_headers(services.quotas.standing(caller.account_id, services.steady_s())),
    )
    return HttpResponse(200, headers, body)


def _refuse_parameters(query: bytes) -> None:
    """What a call does stands in its body. A parameter that nobody reads is refused: its caller takes it for one that
    counts. Those of a signature are the authenticator's. Raises RequestError."""
    pairs = b"&".join(filter(None, query.split(b"&")))
    try:
        given = parse_qsl(pairs.decode("ascii"), keep_blank_values=True, strict_parsing=True) if pairs else []
    except (UnicodeDecodeError, ValueError):
        raise invalid("The query of the request does not parse.") from None
    for name, _ in given:
        if not name.lower().startswith("x-amz-"):
            raise invalid(f"There is no parameter {shortened(name)!r}: what is asked for stands in the body.")


async def _serve_control(services: FrontendServices, request: Request, send: Send) -> None:
    started_s = time.perf_counter()
    outcome = "ok"
    began = _Began(send)
    try:
        request.read_headers()
        await _pass_on(services, request, began)
    except Disconnected:
        outcome = "disconnected"
    except Exception as error:
        refused = _refusal_of(request, _PASS_ON, error)
        outcome = refused.code
        await began.refuse(request, refused)
    services.meters.observe("rest", _PASS_ON, outcome, time.perf_counter() - started_s)


def _refusal_of(request: Request, action: str, error: Exception) -> RequestError:
    """What a caller is told of an error."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, MetadataUnavailable):
        return unavailable("The service is not available. Try again.", error.retry_after_s)
    _log.error("request_failed", request_id=request.request_id, action=action, exc_info=error)
    return RequestError("InternalFailure", "The request could not be completed.")


def _decode(route: Route, request: Request, form: MediaForm) -> Any:
    body = request.body
    if form is MSGPACK and route.decode_msgpack is None:
        raise RequestError("UnsupportedMediaType", "The Content-Type must be application/json.")
    try:
        if form is MSGPACK and route.decode_msgpack is not None and body:
            check_msgpack(body)
            return route.decode_msgpack(body)
        body = body or b"{}"
        check_values(body)
        asked = route.decode(body)
        check_members(body)
    except msgspec.ValidationError as error:
        reason = str(error)[:REFUSED_CHARS_SHOWN_MAX]
        raise RequestError("SerializationException", f"A member is not known or has the wrong type: {reason}") from None
    except RepeatedMember as error:
        name = shortened(error.name)
        raise RequestError("SerializationException", f"The body of the request names {name!r} twice.") from None
    except TooManyValues as error:
        raise RequestError("SerializationException", f"The body of the request is not taken: {error}.") from None
    except MsgpackRefused as error:
        raise RequestError("SerializationException", f"The body of the request is no right msgpack: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        name = "msgpack" if form is MSGPACK else "JSON"
        raise RequestError("SerializationException", f"The body of the request is not valid {name}.") from None
    return asked


async def _pass_on(services: FrontendServices, request: Request, send: Send) -> None:
    path = request.path
    managed = path.startswith(_MANAGEMENT)
    if not (managed or path.startswith(_PAGES)) or _AMBIGUOUS.search(path):
        raise RequestError("NotFound", "There is nothing at this path.")
    if len(path) > PATH_BYTES_MAX or len(request.query) > QUERY_BYTES_MAX:
        raise RequestError("TargetTooLong", f"A path has at most {PATH_BYTES_MAX} bytes, a query {QUERY_BYTES_MAX}.")
    await request.read_body()
    principal: Principal | None = None
    if not managed or path in _OPEN or _PEOPLE.match(path):
        # A session is the control plane's to look at.
        _throttle_address(services, request)
    else:
        principal = await services.authenticator.authenticate(request)
        throttle_account(services, principal)
    queue = None if principal is None else changed_queue(request, principal.account_id)
    answering = send if queue is None else _after_refresh(services, queue, send)
    left = None if principal is None else services.quotas.standing(principal.account_id, services.steady_s())
    # The audit trail names a change by the id of its request.
    more = ((b"x-request-id", request.request_id.encode()), *rate_headers(left))
    await services.control.pass_on(request, principal, answering, not managed, more)


def _throttle_address(services: FrontendServices, request: Request) -> None:
    """The caller is not known: its address pays."""
    wait_s = services.addresses.admit(network_of(request.client_host), services.steady_s())
    if wait_s:
        services.meters.count("requests_throttled")
        raise throttled(wait_s)


def changed_queue(request: Request, account_id: str) -> Address | None:
    """The queue that a management call makes, changes or deletes; None where it is none."""
    if request.method == "POST" and request.path == _QUEUES:
        try:
            return Address(account_id, check_queue_name(_decode_named(request.body).name))
        except (RequestError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    found = _QUEUE_PATH.fullmatch(request.path)
    return None if found is None or request.method == "GET" else Address(account_id, found[1].decode())


def _after_refresh(services: FrontendServices, queue: Address, send: Send) -> Send:
    """`send` that looks at the queue first: what was done to it is seen here in the next instant, without waiting for
    the change feed."""

    async def looking_first(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] < 300:
            with suppress(MetadataUnavailable):
                await services.metadata.refresh_queue(queue.account_id, queue.name)
        await send(message)

    return looking_first


class _Began:
    """`send` that knows whether an answer has begun: a second one must never follow the first."""

    __slots__ = ("_send", "_started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False

    async def __call__(self, message: Any) -> None:
        self._started = True
        await self._send(message)

    async def refuse(self, request: Request, error: RequestError) -> None:
        """Say no; or, where something was said already, break off so that the client sees the answer is not whole."""
        if self._started:
            raise AnswerBrokenOff(error.code)
        said = away_page(request, error) if wants_page(request, error) else problem_of(request, error)
        await answer(self._send, said.status, said.headers, said.body)


class AnswerBrokenOff(Exception):
    """An answer that was being passed on ended early: the server closes the connection."""
