"""Refusals as RFC 9457 problem details."""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from frontend.errors import RequestError
from frontend.http import Request, Send, answer

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_encode = msgspec.json.Encoder().encode


def problem_code(error: RequestError) -> str:
    """`QueueDoesNotExist` -> `queue-does-not-exist`: the last part of the problem's type."""
    return _CAPITAL.sub("-", error.code.removesuffix("Exception")).lower()


async def send_problem(request: Request, send: Send, error: RequestError) -> None:
    status = error.kind.rest_status
    code = problem_code(error)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"x-request-id", request.request_id.encode()),
        (b"cache-control", b"no-store"),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="penstock"'))
    body = {
        "type": f"urn:penstock:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": code,
        "request_id": request.request_id,
    }
    await answer(send, status, headers, _encode(body))
