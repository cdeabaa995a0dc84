"""A place (`call_places.py`) for each call that comes over ASGI: of the API, of a page, a management action of SQS.
What front ends tell by themselves is no such call, nor is a file that pages are made of.

Who calls is taken from the principal header as it stands. It is proven later, by the view; before that it only says
whose share a call counts for, on a port to which processes of the installation alone talk. A call without a principal
counts for its address.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from api import limits
from api.call_places import CallPlaces, NoPlace
from api.people.origin import SOURCE_HEADER
from api.problems import CONTENT_TYPE, problem
from frontend.authn.vouching import PRINCIPAL_HEADER, unproven_holder
from frontend.http import Application, Receive, Scope, Send, answer, network_of

_PRINCIPAL = PRINCIPAL_HEADER.lower().encode()
_SOURCE = SOURCE_HEADER.lower().encode()
_SQS, _PAGES = "/internal/sqs/", "/console/"
# Told by front ends, few and short; asked by operators; files.
_WITHOUT_PLACE = ("/internal/", "/healthz", "/metrics", "/static/")
_SHARE_TEXT = "Too many management calls of one holder are under way."
_FULL_TEXT = "Too many management calls are under way."


class AskedCall(NamedTuple):
    """`holder`: whose share it counts for."""

    holder: str
    is_definitions: bool


def asked_call(scope: Scope) -> AskedCall | None:
    """None: it needs no place."""
    path: str = scope["path"]
    if path.startswith(_WITHOUT_PLACE) and not path.startswith(_SQS):
        return None
    holder = unproven_holder(_header(scope, _PRINCIPAL)) or network_of(_source(scope))
    return AskedCall(holder, scope["method"] == "POST" and _is_definitions(path))


def sharing_places(application: Application, places: CallPlaces) -> Application:
    """`application`, with a place for each call."""

    async def shared(scope: Scope, receive: Receive, send: Send) -> None:
        call = asked_call(scope) if scope["type"] == "http" else None
        if call is None:
            await application(scope, receive, send)
            return
        try:
            async with places.place(*call) as place:
                with place.current():
                    await application(scope, receive, send)
        except NoPlace as refusal:
            await _refuse(scope, send, refusal.has_share)

    return shared


async def _refuse(scope: Scope, send: Send, has_share: bool) -> None:
    """As front ends refuse a holder that has its share, and what is full."""
    text = _SHARE_TEXT if has_share else _FULL_TEXT
    status, retry_after = (429 if has_share else 503), (b"retry-after", b"%d" % limits.CALL_RETRY_AFTER_S)
    path: str = scope["path"]
    if path.startswith(_PAGES):
        content_type, body = b"text/plain", text.encode() + b"\n"
    elif path.startswith(_SQS):
        code = "RequestThrottled" if has_share else "ServiceUnavailable"
        content_type, body = b"application/json", msgspec.json.encode({"code": code, "message": text})
    else:
        code = "request-throttled" if has_share else "service-unavailable"
        request_id = {"request_id": given.decode("latin-1")} if (given := _header(scope, b"x-request-id")) else {}
        content_type = CONTENT_TYPE.encode()
        body = msgspec.json.encode({**problem(status, code, text).data, **request_id})
    await answer(send, status, ((b"content-type", content_type), retry_after), body)


def _is_definitions(path: str) -> bool:
    return path.startswith("/v1/definitions/") or (path.startswith(_PAGES) and path.endswith("/definitions"))


def _source(scope: Scope) -> str:
    vouched = _header(scope, _SOURCE).partition(b" ")[0].decode("latin-1")
    return vouched or str((scope.get("client") or ("",))[0])


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope["headers"] if name == wanted), b"")
