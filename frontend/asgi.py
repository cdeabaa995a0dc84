"""The ASGI application: one router for both protocols, bare callables for HTTP, a Channels consumer for websockets.

GET /  of a browser                      to the console
POST /  and  /<12 digits>/<queue>        SQS
/v1/queues/<name>/messages...            REST data API
/v1/accounts/<id>/queues/<name>/...      messages, push and bulk, of a queue of another account
/v1/message-counts                       the same, of many queues
/v1/...  /console...  /static/...        passed on to the control plane
/healthz  /readyz  /version              operators
websocket /v1/queues/<name>/subscribe    push
websocket /v1/queues/<name>/bulk         many messages a frame, both ways
websocket /v1/queues/<name>/tail         the live tail of a page
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "frontend.settings")

from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import re_path

from frontend import VERSION
from frontend.errors import MethodNotAllowed, RequestError
from frontend.http import CLOSE_CONNECTION, Application, Receive, Request, Scope, Send, answer, request_of
from frontend.push.bulk_consumer import BulkConsumer
from frontend.push.consumer import SubscribeConsumer
from frontend.push.tail_consumer import TailConsumer
from frontend.push.tail_rights import TailRights
from frontend.readiness import readiness
from frontend.rest.problems import problem_of, refuse_upgrade
from frontend.rest.serve import serve_rest
from frontend.sqs.protocol import answer_sqs

if TYPE_CHECKING:
    from frontend.services import FrontendServices

_TEXT = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))
_TO_CONSOLE = ((b"location", b"/console/"), (b"cache-control", b"no-store"), (b"vary", b"accept"))
_JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
_SOCKET = r"^v1/queues/(?P<name>[A-Za-z0-9_-]{1,80}(?:\.fifo)?)/%s$"
# A queue of another account, whose policy opens it.
_OF_ACCOUNT = _SOCKET.replace("queues/", r"accounts/(?P<account_id>[0-9]{12})/queues/")
_TO_ANOTHER = ("subscribe", "bulk")


def build_application(services: FrontendServices) -> Application:
    wires = {
        "subscribe": SubscribeConsumer.as_asgi(services=services),
        "bulk": BulkConsumer.as_asgi(services=services),
        "tail": TailConsumer.as_asgi(services=services, rights=TailRights(services)),
    }
    own = [re_path(_SOCKET % name, wire) for name, wire in wires.items()]
    sockets = URLRouter([*own, *(re_path(_OF_ACCOUNT % name, wires[name]) for name in _TO_ANOTHER)])
    router: Application = ProtocolTypeRouter({"http": _http(services), "websocket": _closing_unrouted(sockets)})
    return router


def _http(services: FrontendServices) -> Application:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        request = request_of(scope, receive)
        try:
            path = request.path
            if path == b"/" and _is_a_browser(request):
                await answer(send, 302, _TO_CONSOLE, b"")
            elif path == b"/" or b"0" <= path[1:2] <= b"9":
                said = await answer_sqs(services, request)
                if said is not None:
                    await answer(send, said.status, said.headers, said.body)
            elif path in _OPERATORS:
                await _serve_operators(services, request, send)
            else:
                await serve_rest(services, request, send)
        finally:
            if request.held_bytes:
                request.give_back()

    return application


def _is_a_browser(request: Request) -> bool:
    """Did a person open the endpoint itself? No call of the query protocol is without parameters, nor asks for HTML."""
    if request.method not in ("GET", "HEAD") or request.query:
        return False
    return any(name == b"accept" and b"text/html" in value.lower() for name, value in request.raw_headers)


_OPERATORS = frozenset((b"/healthz", b"/readyz", b"/version"))


async def _serve_operators(services: FrontendServices, request: Request, send: Send) -> None:
    path = request.path
    if request.method not in ("GET", "HEAD"):
        said = problem_of(request, MethodNotAllowed("GET, HEAD"))
        # A body that it may have announced is not read.
        await answer(send, said.status, (*said.headers, CLOSE_CONNECTION), said.body)
    elif path == b"/version":
        await answer(send, 200, ((b"content-type", b"application/json"),), b'{"version":"%b"}' % VERSION.encode())
    elif path == b"/readyz":
        await services.look()
        # A stopping front end is taken out of use; all else that is missing is told, and costs no message.
        ready = readiness(services.metadata_serves() and not services.stopping.is_set(), services.troubles())
        await answer(send, ready.status, _JSON, ready.body)
    else:
        await answer(send, 200, _TEXT, b"ok\n")


def _closing_unrouted(sockets: Application) -> Application:
    """An unknown websocket path is refused before the upgrade."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await sockets(scope, receive, send)
        except ValueError as error:
            if "No route found" not in str(error):
                raise
            await refuse_upgrade(send, RequestError("NotFound", "There is nothing at this path."))

    return application
