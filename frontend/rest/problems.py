"""Refusals as RFC 9457 problem details, in the words of REST and push: what SQS calls a parameter is a member of the
body here. The rules of messages are shared by all wires, and their refusals name the parameters of SQS."""

from __future__ import annotations

import re

import msgspec

from frontend.errors import (
    BAD_BEARER_TOKEN,
    NOT_SIGNED,
    OTHER_SIGNATURE,
    UNKNOWN_KEY,
    MethodNotAllowed,
    RequestError,
    Throttled,
    WrongRegion,
    title_of,
)
from frontend.http import CLOSE_CONNECTION, HttpResponse, Request, Send, new_request_id
from frontend.limits import RATE_BURST_S
from frontend.limits.quota_tree import Standing

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_encode = msgspec.json.Encoder().encode
_MEMBERS = {
    "DelaySeconds": "delay_seconds",
    "MaxNumberOfMessages": "max_messages",
    "MessageAttributes": "attributes",
    "MessageBody": "body",
    "MessageDeduplicationId": "deduplication_id",
    "MessageGroupId": "group",
    "QueueName": "name",
    "ReceiptHandle": "receipt",
    "ReceiveRequestAttemptId": "attempt",
    "VisibilityTimeout": "visibility_seconds",
    "WaitTimeSeconds": "wait_seconds",
}
# What SQS says of credentials does not tell how they are given here. By its words, not by its codes: sockets refuse
# with the same codes, and say what they take.
_NOT_VALID = (
    "The access key is not valid: it does not exist, has ended, was revoked or is off, or its account is not active."
)
_CREDENTIALS = {
    NOT_SIGNED: (
        "The request names no access key: give its bearer token (Authorization: Bearer pstk_...), or sign with "
        "Signature Version 4. The Session-Token of a person is for people, sessions, accounts and invitations alone."
    ),
    UNKNOWN_KEY: _NOT_VALID,
    BAD_BEARER_TOKEN: _NOT_VALID,
    OTHER_SIGNATURE: "Authorization must be Bearer with the bearer token of a key, or Signature Version 4.",
}
# What stands in quotation marks was sent by the caller, and so was a value that is told with its parameter.
_PARAMETER = re.compile(rf"\"[^\"]*\"|'[^']*'|(?<![.\w])(?:{'|'.join(_MEMBERS)})\b")
_VALUE = re.compile(r"Value .* for parameter (?=\w+ is invalid\. Reason: )", re.DOTALL)


def problem_code(error: RequestError) -> str:
    """`QueueDoesNotExist` -> `queue-does-not-exist`: the last part of the problem's type."""
    return _CAPITAL.sub("-", error.code.removesuffix("Exception")).lower()


def problem_of(request: Request, error: RequestError) -> HttpResponse:
    headers, body = problem_parts(request.request_id, error)
    if request.is_unread:
        headers.append(CLOSE_CONNECTION)
    return HttpResponse(error.kind.rest_status, headers, body)


async def refuse_upgrade(send: Send, error: RequestError) -> None:
    """The answer to a websocket that is not taken."""
    headers, body = problem_parts(new_request_id(), error)
    status = error.kind.rest_status
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def rate_headers(standing: Standing | None) -> tuple[tuple[bytes, bytes], ...]:
    """How much of the account's requests is left: `RateLimit` and its policy (draft-ietf-httpapi-ratelimit-headers)."""
    if standing is None:
        return ()
    return (
        (b"ratelimit-policy", b'"requests_per_s";q=%d;w=%d' % (standing.limit, RATE_BURST_S)),
        (b"ratelimit", b'"requests_per_s";r=%d;t=%d' % (standing.remaining, -(-standing.full_in_s // 1))),
    )


def _throttled_headers(error: Throttled) -> tuple[tuple[bytes, bytes], ...]:
    quota, window_s = error.quota.encode(), RATE_BURST_S
    return (
        (b"ratelimit-policy", b'"%b";q=%d;w=%d' % (quota, max(1, error.limit_per_s * window_s), window_s)),
        (b"ratelimit", b'"%b";r=0;t=%d' % (quota, error.retry_after_s or 1)),
    )


def problem_parts(request_id: str, error: RequestError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of the answer."""
    status = error.kind.rest_status
    code = problem_code(error)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if isinstance(error, Throttled):
        headers += _throttled_headers(error)
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="penstock"'))
    body: dict[str, object] = {
        "type": f"urn:penstock:problem:{code}",
        "title": title_of(code),
        "status": status,
        "detail": _detail(error),
        "code": code,
        "request_id": request_id,
    }
    if isinstance(error, Throttled):
        body |= {"quota": error.quota, "limit_per_s": error.limit_per_s}
    return headers, _encode(body)


def _detail(error: RequestError) -> str:
    if isinstance(error, WrongRegion):
        return f"The request is signed for a region that is not served here. Sign it for {' or '.join(error.served)}."
    return _CREDENTIALS.get(error.message) or in_members(error.message)


def in_members(message: str) -> str:
    """The message of a request error, with the names of members."""
    told = _VALUE.match(message)
    start = told.end() if told else 0
    return message[:start] + _PARAMETER.sub(lambda found: _MEMBERS.get(found[0], found[0]), message[start:])
