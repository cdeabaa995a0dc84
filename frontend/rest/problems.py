"""Refusals as RFC 9457 problem details."""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from frontend.errors import MethodNotAllowed, RequestError
from frontend.http import CLOSE_CONNECTION, Answer, Request, Send, new_request_id
from frontend.rest.words import in_members

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_encode = msgspec.json.Encoder().encode


def problem_code(error: RequestError) -> str:
    """`QueueDoesNotExist` -> `queue-does-not-exist`: the last part of the problem's type."""
    return _CAPITAL.sub("-", error.code.removesuffix("Exception")).lower()


def problem_of(request: Request, error: RequestError) -> Answer:
    headers, body = _problem(request.request_id, error)
    if request.is_unread:
        headers.append(CLOSE_CONNECTION)
    return Answer(error.kind.rest_status, headers, body)


async def refuse_upgrade(send: Send, error: RequestError) -> None:
    """The answer to a websocket that is not taken."""
    headers, body = _problem(new_request_id(), error)
    status = error.kind.rest_status
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def _problem(request_id: str, error: RequestError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body."""
    status = error.kind.rest_status
    code = problem_code(error)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="penstock"'))
    body = {
        "type": f"urn:penstock:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": in_members(error.message),
        "code": code,
        "request_id": request_id,
    }
    return headers, _encode(body)
